"""What was measured of a module, kept for later runs under a key of all that it depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from conformance import HOME
from conformance.disk.values import KeptValues
from conformance.records.environment import versions


def key_of(parts: Iterable[object], needs: bytes) -> str:
    """The key of a measurement, from all that it depends on besides the versions and this package's own code;
    ``needs`` is a hash of what the case does."""
    return hashlib.sha256(repr([*parts, versions(), needs]).encode() + _own_code()).hexdigest()[:32]


@cache
def _own_code() -> bytes:
    folders = ("coverage", "compare", "draw")
    files = [file for folder in folders for file in sorted((HOME / folder).glob("*.py"))]
    more = ("checks/coverage.py", "export/reference.py", "export/rounding.py", "export/awake.py")
    return b"".join(file.read_bytes() for file in (*files, *(HOME / name for name in more)))


def kept(folder: Path, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What lies under the key, or what ``make`` gives, which then lies there if the folder can be written."""
    values = KeptValues(folder)
    known = values.get(key)
    if isinstance(known, dict):
        return known
    made = make()
    values.put(key, made)
    return made
