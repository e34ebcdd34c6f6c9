"""Tell what takes long besides running cells, in a terminal and in a log."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from conformance.plugin.waiting import SLOW_SECONDS
from conformance.records.sanitize import literal

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
        """Ends the thread; nothing is told any more."""
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
