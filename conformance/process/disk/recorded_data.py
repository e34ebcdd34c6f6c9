"""Find and read recorded data: the inputs that somebody ran a model with, and the outputs that they got.

ONNX's layout has a folder ``test_data_set_N`` beside a model, with ``input_0.pb``, ``output_0.pb`` and so on. NumPy's
``.npz`` holds one set, by the names of inputs and outputs. Polygraphy's JSON is what ``polygraphy run
--save-inputs`` and ``--save-outputs`` write; its arrays are NumPy's ``.npy`` in base64.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from conformance.process.arrays import Array, dtype_name
from conformance.process.disk.foreign_files import LARGEST, parse_json, read_text
from conformance.process.disk.model_files import RECORDED
from conformance.process.disk.recorded_tensors import Interface, TensorKind, Value, dtype_of, read_value
from conformance.process.errors import UserError

MOST = 64
"""Sets that are used of one model."""
_PART = re.compile(r"(input|output)_(\d{1,6})\.pb")
_CLASS, _LEGACY = "polygraphy_class", "polygraphy_serialized_json_type"


@dataclass(frozen=True)
class RecordedSet:
    """The inputs and outputs of one run."""

    name: str
    """What sentences call it: its folder or file, and the number of the run in it where there are several."""
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]


@dataclass
class RecordedData:
    sets: list[RecordedSet] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Why sets cannot be used, a sentence each."""


def beside(model: Path) -> list[Path]:
    """Return the folders of recorded data beside a model, in the order of their numbers."""
    folders = [one for one in model.parent.glob(f"{RECORDED}*") if one.is_dir()]
    return sorted(folders, key=lambda one: (len(one.name), one.name))


def read_recorded(places: Sequence[Path], interface: Interface) -> RecordedData:
    """Return the sets that these files and folders hold, of those that fit the model.

    Raises UserError for a place that holds none, is of no known form, or is damaged.
    """
    found = RecordedData()
    halves: list[tuple[Path, list[dict[str, Value]]]] = []
    for place in places:
        for one in _sources(place):
            if one.is_dir():
                _add(found, partial(_of_folder, one, interface), interface)
            elif one.suffix == ".npz":
                _add(found, partial(_of_file, one, interface), interface)
            else:
                halves.append((one, _of_polygraphy(one)))
    for name, values in _joined(halves):
        _add(found, partial(_divided, name, values, interface), interface)
    del found.sets[MOST:]
    return found


def _add(found: RecordedData, read: Callable[[], RecordedSet], interface: Interface) -> None:
    try:
        one = read()
        problem = misfit(one, interface)
    except UserError as error:
        found.left_out.append(str(error))
        return
    if problem is None:
        found.sets.append(one)
    else:
        found.left_out.append(f"{one.name}: {problem}")


def _sources(place: Path) -> Iterator[Path]:
    """Yield the folders and files of sets that a place stands for. Raises UserError where there are none."""
    if place.is_dir():
        names = sorted((one for one in place.iterdir()), key=lambda one: (len(one.name), one.name))
        if any(_PART.fullmatch(one.name) for one in names):
            yield place
            return
        found = [one for one in names if one.is_dir() and any(_PART.fullmatch(part.name) for part in one.iterdir())]
        found += [one for one in names if one.suffix in (".npz", ".json") and one.is_file()]
        if not found:
            raise UserError(f"{place}: there is no recorded data: input_0.pb and output_0.pb, .npz or .json")
        yield from found
    elif place.suffix == ".pb" and _PART.fullmatch(place.name):
        yield place.parent  # one of a set stands for the set
    elif not place.exists():
        raise UserError(f"{place}: there is no such file or folder")
    elif place.suffix in (".npz", ".json"):
        yield place
    else:
        raise UserError(f"{place}: is no recorded data; it may be a folder, .npz, input_0.pb, or Polygraphy's .json")


def files_of(place: Path) -> list[Path]:
    """Return the files of recorded data that a place stands for, for what depends on them."""
    sources = [*_sources(place)]
    return [file for one in sources for file in (sorted(one.glob("*.pb")) if one.is_dir() else [one])]


# ---- the forms -----------------------------------------------------------------------------------------------


def _of_folder(folder: Path, interface: Interface) -> RecordedSet:
    """Return the set of a folder in ONNX's layout: by the names in the files, or else by their numbers."""
    parts: dict[str, dict[int, Path]] = {"input": {}, "output": {}}
    for file in folder.iterdir():
        match = _PART.fullmatch(file.name)
        if match:
            parts[match[1]][int(match[2])] = file
    read: dict[str, dict[str, Value]] = {}
    for what, kinds in (("input", interface.inputs), ("output", interface.outputs)):
        names, files = [*kinds], parts[what]
        gaps = [f"{what}_{number}.pb" for number in range(len(names)) if number not in files]
        if gaps and (what == "output" or len(files) <= max(files, default=-1) or not files):
            raise UserError(f"{folder}: half a set: {', '.join(gaps[:4])} is missing")
        values: dict[str, Value] = {}
        for number, file in sorted(files.items()):
            if number >= len(names):
                raise UserError(f"{folder}: has {file.name}, and the model has {len(names)} {what}s")
            name, value = read_value(file, kinds[names[number]])
            values[name if name in kinds else names[number]] = value
        read[what] = values
    return RecordedSet(str(folder), read["input"], read["output"])


def _of_file(file: Path, interface: Interface) -> RecordedSet:
    return _divided(str(file), read_npz(file), interface)


