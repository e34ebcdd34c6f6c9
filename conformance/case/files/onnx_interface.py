"""Fill in what a case need not say again of the ONNX file that it names: inputs, outputs, dims, opset."""

from __future__ import annotations

import glob
import keyword
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from conformance.case.files.field_types import TENSOR
from conformance.case.files.onnx_header import Header, drawn_for, header
from conformance.case.files.recording import read_around, sizes_in, spell_out, values_around
from conformance.process.errors import did_you_mean, shown

Keys: TypeAlias = Mapping[str, Any]
"""What a case file says under its keys, before it is checked."""
Filled: TypeAlias = dict[str, Any]
"""The same with more keys."""

SIZES = "1..8"
"""The range of a dim that the file leaves open and the case says nothing of."""
LARGEST_WHOLE = 1
"""The largest whole number of an input of which nothing shows what it counts, from 0: a mask has no others."""


def filled_in(said: Keys, folder: Path) -> Filled:
    """Complete what a case says by its ``onnx`` file.

    ValueError for a file that cannot be read, or has what no case can draw.
    """
    name = said["onnx"]
    if not isinstance(name, str) or not name.strip() or name.startswith("/"):
        return dict(said)  # which is refused for what it is
    told = read_header(folder, name)
    beside = list(_checked(told.beside, folder, name))
    given = said.get("inputs", {})
    if not isinstance(given, dict):
        return dict(said)
    if "recorded" in said:
        return _with_recorded(said, folder, told, beside)
    inputs = _ordered(told, {**dict(_inputs(name, told, given)), **given})
    return _filled(said, folder, told, beside, inputs)


def _ordered(told: Header, inputs: Keys) -> Filled:
    """Return inputs in the order of the file, and others behind them."""
    order = [one for tensor in told.inputs for one in drawn_for(tensor)]
    return {name: inputs[name] for name in (*order, *inputs) if name in inputs}


def _filled(said: Keys, folder: Path, told: Header, beside: Sequence[str], inputs: Keys) -> Filled:
    """Complete what a case says by its file, and by these ``inputs``."""
    name = said["onnx"]
    dims = dict.fromkeys(_dims(inputs), SIZES) if isinstance(said.get("dims", {}), dict) else {}
    filled = {"runtimes": ["onnxruntime"], "export": {"onnx": [told.opset]}, **said, "inputs": inputs}
    files = [name, *beside, *(file for other in _other(filled) for file in _with_files_beside(folder, other))]
    filled["depends"] = [*_listed(said.get("depends", [])), *map(glob.escape, files)]
    if dims:
        filled["dims"] = {**dims, **said.get("dims", {})}
    if not inputs and "recorded" not in said:
        raise ValueError(f"{shown(name)} takes no inputs, so that there is nothing to draw")
    single = [tensor for tensor in told.outputs if not tensor.holder]
    narrow = {tensor.name: _limits(tensor.dtype) for tensor in single if tensor.dtype in _ROUNDED}
    if narrow and "tolerance" not in said:
        filled["tolerance"] = {"fp32": {"outputs": narrow, "because": "so few bits have no closer values"}}
    names = [tensor.name for tensor in told.outputs]
    plain = len(single) == len(names) and all(one.dtype and TENSOR.fullmatch(one.name) for one in told.outputs)
    if "outputs" not in said and plain:  # a sequence gives as many tensors as it has
        filled["outputs"] = names
    return filled


_ROUNDED = {
    "bfloat16": 2.0**-6, "float8_e4m3fn": 2.0**-3, "float8_e4m3fnuz": 2.0**-3, "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2, "float8_e8m0fnu": 1.0, "float4_e2m1fn": 1.0,
}  # fmt: skip
"""By dtype of an output of few bits, the error that is allowed relative to a value: the next value of types with at
most 8 bits, and of bfloat16 the next but one."""


def _limits(dtype: str | None) -> dict[str, float]:
    return {"rtol": _ROUNDED[str(dtype)], "atol": _ROUNDED[str(dtype)] / 4}


