"""The store of exported models: one folder per key, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.case.files.declaration import Case
from conformance.models.exporters.graph import Facts
from conformance.models.kept.contents import content, written
from conformance.models.kept.inventory import said, said_of
from conformance.models.kept.observed_dependencies import Observed
from conformance.process.disk.locks import exclusive
from conformance.process.disk.onnx_models import MODEL, WEIGHTS, Written, sha_of_parts
from conformance.process.disk.stores import FORMAT, remove, touch, use
from conformance.process.disk.whole_files import UNFINISHED
from conformance.results.records.record_types import Graph
from conformance.results.records.words import Exporter


@dataclass(frozen=True)
class Stored:
    """A model on disk, its facts, the seconds that making it took, and what its exporter or converter told."""

    file: Path
    facts: Facts
    seconds: dict[str, float]
    told: dict[str, Any] = field(default_factory=dict)

    def in_record(self) -> Graph:
        """Return the record's field ``graph``."""
        files = (self.file, self.file.with_name(WEIGHTS))
        size = sum(file.stat().st_size for file in files if file.is_file())
        return {"opset": self.facts.opset, "nodes": self.facts.nodes, "sha": self.facts.canonical, "bytes": size}


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
                stored = _read(place, key)
                if stored is None and place.is_dir():
                    # Damaged. File by file, since a process that read it before may open the model again.
                    for name in (WEIGHTS, MODEL, META):
                        if (temporary / name).is_file():
                            (temporary / name).replace(place / name)
                elif stored is None:
                    remove(place)
                    temporary.rename(place)
                if stored is None:
                    file = place / (MODEL if model.weights_sha is None else WEIGHTS)
                    written(str(file), model.weights_sha or model.sha)
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


def _read(place: Path, key: str) -> Stored | None:
    """The model in that folder; None where a bit of it, or of what is said of it, is not as it was written."""
    try:
        meta = json.loads((place / META).read_text(encoding="utf-8"))
        said = meta["said"]
        if meta["sha256"] != _sha(_text(said)) or said["key"] != key:
            return None
        if said["model"] != sha_of_model(place):
            return None
        return Stored(place / MODEL, Facts(**said["facts"]), said["seconds"], said["told"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def sha_of_model(folder: Path) -> str:
    """The SHA-256 of the model in a folder, as ``Serialized`` has it; its files are read once as long as the file
    system says that they stay as they were. Raises OSError."""
    message, weights = (content(str(folder / name)) for name in (MODEL, WEIGHTS))
    if weights is None:
        return "" if message is None else message.hex()
    return sha_of_parts((folder / MODEL).read_bytes(), weights.hex())


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
