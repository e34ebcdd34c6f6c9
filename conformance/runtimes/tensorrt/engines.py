"""The store of engines. An engine is only good for the model, shapes, options, GPU, driver and TensorRT that it is
made of and with.

Each file says what its engine was built for and carries a hash of its bytes. Where a file is damaged, half-written or
for something else, the engine is built again; such a file is never loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from conformance.process.disk.stores import touch, write_whole

MAGIC = b"conformance engine 1\n"


class Engines:
    """Engines by key, in a folder that several processes may use at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, depends: Mapping[str, object]) -> bytes | None:
        """The engine built for exactly ``depends``; None where there is no such file, or it cannot be trusted."""
        file = self._file(depends)
        try:
            data = file.read_bytes()
        except OSError:
            return None
        touch(file)
        head, _, engine = data.removeprefix(MAGIC).partition(b"\n")
        try:
            said = json.loads(head)
        except (ValueError, RecursionError):
            return None
        whole = data.startswith(MAGIC) and said == {"depends": _plain(depends), "sha256": _sha(engine)}
        return engine if whole else None

    def put(self, depends: Mapping[str, object], engine: bytes) -> None:
        """Keep an engine, unless the store cannot be written. Write a file beside its place and move it there, so
        that nobody reads half of it."""
        head = json.dumps({"depends": _plain(depends), "sha256": _sha(engine)}, sort_keys=True).encode()
        _replace(self._file(depends), MAGIC + head + b"\n" + engine)

    def _file(self, depends: Mapping[str, object]) -> Path:
        return self._folder / f"{key(depends)}.engine"

    def timings(self, depends: Mapping[str, object]) -> bytes:
        """The timing cache of this GPU and version; empty where none is kept. TensorRT itself refuses a bad one."""
        file = self._timings_file(depends)
        touch(file)
        try:
            return file.read_bytes()
        except OSError:
            return b""

    def put_timings(self, depends: Mapping[str, object], data: bytes) -> None:
        _replace(self._timings_file(depends), data)

    def _timings_file(self, depends: Mapping[str, object]) -> Path:
        host = {name: depends[name] for name in ("gpu", "tensorrt")}
        return self._folder / f"{key(host)}.timings"


def key(depends: Mapping[str, object]) -> str:
    """A hash of all that an engine depends on."""
    return _sha(json.dumps(_plain(depends), sort_keys=True).encode())[:32]


def _plain(depends: Mapping[str, object]) -> object:
    return json.loads(json.dumps(depends, default=str))


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _replace(file: Path, data: bytes) -> None:
    """Write a file whole, or leave what was there: no cell has to fail where the store cannot be written."""
    with contextlib.suppress(OSError):
        write_whole(file, data)
