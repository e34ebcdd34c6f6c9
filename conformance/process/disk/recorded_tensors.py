"""Read values that others recorded: tensors, sequences, optionals and maps as ONNX's tests store them (``.pb``).

Nothing is executed, nothing is allocated before its bytes are there, and whatever a file holds ends in a value or in
a sentence.
"""

from __future__ import annotations

import importlib
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np

from conformance.process.arrays import Array
from conformance.process.disk.foreign_files import LARGEST
from conformance.process.disk.protobuf import Damaged, fields, number, signed, text, varints
from conformance.process.errors import UserError, why

Value: TypeAlias = Union[Array, "list[Value]", "dict[Any, Any]", None]
"""A tensor; a sequence; a map; an optional without a value."""

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
    27: "float6_e2m3fn", 28: "float6_e3m2fn",
}  # fmt: skip
"""By number in ``onnx.TensorProto.DataType``, as NumPy or ml_dtypes call them."""
_BITS = {"uint4": 4, "int4": 4, "float4_e2m1fn": 4, "uint2": 2, "int2": 2, "float6_e2m3fn": 6, "float6_e3m2fn": 6}
"""Types whose values do not take whole bytes, each with its bits, from the lowest of the first byte on."""
_DEEPEST = 16
"""Sequences and optionals inside of one another."""


