"""Looks at a parsed network that need none of its values, for a network that cannot be computed here.

Each was tried on ONNX's node tests, and accuses there only where the network means something else
(``python -m evidence parsed_networks``).
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.compare.close import Limit, differs
from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.process.worker import aside
from conformance.runtimes import opener, outputs_of, registry
from conformance.runtimes.inferred import without_weights
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import OWN, opset_of
from conformance.runtimes.tensorrt.network.layer_call import dtype_of
from conformance.runtimes.tensorrt.network.parsed_network import ParsedNetwork, parse_file

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, NodeProto


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
        after = session.run({**inputs, name: _other_values(np.asarray(inputs[name]))})
    return _same(before, again) and not _same(before, after)


def _same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def _other_values(values: Array) -> Array:
    """Return other values of the same kind: the same in another order, or, if that is none, nearer to 0 by one."""
    turned = np.flip(values)
    if (turned != values).any():
        return np.ascontiguousarray(turned)
    return ~values if values.dtype == np.bool_ else np.where(values > 0, values - 1, values + 1).astype(values.dtype)


_CLEARLY = Limit(share=1e-2)
"""Beyond which outputs differ by more than the precision that an attribute may ask for."""
_SECONDS = 60.0
_OPEN = ("seed", "saturate")
"""Attributes of which nothing is said: NVIDIA documents that a seed is ignored (onnx-tensorrt, ``operators.md``), and
leaves open what a conversion to FP8 does beyond its range, so that either value may be the one that is right."""


class UnreadAttribute(RuntimeError):
    """An attribute changes the model's outputs and no layer of the network that TensorRT's parser made, or changes a
    layer where it is written out as ONNX has it anyway. Cause: the parser does not read it, or takes another default.
    Remedy: as for OtherOutputs."""


@dataclass(frozen=True)
class _Described:
    """A network in the words of TensorRT's API."""

    wiring: object
    """The kinds of layers, and the tensors that they read and make."""
    words: object
    """The attributes of each layer."""


Describe = Callable[["ModelProto"], _Described | None]


def check_attributes(
    network: ParsedNetwork, file: Path, libraries: Sequence[str], inputs: Mapping[str, Array]
) -> None:
    """Parse the model again with one attribute more or less, and raise UnreadAttribute. In a process of its own,
    which the parser may end for a model that nobody made.

    What is compared is what TensorRT's API reads back of the layers: an engine's plan takes a build, which this needs
    not.
    """
    if any(0 not in (network.tensors[output].shape or ()) for output in network.outputs):
        ask = functools.partial(aside.ask, functools.partial(_said, file, libraries, dict(inputs)), _SECONDS)
        if (said := or_else(None, ask)) is not None:
            raise UnreadAttribute(said)


def _said(file: Path, libraries: Sequence[str], inputs: Mapping[str, Array]) -> str | None:
    import onnx

    model = onnx.load(file)
    with tempfile.TemporaryDirectory() as folder:
        describe = functools.partial(_described, Path(folder) / "model.onnx")
        before = describe(model)
        if before is None or describe(model) != before:
            return None
        told = _other_defaults(model, before, describe), _unread(model, before, describe, libraries, inputs)
        return next(itertools.chain(*told), None)


def _other_defaults(model: ModelProto, before: _Described, describe: Describe) -> Iterator[str]:
    """Say which attributes, written out with their default, give layers of the same kinds that say something else."""
    left_out = {
        (node.op_type, name): default
        for node in model.graph.node
        for name, default in _defaults(model, node).items()
        if name not in {one.name for one in node.attribute}
    }

    def written(*which: tuple[str, str]) -> ModelProto:
        def write(node: NodeProto) -> None:
            given = {one.name for one in node.attribute}
            keys = [key for key in which if key[0] == node.op_type and key[1] not in given and node.domain in OWN]
            node.attribute.extend(left_out[key] for key in keys)

        return _edited(model, write)

    if describe(written(*left_out)) == before:
        return
    for key in left_out:
        after = describe(written(key))
        if after is not None and after.wiring == before.wiring and after.words != before.words:
            yield f"TensorRT's network is another where {key[1]} of {key[0]} is written out with ONNX's own default"


def _unread(
    model: ModelProto, before: _Described, describe: Describe, libraries: Sequence[str], inputs: Mapping[str, Array]
) -> Iterator[str]:
    """Say which attributes change the model's outputs where they are given their default, and not the network. Of one
    that is left out nothing is learned so: the parser may take another default."""
    given = {
        (node.op_type, one.name): default
        for node in model.graph.node
        for one in node.attribute
        if (default := _defaults(model, node).get(one.name)) is not None and default != one
    }
    for (operator, name), default in given.items():

        def usual(node: NodeProto, operator: str = operator, default: AttributeProto = default) -> None:
            for one in node.attribute:
                if (node.op_type, one.name) == (operator, default.name) and node.domain in OWN:
                    one.CopyFrom(default)

        changed = _edited(model, usual)
        if name in _OPEN or describe(changed) != before:
            continue
        if or_else(False, functools.partial(_tells, model, changed, libraries, inputs)):
            yield f"no layer of TensorRT's network depends on {name} of {operator}, on which the model's outputs do"


def _tells(model: ModelProto, other: ModelProto, libraries: Sequence[str], inputs: Mapping[str, Array]) -> bool:
    """Return whether the outputs of two models clearly differ, and those of one in two runs do not."""
    right, again, after = (outputs_of(one, registry.LITERAL, libraries, inputs) for one in (model, model, other))
    pairs = [[differs(np.asarray(a), np.asarray(b), _CLEARLY, dtypes=True) for a, b in zip(right, one, strict=True)]
             for one in (again, after)]  # fmt: skip
    return not any(pairs[0]) and any(pairs[1])


def _defaults(model: ModelProto, node: NodeProto) -> dict[str, AttributeProto]:
    """Return the attributes of an operator of ONNX that have a default, with it."""
    from onnx import AttributeProto, defs

    def schema() -> Any:
        return defs.get_schema(node.op_type, opset_of(model), "")

    known = or_else(None, schema) if node.domain in OWN else None
    found: dict[str, AttributeProto] = {}
    for name, about in known.attributes.items() if known is not None else ():
        if about.default_value.type != AttributeProto.UNDEFINED:
            found[name] = AttributeProto()
            found[name].CopyFrom(about.default_value)
            found[name].name = name
    return found


def _edited(model: ModelProto, change: Callable[[NodeProto], None]) -> ModelProto:
    """Return a copy of which each node is changed."""
    copy = type(model)()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        change(node)
    return copy


def _described(file: Path, model: ModelProto) -> _Described | None:
    """Return what TensorRT says of the network of a model, saved in ``file``; None of one that it or ONNX refuses."""
    import onnx

    def asked() -> _Described:
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, file)
        network = parse_file(file)
        layers = network.layers
        wiring = [(one.kind, one.inputs, one.outputs, one.group) for one in layers], network.inputs, network.outputs
        return _Described(wiring, [{name: _plain(value) for name, value in one.says.items()} for one in layers])

    return or_else(None, asked)


def _plain(value: Any) -> object:
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)
