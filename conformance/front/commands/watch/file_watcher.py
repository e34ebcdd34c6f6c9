"""Find changed files and folders by asking the file system again and again."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Sign: TypeAlias = tuple[int, int, int]
"""What differs after a file was written or replaced, and after something came to a folder or went: the time of the
last change in nanoseconds, the bytes, the inode."""

PAUSE = 0.1
"""Seconds between two looks. A look at the 61 files and folders of the shipped cases takes 0.2 ms."""
QUIET = 0.05
"""Seconds in which nothing may change before a change counts: editors save in several steps."""
PATIENCE = 1.0
"""Seconds after which a change counts though the files never came to rest."""


@dataclass(frozen=True)
class Changed:
    """Paths that changed, by what became of them. Folders are in ``all`` alone."""

    written: list[Path]
    new: list[Path]
    gone: list[Path]
    all: frozenset[Path]


def sign(path: Path) -> Sign | None:
    """None where there is nothing."""
    try:
        about = path.stat()
    except (OSError, ValueError):
        return None
    return about.st_mtime_ns, 0 if stat.S_ISDIR(about.st_mode) else about.st_size, about.st_ino


class WatchedFiles:
    """Files and folders, and what they were like when they were last looked at."""

    def __init__(self, pause: float = PAUSE, clock: Any = time) -> None:
        """``pause`` is the least time between two looks; ``clock`` has ``monotonic`` and ``sleep``."""
        self._pause, self._clock = pause, clock
        self._signs: dict[Path, Sign | None] = {}
        self._next = 0.0

    def expect(self, signs: Mapping[Path, Sign | None]) -> None:
        """From now on these paths are looked at. They were like this before they were read, so that what was written
        while they were read counts as a change."""
        self._signs = dict(signs)

    def look(self) -> Changed | None:
        """Find what has changed since the last look and come to rest.

        None where nothing has, and within the pause after the last look.
        """
        if self._clock.monotonic() < self._next:
            return None
        now = self._look()
        if now == self._signs:
            self._rest()
            return None
        deadline = self._clock.monotonic() + PATIENCE
        while self._clock.monotonic() < deadline:
            self._clock.sleep(QUIET)
            then, now = now, self._look()
            if then == now:
                break
        before, self._signs = self._signs, now
        self._rest()
        changed = frozenset(path for path in now if now[path] != before[path])
        return _sort_changes(changed, before, now) if changed else None

    def wait(self) -> Changed:
        """Wait for the next change."""
        while True:
            changed = self.look()
            if changed is not None:
                return changed
            self._clock.sleep(max(0.0, self._next - self._clock.monotonic()))

    def _look(self) -> dict[Path, Sign | None]:
        self._began = self._clock.monotonic()
        return {path: sign(path) for path in self._signs}

    def _rest(self) -> None:
        """Nothing is looked at for a while, and for longer where a look takes long: it gets 1/20 of a processor."""
        self._next = self._clock.monotonic() + max(self._pause, 20 * (self._clock.monotonic() - self._began))


def _sort_changes(
    changed: frozenset[Path], before: Mapping[Path, Sign | None], now: Mapping[Path, Sign | None]
) -> Changed:
    files = sorted(path for path in changed if not path.is_dir())
    return Changed(
        written=[path for path in files if before[path] is not None and now[path] is not None],
        new=[path for path in files if before[path] is None],
        gone=[path for path in files if now[path] is None],
        all=changed,
    )


def folders(top: Path) -> Iterator[Path]:
    """A folder with those below it in which files may come and go, without hidden ones and caches of bytecode."""
    for place, names, _ in os.walk(top):
        names[:] = [name for name in names if not name.startswith(".") and name != "__pycache__"]
        yield Path(place)


def forget_bytecode(file: Path) -> None:
    """Remove the bytecode of a Python file. Python tells by whole seconds whether it is up to date, so that what is
    saved twice in one second, with as many bytes, would be loaded as it was."""
    with contextlib.suppress(OSError, NotImplementedError):
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
