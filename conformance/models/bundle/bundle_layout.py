"""Bundles: cells with all they need where there is no PyTorch, in a form that ONNX's own test runner reads.

    BUNDLE/bundle.json                                   what was packed: cells, judges, shapes, versions
    BUNDLE/cells/NAME/model.onnx                         one folder for each model and check
    BUNDLE/cells/NAME/test_data_set_0/input_0.pb         inputs in graph order, as ONNX TensorProtos
    BUNDLE/cells/NAME/test_data_set_0/output_0.pb        what is right (PyTorch's, or what a converted graph means)
    BUNDLE/cells/NAME/test_data_set_0/exact_0.pb         what judges need besides: float64, or PyTorch's float32
    BUNDLE/cells/NAME/test_data_set_0/moved_0.pb         how far rounding moves each value
    BUNDLE/cells/NAME/engine/rows/input_0.pb             what TensorRT's check ``engine`` needs besides
    BUNDLE/cells/NAME/libraries/...                      custom-operator libraries and plugins

``onnx.backend.test.loader.load_model_tests(BUNDLE, "cells")`` finds the same cells. Needs numpy and onnx only.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.case.draw.example import Example
from conformance.compare.noise import power
from conformance.models.bundle.bundle_files import CELLS, HEAD, EngineTrial, Files, read
from conformance.models.bundle.entry import Entry, entries_of, entry_of
from conformance.process.arrays import Array
from conformance.process.disk.onnx_models import link_model
from conformance.process.errors import UserError, why

FORMAT = 1
MOST_HEAD = 2**28
"""Bytes of a ``bundle.json``; that of the whole catalogue has some millions."""


class BundleWriter:
    """Writes a bundle; an entry is in it once all of it is written."""

    def __init__(self, folder: Path, environment: Mapping[str, object]) -> None:
        """Raise UserError where the folder holds something else than a bundle."""
        if folder.exists() and any(folder.iterdir()) and not (folder / HEAD).is_file():
            raise UserError(f"{folder} is not empty and not a bundle; choose another folder")
        if (folder / CELLS).is_symlink():  # or another folder would be written to
            (folder / CELLS).unlink()
        shutil.rmtree(folder / CELLS, ignore_errors=True)
        self._folder = folder
        self._head: dict[str, Any] = {"format": FORMAT, "environment": dict(environment), "entries": []}
        self._write()

    def add(self, entry: Entry) -> None:
        """List an entry whose folder has been written."""
        fields = dataclasses.asdict(entry)
        entry_of(json.loads(json.dumps(fields)))  # or nobody could read the bundle
        self._head["entries"].append(fields)
        self._write()

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f".{HEAD}"
        temporary.write_text(json.dumps(self._head, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self._folder / HEAD)


class Bundle(Files):
    """A bundle on disk, with what its ``bundle.json`` says."""

    def __init__(self, folder: Path) -> None:
        """Raise UserError where there is none, one of another format, or one that is damaged."""
        super().__init__(folder)
        file = folder / HEAD
        try:
            head = json.loads(read(folder, HEAD, MOST_HEAD).decode("utf-8"))
        except FileNotFoundError:
            raise UserError(f"{folder}: there is no bundle here ({HEAD} is missing)") from None
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({why(error)})") from None
        except RecursionError:
            raise UserError(f"{file}: is damaged: lists and objects lie too deep in one another") from None
        except UserError:
            raise
        except ValueError as error:
            raise UserError(f"{file}: is damaged: {error}") from None
        try:
            self.entries = entries_of(head, FORMAT)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
        self.environment: dict[str, object] = head["environment"]


def write_trial(folder: Path, trial: EngineTrial, names: Sequence[str]) -> dict[str, object]:
    """Write what an engine is tried with into an entry's folder; the value of ``Entry.trial``."""
    batches = {"first": trial.inputs, **({"rows": trial.rows} if trial.rows is not None else {})}
    batches |= {f"batch_{batch}": inputs for batch, inputs in trial.batches.items()}
    for name, inputs in batches.items():
        place = folder / "engine" / name
        place.mkdir(parents=True, exist_ok=True)
        _write(place, "input", [inputs[input_name] for input_name in names])
    return {"rows": trial.rows is not None, "equal": list(trial.equal), "batches": list(trial.batches)}


def write_model(folder: Path, model: Path, libraries: Sequence[str]) -> list[str]:
    """Put model and libraries into an entry's folder; the libraries' paths in it. Link the model if possible."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "model.onnx"
    link_model(model, target)
    names = []
    for library in libraries:
        (folder / "libraries").mkdir(exist_ok=True)
        shutil.copyfile(library, folder / "libraries" / Path(library).name)
        names.append(f"libraries/{Path(library).name}")
    return names


def write_set(
    folder: Path,
    index: int,
    example: Example,
    names: Sequence[str],
    apart: Sequence[str | Mapping[str, object]],
    *,
    converted: bool = False,
) -> dict[str, object]:
    """Write one example into an entry's folder and return its item of ``Entry.sets``.

    Inputs are in the order of ``names``. ``apart`` are the runtimes that are declared to fail on the example;
    ``converted`` says whether its model is one of another precision.
    """
    place = folder / f"test_data_set_{index}"
    place.mkdir(parents=True, exist_ok=True)
    _write(place, "input", [example.inputs[name] for name in names])
    _write(place, "output", example.wanted)
    if example.exact is not None:
        _write(place, "exact", example.exact)
    about = {**example.draw.as_dict(), "apart": list(apart), "exact": example.exact is not None}
    moved = example.conditioning()
    if moved is None:
        return {**about, "conditioning": None}
    _write(place, "moved", moved)
    # earlier versions read one number for each output: the mean square for a converted model, else the most
    numbers = [power(each) if converted else float(each.max(initial=0.0)) for each in moved]
    return {**about, "conditioning": numbers}


def _write(folder: Path, kind: str, arrays: Sequence[Array]) -> None:
    from onnx import numpy_helper

    for index, array in enumerate(arrays):
        (folder / f"{kind}_{index}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
