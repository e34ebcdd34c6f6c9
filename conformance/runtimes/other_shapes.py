"""Find a shape that OpenVINO infers otherwise than ONNX, behind which it may stop at another node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import attempt, or_else
from conformance.runtimes.inferred import infer
from conformance.runtimes.onnxgraph.cut import model_of
from conformance.runtimes.openvino import imported

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

MOST_BYTES = 2**26
"""Of larger models nobody looks: they are read several times."""


def other_shape(file: Path, inputs: Mapping[str, Array]) -> str | None:
    """Say which node of a model OpenVINO gives another shape than ONNX infers, and its evaluator gives, before the
    first that it does not take; None where there is none, or nobody knows. Of some sizes inference is wrong."""
    import onnx

    if file.stat().st_size > MOST_BYTES:
        return None
    model = or_else(None, lambda: infer(onnx.load(file)))
    return None if model is None else or_else(None, lambda: _first_other(model, inputs))


def _first_other(model: ModelProto, inputs: Mapping[str, Array]) -> str | None:
    from onnx.reference import ReferenceEvaluator

    values = dict[str, Any](ReferenceEvaluator(model).run(None, dict(inputs), intermediate=True))
    nodes = [*model.graph.node]
    known = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    least, most = 0, len(nodes)
    while least < most:  # the number of nodes up to which OpenVINO takes the model
        middle = (least + most + 1) // 2
        least, most = (least, middle - 1) if _shapes(model, middle, known) is None else (middle, most)
    shapes = _shapes(model, least, known) or {}
    for node in nodes[:least]:
        for name in filter(shapes.__contains__, node.output):
            dims = known[name].type.tensor_type.shape.dim
            right = [dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or "?") for dim in dims]
            if _contradict(shapes[name], right) and _contradict(shapes[name], np.shape(values[name])):
                text = f"the node {node.op_type} '{node.name or name}' gets the shape {_told(shapes[name])}"
                return f"{text}, where ONNX infers {_told(right)}"
    return None


def _shapes(model: ModelProto, count: int, known: dict[str, ValueInfoProto]) -> dict[str, list[int] | None] | None:
    """Return the shapes that OpenVINO infers of what the first nodes compute, of which ONNX's are known, -1 for open
    dims; None where it does not take these nodes."""
    nodes = model.graph.node[:count]
    names = [name for node in nodes for name in node.output if name in known and _has_shape(known[name])]
    part = model_of(model, "part", nodes, inputs=model.graph.input)
    part.graph.initializer.extend(model.graph.initializer)
    for name in names:
        value = part.graph.output.add(name=name)
        value.type.tensor_type.elem_type = known[name].type.tensor_type.elem_type
    if not names:
        return {}
    read: Any = attempt(lambda: imported().Core().read_model(part.SerializeToString()))
    if isinstance(read, Exception):
        return None
    found = (port.get_partial_shape() for port in read.outputs)
    shapes = (
        None if one.rank.is_dynamic else [-1 if dim.is_dynamic else dim.get_length() for dim in one] for one in found
    )
    return dict(zip(names, shapes, strict=True))


def _has_shape(value: ValueInfoProto) -> bool:
    return bool(value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"))


def _contradict(one: Sequence[int] | None, right: Sequence[int | str]) -> bool:
    if one is None:
        return False
    pairs = zip(one, right, strict=False)
    return len(one) != len(right) or any(a >= 0 and not isinstance(b, str) and a != b for a, b in pairs)


def _told(shape: Sequence[int | str] | None) -> str:
    return f"[{', '.join('?' if dim == -1 else str(dim) for dim in shape or ())}]"
