"""Stores: folders of what can be made again, which several processes use at a time and which are kept below a size.

A store has a folder for each kind of entry (``SECTIONS``). Whoever writes there writes to a name that begins with
``UNFINISHED`` first, and marks an entry as used with ``touch``. The entries of a folder that other processes have in
use (``use``) are left to them, unless nobody has asked for them for a day, which no cell takes.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.process.disk.locks import InUse
from conformance.process.disk.whole_files import UNFINISHED, replacing
from conformance.process.errors import UserError, display_path

SECTIONS = (
    "models", "answers", "coverage", "outcomes", "index", "contents", "engines", "builds", "samples", "failing",
)  # fmt: skip
"""Exported and converted models, PyTorch's answers and those of computed networks, what of modules shows in their
outputs, how declared failures came about, what these depend on, hashes of large files, built engines, what TensorRT
for RTX made of models, samples of PyTorch's tests, bundles of failing examples."""
DRAWS = "failures"
"""Beside the sections: failing draws, which cannot be made again and are small."""
OTHERS = ("documents", "cluster", "environments")
"""Also beside them, and no entries: what earlier versions kept of case files, marks of runs on clusters, environments
for other versions of runtimes."""
DAY = 86_400.0
"""Seconds after which an entry, or an unfinished file, is taken to be nobody's."""
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

_used: dict[Path, InUse] = {}


@dataclass(frozen=True)
class Freed:
    """Hold what was dropped, and the bytes that are left in the store."""

    entries: int
    bytes: int
    left: int


@dataclass(frozen=True)
class _Entry:
    path: Path
    bytes: int
    used: float
    """Seconds since the epoch."""


FORMAT = 6
"""Raised where a store of an earlier version holds nothing that this one finds."""
_MARK = f"*\n# a store of conformance in format {FORMAT}\n"


def make(home: Path) -> bool:
    """Make a store that git ignores, where there is none; OSError where it cannot be made or written.

    Return whether it is one of another version, whose results are made again; this is said once.
    """
    home.mkdir(parents=True, exist_ok=True)
    ignore = home / ".gitignore"
    known = ignore.read_text(encoding="utf-8", errors="replace") if ignore.is_file() else None
    if known == _MARK:
        return False
    ignore.write_text(_MARK, encoding="utf-8")
    return known is not None and any((home / section).is_dir() for section in SECTIONS)


def use(folder: Path) -> None:
    """Tell other processes, until this one ends, that it uses the entries of the folder."""
    if folder not in _used:
        in_use = InUse(folder)
        in_use.share()
        _used[folder] = in_use


def leave() -> None:
    """Take back what this process told by ``use``."""
    while _used:
        _used.popitem()[1].close()


def write_whole(file: Path, data: bytes) -> None:
    """Write an entry of a folder, which is in use from then on, whole or not at all; OSError where that cannot be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    use(file.parent)
    with replacing(file) as stream:
        stream.write(data)


def touch(entry: Path) -> None:
    """Note that an entry was used now."""
    with contextlib.suppress(OSError):
        os.utime(entry)


def tidy(home: Path, limit: float = math.inf, since: float = math.inf) -> Freed:
    """Remove what killed processes left unfinished, and then entries, the least recently used ones first, until the
    store has at most ``limit`` bytes.

    What was used after ``since`` (seconds since the epoch) stays, even if the store is then larger than ``limit``.
    """
    dropped = freed = total = 0
    droppable: list[_Entry] = []
    with contextlib.ExitStack() as stack:
        for section in SECTIONS:
            folder = home / section
            if not folder.is_dir():
                continue
            in_use = InUse(folder)
            stack.callback(in_use.close)
            idle = math.inf if in_use.alone() else time.time() - DAY
            for entry in _entries(folder):
                if entry.path.name.startswith(UNFINISHED):
                    if entry.used < idle and remove(entry.path):
                        dropped, freed = dropped + 1, freed + entry.bytes
                    continue
                total += entry.bytes
                if entry.used < min(since, idle):
                    droppable.append(entry)
        for entry in sorted(droppable, key=lambda entry: entry.used):
            if total <= limit:
                break
            if remove(entry.path):
                dropped, freed, total = dropped + 1, freed + entry.bytes, total - entry.bytes
    return Freed(dropped, freed, total)


def in_use(home: Path) -> bool:
    """Return whether another process uses the store."""
    for section in SECTIONS:
        if (home / section).is_dir():
            lock = InUse(home / section)
            try:
                if not lock.alone():
                    return True
            finally:
                lock.close()
    return False


def check_is_store(home: Path) -> None:
    """Raise UserError where the folder is no store, or has something else in it."""
    name = display_path(home)
    if not home.is_dir():
        raise UserError(f"{name}: there is no such folder")
    known = {*SECTIONS, DRAWS, *OTHERS}
    names = {entry.name for entry in home.iterdir()}
    others = sorted(names - known - {".gitignore"})
    if others or not names & known:
        why = f"it has '{others[0]}'" if others else f"it has none of {', '.join(sorted(known))}"
        raise UserError(f"{name}: is not a store of conformance: {why}")


def _entries(folder: Path) -> Iterator[_Entry]:
    """The entries of a section, unfinished ones among them; none of what vanishes meanwhile."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(".") and not path.name.startswith(UNFINISHED):
                continue  # the locks
            with contextlib.suppress(OSError):
                about = path.lstat()
                yield _Entry(
                    path, folder_size(path) if stat.S_ISDIR(about.st_mode) else about.st_size, about.st_mtime
                )


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile has none."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += (Path(place) / name).lstat().st_size
    return size


def remove(path: Path) -> bool:
    """Remove an entry, which nobody sees half removed; whether there is none now."""
    gone = path
    if not path.name.startswith(UNFINISHED):
        gone = path.with_name(f"{UNFINISHED}gone-{os.getpid()}-{path.name}")
        try:
            path.rename(gone)
        except OSError:
            return not os.path.lexists(path)
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            gone.unlink()
    return not os.path.lexists(gone)


# ---- sizes -----------------------------------------------------------------------------------------------------


def bytes_of(text: str) -> int:
    """Bytes of ``20GiB``, ``512 MiB`` or ``0B``. Raises UserError for anything else."""
    match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(B|KiB|MiB|GiB|TiB)\s*", text)
    if match is None:
        raise UserError(f"'{text}' is not a size, such as 20GiB or 512MiB")
    return int(float(match[1]) * UNITS[match[2]])


def size_of(count: int) -> str:
    """``1.5 GiB``"""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.3g} {unit}"
    return f"{count} B"
