"""A line in the terminal while a slow cell runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from conformance.records.clean import literal

if TYPE_CHECKING:
    from conformance.plugin.progress import Progress

SLOW_SECONDS = 2.0
"""A cell that takes longer shows what it is doing, in a terminal."""


class Waiting:
    """A line in the terminal that tells what a slow cell is doing and how far the run is, gone when it is done."""

    def __init__(self, config: pytest.Config, progress: Progress) -> None:
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._reporter: Any = reporter if reporter is not None and reporter.isatty else None
        self._progress = progress
        self._start = time.monotonic()
        self._shown = False

    def __call__(self, note: dict[str, Any]) -> None:
        spent = time.monotonic() - self._start
        if self._reporter is None or spent < SLOW_SECONDS:
            return
        from conformance.records import text

        line, run = literal(f"  {text.doing(note, spent)}"), self._progress.line()
        width = self._reporter._tw.fullwidth - 1
        if len(line) + len(run) + 5 <= width:
            line += f"  |  {run}"
        self._reporter.rewrite(line[:width], erase=True)
        self._shown = True

    def done(self) -> None:
        if self._shown:
            self._reporter.rewrite("", erase=True)