def _with_recorded(said: Keys, folder: Path, told: Header, beside: Sequence[str]) -> Filled:
    """Complete a case with recorded data: draws go around it, or there are none where nothing can be drawn."""
    name, given = said["onnx"], said.get("inputs", {})
    data, files = read_around(said["recorded"], folder / name)
    recorded = spell_out(said["recorded"])
    try:
        inputs = _ordered(told, {**dict(_inputs(name, told, given)), **given})
    except ValueError:  # of an input that cannot be drawn, for which recorded data is all there is
        inputs = {}
    if any(tensor.holder for tensor in told.inputs):  # as many tensors as were recorded, which nobody can go around
        inputs = {}
    for one in inputs.keys() - given.keys():
        values = values_around([each.inputs.get(one) for each in data.sets])
        inputs[one] = {**inputs[one], **({"values": values} if values else {})}
    fixed = all(isinstance(entry, Mapping) and _stays(entry) for entry in inputs.values())
    if isinstance(recorded, Mapping) and fixed:
        recorded = {**recorded, "only": True}
    sizes = sizes_in(inputs, data.sets[0].inputs) if data.sets else {}
    dims = said.get("dims", {})
    more = {"trace": {**sizes, **said.get("trace", {})}} if isinstance(dims, dict) and not dims else {}
    around = {dim: str(size) for dim, size in sizes.items()}
    return _filled(
        {**said, **more, "recorded": recorded, "dims": {**around, **dims} if isinstance(dims, dict) else dims},
        folder, told, [*beside, *(os.path.relpath(file, folder) for file in files)], inputs,
    )  # fmt: skip


def _stays(entry: Keys) -> bool:
    """Return whether an input has the recorded values in every draw."""
    values = entry.get("values")
    return isinstance(values, Mapping) and bool(values.get("recorded"))


def with_shipped(said: Keys, folder: Path) -> Filled:
    """Return what a case of a module says, with the opset of the model that it names under ``export: {onnx: {file}}``
    where it says none, and the files that the model is; ValueError for a file that cannot be read."""
    target = said["export"].get("onnx") if isinstance(said.get("export"), Mapping) else None
    file = target.get("file") if isinstance(target, Mapping) else None
    if not isinstance(file, str) or not file.strip() or file.startswith("/"):
        files = [one for other in _other(said) for one in _with_files_beside(folder, other)]
        return (
            {**said, "depends": [*_listed(said.get("depends", [])), *map(glob.escape, files)]}
            if files
            else dict(said)
        )
    assert isinstance(target, Mapping)
    told = read_header(folder, file)
    files = [file, *_checked(told.beside, folder, file)]
    export = {**said["export"], "onnx": {"opsets": [told.opset], **target}}
    return {**said, "export": export, "depends": [*_listed(said.get("depends", [])), *map(glob.escape, files)]}