def read_npz(file: Path) -> dict[str, Value]:
    """Return the arrays of an ``.npz`` file. Nothing in it is executed, and none is unpacked that is too large.

    Raises UserError for a file that cannot be read so.
    """
    try:
        with zipfile.ZipFile(file) as packed:
            size = sum(one.file_size for one in packed.infolist())
        if size > LARGEST:
            raise UserError(f"{file}: holds {size >> 20:,} MiB, of which at most {LARGEST >> 20:,} are read")
        with np.load(file, allow_pickle=False) as arrays:
            return {name: _read(arrays[name]) for name in arrays.files}
    except UserError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"{file}: is no .npz of plain arrays (texts have dtype str), or is damaged ({type(error).__name__})"
        ) from None


def _read(array: object) -> Value:
    """Return an array as recorded tensors are held: texts as objects, whatever the longest is."""
    held: Array = np.asarray(array)
    return held.astype(object) if held.dtype.kind == "U" else held


def _of_polygraphy(file: Path) -> list[dict[str, Value]]:
    """Return the arrays by name, of each run that Polygraphy wrote down."""
    try:
        told = parse_json(read_text(file))
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{file}: is no JSON ({error})") from None
    try:
        return [_arrays(one) for one in _runs(told)]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, binascii.Error) as error:
        raise UserError(
            f"{file}: is not what polygraphy run --save-inputs or --save-outputs writes, or is damaged "
            f"({type(error).__name__})"
        ) from None


def _runs(told: Any) -> list[dict[str, Any]]:
    """Return the mapping of each run: a list of them is inputs, ``RunResults`` has those of the first runner."""
    if isinstance(told, list):
        return told
    if told.get(_CLASS, told.get(_LEGACY)) == "RunResults":
        _, results = told["lst"][0]
        return [one["outputs"] for one in results]
    return [told]


def _arrays(run: Mapping[str, object]) -> dict[str, Value]:
    return {str(name): _packed(value) for name, value in run.items() if name not in (_CLASS, _LEGACY)}


def _packed(value: Any) -> Value:
    if "values" in value:  # a LazyArray
        value = value["values"]
    data = base64.b64decode(value["array"], validate=True)
    array: Any = np.load(io.BytesIO(data), allow_pickle=False)
    return np.asarray(array)


def _joined(halves: Sequence[tuple[Path, list[dict[str, Value]]]]) -> Iterator[tuple[str, dict[str, Value]]]:
    """Yield the runs of Polygraphy's files, each with what all files say of it: one has inputs, another outputs."""
    merged: dict[int, dict[str, Value]] = {}
    names = ", ".join(str(file) for file, _ in halves)
    for _, runs in halves:
        for number, run in enumerate(runs):
            merged.setdefault(number, {}).update(run)
    for number, values in merged.items():
        yield f"{names}, run {number}" if len(merged) > 1 else names, values


def _divided(name: str, values: Mapping[str, Value], interface: Interface) -> RecordedSet:
    """Divide values into inputs and outputs by their names."""
    odd = [one for one in values if one not in interface.inputs and one not in interface.outputs]
    if odd:
        there = ", ".join([*interface.inputs, *interface.outputs])
        raise UserError(f"{name}: has {', '.join(odd[:4])}, which the model does not have: {there}")
    parts = (interface.inputs, interface.outputs)
    for what, kinds in zip(("input", "output"), parts, strict=True):
        missing = [one for one in kinds if one not in values]
        if missing:
            raise UserError(f"{name}: half a set: the {what} {', '.join(missing[:4])} is missing")
    inputs, outputs = ({one: values[one] for one in kinds} for kinds in parts)
    return RecordedSet(name, inputs, outputs)


# ---- whether a set fits --------------------------------------------------------------------------------------


def misfit(one: RecordedSet, interface: Interface) -> str | None:
    """Return why a set is not of a model with this interface; None where it may be."""
    sizes: dict[str, int] = {}
    for what, kinds, values in (("input", interface.inputs, one.inputs), ("output", interface.outputs, one.outputs)):
        for name, value in values.items():
            kind = kinds[name]
            if not _fits(value, kind, sizes if what == "input" else {}):
                return f"the {what} {name} is {_described(value)}, and the model has {kind} there: another model's?"
    return None


def _fits(value: Value, kind: TensorKind, sizes: dict[str, int]) -> bool:
    if kind.what == "optional":
        return value is None or kind.inner is None or _fits(value, kind.inner, sizes)
    if kind.what == "sequence":
        inner = kind.inner
        return isinstance(value, list) and (inner is None or all(_fits(each, inner, {}) for each in value))
    if kind.what == "map":
        return isinstance(value, dict)
    if not isinstance(value, np.ndarray):
        return False
    if kind.dtype is not None and value.dtype != dtype_of(kind.dtype):
        return False
    if kind.shape is None:
        return True
    if len(kind.shape) != value.ndim:
        return False
    for size, said in zip(value.shape, kind.shape, strict=True):
        if isinstance(said, int) and said >= 0 and said != size:
            return False
        if isinstance(said, str) and said and sizes.setdefault(said, size) != size:
            return False
    return True


def _described(value: Value) -> str:
    if isinstance(value, np.ndarray):
        return f"{dtype_name(value)}{[*value.shape]}"
    return "a sequence" if isinstance(value, list) else "a map" if isinstance(value, dict) else "nothing"


def shortened(one: RecordedSet, folder: Path) -> RecordedSet:
    """Return the set with a name that is relative to a folder."""
    return replace(one, name=one.name.replace(f"{folder}/", ""))
