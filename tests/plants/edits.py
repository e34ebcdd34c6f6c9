"""Edits of ONNX models, which stand for an exporter, an optimizer, a kernel or a converter that is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Edit = Callable[["ModelProto"], int]
"""Changes a model, and says at how many places."""

_NUMBERS = itertools.count()


class Nodes:
    """New nodes in place of one."""

    def __init__(self) -> None:
        self.made: list[NodeProto] = []

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output, and gives its name."""
        from onnx import helper

        name = f"planted/{next(_NUMBERS)}"
        self.made.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def constant(self, value: Any, dtype: str = "float32") -> str:
        from onnx import numpy_helper

        return self("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def rounded(self, name: str, dtype: str) -> str:
        """A float32 tensor rounded to ``FLOAT16`` (10 bits of fraction) or ``BFLOAT16`` (7 bits)."""
        from onnx import TensorProto

        narrow = self("Cast", name, to=getattr(TensorProto, dtype))
        return self("Cast", narrow, to=TensorProto.FLOAT)

    def again(self, node: NodeProto, *inputs: str | None, **attributes: Any) -> list[str]:
        """The node itself, with other inputs where they are not None, and some other attributes (None: left out)."""
        from onnx import NodeProto, helper

        copy = NodeProto.FromString(node.SerializeToString())
        for slot, name in enumerate(inputs):
            if name is not None:
                copy.input[slot] = name
        for key, value in attributes.items():
            kept = [entry for entry in copy.attribute if entry.name != key]
            del copy.attribute[:]
            copy.attribute.extend(kept)
            if value is not None:
                copy.attribute.append(helper.make_attribute(key, value))
        names = [f"planted/{next(_NUMBERS)}" if name else "" for name in node.output]
        del copy.output[:]
        copy.output.extend(names)
        self.made.append(copy)
        return names


Build = Callable[[Nodes, "NodeProto"], "str | Sequence[str]"]
"""Makes the nodes that stand for one, and gives what replaces its outputs."""


def replaced(operator: str, build: Build, last_only: bool = False) -> Edit:
    """Replaces every node of that operator, or the last only."""

    def edit(model: ModelProto) -> int:
        places = [place for place, node in enumerate(model.graph.node) if node.op_type == operator]
        places = places[-1:] if last_only else places
        after: list[NodeProto] = []
        for place, node in enumerate(model.graph.node):
            if place not in places:
                after.append(node)
                continue
            nodes = Nodes()
            made = build(nodes, node)
            names = [made] if isinstance(made, str) else list(made)
            outputs = dict(zip(names, node.output, strict=False))
            for new in nodes.made:
                for slot, name in enumerate(new.output):
                    if name in outputs:
                        new.output[slot] = outputs[name]
                for slot, name in enumerate(new.input):
                    if name in outputs:
                        new.input[slot] = outputs[name]
            after.extend(nodes.made)
        if places:
            kept = [type(node).FromString(node.SerializeToString()) for node in after]
            del model.graph.node[:]
            model.graph.node.extend(kept)
        return len(places)

    return edit


# ---- the usual kinds -------------------------------------------------------------------------------------


def attribute(operator: str, **values: Any) -> Edit:
    """Other attributes; None leaves one out."""
    return replaced(operator, lambda nodes, node: nodes.again(node, **values))


def exchanged(operator: str, other: str, **attributes: Any) -> Edit:
    """Another operator with the same inputs."""
    return replaced(operator, lambda nodes, node: nodes(other, *node.input, **attributes))


def left_out(operator: str, slot: int = 0) -> Edit:
    """The node gives one of its inputs unchanged."""
    return replaced(operator, lambda nodes, node: nodes("Identity", node.input[slot]))


def swapped(operator: str, left: int = 0, right: int = 1) -> Edit:
    """Two inputs in each other's place."""

    def build(nodes: Nodes, node: NodeProto) -> list[str]:
        inputs = list(node.input)
        inputs[left], inputs[right] = inputs[right], inputs[left]
        return nodes.again(node, *inputs)

    return replaced(operator, build)


def behind(operator: str, change: Callable[[Nodes, str], str], output: int = 0) -> Edit:
    """Something done to an output."""

    def build(nodes: Nodes, node: NodeProto) -> list[str]:
        names = nodes.again(node)
        names[output] = change(nodes, names[output])
        return names

    return replaced(operator, build)


def before(operator: str, change: Callable[[Nodes, str], str], *slots: int) -> Edit:
    """Something done to inputs."""

    def build(nodes: Nodes, node: NodeProto) -> list[str]:
        inputs = [
            change(nodes, name) if name and slot in (slots or (0,)) else None for slot, name in enumerate(node.input)
        ]
        return nodes.again(node, *inputs)

    return replaced(operator, build)


def times(factor: float) -> Callable[[Nodes, str], str]:
    return lambda nodes, name: nodes("Mul", name, nodes.constant(factor))


def plus(term: Any, dtype: str = "float32") -> Callable[[Nodes, str], str]:
    return lambda nodes, name: nodes("Add", name, nodes.constant(term, dtype))


def rounded_to(dtype: str) -> Callable[[Nodes, str], str]:
    return lambda nodes, name: nodes.rounded(name, dtype)


def cast_to(dtype: str) -> Callable[[Nodes, str], str]:
    from onnx import TensorProto

    return lambda nodes, name: nodes("Cast", name, to=getattr(TensorProto, dtype))


# ---- constants -------------------------------------------------------------------------------------------


def constant(operator: str, slot: int, change: Callable[[Array], Any], dtype: str | None = None) -> Edit:
    """Changes the constant that the nodes of an operator read in ``slot``, in its own dtype or another."""

    def edit(model: ModelProto) -> int:
        from onnx import numpy_helper

        names = {node.input[slot] for node in model.graph.node if node.op_type == operator and len(node.input) > slot}
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant":
                tensors.update((node.output[0], entry.t) for entry in node.attribute if entry.name == "value")
        changed = 0
        for name in sorted(names & {*tensors}):
            values = numpy_helper.to_array(tensors[name])
            new = np.asarray(change(values.copy())).astype(dtype or values.dtype)
            tensors[name].CopyFrom(numpy_helper.from_array(new, tensors[name].name))
            changed += 1
        return changed

    return edit


def named(name: str, change: Callable[[Array], Any]) -> Edit:
    """Changes initializers whose name ends so."""

    def edit(model: ModelProto) -> int:
        from onnx import numpy_helper

        changed = 0
        for tensor in model.graph.initializer:
            if tensor.name.endswith(name):
                values = numpy_helper.to_array(tensor)
                new = np.asarray(change(values.copy())).astype(values.dtype)
                tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
                changed += 1
        return changed

    return edit


def scaled(factor: float) -> Callable[[Array], Array]:
    return lambda values: np.asarray(values * factor)


def first_channel(factor: float) -> Callable[[Array], Array]:
    """The first entry of the first axis, times a factor."""

    def change(values: Array) -> Array:
        values[:1] = values[:1] * factor
        return values

    return change


def of_output(build: Callable[[Nodes, str], str], place: int = 0) -> Edit:
    """Something done to an output of the graph."""

    def edit(model: ModelProto) -> int:
        name = model.graph.output[place].name
        maker = next(node for node in model.graph.node if name in node.output)
        inner = f"planted/{next(_NUMBERS)}"
        for node in model.graph.node:
            for slot, read in enumerate(node.input):
                if read == name:
                    node.input[slot] = inner
        maker.output[list(maker.output).index(name)] = inner
        nodes = Nodes()
        last = build(nodes, inner)
        for new in nodes.made:
            for slot, made in enumerate(new.output):
                if made == last:
                    new.output[slot] = name
        model.graph.node.extend(nodes.made)
        return 1

    return edit
