"""Plain values that are kept under keys: a file each, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

from conformance.process.disk.stores import touch, use, write_whole


class KeptValues:
    """Values of JSON, with NaN and infinities, by key; for several processes at a time."""

    def __init__(self, folder: Path | None) -> None:
        """Without a folder nothing is kept."""
        self._folder = folder

    def get(self, key: str) -> Any:
        """The value; None where there is none, or where the file is not as it was written."""
        if self._folder is None or not (file := self._folder / key).is_file():
            return None
        use(self._folder)
        try:
            seal, _, data = file.read_bytes().partition(b"\n")
            value = json.loads(data) if seal == _seal(key, data) else None
        except (OSError, ValueError, RecursionError):
            return None
        touch(file)
        return value

    def has(self, key: str) -> bool:
        """Return whether something is kept under the key, intact or not."""
        return self._folder is not None and (self._folder / key).is_file()

    def put(self, key: str, value: object) -> None:
        """Keep a value. What is none of JSON, or cannot be written, is not kept."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError, ValueError, TypeError):
            data = json.dumps(value).encode()
            write_whole(self._folder / key, _seal(key, data) + b"\n" + data)


def _seal(key: str, data: bytes) -> bytes:
    """A hash of the value and of its key, so that a file under another name is none."""
    return hashlib.sha256(key.encode() + b"\n" + data).hexdigest().encode()
