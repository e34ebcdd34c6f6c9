"""The nodes of a model one by one: each as a model of its own, on inputs that are known.

A node with subgraphs and a call of a local function are one node each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.arrays import Array

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_PLACE = re.compile(r'(?:File "([^"]+)", line (\d+))|(?:([^\s"]+\.py)[(:](\d+))')
_TRACES = ("pkg.torch.onnx.stack_trace",)
"""Keys of a node's metadata under which torch's exporter keeps where in Python the node comes from."""


class Nodes:
    """The nodes of a model in the order in which they are computed."""

    def __init__(self, model: ModelProto) -> None:
        from onnx import numpy_helper

        self.model = model
        self.constants = {constant.name: numpy_helper.to_array(constant) for constant in model.graph.initializer}
        self.outputs = [output.name for output in model.graph.output]

    def __iter__(self) -> Iterator[NodeProto]:
        return iter(self.model.graph.node)

    @cached_property
    def opset(self) -> int:
        """The opset of ONNX's own operators."""
        return next((entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")), 0)

    def start(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        """The values that are known before the first node, by name."""
        return {**self.constants, **inputs}

    def needs(self, node: NodeProto) -> list[str]:
        """The names of the values that a node takes, those that its subgraphs take from outside among them."""
        return [*dict.fromkeys([name for name in node.input if name] + list(captured(node)))]

    def alone(self, node: NodeProto, values: Mapping[str, Any], *, constant: bool = False) -> ModelProto:
        """The node as a model of its own, whose inputs have the dtypes and shapes of the values.

        Constants of the model stay constants; with ``constant`` so do all integers, which inference of shapes can
        then look at. Raises KeyError where a value is not known, and TypeError for one that is no tensor.
        """
        from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

        inputs, constants = [], []
        for name in self.needs(node):
            value = values[name]
            if not isinstance(value, np.ndarray):
                raise TypeError(f"{name} is no tensor")
            if name in self.constants or (constant and value.dtype.kind in "iub"):
                constants.append(numpy_helper.from_array(value, name))
            else:
                dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
                inputs.append(helper.make_tensor_value_info(name, dtype, value.shape))
        known = {value.name: value for value in (*self.model.graph.output, *self.model.graph.value_info)}
        outputs = []
        for name in node.output:
            if name:
                outputs.append(ValueInfoProto(name=name))
                if name in known and known[name].type.HasField("tensor_type"):
                    dtype = known[name].type.tensor_type.elem_type
                    outputs[-1].type.tensor_type.elem_type = dtype
        copy = NodeProto.FromString(node.SerializeToString())
        graph = helper.make_graph([copy], "node", inputs, outputs, constants)
        return helper.make_model(
            graph, opset_imports=self.model.opset_import, functions=self.model.functions,
            ir_version=self.model.ir_version,
        )  # fmt: skip


def captured(node: NodeProto) -> Iterator[str]:
    """The names that the branches or the body of a node take from around it."""
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _from_outside(graph)


def _from_outside(graph: GraphProto) -> Iterator[str]:
    """The names that a subgraph takes from around it."""
    own = {value.name for value in graph.input} | {constant.name for constant in graph.initializer}
    for node in graph.node:
        yield from (name for name in (*node.input, *captured(node)) if name and name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def line_of(node: NodeProto) -> str | None:
    """The line of Python that a node comes from, as ``module.py:12``; None where the exporter left no trace."""
    texts = [entry.value for entry in node.metadata_props if entry.key in _TRACES]
    for text in (*texts, node.doc_string):
        places = [match.groups() for match in _PLACE.finditer(text)]
        if places:
            first, line, second, other_line = places[-1]
            return f"{Path(first or second).name}:{line or other_line}"
    return None


def operator_of(node: NodeProto) -> str:
    """``Add``, or ``own::Planted`` where it is not of ONNX's own domain."""
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
