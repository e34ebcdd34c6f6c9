"""Models of some of the nodes of another model, fed with what the reference computed there.

What is constant stays constant, since optimizers look at constants. Outputs are what no node of the cut takes, and
the model's own outputs: to expose every tensor would keep nodes from being fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.arrays import Array
from conformance.runtimes import opener
from conformance.verdict.nodes import Nodes
from conformance.worker import aside

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

MOST_BYTES = 2**30
"""Above this size the tensors of a model are not held in memory together, and nothing is cut out of it."""


@dataclass(frozen=True)
class Cut:
    """A model of its own, with the inputs at which it fails."""

    model: ModelProto
    feeds: Mapping[str, Array]


class Cutter:
    """Cuts models out of one, of which all tensors are known."""

    def __init__(self, model: ModelProto, values: Mapping[str, Any]) -> None:
        """``values`` are all tensors of the model by name, as the reference computes them."""
        import onnx

        self.model, self._nodes, self.values = model, Nodes(model), {**values}
        self.values |= self._nodes.constants
        self.nodes: list[NodeProto] = []
        self._constant = set(self._nodes.constants)
        for node in model.graph.node:
            needed = self._nodes.needs(node)
            if self._constant.issuperset(needed) and node.op_type in _CONSTANT and node.domain in ("", "ai.onnx"):
                self._constant.update(node.output)
            else:
                self.nodes.append(node)
        self._types: dict[str, ValueInfoProto] = {value.name: value for value in model.graph.input}
        self._own = [value.name for value in model.graph.output]
        try:
            inferred = onnx.shape_inference.infer_shapes(model).graph
        except Exception:  # shapes are those of the values then
            return
        self._types = {value.name: value for value in (*inferred.value_info, *inferred.output, *inferred.input)}

    def of(self, chosen: Sequence[int]) -> Cut | None:
        """The nodes of these numbers as a model; None where one of its inputs is no tensor, or is not known."""
        from onnx import helper, numpy_helper

        nodes = [self.nodes[number] for number in chosen]
        made = {name for node in nodes for name in node.output if name}
        taken = [name for node in nodes for name in self._nodes.needs(node)]
        outside = [name for name in dict.fromkeys(taken) if name not in made]
        if any(not isinstance(self.values.get(name), np.ndarray) for name in outside):
            return None
        inputs = [name for name in outside if name not in self._constant]
        used = {*taken}
        outputs = [name for name in dict.fromkeys([n for node in nodes for n in node.output]) if name in made]
        outputs = [name for name in outputs if name not in used or name in self._own]
        graph = helper.make_graph(
            nodes, "smallest", [self._typed(name, self.values[name]) for name in inputs],
            [self._untyped(name) for name in outputs],
            [numpy_helper.from_array(self.values[name], name) for name in outside if name in self._constant],
        )  # fmt: skip
        model = helper.make_model(
            graph, opset_imports=self.model.opset_import, functions=self.model.functions,
            ir_version=self.model.ir_version,
        )  # fmt: skip
        return Cut(model, {name: self.values[name] for name in inputs})

    def _typed(self, name: str, value: Array) -> ValueInfoProto:
        """The type of an input: with the dims of the whole model where they are known, which may be symbolic."""
        from onnx import helper

        known = self._types.get(name)
        if known is not None and known.type.tensor_type.HasField("shape"):
            dims = [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None)
                    for dim in known.type.tensor_type.shape.dim]  # fmt: skip
            fits = len(dims) == value.ndim and all(
                not isinstance(dim, int) or dim == size for dim, size in zip(dims, value.shape, strict=True)
            )
            if fits:
                return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), dims)
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)

    def _untyped(self, name: str) -> ValueInfoProto:
        """An output with its dtype and its rank alone."""
        from onnx import ValueInfoProto, helper

        value = self.values.get(name)
        if not isinstance(value, np.ndarray):
            return ValueInfoProto(name=name)
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_value_info(name, dtype, [None] * value.ndim)


_CONSTANT = {"Constant", "ConstantOfShape"}
"""Operators that make constants, which are cut as such."""


def reference_values(
    model: ModelProto,
    runtime: str,
    libraries: Sequence[str],
    inputs: Mapping[str, Array],
    seconds: float,
    folder: Path,
) -> dict[str, Any]:
    """All tensors of a model by name, as a runtime computes them; raises what that raises, ``aside.Lost`` where it
    takes its process along, and MemoryError where there are too many bytes of them."""
    import onnx
    from onnx import ValueInfoProto

    shown = onnx.ModelProto.FromString(model.SerializeToString())
    known = {output.name for output in shown.graph.output}
    for node in shown.graph.node:
        for name in node.output:
            if name and name not in known:
                shown.graph.output.append(ValueInfoProto(name=name))
                known.add(name)
    file = folder / "shown.onnx"
    onnx.save(shown, file)
    names = [output.name for output in shown.graph.output]

    def question() -> list[Any]:
        with opener(runtime)(file, libraries) as session:
            arrays: list[Any] = session.run(inputs)
        if sum(getattr(array, "nbytes", 0) for array in arrays) > MOST_BYTES:
            raise MemoryError
        return arrays

    arrays = aside.ask(question, seconds)
    if len(arrays) != len(names):
        raise ValueError("a tensor of the model is a sequence")
    return {**inputs, **dict(zip(names, arrays, strict=True))}
