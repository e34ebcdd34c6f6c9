"""Tell what takes long in a terminal and in a log: a slow cell, and what is done besides running cells."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from conformance.results.records.sanitize import literal

if TYPE_CHECKING:
    from conformance.front.plugin.progress import ProgressHooks


SLOW_SECONDS = 2.0
"""A cell that takes longer shows what it is doing, in a terminal."""
IN_LOG = 10.0
"""And so often, in seconds, it adds a line to a log, which nothing can be taken out of again."""

IN_LOG_OF_LONG = 60.0
"""The same in a run of many cells, which says how far it is."""


class Waiting:
    """A line in the terminal that tells what a slow cell is doing and how far the run is, gone when it is done; in a
    log a line now and then."""

    def __init__(self, config: pytest.Config, progress: ProgressHooks, cell: str, begun: float | None = None) -> None:
        """``cell`` is the id of the cell, which began now unless it is said when (``time.monotonic``)."""
        reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
        silent = reporter is None or (config.get_verbosity() < 0 and not reporter.isatty)
        self._reporter: Any = None if silent else reporter
        self._config, self._progress, self.cell = config, progress, cell
        self._start = self._logged = time.monotonic() if begun is None else begun
        self._shown = ""

    def __call__(self, note: dict[str, object]) -> None:
        now = time.monotonic()
        spent = now - self._start
        if self._reporter is None or spent < SLOW_SECONDS:
            return
        from conformance.results.records import text

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

    def _seen(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block pytest captures nothing of what is written."""
        capturing: Any = self._config.pluginmanager.get_plugin("capturemanager")
        return contextlib.nullcontext() if capturing is None else capturing.global_and_fixture_disabled()


LOOKS = 0.25
"""Seconds from one look at how long something has taken to the next."""


class Saying:
    """``with saying("reading the case files"):`` a line that tells so if the block takes long, once for each block.

    The line is written by a thread, since the block may be one call that does not come back for minutes. Of the
    processes of xdist, which all do the same, the first one tells it.
    """

    def __init__(self, config: pytest.Config) -> None:
        """Made before pytest captures what is written: the line is to be read while that lasts."""
        self._config = config
        self._place: int | None = None
        with contextlib.suppress(OSError, ValueError):  # it is closed, or no file
            self._place = os.dup(2 if hasattr(config, "workerinput") else sys.stdout.fileno())
        self._since: tuple[str, float] | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @contextlib.contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        if self._thread is None and not self._ended.is_set() and self._tells():
            self._thread = threading.Thread(target=self._watch, name="conformance-saying", daemon=True)
            self._thread.start()
        self._since = what, time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def close(self) -> None:
        """End the thread; nothing is told any more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._place is not None:
            os.close(self._place)
            self._place = None

    def _tells(self) -> bool:
        worker = getattr(self._config, "workerinput", None)
        return self._place is not None and (worker is None or worker["workerid"] == "gw0")

    def _watch(self) -> None:
        told = None
        while not self._ended.wait(LOOKS):
            now = self._since
            if now is not None and now is not told and time.monotonic() - now[1] >= SLOW_SECONDS:
                told = now
                self._tell(f"{now[0]} takes longer than {SLOW_SECONDS:g} s, and goes on")

    def _tell(self, text: str) -> None:
        assert self._place is not None  # or there would be no thread
        begun = not hasattr(self._config, "workerinput") and self._config.get_terminal_writer().width_of_current_line
        start = "\n" if begun else ""
        with contextlib.suppress(OSError):
            os.write(self._place, f"{start}{literal(text)}\n".encode("utf-8", "replace"))
