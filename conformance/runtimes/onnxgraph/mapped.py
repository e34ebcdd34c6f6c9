"""Read a model without its large weights, which stay in their files until somebody computes with them.

A model of a gigabyte is a small graph and a few hundred arrays. Whoever asks for its nodes, types or sizes reads the
graph; whoever computes takes each array from the place in the file at which it lies. onnx reads all of it, several
times: as bytes, as a message, as the bytes of each tensor, and as arrays.

A file that changes after it was opened would give weights of another model. Reading them looks whether it is as it
was, and raises ``FileChanged`` where it is not. Weights that are in memory by a map of the file alone cannot be held
that way: where somebody cuts the file off, the kernel ends the process that reads beyond its end (SIGBUS), which is
reported as a process that died. Files that the suite keeps are never changed in their place: they are written under
another name, renamed and removed, which leaves the bytes of a map as they are.
"""

from __future__ import annotations

import math
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.process.arrays import Array
from conformance.process.disk.protobuf import head, number, placed_fields
from conformance.process.errors import or_else
from conformance.runtimes.onnxgraph.reads import copy_of

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

SMALL = 2**20
"""Bytes of a file up to which onnx reads it, which takes no longer than what is done here."""
LARGE = 2**16
"""Bytes of a weight from which it stays in its file."""
_MOST = 2**31 - 1
"""The most bytes of a message, which protobuf refuses to read beyond that."""
ALIGNED = 16
"""The bytes at a multiple of which arrays begin in memory, as all do that onnx makes: elsewhere kernels may add up in
another order. A weight that begins so in its file is mapped, another one is read."""

_GRAPH, _INITIALIZER, _RAW, _LOCATION = 7, 5, 9, 14
"""The fields of ``onnx.proto``: the graph of a model, an initializer of a graph, the bytes of a tensor, and whether
they lie in another file."""
_SAID = frozenset((1, 2, 8, 12, 16))
"""The fields that a tensor may have besides its values: dims, type, name, a text, and metadata."""
_NAMES_OF_SAID = frozenset(
    ("dims", "data_type", "name", "doc_string", "metadata_props", "external_data", "data_location")
)
"""The names of the fields of a tensor whose values lie in a file beside the model."""
_WHOLE_BYTES = frozenset((*range(1, 8), *range(9, 14), *range(16, 21), 24))
"""The types, by their number in ``onnx.TensorProto``, of which each element takes one byte or several."""
_OF_SIZES = frozenset((6, 7))
"""The types of tensors that may be sizes or places, which shape inference computes with: int32 and int64."""


class FileChanged(OSError):
    """Raised where a file is not as it was when the model was read of it."""


@dataclass(frozen=True)
class _Span:
    """The place at which the values of a weight lie."""

    file: Path
    state: tuple[int, ...]
    """The device, inode, size and time of the file as the model was read."""
    offset: int
    size: int


class MappedWeights(Mapping[str, Array]):
    """The large weights of a model by name, in the order of its initializers; each is read when it is first asked
    for, and cannot be written to."""

    def __init__(self, places: Mapping[str, _Span], tensors: Mapping[str, TensorProto]) -> None:
        from onnx import helper

        self._places = places
        self._forms = {
            name: (helper.tensor_dtype_to_np_dtype(tensors[name].data_type), tuple(tensors[name].dims))
            for name in places
        }
        self._read: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._read:
            dtype, shape = self._forms[name]
            self._read[name] = self.bytes_of(name).view(dtype).reshape(shape)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def size_of(self, name: str) -> int:
        """Return the bytes of a weight, which is not read for that."""
        return self._places[name].size

    def offset_of(self, name: str) -> int:
        """Return the place in its file at which a weight begins."""
        return self._places[name].offset

    def bytes_of(self, name: str) -> Array:
        """Return the bytes of a weight, which are not kept."""
        return _values_at(self._places[name])

    def check(self) -> None:
        """Raise FileChanged where a file is not as it was."""
        for file, state in {place.file: place.state for place in self._places.values()}.items():
            if _state(os.stat(file)) != state:  # noqa: PTH116
                raise _changed(file)

    @property
    def files(self) -> list[Path]:
        """The files in which the weights lie."""
        return [*dict.fromkeys(place.file for place in self._places.values())]


