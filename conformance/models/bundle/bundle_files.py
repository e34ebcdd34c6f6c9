"""The files of a bundle, read so that nothing outside of it is: a bundle may come from anybody.

A path in a bundle is below its folder, by its name and after all links; it is a regular file; a tensor of a data set
holds its own data; a model's external data lies in the folder of its entry. All else is refused with the file and the
field that say otherwise. Needs numpy and onnx only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case.draw.example import Draw, Example, given
from conformance.compare.judges import Judge
from conformance.models.bundle.entry import Entry, check_path
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.recorded_tensors import read_interface
from conformance.process.errors import UserError, attempt, or_else, why
from conformance.results.records.validation import Misfit

if TYPE_CHECKING:
    from onnx import TensorProto

HEAD = "bundle.json"
CELLS = "cells"
MODEL = "model.onnx"

MOST_BYTES = 2**31 - 1
"""Bytes of a model or a tensor, which protobuf can hold no more of. https://protobuf.dev/overview/#solve"""

_EXTERNAL = frozenset({"location", "offset", "length", "checksum"})
"""What ONNX knows of external data. https://onnx.ai/onnx/repo-docs/ExternalData.html"""


def contained(folder: Path, name: str) -> Path:
    """The path of ``name`` below ``folder``, without links. Raises UserError where the name or a link leads out of
    it, FileNotFoundError where there is nothing."""
    try:
        check_path(name)
    except Misfit as misfit:
        raise UserError(f"{folder}: the path of a file {misfit}") from None
    root = folder.resolve()
    try:
        path = (root / name).resolve(strict=True)
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise UserError(f"{folder / name}: cannot be followed ({error})") from None
    if not path.is_relative_to(root):
        raise UserError(f"{folder / name}: is a link to {path}, which is not in {root}")
    return path


def regular(folder: Path, name: str, most: int = MOST_BYTES) -> Path:
    """``contained``, and a regular file of at most ``most`` bytes."""
    path = contained(folder, name)
    told = path.stat()
    if not stat.S_ISREG(told.st_mode):
        raise UserError(f"{folder / name}: is no regular file")
    if told.st_size > most:
        raise UserError(f"{folder / name}: has {told.st_size} bytes, and {most} at most can be right")
    return path


def read(folder: Path, name: str, most: int = MOST_BYTES) -> bytes:
    """The bytes of a ``regular`` file."""
    return regular(folder, name, most).read_bytes()


class Files:
    """The files of a bundle's entries. Whatever cannot be used raises UserError, with its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, entry: Entry) -> Path:
        return self.folder / CELLS / entry.name

    def model(self, entry: Entry) -> Path:
        """Return where the model lies; ``checked_model`` looks into it."""
        return self.place(entry) / MODEL

    def checked_model(self, entry: Entry) -> Path:
        """The path of the model, which is ONNX and refers to no file outside of the entry's folder."""
        file = self.model(entry)
        path = self._regular(entry, MODEL)
        data = path.read_bytes()
        if data[4:8] == b"ORTM":  # https://onnxruntime.ai/docs/performance/model-optimizations/ort-format-models.html
            raise UserError(f"{file}: is no ONNX model but one of ONNX Runtime's own format")
        from onnx import ModelProto

        model = attempt(lambda: ModelProto.FromString(data))
        if isinstance(model, Exception):
            raise UserError(f"{file}: is no ONNX model: {type(model).__name__}: {model}")
        home = contained(self.folder, f"{CELLS}/{entry.name}")
        for tensor in _tensors(model):
            if _is_external(tensor):
                if path.parent != home:
                    raise UserError(f"{file}: is a link to a model with external data")
                _check_external(tensor, home, file)
        return path

    def libraries(self, entry: Entry) -> list[str]:
        """The paths of the custom-operator libraries."""
        return [str(self._regular(entry, library)) for library in entry.libraries]

    def plugins(self, entry: Entry) -> tuple[str, ...]:
        """The paths of TensorRT's plugin libraries."""
        return tuple(str(self._regular(entry, name)) for name in entry.build["options"]["plugins"])

    def code(self, entry: Entry) -> list[Path]:
        """The paths of all libraries and plugins."""
        return [self._regular(entry, name) for name in entry.code]

    def _regular(self, entry: Entry, name: str) -> Path:
        try:
            return regular(self.folder, f"{CELLS}/{entry.name}/{name}")
        except OSError as error:
            raise UserError(f"{self.place(entry) / name}: cannot be read ({why(error)})") from None

    def examples(self, entry: Entry) -> Iterator[Example]:
        """All examples of an entry."""
        for index, told in enumerate(entry.sets):
            place = f"test_data_set_{index}"
            inputs = self._inputs(entry, place)
            wanted = self._arrays(entry, place, "output")
            exact = self._arrays(entry, place, "exact") if told["exact"] else None
            conditioning = self._conditioning(entry, place, told["conditioning"])
            per_output = {"exact outputs": exact, "conditioning": conditioning, "any_order": entry.judge["any_order"]}
            for name, values in per_output.items():
                if values is not None and len(values) < len(wanted):
                    text = f"the bundle is damaged: {len(wanted)} outputs, and {name} of {len(values)}"
                    raise UserError(f"{self.place(entry) / place}: {text}")
            draw = Draw(**{name: told[name] for name in ("dims", "regime", "seed", "index")})
            yield given(draw, inputs, wanted, exact, conditioning, told["apart"])

    def trial(self, entry: Entry, judge: Judge) -> EngineTrial:
        """Return what an engine of this entry is tried with."""
        assert entry.trial is not None
        rows = self._inputs(entry, "engine/rows") if entry.trial["rows"] else None
        batches = {batch: self._inputs(entry, f"engine/batch_{batch}") for batch in entry.trial["batches"]}
        return EngineTrial(self._inputs(entry, "engine/first"), judge, rows, entry.trial["equal"], batches)

    def _inputs(self, entry: Entry, place: str) -> dict[str, Array]:
        arrays = self._arrays(entry, place, "input")
        if len(arrays) != len(entry.inputs):
            text = f"the bundle is damaged: {len(arrays)} inputs for {len(entry.inputs)} names"
            raise UserError(f"{self.place(entry) / place}: {text}")
        return dict(zip(entry.inputs, arrays, strict=True))

    def _conditioning(self, entry: Entry, place: str, most: list[float] | None) -> list[Array] | None:
        """Read how far rounding moves the values of each output; earlier bundles have one number for each output: the
        most of its values, or of a converted model the mean square."""
        moved = self._arrays(entry, place, "moved")
        if not moved and most is not None:
            numbers = [np.array(each, dtype=np.float64) for each in most]
            return [np.sqrt(each) for each in numbers] if entry.judge["kind"] == "budget" else numbers
        if not moved:
            return None
        if any(each.dtype != np.float64 or not (each >= 0).all() for each in moved):
            text = "the bundle is damaged: how far rounding moves the outputs are no numbers from 0 on"
            raise UserError(f"{self.place(entry) / place}: {text}")
        return moved

    def _arrays(self, entry: Entry, place: str, kind: str) -> list[Array]:
        """The tensors ``kind_0.pb`` and on of a folder of the entry."""
        arrays: list[Array] = []
        while True:
            name = f"{place}/{kind}_{len(arrays)}.pb"
            file = self.place(entry) / name
            if not os.path.lexists(file):
                return arrays
            array = _array(file, self._regular(entry, name).read_bytes())
            if array.dtype.kind == "U" and not self._has_texts(entry):
                raise UserError(f"{file}: the bundle is damaged: its tensor holds no numbers")
            arrays.append(array)

    def _has_texts(self, entry: Entry) -> bool:
        """Return whether an input or an output of the entry's model is of texts."""
        told = or_else(None, lambda: read_interface(self.model(entry)))
        return told is not None and any(
            kind.dtype == "string" for kind in (*told.inputs.values(), *told.outputs.values())
        )


