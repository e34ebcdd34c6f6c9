"""Imported by the server that workers are forked from: what the first cell of each would import or find out."""

import conformance.cells.run_cell  # noqa: F401
from conformance.models.exporters import symbolics
from conformance.models.kept import packages
from conformance.process.errors import attempt

attempt(symbolics.snapshot)  # PyTorch imports most of its symbolics in the first export
attempt(packages.read)
