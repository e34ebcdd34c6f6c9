"""Comparing runs: what got worse since a baseline, what of that is accepted, and runs that were made in parts.

``run_comparison`` compares two runs cell by cell and gives ``Change`` values (``change``), ``change_causes`` says
what else differs between them. ``baseline_file`` reads and writes the committed baseline, whose lines are made in
``line``; ``acceptance`` changes single lines of it. ``shards`` divides cells over jobs, ``merging`` joins what the
jobs leave. ``selection`` reads from a run's arguments what it was to run; ``summary`` is the text for a terminal.
"""
