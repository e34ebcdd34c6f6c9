"""The store of exported models: one folder per key, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from conformance import HOME
from conformance.case.declaration import Case
from conformance.case.words import Exporter
from conformance.depends.files import needs
from conformance.depends.inventory import said, said_of
from conformance.disk.keeping import UNFINISHED, remove, touch, use
from conformance.disk.locks import exclusive
from conformance.disk.onnx_models import MODEL, WEIGHTS, Serialized
from conformance.export.graph import Facts
from conformance.records.environment import versions

FORMAT = 5


@dataclass(frozen=True)
class Stored:
    """A model on disk, its facts, the seconds that making it took, and what its exporter or converter told."""

    file: Path
    facts: Facts
    seconds: dict[str, float]
    told: dict[str, Any] = field(default_factory=dict)


class Store:
    """Models by key, for several processes at a time; what a process was given stays for as long as it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> Stored | None:
        """The stored model; None where there is none, or where it is not what was written."""
        place = self._folder / key
        if not place.is_dir():
            return None
        use(self._folder)
        stored = _read(place, key)
        if stored is not None:
            touch(place)
        return stored

    def put(
        self,
        key: str,
        model: Serialized,
        facts: Facts,
        seconds: dict[str, float],
        told: dict[str, Any] | None = None,
    ) -> Stored:
        """Keeps a model. Where the store cannot be written (it is read-only, or its disk is full), the model lies in
        a temporary folder that goes with the value returned; OSError where that cannot be written either."""
        told = told or {}
        try:
            return self._keep(key, model, {"facts": facts.as_dict(), "seconds": seconds, "told": told})
        except OSError:
            aside = Path(tempfile.mkdtemp(prefix="conformance-model-"))
        stored = Stored(aside / MODEL, facts, seconds, told)
        weakref.finalize(stored, shutil.rmtree, aside, ignore_errors=True)
        model.write(aside)
        return stored

    def _keep(self, key: str, model: Serialized, meta: dict[str, Any]) -> Stored:
        """Writes to a folder of its own first, so that a killed run leaves nothing half-written. Gives what another
        process kept under the key in the meantime, and mends a damaged entry."""
        self._folder.mkdir(parents=True, exist_ok=True)
        use(self._folder)
        place = self._folder / key
        temporary = Path(tempfile.mkdtemp(dir=self._folder, prefix=UNFINISHED))
        try:
            model.write(temporary)
            (temporary / META).write_text(_sealed(key, model.sha, meta), encoding="utf-8")
            with exclusive(self._folder / ".writing"):
                stored = _read(place, key)
                if stored is None and place.is_dir():
                    # Damaged. File by file, since a process that read it before may open the model again.
                    for name in (WEIGHTS, MODEL, META):
                        if (temporary / name).is_file():
                            (temporary / name).replace(place / name)
                elif stored is None:
                    remove(place)
                    temporary.rename(place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        touch(place)
        return stored or Stored(place / MODEL, Facts(**meta["facts"]), meta["seconds"], meta["told"])


META = "meta.json"


def _sealed(key: str, sha: str, meta: Mapping[str, Any]) -> str:
    """The text of ``meta.json``, with a hash of what it says: of which key and which model, too."""
    said = json.loads(json.dumps({**meta, "key": key, "model": sha}))
    return json.dumps({"said": said, "sha256": _sha(_text(said))})


def _text(said: Any) -> bytes:
    return json.dumps(said, sort_keys=True).encode()


def _read(place: Path, key: str) -> Stored | None:
    """The model in that folder; None where a bit of it, or of what is said of it, is not as it was written."""
    try:
        meta = json.loads((place / META).read_text(encoding="utf-8"))
        said = meta["said"]
        if meta["sha256"] != _sha(_text(said)) or said["key"] != key:
            return None
        if said["model"] != _sha_of_model(place):
            return None
        return Stored(place / MODEL, Facts(**said["facts"]), said["seconds"], said["told"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


_hashed: dict[Path, tuple[tuple[int, ...], str]] = {}
"""By the folder of a model that this process has read: what the file system said of its files, and its SHA-256."""
RESTING = 2.0
"""Seconds after which a change of a file shows in the times that the file system gives it."""


def _sha_of_model(place: Path) -> str:
    """The SHA-256 of the model in that folder, which is read once as long as the file system says that it stays as it
    was. Raises OSError."""
    weights = place / WEIGHTS
    files = [place / MODEL, *([weights] if weights.is_file() else [])]
    told = [file.stat() for file in files]
    marks = tuple(mark for one in told for mark in (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns))
    known = _hashed.get(place)
    if known is not None and known[0] == marks:
        return known[1]
    sha = Serialized(files[0].read_bytes(), *files[1:]).sha
    if max(one.st_ctime for one in told) < time.time() - RESTING:
        _hashed[place] = marks, sha
    return sha


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key(case: Case, exporter: Exporter, opset: int, weights: str, more: Iterable[object]) -> str:
    """A hash of all that an exported model depends on: what the case says about the export, the files beside it, the
    weights, the versions of the libraries and of this package's own export code."""
    digest = hashlib.sha256()
    arguments = sorted(case.arguments.items(), key=str)
    parts: list[Any] = [FORMAT, case.name, exporter, opset, weights, arguments, *more]
    parts += [said(case, "export"), said_of(case, exporter)]
    digest.update(repr(parts).encode())
    digest.update(needs(case, "export", exporter).digest())
    digest.update(repr(versions()).encode())
    digest.update(_own_code())
    return digest.hexdigest()[:32]


def derived_key(key: str, parts: Iterable[object]) -> str:
    """The key of a model that is made of another model, whose key is given."""
    digest = hashlib.sha256(repr([FORMAT, key, *parts]).encode())
    digest.update(repr(versions()).encode())
    for file in sorted((HOME / "precision").glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


_EXPORTING = (
    "draw/draw.py", "draw/shapes.py", "draw/values.py", "export/dynamo_cache.py", "export/exporters.py",
    "export/graph.py", "export/reference.py", "export/symbolics.py",
)  # fmt: skip
"""The modules of this package that an exported model depends on."""


@cache
def _own_code() -> bytes:
    """The source of ``_EXPORTING``; OSError for a file that is not there, or keys would quietly depend on less."""
    off = os.environ.get("CONFORMANCE_DYNAMO_CACHE", "")
    return b"".join((HOME / file).read_bytes() for file in _EXPORTING) + off.encode()
