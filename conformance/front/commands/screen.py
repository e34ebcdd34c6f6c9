"""Show what a command finds, and what it is doing: lines, colours, and a line that comes and goes."""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import time
from collections.abc import Mapping

from conformance.results.records import text
from conformance.results.records.sanitize import literal, tell

SLOW_SECONDS = 1.0
"""A cell that takes longer shows what it is doing."""
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}


class Screen:
    """Writes to stdout. What cases and exceptions say is made harmless first."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._coloured = self._terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._shown = False

    def heading(self, said: str) -> None:
        self.line("")
        self.line(f"{datetime.datetime.now():%H:%M:%S}  {said}", "bold")

    def line(self, said: str, colour: str | None = None) -> None:
        self.clear()
        if colour is None or not self._coloured:
            tell(said)
        else:
            print(f"\x1b[{_COLOURS[colour]}m{literal(said)}\x1b[0m", flush=True)

    def lines(self, said: str, indent: str = "  ") -> None:
        for line in said.split("\n"):
            self.line(f"{indent}{line}")

    def doing(self, what: str, note: Mapping[str, object], since: float) -> None:
        """Show what a slow cell is doing; ``since`` is when it began, of ``time.monotonic``."""
        spent = time.monotonic() - since
        if self._terminal and spent >= SLOW_SECONDS:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{literal(f'  {what}: {text.doing(note, spent)}')[:width]}", end="", flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", flush=True)
            self._shown = False
