"""Models of any size on disk: protobuf holds up to 2 GiB in one message, so that the weights of a larger model lie in
a file beside it, as ONNX's external data."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

LARGEST = 2**31 - 2**24
"""Bytes of weights up to which a model is one file; what else it has is held to be smaller than the rest to 2 GiB."""
SMALL = 1024
"""Bytes up to which a constant stays in the message of a large model, for whoever infers shapes."""
_MOST = 16
"""Bytes that an element takes at most, whatever its type, if it is no string: those of a complex128."""
MODEL, WEIGHTS = "model.onnx", "model.data"


class Written(Protocol):
    """A model that can be put into a folder."""

    @property
    def sha(self) -> str:
        """The SHA-256 of all of it, in hexadecimal digits."""
        ...

    @property
    def weights_sha(self) -> str | None:
        """The SHA-256 of the file of its weights; None where it has none."""
        ...

    def message(self) -> bytes | None:
        """The model as one message of protobuf; None where its weights lie in a file of their own."""
        ...

    def write(self, folder: Path) -> Path:
        """Put it into a folder; the file of the model. Raises OSError."""
        ...


@dataclass(frozen=True)
class Serialized:
    """A model as it is written: the message, and of a large one the file of its weights, to which the message refers
    by the name ``WEIGHTS`` and which is removed with this value."""

    data: bytes
    weights: Path | None = None

    @cached_property
    def sha(self) -> str:
        """The SHA-256 of all of it, in hexadecimal digits."""
        return sha_of_parts(self.data, self.weights_sha)

    @cached_property
    def weights_sha(self) -> str | None:
        """The SHA-256 of the file of its weights; None where it has none."""
        return None if self.weights is None else sha_of(self.weights)

    def message(self) -> bytes | None:
        """The model as one message of protobuf; None where its weights lie in a file of their own."""
        return self.data if self.weights is None else None

    @property
    def size(self) -> int:
        """The bytes of all of it."""
        return len(self.data) + (self.weights.stat().st_size if self.weights is not None else 0)

    def write(self, folder: Path) -> Path:
        """Put it into a folder; the file of the model. Raises OSError."""
        if self.weights is not None:
            shutil.copyfile(self.weights, folder / WEIGHTS)  # links to weights are refused by onnx
        (folder / MODEL).write_bytes(self.data)
        return folder / MODEL


def is_large(model: ModelProto) -> bool:
    """Return whether the weights of a model have to lie in a file of their own."""
    from onnx import TensorProto

    weights = model.graph.initializer
    most = _MOST * sum(math.prod(tensor.dims) for tensor in weights)  # protobuf goes through the bytes to count them
    if most <= LARGEST and not any(tensor.data_type == TensorProto.STRING for tensor in weights):
        return False
    return sum(map(_size_of, weights)) > LARGEST


def _size_of(tensor: TensorProto) -> int:
    """Return the bytes of a tensor, which protobuf does not count where one alone has more than 2 GiB."""
    from onnx import helper

    if tensor.HasField("raw_data"):
        return int(math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return int(tensor.ByteSize())


def serialized(model: ModelProto) -> Serialized:
    """A model as it is written, the same bytes for equal models. Raises OSError."""
    if not is_large(model):
        return Serialized(model.SerializeToString(deterministic=True))
    folder = Path(tempfile.mkdtemp(prefix="conformance-weights-"))
    try:
        save(model, folder / MODEL)
    except BaseException:  # also Ctrl-C: half of a model is of no use to anybody
        shutil.rmtree(folder, ignore_errors=True)
        raise
    result = Serialized((folder / MODEL).read_bytes(), folder / WEIGHTS)
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def save(model: ModelProto, file: Path) -> None:
    """Write a model to a file, and the weights of a large one to a file beside it. Raises OSError."""
    import onnx

    if not is_large(model):
        onnx.save(model, file)
        return
    copy = onnx.ModelProto()
    copy.CopyFrom(model)  # which loses its weights
    onnx.save(
        copy, file, save_as_external_data=True, all_tensors_to_one_file=True, size_threshold=SMALL,
        location=WEIGHTS if file.name == MODEL else f"{file.name}.data",
    )  # fmt: skip


@contextlib.contextmanager
def on_disk(model: ModelProto) -> Iterator[Path]:
    """The file of a model, in a folder of its own that is there inside of the block."""
    with tempfile.TemporaryDirectory(prefix="conformance-model-") as folder:
        yield serialized(model).write(Path(folder))


def sha_of_parts(message: bytes, weights: str | None) -> str:
    """The SHA-256 of a model whose weights, if they lie in a file of their own, have that SHA-256."""
    digest = hashlib.sha256(message)
    if weights is not None:
        digest.update(weights.encode())
    return digest.hexdigest()


def sha_of(file: Path) -> str:
    """The SHA-256 of a file, which is not read at once. Raises OSError."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(2**22):
            digest.update(block)
    return digest.hexdigest()


def link(source: Path, target: Path) -> None:
    """Have a file under another name, by a link where the two are on one disk. Raises OSError."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def link_model(source: Path, target: Path) -> None:
    """The same for a model, with a copy of the weights beside it."""
    link(source, target)
    if (source.parent / WEIGHTS).is_file():
        shutil.copyfile(source.parent / WEIGHTS, target.parent / WEIGHTS)  # links to it are refused by onnx
