"""Models of some of the nodes of another model, and copies of a model with more of its tensors as outputs.

A node with subgraphs and a call of a local function are one node each. What is constant stays constant, since
optimizers look at constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.runtimes.onnxgraph.reads import OWN, Graph, copy_of, dims_of, initializers, needs, reads, refill

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto


def model_of(
    model: ModelProto,
    name: str,
    nodes: Iterable[NodeProto] = (),
    *,
    inputs: Iterable[ValueInfoProto] = (),
    outputs: Iterable[ValueInfoProto] = (),
    constants: Mapping[str, Array] | None = None,
) -> ModelProto:
    """Return a model of nodes that mean what they mean in this one."""
    from onnx import numpy_helper

    made = type(model)(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = made.graph
    graph.name = name
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    graph.output.extend(outputs)
    graph.initializer.extend(numpy_helper.from_array(value, own) for own, value in (constants or {}).items())
    return made


def declare(name: str, value: Array, dims: Sequence[int | str | None] | None = None) -> ValueInfoProto:
    """Return the type of an input or output of a value's dtype, and of its shape or other dims."""
    from onnx import helper

    dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, dtype, value.shape if dims is None else dims)


def cut(
    model: ModelProto, graph: Graph, names: Sequence[str], given: Mapping[str, Array] | None = None
) -> ModelProto:
    """Return the part of a model that computes these tensors, as a model of its own with the same inputs, and with
    ``given`` tensors as inputs too."""
    fed = given or {}
    needed = graph.computing([name for name in names if name not in fed], fed)
    read = {*names, *(name for index in needed for name in reads(graph.nodes[index]))}
    part = model_of(model, "part", inputs=model.graph.input)
    for index in needed:
        part.graph.node.append(graph.nodes[index])
        for place, name in enumerate(part.graph.node[-1].output):  # of several outputs one may still be computed
            if name in fed:
                part.graph.node[-1].output[place] = f"{name} as it was"
    part.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    part.graph.sparse_initializer.extend(model.graph.sparse_initializer)
    part.graph.input.extend(declare(name, array, [None] * array.ndim) for name, array in fed.items() if name in read)
    declared = [*model.graph.output, *model.graph.value_info] if not given else []  # behind another dtype all may be
    known = {value.name: value.type.tensor_type for value in declared}
    for name in names:  # without its shape, which may be inferred wrong, or for other sizes
        value = part.graph.output.add(name=name)
        if name in known and known[name].elem_type:
            value.type.tensor_type.elem_type = known[name].elem_type
    return part


