"""Looks at a parsed network that need none of its values, for a network that cannot be computed here.

Each was tried on ONNX's node tests, and accuses there only where the network means something else
(``python -m evidence parsed_networks``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.runtimes import opener, registry
from conformance.runtimes.inferred import without_weights
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.tensorrt.network.attribute_looks import check_attributes
from conformance.runtimes.tensorrt.network.parsed_network import ParsedNetwork
from conformance.runtimes.tensorrt.network.plain_types import dtype_of

if TYPE_CHECKING:
    from onnx import ModelProto


class OtherOutputs(RuntimeError):
    """An output of the network that TensorRT's parser made has another dtype than the model's, or a size that the
    model's has not. Cause: an attribute that the parser does not read, or reads otherwise. Remedy: ``repro.py``
    prints the layers, for a report to NVIDIA."""


class UnreadInput(RuntimeError):
    """No layer of the network that TensorRT's parser made reads an input on which the model's outputs depend. Cause:
    an input of an operator that the parser does not read. Remedy: as for OtherOutputs."""


def check_looks(network: ParsedNetwork, model: Path, libraries: Sequence[str], inputs: Mapping[str, Array]) -> None:
    """Raise OtherOutputs, UnreadInput or UnreadAttribute."""
    if (said := next(other_outputs(network, read_graph(model)), None)) is not None:
        raise OtherOutputs(said)
    for name in network.unread_inputs():
        decides = functools.partial(_decides, model, libraries, inputs, name)
        if or_else(False, decides):  # so is a model that ONNX Runtime cannot run
            raise UnreadInput(f"no layer of TensorRT's network reads {name}, on which the model's outputs depend")
    check_attributes(network, model, libraries, inputs)


def other_outputs(network: ParsedNetwork, model: ModelProto) -> Iterator[str]:
    """Say of each output how its dtype or a size differs from what ONNX infers of it. Of a file that contradicts
    that nothing is said, as either may be wrong; nor of the dtype of float64, which TensorRT makes float32 of, as
    NVIDIA documents."""
    import onnx

    def inferred() -> ModelProto:
        bare = without_weights(model)
        infer = functools.partial(
            onnx.shape_inference.infer_shapes, check_type=True, strict_mode=True, data_prop=True
        )
        infer(bare)  # raises where what is declared contradicts it
        for output in bare.graph.output:  # whose size the file may declare where ONNX infers none
            output.type.tensor_type.ClearField("shape")
        return infer(bare)

    known = or_else(None, inferred)
    made = {network.tensors[tensor].name: network.tensors[tensor] for tensor in network.outputs}
    for output in known.graph.output if known is not None else ():
        about, got = output.type.tensor_type, made.get(output.name)
        if got is None or not about.elem_type:
            continue
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(about.elem_type))
        if dtype != np.float64 and dtype != or_else(dtype, functools.partial(dtype_of, got.dtype)):
            yield f"{output.name} is {got.dtype} in TensorRT's network, and {dtype} in the model"
        sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in about.shape.dim]
        shape = got.shape if about.HasField("shape") else None
        if shape is not None and not _fit(shape, sizes):
            yield f"{output.name} has the sizes {shape} in TensorRT's network, and {tuple(sizes)} in the model"


def _fit(shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Return whether two shapes may be one; -1 is any size."""
    pairs = zip(shape, sizes, strict=False)
    return len(shape) == len(sizes) and all(one == other or min(one, other) < 0 for one, other in pairs)


def _decides(model: Path, libraries: Sequence[str], inputs: Mapping[str, Array], name: str) -> bool:
    """Return whether the model's outputs change with the values of an input, and with nothing else."""
    with opener(registry.LITERAL)(model, libraries) as session:
        before, again = session.run(inputs), session.run(inputs)
        after = session.run({**inputs, name: _changed(np.asarray(inputs[name]))})
    return _same(before, again) and not _same(before, after)


def _same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def _changed(values: Array) -> Array:
    """Return other values of the same kind: the same in another order, or, if that is none, nearer to 0 by one."""
    turned = np.flip(values)
    if (turned != values).any():
        return np.ascontiguousarray(turned)
    return ~values if values.dtype == np.bool_ else np.where(values > 0, values - 1, values + 1).astype(values.dtype)