@dataclass(frozen=True)
class MappedModel:
    """A model without the values of its large weights, which it says to be external data, and these."""

    file: Path
    model: ModelProto
    weights: MappedWeights = field(default_factory=lambda: MappedWeights({}, {}))
    is_file: bool = True
    """True if the model is what the file has, and nothing of it lies elsewhere."""

    def altered(self, alter: Callable[[ModelProto], ModelProto]) -> MappedModel | None:
        """Return what is made of the model, which may be changed; None where its weights have other names then."""
        before = self.model.SerializeToString() if self.weights else b""
        model = alter(self.model)
        if not self.weights:
            return replace(self, model=model)
        if not self.weights.keys() <= {tensor.name for tensor in model.graph.initializer}:
            return None
        return replace(self, model=model, is_file=self.is_file and model.SerializeToString() == before)


def mapped(file: Path) -> MappedModel:
    """Return the model of a file with its external data. Raises what ``onnx.load`` raises."""
    import onnx

    found = or_else(None, lambda: _mapped(file))
    return MappedModel(file, onnx.load(file)) if found is None else found


def read_graph(file: Path) -> ModelProto:
    """Return the model of a file without the values of its large weights and without its external data. Raises what
    ``onnx.load`` raises."""
    import onnx

    if file.stat().st_size > SMALL:
        found = or_else(None, lambda: _without_raw(file))
        if found is not None:
            return found[0]
    return onnx.load(file, load_external_data=False)


def _mapped(file: Path) -> MappedModel:
    """As ``mapped``; raises anything for a file about which onnx is to say what is wrong."""
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    folder, places = os.path.dirname(file), dict[int, _Span]()  # noqa: PTH120
    if file.stat().st_size > SMALL:
        model, places = _without_raw(file)
    else:
        model = onnx.load(file, load_external_data=False)
    tensors = model.graph.initializer
    external = [index for index, tensor in enumerate(tensors) if tensor.data_location and index not in places]
    names = Counter(tensor.name for tensor in tensors) if external else Counter()
    beside: dict[int, tuple[TensorProto, _Span]] = {}
    for index in external:
        place = _place_beside(folder, tensors[index]) if names[tensors[index].name] == 1 else None
        if place is not None:
            beside[index] = copy_of(tensors[index]), place
    if not places and not beside:
        load_external_data_for_model(model, folder)
        return MappedModel(file, model)
    said = {index: copy_of(tensors[index]) for index in places} | {index: one for index, (one, _) in beside.items()}
    for index in said:
        tensors[index].data_location = onnx.TensorProto.DEFAULT
        del tensors[index].external_data[:]
    before = model.SerializeToString() if places else b""
    load_external_data_for_model(model, folder)  # the rest: small ones, and those of branches and bodies
    alone = not beside and model.SerializeToString() == before
    for index, tensor in said.items():
        tensors[index].CopyFrom(tensor)
    places |= {index: place for index, (_, place) in beside.items()}
    by_name = {tensors[index].name: index for index in sorted(places)}
    return MappedModel(
        file, model, MappedWeights({name: places[index] for name, index in by_name.items()},
                                   {name: tensors[index] for name, index in by_name.items()}),
        alone,
    )  # fmt: skip


# ---- weights in the file itself ------------------------------------------------------------------------------


def _without_raw(file: Path) -> tuple[ModelProto, dict[int, _Span]]:
    """Return the model of a file in which large initializers say where in the file their bytes are, and these places,
    by the place among the initializers."""
    import onnx
    from onnx.serialization import registry

    if registry.get_format_from_file_extension(file.suffix) not in (None, "protobuf"):
        raise ValueError("text")
    with file.open("rb") as stream:
        status = os.fstat(stream.fileno())
        if status.st_size > _MOST:
            raise ValueError("more than protobuf reads")
        data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        found: list[tuple[int, int] | None] = []
        model = onnx.load_model_from_string(b"".join(_left_out(data, found)))
        tensors, places = model.graph.initializer, dict[int, _Span]()
        if len(tensors) != len(found):
            raise ValueError("protobuf reads it otherwise")
        names = Counter(tensor.name for tensor in tensors)
        for index, (tensor, span) in enumerate(zip(tensors, found, strict=True)):
            if span is None:
                continue
            offset, size = span
            if names[tensor.name] > 1 or not _fits(tensor, size):
                tensor.raw_data = bytes(data[offset : offset + size])
                continue
            places[index] = _Span(file, _state(status), offset, size)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", file.name), ("offset", str(offset)), ("length", str(size))):
                tensor.external_data.add(key=key, value=value)
        return model, places


