"""What was measured of a module, kept for later runs under a key of all that it depends on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from conformance import HOME
from conformance.disk.keeping import UNFINISHED, touch, use
from conformance.records.environment import versions


def key_of(parts: Iterable[object], files: Iterable[Path]) -> str:
    """The key of a measurement, from all that it depends on besides the versions and this package's own code."""
    digest = hashlib.sha256(repr([*parts, versions()]).encode() + _own_code())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:32]


@cache
def _own_code() -> bytes:
    folders = ("coverage", "compare", "draw")
    files = [file for folder in folders for file in sorted((HOME / folder).glob("*.py"))]
    more = ("checks/coverage.py", "export/reference.py", "export/rounding.py", "export/awake.py")
    return b"".join(file.read_bytes() for file in (*files, *(HOME / name for name in more)))


def kept(folder: Path, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What lies under the key, or what ``make`` gives, which then lies there if the folder can be written."""
    file = folder / key
    with contextlib.suppress(OSError, ValueError):
        seal, _, data = file.read_text(encoding="utf-8").partition("\n")
        if seal == _sha(data):
            use(folder)
            touch(file)
            known: dict[str, Any] = json.loads(data)
            return known
    made = make()
    with contextlib.suppress(OSError):
        _write(file, json.dumps(made))
    return made


def _write(file: Path, data: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    use(file.parent)
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(f"{_sha(data)}\n{data}")
        Path(unfinished).replace(file)
    except OSError:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _sha(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()
