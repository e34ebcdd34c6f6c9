"""The store of exported models: one folder per key, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.case.files.declaration import Case
from conformance.models.exporters.graph import Facts
from conformance.models.kept.inventory import said, said_of
from conformance.models.kept.observed_dependencies import Observed
from conformance.process.disk.locks import exclusive
from conformance.process.disk.onnx_models import MODEL, WEIGHTS, Written, sha_of_model
from conformance.process.disk.stores import FORMAT, remove, touch, use
from conformance.process.disk.whole_files import UNFINISHED
from conformance.results.records.words import Exporter

RESTING = 2.0
"""Seconds after which a change of a file shows in the times that every file system gives it."""


@dataclass(frozen=True)
class Stored:
    """A model on disk, its facts, the seconds that making it took, and what its exporter or converter told."""

    file: Path
    facts: Facts
    seconds: dict[str, float]
    told: dict[str, Any] = field(default_factory=dict)


class Store:
    """Models by key, for several processes at a time; what a process was given stays for as long as it runs."""

    def __init__(self, folder: Path, *, resting: float = RESTING) -> None:
        """``resting``: seconds after which a change of a file shows in the times that the file system gives it."""
        self._folder, self._resting = folder, resting

    def get(self, key: str) -> Stored | None:
        """The stored model; None where there is none, or where it is not what was written."""
        place = self._folder / key
        if not place.is_dir():
            return None
        use(self._folder)
        stored = _read(place, key, self._resting)
        if stored is not None:
            touch(place)
        return stored

    def put(
        self,
        key: str,
        model: Written,
        facts: Facts,
        seconds: dict[str, float],
        told: dict[str, Any] | None = None,
        *,
        keep: bool = True,
    ) -> Stored:
        """Keep a model. Where it is not to be kept, or the store cannot be written (it is read-only, or its disk is
        full), the model lies in a temporary folder that goes with the value returned; OSError where that cannot be
        written either."""
        told = told or {}
        if keep:
            with contextlib.suppress(OSError):
                return self._keep(key, model, {"facts": facts.as_dict(), "seconds": seconds, "told": told})
        aside = Path(tempfile.mkdtemp(prefix="conformance-model-"))
        stored = Stored(aside / MODEL, facts, seconds, told)
        weakref.finalize(stored, shutil.rmtree, aside, ignore_errors=True)
        model.write(aside)
        return stored

    def _keep(self, key: str, model: Written, meta: dict[str, Any]) -> Stored:
        """Write to a folder of its own first, so that a killed run leaves nothing half-written. Gives what another
        process kept under the key in the meantime, and mends a damaged entry."""
        self._folder.mkdir(parents=True, exist_ok=True)
        use(self._folder)
        place = self._folder / key
        temporary = Path(tempfile.mkdtemp(dir=self._folder, prefix=UNFINISHED))
        try:
            model.write(temporary)
            (temporary / META).write_text(_sealed(key, model.sha, meta), encoding="utf-8")
            with exclusive(self._folder / ".writing"):
                stored = _read(place, key, self._resting)
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


def _sealed(key: str, sha: str, meta: Mapping[str, object]) -> str:
    """The text of ``meta.json``, with a hash of what it says: of which key and which model, too."""
    said = json.loads(json.dumps({**meta, "key": key, "model": sha}))
    return json.dumps({"said": said, "sha256": _sha(_text(said))})


def _text(said: object) -> bytes:
    return json.dumps(said, sort_keys=True).encode()


def _read(place: Path, key: str, resting: float) -> Stored | None:
    """The model in that folder; None where a bit of it, or of what is said of it, is not as it was written."""
    try:
        meta = json.loads((place / META).read_text(encoding="utf-8"))
        said = meta["said"]
        if meta["sha256"] != _sha(_text(said)) or said["key"] != key:
            return None
        if said["model"] != _sha_of_model(place, resting):
            return None
        return Stored(place / MODEL, Facts(**said["facts"]), said["seconds"], said["told"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


_hashed: dict[Path, tuple[tuple[int, ...], str]] = {}
"""By the folder of a model that this process has read: what the file system said of its files, and its SHA-256."""


def _sha_of_model(place: Path, resting: float) -> str:
    """The SHA-256 of the model in that folder, which is read once as long as the file system says that it stays as it
    was. Raises OSError."""
    weights = place / WEIGHTS
    files = [place / MODEL, *([weights] if weights.is_file() else [])]
    told = [file.stat() for file in files]
    marks = tuple(mark for one in told for mark in (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns))
    known = _hashed.get(place)
    if known is not None and known[0] == marks:
        return known[1]
    sha = sha_of_model(place)
    if max(one.st_ctime for one in told) < time.time() - resting:
        _hashed[place] = marks, sha
    return sha


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key(case: Case, exporter: Exporter, opset: int, weights: str, more: Iterable[object], suite: str) -> str:
    """Return a hash of what is stated of an exported model: what the case says about the export, the weights, and
    what every result depends on, ``suite``. What the export uses besides is observed."""
    arguments = sorted(case.arguments.items(), key=str)
    parts: list[Any] = [FORMAT, case.name, exporter, opset, weights, arguments, *more, suite]
    parts += [said(case, "export"), said_of(case, exporter)]
    return _sha(repr(parts).encode())[:32]


def derived_key(sha: str, parts: Iterable[object], suite: str) -> str:
    """Return the key of a model that is made of another model, whose hash is given."""
    return _sha(repr([FORMAT, sha, suite, *parts]).encode())[:32]


def place_of(key: str, observed: Observed) -> str:
    """Return the name under which a result lies that depends on what was stated and on what was observed."""
    return _sha(f"{key} {json.dumps(observed.as_dict(), sort_keys=True)}".encode())[:32]
