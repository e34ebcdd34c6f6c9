"""A runtime that is only asked for a second opinion has a limit for loading a model: it is left out first."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import expectations
from conformance.case.plan.settings import Settings
from conformance.judge.in_time import SECONDS
from conformance.runtimes import registry


class LoadLimit:
    """Says when to end a cell that has been loading for longer than ``most`` seconds."""

    def __init__(self, runtime: str, most: float) -> None:
        """``runtime`` is what sentences call it."""
        self._runtime, self._most = runtime, most
        self._began: float | None = None
        self.reason: str | None = None
        """The reason for which the cell was ended; None where it was not."""

    @classmethod
    def of(cls, cell: Cell, settings: Settings) -> LoadLimit | None:
        """Return that of a cell, which is its budget; None for what a run is about, and for what is declared to
        fail."""
        runtime = registry.named(cell.runtime) if cell.runtime in registry.RUNNING else None
        if runtime is None or not runtime.second_opinion or not runtime.absent or expectations(cell):
            return None
        return cls(runtime.title, SECONDS if settings.budget is None else settings.budget)

    def __call__(self, note: Mapping[str, object], seconds: float) -> str | None:
        """Return why the cell is to be ended, from the note of its worker and the seconds that it has taken."""
        if note.get("stage") != "load":
            self._began = None
        elif self._began is None:
            self._began = seconds
        elif seconds - self._began > self._most:
            self.reason = f"not loaded: {self._runtime} takes longer for it than the budget, {self._most:g} s"
        return self.reason
