"""Imported by the server that workers are forked from: what the first cell of each would import or find out."""

import contextlib

import conformance.checks.run_cell  # noqa: F401
from conformance.depends import packages
from conformance.export import symbolics

with contextlib.suppress(Exception):  # told by the first cell that meets it
    symbolics.snapshot()  # PyTorch imports most of its symbolics in the first export
with contextlib.suppress(Exception):  # installations that cannot be read: each cell that asks is told so
    packages.read()
