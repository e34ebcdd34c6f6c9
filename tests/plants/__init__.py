"""Defects that tests, benchmarks and pages of evidence plant: in exports, runtimes, optimizers, conversions, PyTorch,
cases, case files and hosts. Nothing here is a test, and nothing here writes a page.

``plant`` says what a plant is; ``planting`` and ``edits`` say how it is put where it belongs; ``sound`` has the cases
that pass without it; ``planted`` runs the plants of a table in a worker. Each other module is a table.
"""