def _left_out(data: memoryview, found: list[tuple[int, int] | None]) -> Iterator[bytes | memoryview]:
    """Yield a model without the bytes of large initializers; ``found`` gets for each initializer where these are."""
    for field_number, value, begin, end in placed_fields(data):
        if field_number == _GRAPH and isinstance(value, memoryview):
            graph = b"".join(_graph_left_out(value, end - len(value), found))
            yield head(_GRAPH, len(graph))
            yield graph
        else:
            yield data[begin:end]


def _graph_left_out(data: memoryview, at: int, found: list[tuple[int, int] | None]) -> Iterator[bytes | memoryview]:
    """The same for a graph, which stands ``at`` a place of the file."""
    done = 0
    for field_number, value, begin, end in placed_fields(data):
        if field_number != _INITIALIZER or not isinstance(value, memoryview):
            continue
        bare = _bare(value) if len(value) >= LARGE else None
        if bare is None:
            found.append(None)
            continue
        said, offset, size = bare
        found.append((at + end - len(value) + offset, size))
        yield data[done:begin]
        yield head(_INITIALIZER, len(said))
        yield said
        done = end
    yield data[done:]


def _bare(tensor: memoryview) -> tuple[bytes, int, int] | None:
    """Return a tensor without its bytes, and where in it these are; None where it holds anything else that could be
    its values."""
    raw, said = None, list[memoryview]()
    for field_number, value, begin, end in placed_fields(tensor):
        if field_number == _RAW and isinstance(value, memoryview):  # the last one counts
            raw = end - len(value), len(value)
        elif field_number in _SAID or (field_number == _LOCATION and isinstance(value, int) and not number(value)):
            said.append(tensor[begin:end])
        else:
            return None
    return None if raw is None or raw[1] < LARGE else (b"".join(said), *raw)


def _fits(tensor: TensorProto, size: int) -> bool:
    """Return whether so many bytes are the values of a tensor, and these are no sizes of others."""
    from onnx import helper

    dims, kind = tensor.dims, tensor.data_type
    if kind not in _WHOLE_BYTES or min(dims, default=0) < 0 or (kind in _OF_SIZES and len(dims) < 2):
        return False
    return bool(math.prod(dims) * helper.tensor_dtype_to_np_dtype(kind).itemsize == size)


# ---- weights beside the file ---------------------------------------------------------------------------------


def _place_beside(folder: str, tensor: TensorProto) -> _Span | None:
    """Return where the external data of a tensor lies, for a model in that folder; None for a small one, and for one
    that says anything else.

    Raises what onnx raises for a file that it does not read: one that is not there, or not in the folder.
    """
    from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor

    if {descriptor.name for descriptor, _ in tensor.ListFields()} - _NAMES_OF_SAID:
        return None
    info = ExternalDataInfo(tensor)
    place = Path(folder, info.location)
    status, offset = place.stat(), int(info.offset or 0)
    size = status.st_size - offset if info.length is None else int(info.length)
    if size < LARGE or offset + size > status.st_size or not _fits(tensor, size):
        return None
    # onnx reads one byte of it, by its own rules for names, links and places
    first = copy_of(tensor)
    for entry in [entry for entry in first.external_data if entry.key == "length"]:
        first.external_data.remove(entry)
    first.external_data.add(key="length", value="1")
    load_external_data_for_tensor(first, folder)
    return _Span(place, _state(status), offset, size)


# ---- reading -------------------------------------------------------------------------------------------------


def _values_at(place: _Span) -> Array:
    """Return the bytes of a weight. Raises FileChanged, and OSError where the file cannot be read."""
    with open(place.file, "rb", buffering=0) as stream:  # noqa: PTH123
        if _state(os.fstat(stream.fileno())) != place.state:
            raise _changed(place.file)
        if place.offset % ALIGNED == 0:
            return np.asarray(np.memmap(stream, np.uint8, "r", place.offset, (place.size,)))
        values = np.empty(place.size, np.uint8)
        rest = values.data
        stream.seek(place.offset)
        while rest:
            read = stream.readinto(rest)
            if not read:
                raise _changed(place.file)
            rest = rest[read:]
        if _state(os.fstat(stream.fileno())) != place.state:
            raise _changed(place.file)
    values.flags.writeable = False
    return values


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _changed(file: Path) -> FileChanged:
    return FileChanged(f"{file.name} has changed since the model was read")
