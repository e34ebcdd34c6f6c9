"""A model that somebody else exported of a case's module, with inputs and outputs named as the case has them.

They are matched by name, and what is left by dtype and shape where these fit only one.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.process.errors import Stopped
from conformance.runtimes.onnxgraph.reads import dims_of, graphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

Size = int | str | None
"""A fixed size, or one that is open, with its name."""


@dataclass(frozen=True)
class Side:
    """An input or output of the module or of the file; ``shape`` is None where nothing says it."""

    name: str | None
    dtype: str
    shape: tuple[Size, ...] | None

    def fits(self, other: Side) -> bool:
        """Return whether both can be the same tensor: of one dtype and rank, without fixed sizes that differ."""
        if self.dtype != other.dtype:
            return False
        if self.shape is None or other.shape is None:
            return True
        fixed = [
            (a, b) for a, b in zip(self.shape, other.shape, strict=False) if isinstance(a, int) and isinstance(b, int)
        ]
        return len(self.shape) == len(other.shape) and all(a == b for a, b in fixed)

    def __str__(self) -> str:
        sizes = "" if self.shape is None else ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.name or '(no name)'}: {self.dtype}[{'...' if self.shape is None else sizes}]"


def named_as_in_file(model: ModelProto, first: ModelProto, file: str, name: str) -> ModelProto:
    """Return a model with the inputs and outputs of the ``first``, which the file ``name`` has, as
    ``named_as_in_case`` does; where their names are the same, by these alone, whatever their types."""
    sides: list[list[Side]] = []
    for ours, theirs in zip(_ends(first.graph), _ends(model.graph), strict=True):
        by_name = {value.name: value for value in theirs}
        alike = {value.name for value in ours} == by_name.keys()
        sides.append([_side(by_name[value.name] if alike else value) for value in ours])
    inputs, outputs = sides
    return named_as_in_case(model, inputs, outputs, file, name)


def _ends(graph: GraphProto) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    """Return the inputs and the outputs of a graph. Files of old versions list weights as inputs too."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights], list(graph.output)


def named_as_in_case(
    model: ModelProto, inputs: Sequence[Side], outputs: Sequence[Side], file: str, whose: str = "the module"
) -> ModelProto:
    """Return the model with the inputs and outputs of the case's module, in their order and by their names.

    Raises Stopped at ``declare`` with a table of both sides where they cannot be matched.
    """
    graph = model.graph
    given, _ = _ends(graph)
    of_inputs = _matched(inputs, [_side(value) for value in given], "inputs", (whose, file))
    of_outputs = _matched(outputs, [_side(value) for value in graph.output], "outputs", (whose, file))
    kept = {value.name for value in given}
    rest = [value for value in graph.input if value.name not in kept]
    names: dict[str, str] = {}
    for sides, values, found in ((inputs, given, of_inputs), (outputs, list(graph.output), of_outputs)):
        names |= {values[at].name: side.name for side, at in zip(sides, found, strict=True) if side.name is not None}
    _replace(graph.input, [*(given[at] for at in of_inputs), *rest])
    _replace(graph.output, [graph.output[at] for at in of_outputs])
    names = {old: new for old, new in names.items() if old != new}
    if names:
        taken = {new: f"{new}_of_file" for new in names.values() if new not in names}
        _rename(graph, {**taken, **names})
    return model


def _matched(ours: Sequence[Side], theirs: Sequence[Side], what: str, whose: tuple[str, str]) -> list[int]:
    """Return for each of ours the place of the one among theirs."""
    found: dict[int, int] = {}
    by_name = {side.name: place for place, side in enumerate(theirs)}
    for place, side in enumerate(ours):
        if side.name in by_name and side.fits(theirs[by_name[side.name]]):
            found[place] = by_name[side.name]
    while len(found) < len(ours):
        free = [at for at in range(len(theirs)) if at not in found.values()]
        fitting = {
            place: [at for at in free if side.fits(theirs[at])]
            for place, side in enumerate(ours)
            if place not in found
        }
        sole = {place: at for place, (at, *more) in ((p, f) for p, f in fitting.items() if f) if not more}
        unique = {place: at for place, at in sole.items() if sum(at in places for places in fitting.values()) == 1}
        if not unique:
            break
        found |= unique
    if len(found) < len(ours) or len(theirs) > len(ours):
        raise Stopped("declare", "OtherInterface", _table(ours, theirs, found, what, whose), "case")
    return [found[place] for place in range(len(ours))]


def _table(
    ours: Sequence[Side], theirs: Sequence[Side], found: Mapping[int, int], what: str, whose: tuple[str, str]
) -> str:
    first, file = whose
    lines = [f"the {what} of {file} are not those of {first}, by name or else by dtype and shape:"]
    matched = [(str(ours[place]), str(theirs[at])) for place, at in sorted(found.items())]
    alone = [(str(side), "no match") for place, side in enumerate(ours) if place not in found]
    others = [("no match", str(side)) for at, side in enumerate(theirs) if at not in found.values()]
    rows = [(first.removeprefix("the "), file), *matched, *alone, *others]
    width = max(len(left) for left, _ in rows)
    lines += [f"  {left:<{width}}  {right}" for left, right in rows]
    advice = "name them alike in the case (inputs, outputs), or choose outputs of the module with returns"
    lines.append(advice if first == "the module" else "give them the same names in both files")
    return "\n".join(lines)


def _side(value: ValueInfoProto) -> Side:
    from onnx import helper

    kind = value.type.tensor_type
    try:
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).name
    except (KeyError, ValueError):  # no tensor
        dtype = value.type.WhichOneof("value") or "unknown"
    dims = dims_of(kind)
    return Side(value.name, dtype, None if dims is None else tuple(dims))


def _replace(values: MutableSequence[ValueInfoProto], by: Sequence[ValueInfoProto]) -> None:
    copies = [type(value).FromString(value.SerializeToString()) for value in by]
    del values[:]
    values.extend(copies)


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename tensors everywhere in a graph; ONNX gives no two tensors of a graph and its bodies the same name."""
    for inner in graphs(graph):
        for value in (*inner.input, *inner.output, *inner.value_info, *inner.initializer):
            value.name = names.get(value.name, value.name)
        for sparse in inner.sparse_initializer:
            sparse.values.name = names.get(sparse.values.name, sparse.values.name)
        for note in inner.quantization_annotation:
            note.tensor_name = names.get(note.tensor_name, note.tensor_name)
        for node in inner.node:
            for tensors in (node.input, node.output):
                tensors[:] = [names.get(name, name) for name in tensors]