@dataclass(frozen=True)
class TensorKind:
    """The type of an input or an output."""

    what: str
    """tensor, sequence, optional or map."""
    dtype: str | None = None
    shape: tuple[int | str, ...] | None = None
    inner: TensorKind | None = None

    def __str__(self) -> str:
        if self.what != "tensor":
            return f"{self.what}({self.inner})" if self.inner else self.what
        shape = "" if self.shape is None else f"[{', '.join(str(size) or '?' for size in self.shape)}]"
        return f"{self.dtype}{shape}"


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a model in their order; inputs that have a value in the file are left out."""

    inputs: Mapping[str, TensorKind]
    outputs: Mapping[str, TensorKind]


def read_interface(file: Path) -> Interface:
    """Return the interface of a model. Raises UserError for a file that is none, or cannot be read."""
    try:
        with file.open("rb") as stream:  # of a model of any size only these parts are looked at
            data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({why(error) if isinstance(error, OSError) else error})") from None
    try:
        inputs, outputs = values_of(next((value for key, value in fields(data) if key == 7), None))
    except (Damaged, IndexError, UnicodeDecodeError):
        raise UserError(f"{file}: the file is damaged, or is no ONNX model") from None
    return Interface(dict(inputs), dict(outputs))


def values_of(graph: memoryview | int | None) -> tuple[list[tuple[str, TensorKind]], list[tuple[str, TensorKind]]]:
    """Return the inputs of a ``GraphProto`` that have no value in it, and its outputs, in their order. Raises as
    ``protobuf.fields``."""
    values: dict[int, list[tuple[str, TensorKind]]] = {11: [], 12: []}
    known: set[str] = set()
    for key, value in fields(graph):
        if key == 5:
            known.add(text(dict(fields(value)).get(8)))
        elif key in values:
            said = dict(fields(value))
            values[key].append((text(said.get(1)), _kind(said.get(2))))
    return [(name, kind) for name, kind in values[11] if name not in known], values[12]


def _kind(data: memoryview | int | None, depth: int = 0) -> TensorKind:
    """Return what a ``TypeProto`` says."""
    said = dict(fields(data))
    for key, what in ((4, "sequence"), (9, "optional")):
        if key in said and depth < _DEEPEST:
            return TensorKind(what, inner=_kind(dict(fields(said[key])).get(1), depth + 1))
    if 5 in said and depth < _DEEPEST:
        parts = dict(fields(said[5]))
        return TensorKind("map", DTYPES.get(number(parts.get(1))), inner=_kind(parts.get(2), depth + 1))
    parts = dict(fields(said.get(1)))
    if 2 not in parts:
        return TensorKind("tensor", DTYPES.get(number(parts.get(1))))
    dims = [dict(fields(dim)) for key, dim in fields(parts[2]) if key == 1]
    shape = tuple(signed(number(dim[1])) if 1 in dim else text(dim.get(2)) for dim in dims)
    return TensorKind("tensor", DTYPES.get(number(parts.get(1))), shape)


def read_value(file: Path, kind: TensorKind) -> tuple[str, Value]:
    """Return the name that a ``.pb`` file gives to its value, and the value, which is read as of this kind.

    Raises UserError for a file that cannot be read, is damaged, or is larger than what is read.
    """
    data = _bytes(file)
    try:
        return _named(data, kind)
    except (ValueError, IndexError, OverflowError) as error:  # of texts that are none, and sizes that no array has
        said = f": {error}" if isinstance(error, Damaged) and "protobuf" not in str(error) else ""
        raise UserError(f"{file}: the file is damaged, or holds no {kind.what}{said}") from None


def _bytes(file: Path) -> memoryview:
    try:
        if not file.is_file():
            raise UserError(f"{file}: {'is no regular file' if file.exists() else 'there is no such file'}")
        if file.stat().st_size > LARGEST:
            raise UserError(f"{file}: is larger than {LARGEST >> 20:,} MiB, which is the most that is read")
        return memoryview(file.read_bytes())
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({why(error)})") from None


def _named(data: memoryview, kind: TensorKind, depth: int = 0) -> tuple[str, Value]:
    if depth > _DEEPEST:
        raise Damaged("too many sequences inside of one another")
    if kind.what == "tensor":
        return _tensor(data)
    said = [*fields(data)]
    single = dict(said)
    name = text(single.get(1))
    if kind.what == "map":
        keys = [signed(one) for key, value in said if key == 3 for one in varints(value)]
        words = [text(value) for key, value in said if key == 4]
        _, held = _named(_message(single.get(5)), TensorKind("sequence"), depth + 1)
        values = held if isinstance(held, list) else []
        return name, dict(zip(words or keys, values, strict=False))
    elements = [_named(_message(value), TensorKind(_HELD[key]), depth + 1)[1] for key, value in said if key in _HELD]
    if kind.what == "sequence":
        return name, elements
    return name, elements[0] if elements else None


_HELD = {3: "tensor", 5: "sequence", 6: "map", 7: "optional"}
"""The fields of ``SequenceProto`` and ``OptionalProto`` that hold values, with their kinds."""


def _message(value: memoryview | int | None) -> memoryview:
    if not isinstance(value, memoryview):
        raise Damaged("a value is missing")
    return value


def _tensor(data: memoryview) -> tuple[str, Array]:
    """Return the name and the values of a ``TensorProto``."""
    dims: list[int] = []
    parts: dict[int, list[memoryview | int]] = {}
    for key, value in fields(data):
        if key == 1:
            dims += map(signed, varints(value))
        else:
            parts.setdefault(key, []).append(value)
    if 13 in parts:
        raise Damaged("its values lie in another file, which recorded data may not have")
    said = DTYPES.get(number(parts.get(2, [0])[-1]))
    if said is None or any(size < 0 for size in dims):
        raise Damaged("its type or its sizes are none of ONNX")
    array = _values(said, math.prod(dims), parts).reshape(dims)
    name = parts.get(8, [None])[-1]
    return text(name), array


def _values(said: str, count: int, parts: Mapping[int, Sequence[memoryview | int]]) -> Array:
    if said == "string":
        words = [bytes(value) for value in parts.get(6, ()) if isinstance(value, memoryview)]
        _hold(len(words), count)
        return np.array([word.decode("utf-8") for word in words], dtype=object)
    dtype = dtype_of(said)
    raw = np.frombuffer(_message(parts[9][-1]), np.uint8) if 9 in parts else _typed(said, dtype, parts)
    bits = _BITS.get(said)
    if bits == 6 and 9 not in parts:  # which stand in bytes of their own in the field for their type
        bits = None
    if bits is not None:
        _hold(raw.size, -(-count * bits // 8))
        stream = np.unpackbits(raw, bitorder="little")[: count * bits].reshape(count, bits)
        each = np.packbits(stream, axis=1, bitorder="little").reshape(-1)
        if said.startswith("int"):
            return np.where(each >= 2 ** (bits - 1), each.astype(np.int8) - 2**bits, each).astype(dtype)
        return each.view(dtype) if said.startswith("float") else each.astype(dtype)
    _hold(raw.size, count * dtype.itemsize)
    return raw.view(dtype.newbyteorder("<") if dtype.isbuiltin else dtype).astype(dtype)


def _typed(said: str, dtype: np.dtype[Any], parts: Mapping[int, Sequence[memoryview | int]]) -> Array:
    """Return the bytes of values that do not stand as they are, but in a field for their type."""
    if said in ("float32", "complex64", "float64", "complex128"):
        key = 4 if said in ("float32", "complex64") else 10
        return np.frombuffer(b"".join(bytes(_message(value)) for value in parts.get(key, ())), np.uint8)
    key = {"int64": 7, "uint32": 11, "uint64": 11}.get(said, 5)
    numbers = [one for value in parts.get(key, ()) for one in varints(value)]
    size = 1 if said in _BITS else dtype.itemsize
    return np.frombuffer(
        b"".join((one & (2 ** (8 * size) - 1)).to_bytes(size, "little") for one in numbers), np.uint8
    )


def _hold(got: int, wanted: int) -> None:
    if got != wanted:
        raise Damaged(f"it has {got:,} bytes of values, and its type and sizes say {wanted:,}")


def dtype_of(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of that name, or the one of ml_dtypes, which ONNX needs too."""
    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        others: Any = importlib.import_module("ml_dtypes")
        dtype: np.dtype[Any] = np.dtype(getattr(others, name))
        return dtype