class Nodes:
    """The nodes of a model in the order in which they are computed."""

    def __init__(self, model: ModelProto) -> None:
        self.model, self.constants = model, initializers(model)
        self.outputs = [output.name for output in model.graph.output]

    def __iter__(self) -> Iterator[NodeProto]:
        return iter(self.model.graph.node)

    def start(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        """The values that are known before the first node, by name."""
        return {**self.constants, **inputs}

    def alone(self, node: NodeProto, values: Mapping[str, object], *, constant: bool = False) -> ModelProto:
        """The node as a model of its own, whose inputs have the dtypes and shapes of the values.

        Constants of the model stay constants; with ``constant`` so do all integers, which inference of shapes can
        then look at. Raises KeyError where a value is not known, and TypeError for one that is no tensor.
        """
        fed: dict[str, Array] = {}
        constants: dict[str, Array] = {}
        for name in needs(node):
            value = values[name]
            if not isinstance(value, np.ndarray):
                raise TypeError(f"{name} is no tensor")
            fixed = name in self.constants or (constant and value.dtype.kind in "iub")
            (constants if fixed else fed)[name] = value
        made = model_of(self.model, "node", [node], inputs=starmap(declare, fed.items()), constants=constants)
        known = {value.name: value for value in (*self.model.graph.output, *self.model.graph.value_info)}
        for name in filter(None, node.output):
            output = made.graph.output.add(name=name)
            if name in known and known[name].type.HasField("tensor_type"):
                output.type.tensor_type.elem_type = known[name].type.tensor_type.elem_type
        return made


@dataclass(frozen=True)
class Cut:
    """A model of its own, with the inputs at which it fails."""

    model: ModelProto
    feeds: Mapping[str, Array]

    @property
    def constants(self) -> dict[str, Array]:
        """The constants of the model by name."""
        return initializers(self.model)

    @property
    def arrays(self) -> dict[str, Array]:
        """The inputs and the constants."""
        return {**self.feeds, **self.constants}

    def edited(
        self, change: Callable[[GraphProto], object] = lambda _: None, arrays: Mapping[str, Array] | None = None
    ) -> Cut:
        """Return a copy with a change of its graph and other arrays for some inputs and constants, without what no
        node needs then: inputs, constants, functions with their domains, texts of the exporter."""
        from onnx import numpy_helper

        model = copy_of(self.model)
        graph = model.graph
        change(graph)
        used = {name for node in graph.node for name in needs(node)}
        others = arrays or {}
        feeds, constants = ({name: others.get(name, value) for name, value in own.items() if name in used}
                            for own in (self.feeds, self.constants))  # fmt: skip
        refill(graph.input, (declare(name, value) for name, value in feeds.items()))
        refill(graph.initializer, (numpy_helper.from_array(value, name) for name, value in constants.items()))
        for node in graph.node:
            node.ClearField("doc_string")
            node.ClearField("metadata_props")
        called = {(node.domain, node.op_type) for node in graph.node}
        if not any((function.domain, function.name) in called for function in model.functions):
            del model.functions[:]
            domains = {node.domain for node in graph.node} | {*OWN}
            refill(model.opset_import, (entry for entry in self.model.opset_import if entry.domain in domains))
        return Cut(model, feeds)

    def with_arrays(self, arrays: Mapping[str, Array]) -> Cut:
        """Return the model with other inputs and constants in place of some."""
        return self.edited(arrays=arrays)

    def of_size(self, size: int, fewer: int, arrays: Mapping[str, Array]) -> Iterator[Cut]:
        """Yield the model with arrays that are cut from a size to ``fewer``; first also with that number in place of
        the size among integers, as in the target of a Reshape."""
        counted = {name: np.where(value == size, fewer, value) if value.dtype == np.int64 else value
                   for name, value in arrays.items()}  # fmt: skip
        if any(not np.array_equal(counted[name], value) for name, value in arrays.items() if value.dtype == np.int64):
            yield self.edited(arrays=counted)
        yield self.edited(arrays=arrays)


class Cutter:
    """Cuts models out of one, of which all tensors are known."""

    def __init__(self, model: ModelProto, values: Mapping[str, Any]) -> None:
        """``values`` are all tensors of the model by name, as the reference computes them."""
        import onnx

        constants = initializers(model)
        self.model, self.values = model, {**values, **constants}
        self.nodes: list[NodeProto] = []
        self._constant = set(constants)
        for node in model.graph.node:
            needed = needs(node)
            if self._constant.issuperset(needed) and node.op_type in _CONSTANT and node.domain in OWN:
                self._constant.update(node.output)
            else:
                self.nodes.append(node)
        self._types: dict[str, ValueInfoProto] = {value.name: value for value in model.graph.input}
        self._own = [value.name for value in model.graph.output]
        inferred = or_else(None, lambda: onnx.shape_inference.infer_shapes(model).graph)
        if inferred is not None:  # else shapes are those of the values
            self._types = {value.name: value for value in (*inferred.value_info, *inferred.output, *inferred.input)}

    def of(self, chosen: Sequence[int]) -> Cut | None:
        """The nodes of these numbers as a model; None where one of its inputs is no tensor, or is not known."""
        nodes = [self.nodes[number] for number in chosen]
        made = {name for node in nodes for name in node.output if name}
        taken = [name for node in nodes for name in needs(node)]
        outside = [name for name in dict.fromkeys(taken) if name not in made]
        if any(not isinstance(self.values.get(name), np.ndarray) for name in outside):
            return None
        inputs = [name for name in outside if name not in self._constant]
        used = {*taken}
        outputs = [name for name in dict.fromkeys([n for node in nodes for n in node.output]) if name in made]
        outputs = [name for name in outputs if name not in used or name in self._own]
        model = model_of(
            self.model, "smallest", nodes, inputs=(self._typed(name, self.values[name]) for name in inputs),
            outputs=map(self._untyped, outputs),
            constants={name: self.values[name] for name in outside if name in self._constant},
        )  # fmt: skip
        return Cut(model, {name: self.values[name] for name in inputs})

    def _typed(self, name: str, value: Array) -> ValueInfoProto:
        """The type of an input: with the dims of the whole model where they are known, which may be symbolic."""
        known = self._types.get(name)
        dims = None if known is None else dims_of(known.type.tensor_type)
        if known is not None and dims is not None:
            fits = len(dims) == value.ndim and all(
                not isinstance(dim, int) or dim == size for dim, size in zip(dims, value.shape, strict=True)
            )
            if fits:
                return declare(name, value, dims)
        return declare(name, value)

    def _untyped(self, name: str) -> ValueInfoProto:
        """An output with its dtype and its rank alone."""
        from onnx import ValueInfoProto

        value = self.values.get(name)
        if not isinstance(value, np.ndarray):
            return ValueInfoProto(name=name)
        return declare(name, value, [None] * value.ndim)


_CONSTANT = {"Constant", "ConstantOfShape"}
"""Operators that make constants, which are cut as such."""


def expose(
    model: ModelProto,
    tensors: Iterable[str],
    types: Mapping[str, ValueInfoProto] | None = None,
    *,
    instead: bool = False,
) -> ModelProto:
    """Return a copy of a model that gives these tensors of its main graph too, or ``instead`` of its outputs; of one
    that is among ``types`` the element type is declared."""
    copy = copy_of(model)
    if instead:
        del copy.graph.output[:]
    given = {output.name for output in copy.graph.output}
    for name in dict.fromkeys(tensors):
        if name and name not in given:
            value = copy.graph.output.add(name=name)
            if types and name in types:  # without its shape, which may be inferred wrong, or for other sizes
                value.type.tensor_type.elem_type = types[name].type.tensor_type.elem_type
    return copy