def read_header(folder: Path, name: str) -> Header:
    """Return the interface of a file that a case names; ValueError for one that cannot be read or has no opset."""
    try:
        told = header(folder / name)
    except OSError as error:
        raise ValueError(f"{shown(name)} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # NotOnnx, or a name that no file can have
        raise ValueError(f"{shown(name)}: {error}") from None
    if not 7 <= told.opset <= 40:
        raise ValueError(f"{name} is at opset {told.opset or 'none'} of ONNX; the suite reads opsets 7 to 40")
    return told


def _with_files_beside(folder: Path, name: str) -> Iterator[str]:
    """Yield the file of a model and those beside it. A model that cannot be read is refused where it is run."""
    yield name
    try:
        beside = header(folder / name).beside
    except (OSError, ValueError):
        return
    yield from _checked(beside, folder, name)


def _checked(beside: Mapping[str, int], folder: Path, name: str) -> Iterator[str]:
    """Yield the files beside a model, as the case names them; ValueError for one that lies elsewhere, is no regular
    file (a pipe would be waited for, a device read without an end), or is too short."""
    for file, size in beside.items():
        place = (folder / name).parent / file
        if file.startswith("/") or ".." in Path(file).parts:
            raise ValueError(f"{shown(name)} has values in {shown(file)}, which does not lie beside it")
        if place.exists() and not place.is_file():
            raise ValueError(f"{shown(name)} has values in {shown(file)}, which is no regular file")
        if place.is_file() and place.stat().st_size < size:
            short = f"{place.stat().st_size:,} bytes of at least {size:,}"
            raise ValueError(f"{shown(name)} has values in {shown(file)}, which is too short: {short}")
        yield str(Path(name).parent / file)


def _listed(said: object) -> list[object]:
    return said if isinstance(said, list) else [said]


def _other(said: Keys) -> list[str]:
    """The other files that are run: in place of the case's own, and those that others have converted."""
    export, precisions = (said[key] if isinstance(said.get(key), dict) else {} for key in ("export", "precisions"))
    entries = [export.get("onnx"), *precisions.values()]
    return [entry["file"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("file"), str)]


def _inputs(file: str, told: Header, given: Iterable[str]) -> Iterator[tuple[str, Filled]]:
    for tensor in told.inputs:
        drawn = drawn_for(tensor)
        if all(one in given for one in drawn):
            continue
        if not TENSOR.fullmatch(tensor.name):
            raise ValueError(f"{file}: the input {tensor.name!r} has control characters in its name; rename it")
        if tensor.dtype is None or tensor.shape is None:
            if tensor.dtype is None:
                text = "a type that is not drawn (complex numbers, which no runtime takes, or maps)"
                raise ValueError(f"{file}: the input {tensor.name} has {text}; recorded data is all that can be used")
            how = f"declare {' and '.join(drawn)} under inputs"
            raise ValueError(f"{file}: the input {tensor.name} has no shape; {how}")
        sizes = [_size(tensor.name, axis, size) for axis, size in enumerate(tensor.shape)]
        entry: Filled = {"type": f"{tensor.dtype}[{', '.join(sizes)}]"}
        if tensor.dtype.lstrip("u").startswith("int"):
            entry["values"] = {"by_graph": LARGEST_WHOLE}
        yield from ((one, entry) for one in drawn)


def exactly(told: Header, given: Mapping[str, str]) -> dict[str, Filled]:
    """Return what a case says of inputs whose values are given as texts: ``1,3,4`` or ``-1``. An open dim of an input
    with one dim is as long as its values. Of texts these are the ones that each element is drawn of.

    ValueError for an input that the file does not have, and for what are no numbers.
    """
    tensors = {tensor.name: tensor for tensor in told.inputs}
    entries: dict[str, Filled] = {}
    for name, text in given.items():
        tensor = tensors.get(name)
        if tensor is None:
            raise ValueError(f"there is no input {shown(name)}{did_you_mean(name, tensors)}")
        if tensor.dtype is None or tensor.shape is None or tensor.holder:
            raise ValueError(f"the input {name} has a type of which no values can be given")
        words, sizes = text.split(","), list[int | str](tensor.shape)
        if tensor.dtype == "string":
            values: Filled = {"texts": words}
        else:
            numbers = [_as_number(name, word) for word in words if word.strip()]
            values, sizes = {"exactly": numbers}, [len(numbers)] if len(sizes) == 1 else sizes
        written = ", ".join(_size(name, axis, size) for axis, size in enumerate(sizes))
        entries[name] = {"type": f"{tensor.dtype}[{written}]", "values": values}
    return entries


def _as_number(name: str, word: str) -> float:
    word = {"true": "1", "false": "0"}.get(word.strip().lower(), word.strip())
    try:
        return int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word)
    except ValueError:
        raise ValueError(f"{name}={shown(word)}: the values of an input are numbers, as in {name}=1,3,4") from None


def _size(name: str, axis: int, size: int | str) -> str:
    """Write a size as a case does.

    A dim without a name, or with one that is no word, gets one.
    """
    if isinstance(size, int) and size >= 0:
        return str(size)
    short = f"dim_{zlib.crc32(name.encode()):x}_{axis}"  # of names longer than those of dims may be
    texts = (size if isinstance(size, str) else "", f"{name}_{axis}", f"dim_{name}_{axis}", short)
    words = (re.sub(r"\W+", "_", text) for text in texts)
    return next(
        word for word in words if len(word) <= 64 and re.fullmatch(r"_*[A-Za-z]\w*", word) and word not in _NO_DIMS
    )


_NO_DIMS = {"min", "max", *keyword.kwlist}


def _dims(inputs: Keys) -> list[str]:
    """The names in the types of inputs."""
    types = (entry.get("type", "") if isinstance(entry, dict) else entry for entry in inputs.values())
    shapes = (str(kind).partition("[")[2] for kind in types)
    return list(dict.fromkeys(word for shape in shapes for word in re.findall(r"[A-Za-z_]\w*", shape)))
