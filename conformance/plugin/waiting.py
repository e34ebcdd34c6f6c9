"""A line in the terminal while a slow cell runs."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from conformance.records.sanitize import literal

if TYPE_CHECKING:
    from conformance.plugin.progress import Progress

SLOW_SECONDS = 2.0
"""A cell that takes longer shows what it is doing, in a terminal."""
IN_LOG = 10.0
"""And so often, in seconds, it adds a line to a log, which nothing can be taken out of again."""

IN_LOG_OF_LONG = 60.0
"""The same in a run of many cells, which says how far it is."""


class Waiting:
    """A line in the terminal that tells what a slow cell is doing and how far the run is, gone when it is done; in a
    log a line now and then."""

    def __init__(self, config: pytest.Config, progress: Progress, cell: str, begun: float | None = None) -> None:
        """``cell`` is the id of the cell, which began now unless it is said when (``time.monotonic``)."""
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        silent = reporter is None or (config.get_verbosity() < 0 and not reporter.isatty)
        self._reporter: Any = None if silent else reporter
        self._config, self._progress, self.cell = config, progress, cell
        self._start = self._logged = time.monotonic() if begun is None else begun
        self._shown = ""

    def __call__(self, note: dict[str, Any]) -> None:
        now = time.monotonic()
        spent = now - self._start
        if self._reporter is None or spent < SLOW_SECONDS:
            return
        from conformance.records import text

        line, width = literal(f"  {self.cell}: {text.doing(note, spent)}"), self._reporter._tw.fullwidth - 1
        if not self._reporter.isatty:
            long = self._progress is not None and self._progress.is_long
            if now - self._logged >= (IN_LOG_OF_LONG if long else IN_LOG):
                self._logged = now
                with self._seen():
                    writer = self._reporter._tw
                    if writer.width_of_current_line:  # the reporter would name the file of the tests again
                        writer.line()
                    writer.line(line)
            return
        run = self._progress.line()
        if len(line) + len(run) + 5 <= width:
            line += f"  |  {run}"
        if line != self._shown:
            with self._seen():
                if not self._shown:
                    self._reporter.ensure_newline()  # what stands on that line stays
                self._reporter.rewrite(line[:width], erase=True)
            self._shown = line

    def done(self) -> None:
        if self._shown:
            with self._seen():
                self._reporter.rewrite("", erase=True)

    def _seen(self) -> Any:
        """Inside the block pytest captures nothing of what is written."""
        capturing: Any = self._config.pluginmanager.get_plugin("capturemanager")
        return contextlib.nullcontext() if capturing is None else capturing.global_and_fixture_disabled()
