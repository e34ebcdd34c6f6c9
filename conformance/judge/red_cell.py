"""A failure of a cell that somebody can be asked about: what failed, by which example, and what checked it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from conformance.case.draw.example import Example
from conformance.judge.draws import Draws
from conformance.judge.verify import Verifier
from conformance.models.cell_run import CellRun
from conformance.models.kept.model_store import Stored
from conformance.process.errors import Stopped
from conformance.results.records.record_types import Size


@dataclass(frozen=True)
class CheckedCell:
    """A cell whose model is loaded, and what its examples are drawn and verified with."""

    run: CellRun
    verify: Verifier
    draws: Draws
    exported: Stored
    converted: Stored | None = None
    """The exported model at another precision."""

    @property
    def model(self) -> Stored:
        """The model that the runtime runs."""
        return self.converted or self.exported

    def is_declared(self, stop: Stopped) -> bool:
        """Return whether the case says that the whole cell fails like this."""
        return self.run.outcomes.is_declared(stop)


@dataclass(frozen=True)
class RedCell:
    """A verdict that a cell fails, before anybody is asked who is at fault."""

    of: CheckedCell
    stop: Stopped
    example: Example | None = None
    """One that fails; None where only all examples together do, as where they prove nothing."""
    sizes: Sequence[Size] = ()
    """Of an ill-conditioned example: how the examples of each size came out."""
    vacuous: Collection[int] = ()
    """Of outputs that prove nothing: all of them."""


@dataclass(frozen=True)
class RedExport:
    """An export that failed, or a model that the checker refuses, before anybody is asked about it."""

    run: CellRun
    stop: Stopped
