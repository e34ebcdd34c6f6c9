"""Keep a model file as it is: copied, and not read, written and hashed as a message of a gigabyte."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.models.kept.contents import content
from conformance.models.reference.float64_model import reading
from conformance.process.disk.onnx_models import MODEL, WEIGHTS, sha_of_parts
from conformance.runtimes.onnxgraph.mapped import ALIGNED, MappedModel
from conformance.runtimes.onnxgraph.reads import copy_of, refill

if TYPE_CHECKING:
    from onnx import ModelProto

_PAGE = 4096
"""At multiples of which weights begin in a file of their own, so that they can be mapped."""
_SPARE = 1.25
"""Times the bytes of its large weights that a file of weights may have, to be copied as it is."""
_OLD = 4
"""The version of ONNX's format before which every weight has to be an input too."""


class TakenFile:
    """A model with large weights as it is written: a copy of its file; or its graph with a file of these weights,
    which is a copy of the one that they lie in where there is one and it holds hardly anything else."""

    def __init__(self, taken: MappedModel) -> None:
        self._taken = taken

    @cached_property
    def sha(self) -> str:
        """The SHA-256 of all of it, in hexadecimal digits. Raises Stopped where a file has changed."""
        with reading(self._taken.file):
            if self._taken.is_file:
                hashed = content(str(self._taken.file))
                self._taken.weights.check()
                return (hashed or b"").hex()
            return sha_of_parts(self._graph, self.weights_sha or "")

    @cached_property
    def weights_sha(self) -> str | None:
        """The SHA-256 of the file of its weights; None where it has none."""
        if self._taken.is_file:
            return None
        with reading(self._taken.file):
            if self._beside is not None:
                hashed = content(str(self._beside))
                self._taken.weights.check()
                return (hashed or b"").hex()
            weights = hashlib.sha256()
            for part in self._parts():
                weights.update(part)
            return weights.hexdigest()

    @cached_property
    def _beside(self) -> Path | None:
        """The file that is copied as the file of its weights."""
        weights = self._taken.weights
        files, size = weights.files, sum(map(weights.size_of, weights))
        if len(files) != 1 or files[0] == self._taken.file or files[0].stat().st_size > _SPARE * size:
            return None
        aligned = all(weights.offset_of(name) % ALIGNED == 0 for name in weights)
        return files[0] if aligned else None

    def message(self) -> bytes | None:
        """The model as one message of protobuf; None where its weights lie in a file of their own."""
        return self._taken.file.read_bytes() if self._taken.is_file else None

    def write(self, folder: Path) -> Path:
        """Put it into a folder; the file of the model. Raises OSError, and Stopped where a file has changed."""
        if self._taken.is_file:
            shutil.copyfile(self._taken.file, folder / MODEL)
            with reading(self._taken.file):
                self._taken.weights.check()
            return folder / MODEL
        if self._beside is not None:
            with reading(self._taken.file):
                shutil.copyfile(self._beside, folder / WEIGHTS)
                self._taken.weights.check()
        else:
            with (folder / WEIGHTS).open("wb") as stream:
                for part in self._parts():
                    stream.write(part)
        (folder / MODEL).write_bytes(self._graph)
        return folder / MODEL

    def declared(self) -> bytes | None:
        """Return the model with an input in place of each weight that it has no values for, which onnx.checker and
        type inference accept if they accept the model: of such a weight they look at name, type and shape alone.

        None where that may not be so.
        """
        return declared(self._taken.model, self._taken.weights.keys())

    @cached_property
    def _graph(self) -> bytes:
        """The model without its large weights, of which it says where in their own file they are."""
        model, offset = copy_of(self._taken.model), 0
        for tensor in model.graph.initializer:
            if tensor.name in self._taken.weights:
                size = self._taken.weights.size_of(tensor.name)
                begin = offset if self._beside is None else self._taken.weights.offset_of(tensor.name)
                del tensor.external_data[:]
                for key, value in (("location", WEIGHTS), ("offset", str(begin)), ("length", str(size))):
                    tensor.external_data.add(key=key, value=value)
                offset += size + -size % _PAGE
        return bytes(model.SerializeToString(deterministic=True))

    def _parts(self) -> Iterator[memoryview | bytes]:
        """Yield what the file of the weights has."""
        for name in self._taken.weights:
            with reading(self._taken.file):
                values = self._taken.weights.bytes_of(name)
            yield values.data
            yield bytes(-values.size % _PAGE)


def declared(model: ModelProto, weights: Iterable[str]) -> bytes | None:
    """Return a model with an input in place of each of these initializers; None where the model says anything else
    of one, or has rules for initializers that inputs do not have to keep."""
    from onnx import helper

    left_out, graph = {*weights}, model.graph
    given = {value.name for value in graph.input}
    if graph.sparse_initializer or model.training_info or (model.ir_version < _OLD and left_out - given):
        return None
    types = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in graph.initializer
        if tensor.name in left_out
    }
    said = (value for values in (graph.input, graph.value_info, graph.output) for value in values)
    if any(value.name in types and value.type != types[value.name] for value in said):
        return None
    copy = copy_of(model)
    refill(copy.graph.initializer, [tensor for tensor in copy.graph.initializer if tensor.name not in left_out])
    copy.graph.input.extend(helper.make_value_info(name, kind) for name, kind in types.items() if name not in given)
    return bytes(copy.SerializeToString())
