"""Keep the state that files and folders had when they were first used, to find out later whether they changed.

A result is kept under hashes that are taken when it is there. These say what was read only of files that have not
been written to since they were read.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import stat
import time

from conformance.process.worker.uses.notes import NOTES, State, unnoted
from conformance.process.worker.uses.whose import source_of

SETTLED = 2 * 10**9
"""Nanoseconds after which another change of a file has another time: FAT counts every other second."""
_SMALL = 2**20
"""Bytes up to which a file that was changed just now is read; of others its times and its size count."""


def note_file(path: str) -> None:
    """Note the state of a file, or that there is none, unless it is known from an earlier use in this process."""
    if path not in NOTES.first_states:
        with unnoted():
            NOTES.first_states[path] = _state_of(path)


def note_folder(path: str) -> None:
    """Note the names in a folder, or the files that a pattern means, unless known from an earlier use here."""
    if path not in NOTES.first_names:
        with unnoted():
            NOTES.first_names[path] = _names_in(path)


def has_changed(path: str) -> bool:
    """Return whether a file was changed, made or removed since it was first used in this process.

    Such a file may have been used as it was before, after, or both. False for a file that was not used.
    """
    if path not in NOTES.first_states:
        return False
    first = NOTES.first_states[path]
    with unnoted():
        now = _state_of(path)
        if first is None or now is None:
            return first is not now
        return first[0] != now[0] or (first[1] != b"" and first[1] != _digest(path))


def has_other_names(folder: str) -> bool:
    """Return whether a folder or pattern has got or lost names since its first use, but for what the case wrote."""
    if folder not in NOTES.first_names:
        return False
    inside = {os.path.basename(path) for path in NOTES.written if os.path.dirname(path) == folder}  # noqa: PTH119, PTH120
    written = NOTES.written | inside
    with unnoted():
        return bool((NOTES.first_names[folder] ^ _names_in(folder)) - written)


def is_doubtful(bytecode: str) -> bool:
    """Return whether compiled code may be of an earlier text of its source than the one on disk.

    Python compares the size of the source and the second of its last change, so that a text of the same length that
    was saved within that second is taken for the one before.
    """
    source = source_of(bytecode)
    if source == bytecode:
        return False
    try:
        compiled, text = os.stat(bytecode), os.stat(source)  # noqa: PTH116
    except OSError:
        return False
    return compiled.st_mtime_ns < max(text.st_mtime_ns, text.st_ctime_ns) + SETTLED


def refusal(bytecode: str) -> OSError:
    """Return the error at which Python compiles the source in place of reading compiled code."""
    return OSError(errno.ESTALE, "its source was changed too soon before it was compiled", bytecode)


def _state_of(path: str) -> State:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):  # ValueError: a name with a null byte
        return None
    if not stat.S_ISREG(found.st_mode):
        return ((stat.S_IFMT(found.st_mode),), b"")
    marks = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    rests = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > SETTLED
    return (marks, b"" if rests or found.st_size > _SMALL else _digest(path))


def _digest(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError:
        return b"unreadable"


def _names_in(folder: str) -> frozenset[str]:
    if glob.has_magic(folder) and not os.path.isdir(folder):  # noqa: PTH112
        return frozenset(glob.glob(folder, recursive=True))  # noqa: PTH207
    try:
        return frozenset(name for name in os.listdir(folder) if name != "__pycache__")  # noqa: PTH208
    except OSError:
        return frozenset()
