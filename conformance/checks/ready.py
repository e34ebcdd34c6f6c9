"""Imported by the server that workers are forked from: what the first cell of each of them would import."""

import contextlib

import conformance.checks.run_cell  # noqa: F401
from conformance.export import symbolics

with contextlib.suppress(Exception):  # told by the first cell that meets it
    symbolics.snapshot()  # PyTorch imports most of its symbolics in the first export
