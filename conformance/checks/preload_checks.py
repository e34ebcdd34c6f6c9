"""Imported by the server that workers are forked from: what the first cell of each would import or find out."""

import conformance.checks.run_cell  # noqa: F401
from conformance.depends import packages
from conformance.errors import attempt
from conformance.export import symbolics

attempt(symbolics.snapshot)  # PyTorch imports most of its symbolics in the first export
attempt(packages.read)
