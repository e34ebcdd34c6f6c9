"""The parts of a cell that its examples are verified with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.case.draw.draw import Maker
from conformance.case.plan.cell import Cell
from conformance.models.kept.answers import KeptAnswers
from conformance.models.reference.reference import Reference
from conformance.models.stages import Stages
from conformance.process.errors import Stopped
from conformance.results.records.record import Record


@dataclass(frozen=True)
class OfCell:
    """The parts of a cell that its examples are verified with."""

    cell: Cell
    record: Record
    stages: Stages
    reference: Reference
    maker: Maker
    names: Sequence[str] = ()
    """The names of the model's outputs, which tolerances may be given by."""
    expects: Callable[[Stopped], bool] = lambda stop: False
    """Returns True for a failure that the case declares of its cell."""
    kept: KeptAnswers = field(default_factory=KeptAnswers)
    """The answers of PyTorch that an earlier run kept."""
