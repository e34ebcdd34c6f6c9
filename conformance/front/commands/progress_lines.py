"""Say of work that takes long, after two seconds, what is being done, of how much, and how long it may take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from conformance.judge.in_time import SECONDS
from conformance.results.records import text
from conformance.results.records.sanitize import tell

FIRST = 2.0
"""Seconds after which something is said."""
AGAIN = 2.0
"""The factor by which the time spent has grown each time that it is said again."""
MOST = 60.0
"""Seconds after which it is said again at the latest."""


class ProgressLines:
    """Says on standard error how far a worker is with something, at longer and longer intervals.

    It is called with the worker's latest note (``process.worker.progress_note``) ten times a second.
    """

    def __init__(self, what: str, budget: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``budget`` is the seconds that the examples may take; None is ``SECONDS``."""
        self._what, self._clock = what, clock
        self._budget = SECONDS if budget is None else budget
        self._start, self._due = clock(), FIRST
        self._examples: float | None = None
        """The seconds after which the first example had ended."""

    def __call__(self, note: Mapping[str, Any]) -> None:
        spent = self._clock() - self._start
        if note.get("examples") and self._examples is None:
            self._examples = spent
        if spent >= self._due:
            self._due = spent + min(MOST, (AGAIN - 1) * spent)
            tell(f"  {self._what}: {text.doing(note, spent)}{self._left(note, spent)}", sys.stderr)

    def _left(self, note: Mapping[str, Any], spent: float) -> str:
        """Estimate how long it may take: as the examples took so far, and no longer than their budget."""
        done, of = note.get("examples", 0), note.get("of", 0)
        if self._examples is None or done < 2 or of <= done:
            return ""
        began = spent - self._examples
        left = min(began / (done - 1) * (of - done), max(self._budget - began, 0.0))
        return f", about {left:.0f} s left" if left >= 1 else ""
