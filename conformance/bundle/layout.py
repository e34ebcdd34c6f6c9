"""Bundles: cells with all they need where there is no PyTorch, in a form that ONNX's own test runner reads.

    BUNDLE/bundle.json                                   what was packed: cells, judges, shapes, versions
    BUNDLE/cells/NAME/model.onnx                         one folder for each model and check
    BUNDLE/cells/NAME/test_data_set_0/input_0.pb         inputs in graph order, as ONNX TensorProtos
    BUNDLE/cells/NAME/test_data_set_0/output_0.pb        what is right (PyTorch's, or what a converted graph means)
    BUNDLE/cells/NAME/test_data_set_0/exact_0.pb         what judges need besides: float64, or PyTorch's float32
    BUNDLE/cells/NAME/engine/rows/input_0.pb             what TensorRT's check ``engine`` needs besides
    BUNDLE/cells/NAME/libraries/...                      custom-operator libraries and plugins

``onnx.backend.test.loader.load_model_tests(BUNDLE, "cells")`` finds the same cells. Needs numpy and onnx only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.arrays import Array
from conformance.bundle.trial import Trial
from conformance.compare.judges import Judge
from conformance.errors import UserError
from conformance.verdict.example import Draw, Example, given

FORMAT = 1
HEAD = "bundle.json"
CELLS = "cells"


@dataclass(frozen=True)
class Entry:
    """One model with one check, to be run by any runtime."""

    name: str
    """Its folder; ONNX's runner wants it to begin with ``test_``."""
    case: str
    exporter: str
    opset: int
    precision: str
    check: str
    source: dict[str, Any]
    graph: dict[str, Any]
    inputs: list[str]
    """Names in the order of ``input_0.pb`` and on."""
    judge: dict[str, Any]
    """``compare.judges.judge_from`` makes the judge again."""
    build: dict[str, Any]
    """``runtimes.tensorrt.Build.from_dict`` makes the build again; its plugins are paths in the bundle."""
    sets: list[dict[str, Any]]
    """For each data set: dims, regime, seed, index, the runtimes that are declared to fail on it (``apart``, each by
    its name, or with the kind of processor on which it is), conditioning, whether there are exact outputs."""
    runtimes: list[str]
    """The runtimes that the case declares for this model."""
    expected: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By runtime the declared failures of the whole cell: stage, error, because, fault, place, owed. Those of
    TensorRT's check ``engine`` are under ``engine``."""
    excused: list[int] = field(default_factory=list)
    """Outputs that may be vacuous."""
    own_code: list[str] = field(default_factory=list)
    """The case's own symbolics and functions that the export used."""
    libraries: list[str] = field(default_factory=list)
    """Custom-operator libraries for ONNX Runtime, relative to the entry's folder."""
    trial: dict[str, Any] | None = None
    """For TensorRT's check ``engine``: whether there are equal rows, the outputs that have them too, batch sizes. The
    arrays lie in ``engine/``."""
    conversion: dict[str, Any] | None = None
    config: dict[str, str] = field(default_factory=dict)
    """ONNX Runtime's session options."""
    command: str | None = None


