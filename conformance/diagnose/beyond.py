"""Find the first node at which a converted model leaves the range of its format, by NaN or infinities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import TypedDict

from conformance.case.draw.example import Example
from conformance.judge.comparer import WrongAnswer
from conformance.judge.red_cell import CheckedCell
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, or_else
from conformance.results.records.record_types import Beyond, Vanished
from conformance.results.records.validation import Scalar
from conformance.runtimes.inner_tensors import values
from conformance.runtimes.registry import LITERAL

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def beyond(of: CheckedCell, example: Example, stop: Stopped) -> Beyond:
    """Return an entry of the record's ``beyond`` for an example of which a converted model makes no numbers."""
    assert of.converted is not None
    output = stop.worst.output if isinstance(stop, WrongAnswer) and stop.worst is not None else None
    found = origin(of.exported.file, of.converted.file, of.run.libraries(), example.inputs)
    return {**found, "regime": example.draw.regime, "output": output}


class Origin(TypedDict, total=False):
    """The fields of an entry of the record's ``beyond`` that say which node it comes from."""

    node: str | None
    operator: str | None
    gives: str | None
    of: list[Scalar] | None
    vanished: Vanished | None


def origin(exported: Path, converted: Path, libraries: Sequence[str], inputs: Inputs) -> Origin:
    """Return what made an output of the converted model NaN or infinite for these inputs; nothing where nothing
    tells.

    ``node`` and ``operator`` are of the first node whose output is not finite where that of the exported model is,
    ``gives`` is NaN or infinity, ``of`` are the values that the node had there, where it works on single elements.
    ``vanished`` is the first tensor on the way to that node that is 0 where the exported model's is not: the
    ``constant``, or the ``node`` and ``operator`` that made it, and ``was``, the largest value that became 0.
    """
    import onnx

    before, after = onnx.load(exported), onnx.load(converted)
    tensors = _floats(after.graph)
    known = [name for name in _floats(before.graph) if name in tensors]
    wanted = ((before, known), (after, tensors))
    both = or_else(None, lambda: [values(model, names, LITERAL, libraries, inputs) for model, names in wanted])
    if both is None:
        return {}
    right, got = both
    right = _through_casts(after.graph, right | _constants(before.graph))
    got |= {**inputs, **_constants(after.graph)}
    for node in after.graph.node:
        for name in node.output:
            beyond = _lost(got.get(name), right.get(name))
            if beyond is not None:
                return {
                    "node": node.name,
                    "operator": node.op_type,
                    "gives": "NaN" if np.isnan(got[name][beyond]) else "infinity",
                    "of": _operands(node, got, beyond, got[name].shape),
                    "vanished": _vanished(after.graph, node, got, right),
                }
    return {}


def _floats(graph: GraphProto) -> list[str]:
    """The outputs of the nodes of a graph, in its order."""
    return [name for node in graph.node for name in node.output if name]


def _constants(graph: GraphProto) -> dict[str, Array]:
    from onnx import numpy_helper

    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def _through_casts(graph: GraphProto, right: Mapping[str, Array]) -> dict[str, Array]:
    """The values of the exported model, also under the names that the conversion casts them from and to."""
    known = dict(right)
    casts = [(node.input[0], node.output[0]) for node in graph.node if node.op_type == "Cast"]
    for source, target in (*casts, *reversed(casts)):
        if source in known:
            known.setdefault(target, known[source])
        elif target in known:
            known[source] = known[target]
    return known


def _lost(got: Array | None, right: Array | None) -> tuple[int, ...] | None:
    """The first place where ``got`` is not finite, though ``right`` is; None where there is none, or only one of the
    models has the tensor."""
    if got is None or right is None or got.dtype.kind != "f" or got.shape != right.shape:
        return None
    odd = ~np.isfinite(got) & np.isfinite(right)
    return tuple(int(i) for i in np.argwhere(odd)[0]) if odd.any() else None


def _operands(
    node: NodeProto, got: Mapping[str, Array], place: tuple[int, ...], shape: tuple[int, ...]
) -> list[Scalar]:
    """The values that an operator on single elements had at a place of its output; empty for others."""
    arrays = [got[name] for name in node.input if name in got]
    if len(arrays) != len(node.input):
        return []
    try:
        if np.broadcast_shapes(*(array.shape for array in arrays)) != shape:
            return []
    except ValueError:
        return []
    return [float(np.broadcast_to(array, shape)[place]) for array in arrays]


def _vanished(
    graph: GraphProto, last: NodeProto, got: Mapping[str, Array], right: Mapping[str, Array]
) -> Vanished | None:
    """The first tensor on the way to a node that has zeros in place of the exported model's values."""
    makers = {name: node for node in graph.node for name in node.output}
    before, todo = set[str](), list(last.input)
    while todo:
        name = todo.pop()
        if name not in before:
            before.add(name)
            todo += makers[name].input if name in makers else []
    ordered = [*(name for name in got if name not in makers), *makers]
    for name in ordered:
        if name not in before or name not in right or right[name].shape != got[name].shape:
            continue
        zeros = (got[name] == 0) & (right[name] != 0) if right[name].dtype.kind == "f" else np.zeros(0, bool)
        if zeros.any():
            maker = makers.get(name)
            was = float(np.abs(right[name][zeros]).max())
            if maker is None:
                return {"constant": name, "was": was}
            return {"node": maker.name, "operator": maker.op_type, "was": was}
    return None
