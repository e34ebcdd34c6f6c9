"""The store of exported models: one folder per key, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from conformance import HOME
from conformance.case.declaration import Case
from conformance.case.words import Exporter
from conformance.depends.files import files
from conformance.depends.inventory import said, said_of
from conformance.export.graph import Facts
from conformance.records.environment import versions

FORMAT = 3


@dataclass(frozen=True)
class Stored:
    """A model on disk, its facts, the seconds that making it took, and what its exporter or converter told."""

    file: Path
    facts: Facts
    seconds: dict[str, float]
    told: dict[str, Any] = field(default_factory=dict)


class Store:
    """Models by key. Several processes may use one store at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> Stored | None:
        """The stored model; None where there is none, or where it is not what was written."""
        place = self._folder / key
        try:
            meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
            stored = Stored(place / "model.onnx", Facts(**meta["facts"]), meta["seconds"], meta["told"])
            if _sha(stored.file) == stored.facts.sha:
                return stored
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def put(
        self, key: str, data: bytes, facts: Facts, seconds: dict[str, float], told: dict[str, Any] | None = None
    ) -> Stored:
        """Writes to a folder of its own first, so that a killed run leaves nothing half-written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder / key
        temporary = Path(tempfile.mkdtemp(dir=self._folder, prefix=".new-"))
        (temporary / "model.onnx").write_bytes(data)
        meta = {"facts": facts.as_dict(), "seconds": seconds, "told": told or {}}
        (temporary / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        if place.exists() and self.get(key) is None:
            shutil.rmtree(place, ignore_errors=True)
        try:
            temporary.replace(place)
        except OSError:  # another process wrote the same model first
            shutil.rmtree(temporary, ignore_errors=True)
        return Stored(place / "model.onnx", facts, seconds, told or {})


def _sha(file: Path) -> str:
    with file.open("rb") as stream:
        return (
            hashlib.file_digest(stream, "sha256").hexdigest()[:16]
            if hasattr(hashlib, "file_digest")
            else hashlib.sha256(stream.read()).hexdigest()[:16]
        )


def key(case: Case, exporter: Exporter, opset: int, weights: str, more: Iterable[object]) -> str:
    """A hash of all that an exported model depends on: what the case says about the export, the files beside it, the
    weights, the versions of the libraries and of this package's own export code."""
    digest = hashlib.sha256()
    arguments = sorted(case.arguments.items(), key=str)
    parts: list[Any] = [FORMAT, case.name, exporter, opset, weights, arguments, *more]
    parts += [said(case, "export"), said_of(case, exporter)]
    digest.update(repr(parts).encode())
    for file in files(case, "export"):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
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