def _array(file: Path, data: bytes) -> Array:
    from onnx import TensorProto, numpy_helper

    def values() -> Array:
        tensor = TensorProto.FromString(data)
        if _is_external(tensor):
            text = "data_location and external_data refer to another file; a tensor of a data set holds its own data"
            raise UserError(f"{file}: {text}")
        if any(size < 0 for size in tensor.dims):
            raise ValueError("a size below 0")
        array: Array = numpy_helper.to_array(tensor)
        return array.astype(str) if tensor.data_type == TensorProto.STRING else array

    array = attempt(values)
    if isinstance(array, UserError):
        raise array
    if isinstance(array, Exception):
        raise UserError(f"{file}: the bundle is damaged: {type(array).__name__}: {array}")
    return array


# ---- external data of a model -------------------------------------------------------------------------------


def _tensors(message: Any) -> Iterator[TensorProto]:
    """All tensors of a model, wherever its messages hold them: in graphs, attributes, functions, training steps."""
    if message.DESCRIPTOR.full_name == "onnx.TensorProto":
        yield message
        return
    for about, value in message.ListFields():
        if about.message_type is not None:
            for part in (value,) if hasattr(value, "ListFields") else value:
                yield from _tensors(part)


def _is_external(tensor: TensorProto) -> bool:
    from onnx import TensorProto

    return bool(tensor.external_data) or tensor.data_location == TensorProto.EXTERNAL


def _check_external(tensor: TensorProto, home: Path, file: Path) -> None:
    """UserError where the external data of a tensor are not those of a regular file in ``home``."""
    where = f"{file}: external_data of '{tensor.name}'"
    told = {item.key: item.value for item in tensor.external_data}
    if len(told) != len(tensor.external_data) or "location" not in told or not told.keys() <= _EXTERNAL:
        raise UserError(f"{where} has other keys than location, offset, length and checksum, each once")
    location = told["location"]
    try:
        check_path(location)
    except Misfit as misfit:
        raise UserError(f"{where}: location {misfit}") from None
    if "*" in location:  # runtimes have such names for what is no file
        raise UserError(f"{where}: location is '{location}', which is no name of a file")
    offset, length = told.get("offset", "0"), told.get("length", "0")
    if not all(number.isascii() and number.isdigit() and len(number) < 20 for number in (offset, length)):
        raise UserError(f"{where}: offset and length are numbers of bytes")
    try:
        size = regular(home, location, 2**63).stat().st_size
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except OSError as error:
        raise UserError(f"{where}: location '{location}' cannot be read ({why(error)})") from None
    if int(offset) + int(length) > size:
        raise UserError(f"{where}: '{location}' has {size} bytes, which is less than offset and length say")


@dataclass(frozen=True)
class EngineTrial:
    """The inputs and limits of a trial of an engine."""

    inputs: Inputs
    """One example at the traced sizes."""
    judge: Judge
    """Decides whether two builds answer alike."""
    rows: Inputs | None = None
    """A batch of equal rows; None where the case has no dim of rows."""
    equal: Sequence[int] = ()
    """The outputs whose rows come out equal in PyTorch for ``rows``."""
    batches: Mapping[int, Inputs] = field(default_factory=dict)
    """Inputs by number of rows."""
