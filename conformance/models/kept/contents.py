"""The content of files as hashes; a file is read once for as long as the file system says that it stays as it was."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from conformance.process.disk.value_store import KeptValues
from conformance.process.worker.uses.first_states import SETTLED

LARGE = 2**20
"""Bytes from which a hash is kept on disk, for other processes."""
_known: dict[str, tuple[tuple[int, ...], bytes]] = {}
_kept = KeptValues(None)


def keep_in(folder: Path | None) -> None:
    """Keep the hashes of large files in a folder; None keeps them in this process alone."""
    global _kept
    _kept = KeptValues(folder)


def content(file: str) -> bytes | None:
    """Return the SHA-256 of a regular file; None where there is none, or where it cannot be read."""
    try:
        status = os.stat(file)  # noqa: PTH116
        if not stat.S_ISREG(status.st_mode):
            return None
        marks = _marks(status)
        known = _known.get(file)
        if known is not None and known[0] == marks:
            return known[1]
        settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED
        large = settled and status.st_size >= LARGE
        kept = _kept.get(_key(file)) if large else None
        if isinstance(kept, list) and kept[:1] == [list(marks)]:
            digest = bytes.fromhex(kept[1])
        else:
            digest = _hashed(file)
            if large:
                _kept.put(_key(file), [list(marks), digest.hex()])
    except (OSError, ValueError, TypeError, IndexError):  # ValueError: a name with a null byte
        return None
    if settled:
        _known[file] = marks, digest
    return digest


def written(file: str, digest: str) -> None:
    """Take note of the SHA-256, in hexadecimal digits, of a file that this process has just written."""
    _known[file] = _marks(os.stat(file)), bytes.fromhex(digest)  # noqa: PTH116


def _marks(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _hashed(file: str) -> bytes:
    with open(file, "rb", buffering=0) as stream:  # noqa: PTH123
        return hashlib.file_digest(stream, "sha256").digest()


def _key(file: str) -> str:
    return hashlib.sha256(os.fsencode(file)).hexdigest()[:32]


def remembered(key: str, make: Callable[[], str]) -> str:
    """Return the text that was made for a key before, here or in another process, or what is made now."""
    key = of_text(key)
    known = _kept.get(key)
    if not isinstance(known, str):
        known = make()
        _kept.put(key, known)
    return known


def short(digest: bytes) -> str:
    """Return a hash as the text that records and stores hold."""
    return digest.hex()[:24]


def of_text(text: str) -> str:
    """Return the hash of a text, which may have bytes that are no UTF-8."""
    return short(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest())


def names_in(folder: str) -> str | None:
    """Return the hash of the names in a folder; None where it cannot be listed."""
    try:
        return of_text("\n".join(sorted(name for name in os.listdir(folder) if name != "__pycache__")))  # noqa: PTH208
    except OSError:
        return None


def below(folder: str) -> str | None:
    """Return the hash of all files of a folder, but not of the folders in it; None where it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            files = sorted(entry.path for entry in entries if entry.is_file())
    except OSError:
        return None
    return of_text("\n".join(f"{os.path.basename(file)} {(content(file) or b'').hex()}" for file in files))  # noqa: PTH119
