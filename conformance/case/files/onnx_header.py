"""Read the header of an ONNX file: inputs, outputs, dims, opset, and the files that hold its weights.

A case file is read where nothing may import onnx, so that a run starts at once. Of the model only the parts that
matter are looked at, as protobuf encodes them (https://protobuf.dev/programming-guides/encoding), and weights are
passed over. What is not read here is checked where the model is run.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from conformance.case.files import dims
from conformance.process.disk.protobuf import Damaged
from conformance.process.disk.protobuf import fields as _fields
from conformance.process.disk.protobuf import number as _number
from conformance.process.disk.protobuf import text as _text
from conformance.process.disk.recorded_tensors import DTYPES, TensorKind, values_of

TYPES = {number: name for number, name in DTYPES.items() if name in (*dims.DTYPES, *dims.OF_FILES)}
"""By number in ``onnx.TensorProto.DataType``, those of which inputs can be drawn."""
OPSET_OF_OTHERS = 21
"""The opset of ONNX's own operators in a file that has none of them, only operators of other domains."""


@dataclass(frozen=True)
class Tensor:
    """An input or an output of the graph; ``shape`` is None where the file has none."""

    name: str
    dtype: str | None
    shape: tuple[int | str, ...] | None
    holder: str = ""
    """``sequence``, ``optional`` or ``optional sequence`` where it holds such tensors."""


ELEMENTS = 2
"""The number of tensors that are drawn for an input that is a sequence."""


def elements_of(name: str) -> list[str]:
    """Return the names of the tensors that are drawn for a sequence of that name."""
    return [f"{name}.{number}" for number in range(ELEMENTS)]


def drawn_for(tensor: Tensor) -> list[str]:
    """Return the names of the tensors that are drawn for an input."""
    return elements_of(tensor.name) if "sequence" in tensor.holder else [tensor.name]


@dataclass
class Header:
    """Hold the interface of a model as its file has it."""

    opset: int = 0
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    beside: dict[str, int] = field(default_factory=dict)
    """The files beside it that hold values of tensors, wherever in the model these are, with the bytes that they have
    at least."""


class NotOnnx(ValueError):
    """Raised for a file that is no ONNX model."""


def header(file: Path) -> Header:
    """Read the interface of a model; raise OSError, or NotOnnx for what is no model. A large graph takes a while, and
    a file that has not changed is not read again: what is returned is shared."""
    if file.exists() and not file.is_file():
        raise NotOnnx("it is no file")
    state = file.stat()
    return _header(file, (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))


@lru_cache(maxsize=16)
def _header(file: Path, _: tuple[int, ...]) -> Header:
    with file.open("rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # of no bytes
            raise NotOnnx("the file is empty") from None
        try:
            return _model(memoryview(data))
        except (IndexError, UnicodeDecodeError):
            raise NotOnnx("the file is cut off, or is no ONNX model") from None
        except Damaged:
            raise NotOnnx("the file is no ONNX model") from None


def _model(data: memoryview) -> Header:
    told, graphs, others = Header(), 0, False
    for number, value in _fields(data):
        if number == 8 and isinstance(value, memoryview):
            opset = dict(_fields(value))
            if _text(opset.get(1)) in ("", "ai.onnx"):
                told.opset = _number(opset.get(2))
            others = True
        elif number == 7 and isinstance(value, memoryview):
            graphs += 1
            inputs, outputs = values_of(value)  # below opset 13, weights are inputs too
            told.inputs += [_tensor(*one) for one in inputs]
            told.outputs += [_tensor(*one) for one in outputs]
    if not graphs:
        raise NotOnnx("the file is no ONNX model: it has no graph")
    told.opset = told.opset or (OPSET_OF_OTHERS if others else 0)
    for tensor in _tensors(data, "model"):
        for name, size in _beside(tensor):
            told.beside[name] = max(size, told.beside.get(name, 0))
    return told


_INSIDE: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
}
"""Of each message of ``onnx.proto`` the fields in which tensors may be, with their messages."""
_DEEPEST = 100
"""Messages inside of messages, as far as protobuf itself reads them."""


def _tensors(data: memoryview, message: str, depth: int = 0) -> Iterator[memoryview]:
    """Yield every tensor of a message: initializers, values of attributes, in branches, bodies and functions."""
    if message == "tensor":
        yield data
        return
    if depth > _DEEPEST:
        raise NotOnnx(f"the file has messages inside of messages, more than {_DEEPEST} deep")
    for number, value in _fields(data):
        inside = _INSIDE[message].get(number)
        if inside is not None and isinstance(value, memoryview):
            yield from _tensors(value, inside, depth + 1)


def _beside(tensor: memoryview) -> Iterator[tuple[str, int]]:
    """Yield the file that holds the values of a tensor, if it is another, and the bytes that it has at least."""
    entries = [dict(_fields(value)) for number, value in _fields(tensor) if number == 13]
    said = {_text(entry.get(1)): _text(entry.get(2)) for entry in entries}
    if "location" in said:
        sizes = (said.get("offset", "0"), said.get("length", "0"))
        yield said["location"], sum(int(size) for size in sizes if re.fullmatch(r"\d{1,18}", size))


def _tensor(name: str, kind: TensorKind) -> Tensor:
    holders = list[str]()
    while kind.what in ("sequence", "optional") and kind.inner is not None:
        holders.append(kind.what)
        kind = kind.inner
    holder = " ".join(holders)
    if kind.what != "tensor" or holder not in ("", "sequence", "optional", "optional sequence"):
        return Tensor(name, None, None)
    return Tensor(name, kind.dtype if kind.dtype in TYPES.values() else None, kind.shape, holder)
