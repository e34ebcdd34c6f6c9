"""Kinds of defects that a wrong symbolic, exporter or optimizer makes, as edits of an exported model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from conformance.diagnose.nodes.forms import words_of
from conformance.diagnose.operators.alike import COMMUTATIVE, FLAGS, SIBLINGS, TYPES
from conformance.process.arrays import Array, equal
from conformance.process.errors import works
from conformance.runtimes.onnxgraph import node_edits
from conformance.runtimes.onnxgraph.reads import copy_of, held, plain

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, NodeProto, TensorProto


@dataclass(frozen=True)
class MutationSite:
    """A place where a model can be changed, and the change."""

    node: str
    what: str
    edit: Callable[[ModelProto], None]


SIZES = {
    "ConstantOfShape": [0], "Expand": [1], "Pad": [1], "Range": [0, 1, 2], "Reshape": [1], "Resize": [2, 3],
    "Slice": [1, 2], "Split": [1], "Tile": [1],
}  # fmt: skip
"""Inputs that are sizes or made of sizes, by operator."""


class View:
    """A model to be changed, with what its tensors are: (element type, rank), where shape inference knows it."""

    def __init__(self, model: ModelProto, traced: Callable[[Sequence[str]], Sequence[Array]]) -> None:
        """``traced`` gives the values of tensors for the input that the model was exported with."""
        import onnx

        self.model = model
        self.traced = traced
        self.types: dict[str, tuple[int, int]] = {}
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        for value in (*inferred.input, *inferred.value_info, *inferred.output):
            if value.type.tensor_type.HasField("shape"):
                self.types[value.name] = (value.type.tensor_type.elem_type, len(value.type.tensor_type.shape.dim))
        for name, tensor in tensors(model).items():
            self.types[name] = (tensor.data_type, len(tensor.dims))

    def nodes(self) -> Iterator[tuple[int, NodeProto, str]]:
        """The nodes that compute something, with their index and how they are called in a report."""
        for index, node in enumerate(self.model.graph.node):
            if node.op_type not in ("Constant", "Identity"):
                yield index, node, f"{node.op_type} {node.output[0]}"


def tensors(model: ModelProto) -> dict[str, TensorProto]:
    """The constants of a model by name, to be read or written: initializers, and what Constant nodes hold."""
    return {one.name: one for one in model.graph.initializer} | held(model.graph.node)


def changed_attributes(view: View) -> Iterator[MutationSite]:
    for index, node, label in view.nodes():
        for attribute in node.attribute:
            value = plain(attribute)
            for other in _others(node.op_type, attribute.name, value):
                edit = _at(index, node_edits.set_attribute, attribute.name, other)
                yield MutationSite(label, f"{attribute.name} {value} becomes {other}", edit)


def _at(index: int, edit: Callable[..., None], *arguments: object) -> Callable[[ModelProto], None]:
    """Return an edit of one of a model's nodes."""
    return lambda model: edit(model.graph, model.graph.node[index], *arguments)


def _others(operator: str, name: str, value: object) -> list[object]:
    """Values that someone could have written instead."""
    if isinstance(value, str):
        return [word for word in words_of(operator, name) if word != value]
    if isinstance(value, float):
        return [value * 10, value / 10] if name == "epsilon" else [value * 1.1, value / 2]
    if isinstance(value, int) and name not in TYPES:
        return [1 - value] if name in FLAGS else [value - 1, value + 1]
    if isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        half = len(value) // 2
        tries = [value[::-1], [value[0] + 1, *value[1:]], [*value[:-1], value[-1] - 1]]
        if name == "pads":
            tries.append([*value[half:], *value[:half]])
        if name == "perm":
            tries = [[*value[:i], value[i + 1], value[i], *value[i + 2 :]] for i in range(len(value) - 1)]
        return [one for i, one in enumerate(tries) if one != value and one not in tries[:i]]
    return []