class BundleWriter:
    """Writes a bundle; an entry is in it once all of it is written."""

    def __init__(self, folder: Path, environment: Mapping[str, Any]) -> None:
        """Raises UserError where the folder holds something else than a bundle."""
        if folder.exists() and any(folder.iterdir()) and not (folder / HEAD).is_file():
            raise UserError(f"{folder} is not empty and not a bundle; choose another folder")
        shutil.rmtree(folder / CELLS, ignore_errors=True)
        self._folder = folder
        self._head: dict[str, Any] = {"format": FORMAT, "environment": dict(environment), "entries": []}
        self._write()

    def add(self, entry: Entry) -> None:
        """Lists an entry whose folder has been written."""
        self._head["entries"].append(dataclasses.asdict(entry))
        self._write()

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f".{HEAD}"
        temporary.write_text(json.dumps(self._head, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self._folder / HEAD)


class Bundle:
    """A bundle on disk."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError where there is none, or one of another format."""
        self.folder = folder
        file = folder / HEAD
        try:
            head = json.loads(file.read_text(encoding="utf-8"))
        except OSError:
            raise UserError(f"{folder}: there is no bundle here ({HEAD} is missing)") from None
        except ValueError as error:
            raise UserError(f"{file}: is damaged: {error}") from None
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise UserError(f"{file}: is not a bundle of format {FORMAT}; pack it again with this version")
        known = {attribute.name for attribute in dataclasses.fields(Entry)}
        self.environment: dict[str, Any] = head["environment"]
        self.entries = [Entry(**{k: v for k, v in entry.items() if k in known}) for entry in head["entries"]]

    def model(self, entry: Entry) -> Path:
        return self.folder / CELLS / entry.name / "model.onnx"

    def libraries(self, entry: Entry) -> list[str]:
        return [str(self.folder / CELLS / entry.name / library) for library in entry.libraries]

    def plugins(self, entry: Entry) -> tuple[str, ...]:
        """The paths of TensorRT's plugin libraries."""
        return tuple(str(self.folder / CELLS / entry.name / name) for name in entry.build["options"]["plugins"])

    def examples(self, entry: Entry) -> Iterator[Example]:
        """All examples of an entry; raises UserError where a file is missing or damaged."""
        for index, told in enumerate(entry.sets):
            folder = self.folder / CELLS / entry.name / f"test_data_set_{index}"
            try:
                inputs = dict(zip(entry.inputs, _read(folder, "input"), strict=True))
                exact = _read(folder, "exact") if told["exact"] else None
                draw = Draw(**{name: told[name] for name in ("dims", "regime", "seed", "index")})
                example = given(draw, inputs, _read(folder, "output"), exact, told["conditioning"], told["apart"])
            except Exception as error:
                raise UserError(f"{folder}: the bundle is damaged: {error}") from None
            yield example

    def trial(self, entry: Entry, judge: Judge) -> Trial:
        """What an engine of this entry is tried with; raises UserError where a file is missing or damaged."""
        assert entry.trial is not None
        folder = self.folder / CELLS / entry.name / "engine"

        def read(name: str) -> dict[str, Array]:
            try:
                return dict(zip(entry.inputs, _read(folder / name, "input"), strict=True))
            except Exception as error:
                raise UserError(f"{folder / name}: the bundle is damaged: {error}") from None

        rows = read("rows") if entry.trial["rows"] else None
        batches = {int(batch): read(f"batch_{batch}") for batch in entry.trial["batches"]}
        return Trial(read("first"), judge, rows, entry.trial["equal"], batches)


def write_trial(folder: Path, trial: Trial, names: Sequence[str]) -> dict[str, Any]:
    """Writes what an engine is tried with into an entry's folder; the value of ``Entry.trial``."""
    batches = {"first": trial.inputs, **({"rows": trial.rows} if trial.rows is not None else {})}
    batches |= {f"batch_{batch}": inputs for batch, inputs in trial.batches.items()}
    for name, inputs in batches.items():
        place = folder / "engine" / name
        place.mkdir(parents=True, exist_ok=True)
        _write(place, "input", [inputs[input_name] for input_name in names])
    return {"rows": trial.rows is not None, "equal": list(trial.equal), "batches": list(trial.batches)}


def write_model(folder: Path, model: Path, libraries: Sequence[str]) -> list[str]:
    """Puts model and libraries into an entry's folder; the libraries' paths in it. Links the model if possible."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "model.onnx"
    target.unlink(missing_ok=True)
    try:
        os.link(model, target)
    except OSError:
        shutil.copyfile(model, target)
    names = []
    for library in libraries:
        (folder / "libraries").mkdir(exist_ok=True)
        shutil.copyfile(library, folder / "libraries" / Path(library).name)
        names.append(f"libraries/{Path(library).name}")
    return names


def write_set(
    folder: Path, index: int, example: Example, names: Sequence[str], apart: Sequence[str | Mapping[str, Any]]
) -> dict[str, Any]:
    """Writes one example into an entry's folder, its inputs in the order of ``names``; its item of ``Entry.sets``.

    ``apart`` are the runtimes that are declared to fail on the example.
    """
    place = folder / f"test_data_set_{index}"
    place.mkdir(parents=True, exist_ok=True)
    _write(place, "input", [example.inputs[name] for name in names])
    _write(place, "output", example.wanted)
    if example.exact is not None:
        _write(place, "exact", example.exact)
    told = {**example.draw.as_dict(), "apart": list(apart)}
    return {**told, "conditioning": example.conditioning, "exact": example.exact is not None}


def _write(folder: Path, kind: str, arrays: Sequence[Array]) -> None:
    from onnx import numpy_helper

    for index, array in enumerate(arrays):
        (folder / f"{kind}_{index}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())


def _read(folder: Path, kind: str) -> list[Array]:
    from onnx import TensorProto, numpy_helper

    arrays: list[Array] = []
    with contextlib.suppress(FileNotFoundError):
        while True:
            data = (folder / f"{kind}_{len(arrays)}.pb").read_bytes()
            arrays.append(numpy_helper.to_array(TensorProto.FromString(data)))
    return arrays
