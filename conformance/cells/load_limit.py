"""A runtime that is only asked too has a limit for loading or building a model: it is left out first."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import expectations
from conformance.case.plan.settings import Settings
from conformance.runtimes import registry

SECONDS = 20.0
"""Seconds by the clock for loading or building, unless ``--budget`` says otherwise."""


class LoadLimit:
    """Says when to end a cell that has been loading for longer than ``most`` seconds.

    It ends from outside what a builder does without looking up: for 2,000 nodes TensorRT for RTX 1.7 makes 2,058
    steps, at each of which it can be asked to stop, and the last of them take seconds each.
    """

    def __init__(self, what: str, most: float) -> None:
        """``what`` begins the sentence, such as ``not built: TensorRT``."""
        self._what, self._most = what, most
        self._began: float | None = None
        self.reason: str | None = None
        """The reason for which the cell was ended; None where it was not."""

    @classmethod
    def of(cls, cell: Cell, settings: Settings) -> LoadLimit | None:
        """Return that of a cell; None for what a run is about, and for what is declared to fail."""
        runtime = registry.named(cell.runtime) if cell.runtime else None
        if runtime is None or not runtime.witness or expectations(cell):
            return None
        what = f"not {'built' if cell.check == 'build' else 'loaded'}: {runtime.title}"
        return cls(what, SECONDS if settings.budget is None else settings.budget)

    def __call__(self, note: Mapping[str, object], seconds: float) -> str | None:
        """Return why the cell is to be ended, from the note of its worker and the seconds that it has taken."""
        if note.get("stage") != "load":
            self._began = None
        elif self._began is None:
            self._began = seconds
        elif seconds - self._began > self._most:
            longer = f"takes longer for it than {self._most:g} s; --budget gives it more"
            self.reason = f"{self._what} {longer}"
        return self.reason