def dropped_attributes(view: View) -> Iterator[MutationSite]:
    """Unless that means the same: it is the default, or can be told from the weights."""
    versions = {one.domain: one.version for one in view.model.opset_import}
    for index, node, label in view.nodes():
        for attribute in node.attribute:
            if not _is_default(node, attribute, versions[node.domain]):
                edit = _at(index, node_edits.drop_attribute, attribute.name)
                yield MutationSite(label, f"{attribute.name} {plain(attribute)} is left out", edit)


def _is_default(node: NodeProto, attribute: AttributeProto, version: int) -> bool:
    from onnx import defs

    value = plain(attribute)
    windows = {"strides": 1, "dilations": 1, "pads": 0}  # where the schema has the defaults in words only
    if attribute.name in windows:
        return bool({*value} == {windows[attribute.name]})
    if attribute.name == "kernel_shape":
        return node.op_type in ("Conv", "ConvTranspose", "DeformConv")
    if not defs.has(node.op_type, version, node.domain):
        return False
    known = defs.get_schema(node.op_type, version, node.domain).attributes.get(attribute.name)
    return known is not None and known.default_value.type != 0 and bool(plain(known.default_value) == value)


def swapped_inputs(view: View) -> Iterator[MutationSite]:
    for index, node, label in view.nodes():
        for right in range(len(node.input)) if node.op_type not in COMMUTATIVE else ():
            for left in range(right):
                one, other = node.input[left], node.input[right]
                known, alike = view.types.get(one), view.types.get(other)
                if one != other and known is not None and alike is not None and known[0] == alike[0]:
                    edit = _at(index, node_edits.swap_inputs, left, right)
                    yield MutationSite(label, f"inputs {left} and {right} are swapped", edit)


def replaced_inputs(view: View) -> Iterator[MutationSite]:
    """By one of the three tensors of that type and rank that were made last."""
    made = [one.name for one in view.model.graph.input]
    made = [*tensors(view.model), *(name for name in made if name not in tensors(view.model))]
    for index, node in enumerate(view.model.graph.node):
        for slot, name in enumerate(node.input):
            kind = view.types.get(name)
            alike = [
                one for one in made if kind is not None and view.types.get(one) == kind and one not in node.input
            ]
            for other in alike[-3:]:
                edit = _at(index, node_edits.set_input, slot, other)
                yield MutationSite(
                    f"{node.op_type} {node.output[0]}", f"input {slot} is {other} instead of {name}", edit
                )
        made += [name for name in node.output if name not in made]


def replaced_operators(view: View) -> Iterator[MutationSite]:
    for index, node, label in view.nodes():
        for other in sorted({one for group in SIBLINGS if node.op_type in group for one in group} - {node.op_type}):

            def edit(model: ModelProto, index: int = index, other: str = other) -> None:
                model.graph.node[index].op_type = other

            yield MutationSite(label, f"is {other}", edit)


def changed_weights(view: View) -> Iterator[MutationSite]:
    """By one percent; one channel by a twentieth of how the values spread; two channels in each other's place."""
    from onnx import TensorProto, numpy_helper

    for name, tensor in tensors(view.model).items():
        if tensor.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        changes: dict[str, Array] = {"is scaled by 1.01": values * np.float32(1.01)}
        if values.ndim and len(values) > 1:
            shifted, swapped = values.copy(), values.copy()
            shifted[-1] += 0.05 * (values.std() or 1)
            swapped[[0, -1]] = values[[-1, 0]]
            changes |= {f"channel {len(values) - 1} is shifted": shifted, "the first and last channel swap": swapped}
        for what, other in changes.items():
            if not equal(other, values):
                yield MutationSite(f"constant {name}", what, _write(name, other.astype(values.dtype)))


def _write(name: str, values: Array) -> Callable[[ModelProto], None]:
    from onnx import numpy_helper

    def edit(model: ModelProto) -> None:
        tensors(model)[name].CopyFrom(numpy_helper.from_array(values, name))

    return edit


def changed_integers(view: View) -> Iterator[MutationSite]:
    """An axis, an end of a slice, an index, an amount of padding: off by one."""
    from onnx import TensorProto, numpy_helper

    for name, tensor in tensors(view.model).items():
        if tensor.data_type not in (TensorProto.INT64, TensorProto.INT32):
            continue
        values = numpy_helper.to_array(tensor)
        for place in range(min(4, values.size)):
            for step in (-1, 1):
                other = values.copy()
                other.reshape(-1)[place] += step
                yield MutationSite(
                    f"constant {name}", f"{values.tolist()} becomes {other.tolist()}", _write(name, other)
                )


def bypassed_nodes(view: View) -> Iterator[MutationSite]:
    for index, node, label in view.nodes():
        known = view.types.get(node.input[0]) if node.input else None
        if known is not None and len(node.output) == 1 and view.types.get(node.output[0]) == known:
            yield MutationSite(label, "is bypassed", _at(index, node_edits.set_operator, "Identity", ()))


def baked_sizes(view: View) -> Iterator[MutationSite]:
    """Yield what is computed from a shape, or left open by -1 or 0, is the number that the trace had."""
    from onnx import numpy_helper

    constants = tensors(view.model)
    places: list[tuple[int, int, str, str]] = []  # of the node, of its input, its label, what holds the number
    for index, node, label in view.nodes():
        for slot in SIZES.get(node.op_type, []):
            name = node.input[slot] if slot < len(node.input) else ""
            if name and name not in constants:
                places.append((index, slot, label, name))
            elif name and node.op_type == "Reshape" and (numpy_helper.to_array(constants[name]) < 1).any():
                places.append((index, slot, label, node.output[0]))
    values = view.traced([name for *_, name in places]) if places else []
    for (index, slot, label, name), value in zip(places, values, strict=True):
        reshaped = name == view.model.graph.node[index].output[0]
        baked = np.array(value.shape, dtype=np.int64) if reshaped else value
        edit = _at(index, node_edits.set_constant, slot, baked, f"baked {index} {slot}")
        yield MutationSite(label, f"input {slot} is always {baked.tolist()}", edit)


KINDS: Mapping[str, Callable[[View], Iterable[MutationSite]]] = {
    "attribute changed": changed_attributes,
    "attribute left out": dropped_attributes,
    "inputs swapped": swapped_inputs,
    "input replaced": replaced_inputs,
    "operator replaced": replaced_operators,
    "weights changed": changed_weights,
    "integer off by one": changed_integers,
    "node bypassed": bypassed_nodes,
    "size baked in": baked_sizes,
}


def choose(
    view: View, seed: int, count: int, loads: Callable[[bytes], object]
) -> Iterator[tuple[str, MutationSite, bytes]]:
    """Up to ``count`` mutants, the kinds in turn: (kind, site, model). ``loads`` raises for what does not load."""
    rng = random.Random(seed)
    waiting = {kind: sorted(make(view), key=lambda site: (site.node, site.what)) for kind, make in KINDS.items()}
    for sites in waiting.values():
        rng.shuffle(sites)
    order = [*waiting]
    rng.shuffle(order)
    found = 0
    while found < count and any(waiting.values()):
        for kind in order:
            while found < count and waiting[kind]:
                site = waiting[kind].pop()
                data = mutated(view.model, site, loads)
                if data is not None:
                    found += 1
                    yield kind, site, data
                    break


def mutated(model: ModelProto, site: MutationSite, loads: Callable[[bytes], object]) -> bytes | None:
    """The model with the defect; None where it is none any more, by onnx.checker or because it does not load."""
    import onnx

    copy = copy_of(model)
    site.edit(copy)
    del copy.graph.value_info[:]  # what an exporter infers follows from what it writes
    data: bytes = copy.SerializeToString(deterministic=True)
    sound = works(lambda: onnx.checker.check_model(copy, full_check=True)) and works(lambda: loads(data))
    return data if sound else None
