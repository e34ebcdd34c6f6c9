"""Which tensor of the graph is the output of which submodule.

Exporters write down where a node comes from. ``torchscript`` does in its name: ``/layer1/layer1.0/conv1/Conv``, where
a number stands together with the name that it belongs to, and a second call of ``/sub/fc`` is ``/sub/fc_1``.
``dynamo`` has the paths in the node's metadata, but does not tell one call of a submodule from the next.

The output of a call is then looked for among the tensors that leave its scope, by dtype and shape, which are known
from running the model once with all of them as outputs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from conformance.align.modules import Call, Key
from conformance.arrays import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Kind = Literal["own", "same", "folded", "input", "unmatched"]
"""``own``: a tensor of the graph. ``same``: the very tensor that another call returned. ``folded``: merged into the
batch norm that follows. ``input``: what the module was given, which it hands on. ``unmatched``: none was found."""


@dataclass
class Place:
    """One output of one call, and the tensor of the graph that it is."""

    call: Call
    output: int
    kind: Kind = "unmatched"
    tensor: str | None = None
    note: str = ""
    """What the reader has to know of the match, or why there is none."""
    first: Place | None = None
    """Who returned the tensor first (``same``), or what it was folded into (``folded``)."""

    @property
    def name(self) -> str:
        """``layer1.0.relu``, ``layer1.0.relu, call 2`` or ``lstm, output 1``."""
        parts = [self.call.path or "(the whole module)"]
        parts += [f"call {self.call.number + 1}"] if self.call.number else []
        parts += [f"output {self.output}"] if len(self.call.keys) > 1 else []
        return ", ".join(parts)


# ---- the graph -----------------------------------------------------------------------------------------------


class Graph:
    """The top level of a model's graph: who makes a tensor, and who reads it."""

    def __init__(self, model: ModelProto) -> None:
        self.nodes: list[NodeProto] = list(model.graph.node)
        weights = {one.name for one in model.graph.initializer}
        self.inputs = [one.name for one in model.graph.input if one.name not in weights]
        self.outputs = [one.name for one in model.graph.output]
        self.makers = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in _read(node):
                self.readers.setdefault(name, []).append(index)

    def leaving(self, nodes: set[int]) -> list[str]:
        """The tensors of these nodes that others read, that are outputs of the graph, or that nobody reads."""
        outputs = set(self.outputs)
        return [
            name
            for index in sorted(nodes)
            if self.nodes[index].op_type != "Constant"
            for name in self.nodes[index].output
            if name and (name in outputs or not {*self.readers.get(name, ())} or {*self.readers[name]} - nodes)
        ]

    def upstream(self, tensor: str, known: set[str]) -> tuple[list[str], list[int]]:
        """The nearest tensors among ``known`` that this one is computed from, and the nodes on the way, in order.

        Nodes that only compute sizes do not count, nor does what the sizes are of: no value goes through them.
        """
        found: dict[str, None] = {}
        nodes: set[int] = set()
        todo = [tensor]
        while todo:
            name = todo.pop()
            if name != tensor and name in known:
                found[name] = None
            elif (index := self.makers.get(name)) is not None and index not in nodes:
                nodes.add(index)
                if self.nodes[index].op_type not in ("Shape", "Size"):
                    todo += _read(self.nodes[index])
        ordered = sorted(found, key=lambda name: self.makers.get(name, -1))
        return ordered, self._with_values(sorted(nodes), {*found, *self.inputs}) or sorted(nodes)

    def _with_values(self, nodes: Sequence[int], values: set[str]) -> list[int]:
        """The nodes that compute something of ``values``."""
        reached, kept = set(values), []
        for index in nodes:
            node = self.nodes[index]
            if node.op_type not in ("Shape", "Size") and reached & {*_read(node)}:
                reached.update(node.output)
                kept.append(index)
        return kept

    def node_of(self, tensor: str) -> NodeProto | None:
        index = self.makers.get(tensor)
        return None if index is None else self.nodes[index]


def _read(node: NodeProto) -> list[str]:
    """What a node reads, its subgraphs included."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {name for one in inner.node for name in one.output}
            found += [name for one in inner.node for name in _read(one) if name not in own]
            found += [one.name for one in inner.output if one.name not in own]
    return found


def rewritten(node: NodeProto) -> str:
    """The rules of the exporter's optimizer that made the node, where it says so."""
    return _metadata(node).get("pkg.onnxscript.rewriter.rule_name", "")


def _metadata(node: NodeProto) -> dict[str, str]:
    return {one.key: one.value for one in node.metadata_props}


# ---- scopes --------------------------------------------------------------------------------------------------


@dataclass
class Scopes:
    """Which nodes belong to which call."""

    own: dict[int, set[int]] = field(default_factory=dict)
    """By id of a call, its nodes, without those of calls inside it."""
    confused: set[int] = field(default_factory=set)
    """Calls of submodules whose calls cannot be told from one another; their nodes count as of the call around."""

    def within(self, call: Call, calls: Sequence[Call]) -> set[int]:
        """All nodes of a call, those of calls inside it included."""
        return set().union(*(self.own.get(one.id, set()) for one in calls if call.id in one.entered))


def scopes(graph: Graph, calls: Sequence[Call], exporter: str) -> Scopes:
    """Reads what the exporter wrote down."""
    begun = sorted(calls, key=lambda one: one.id)
    found = Scopes()
    if exporter == "torchscript":
        together = _grouped(begun, lambda call: tuple(map(_label, call.chain[1:])))
        parts = _by_name(graph, together)
    else:
        together = _grouped(begun, lambda call: (call.path,))
        parts = _by_metadata(graph, together)
    for name, some in together.items():
        for these in (some, [one for one in some if not _hands_on(one)]):
            split = _split(parts.get(name, []), len(these), graph)
            if split is not None:
                for call, nodes in zip(these, split, strict=True):
                    found.own.setdefault(call.id, set()).update(nodes)
                break
        else:
            found.confused |= {one.id for one in some}
            around = _around(some)
            for part in parts[name]:
                found.own.setdefault(around, set()).update(part.nodes)
    return found


def _grouped(calls: Iterable[Call], name: Any) -> dict[tuple[str, ...], list[Call]]:
    found: dict[tuple[str, ...], list[Call]] = {}
    for one in calls:
        found.setdefault(name(one), []).append(one)
    return found


def _label(path: str) -> str:
    """How TorchScript's scopes call a submodule: ``conv1``, and ``layer1.0`` for one that is only a number."""
    atoms = path.split(".")
    numbers = list(takewhile(str.isnumeric, reversed(atoms)))
    return path if len(numbers) == len(atoms) else ".".join(atoms[len(atoms) - len(numbers) - 1 :])


def _hands_on(call: Call) -> bool:
    """Whether it returns nothing but what it was given, as a dropout does in evaluation mode."""
    return set(call.keys) <= set(call.inputs)


def _around(calls: Sequence[Call]) -> int:
    """The innermost call that all of these are inside of."""
    shared = [ids[0] for ids in zip(*(one.entered[:-1] for one in calls), strict=False) if len({*ids}) == 1]
    return shared[-1] if shared else 0


@dataclass
class _Part:
    """Nodes that belong to one call: all that do (``whole``), or those of one operation of it."""

    kind: str
    nodes: list[int] = field(default_factory=list)
    whole: bool = False
    path: str = ""
    confused: bool = False


def _by_name(graph: Graph, calls: Mapping[tuple[str, ...], list[Call]]) -> dict[tuple[str, ...], list[_Part]]:
    """By labels, the nodes of each call; read from names such as ``/layer1/layer1.0/relu_1/Relu``."""
    numbered: dict[tuple[str, ...], dict[int, _Part]] = {}
    for index, node in enumerate(graph.nodes):
        if not node.name.startswith("/"):
            continue
        labels = tuple(node.name.split("/")[1:-1])
        means = [(labels, 0)] if labels in calls else []
        again = re.fullmatch(r"(.+)_(\d+)", labels[-1]) if labels else None
        if again:
            base = (*labels[:-1], again[1])
            means += [(base, int(again[2]))] if len(calls.get(base, ())) > int(again[2]) else []
        for name, number in means:
            part = numbered.setdefault(name, {}).setdefault(number, _Part("", whole=True))
            part.nodes.append(index)
            part.confused |= len(means) > 1  # relu_1, or the second call of relu
    return {name: [parts[number] for number in sorted(parts)] for name, parts in numbered.items()}


def _by_metadata(graph: Graph, calls: Mapping[tuple[str, ...], list[Call]]) -> dict[tuple[str, ...], list[_Part]]:
    """By path, the nodes of each operation of PyTorch's, in order."""
    found: dict[tuple[str, ...], dict[str, _Part]] = {}
    for index, node in enumerate(graph.nodes):
        told = _metadata(node)
        try:
            paths = ast.literal_eval(told.get("pkg.torch.onnx.name_scopes", ""))
            kinds = ast.literal_eval(told.get("pkg.torch.onnx.class_hierarchy", ""))
            *_, path, operation = paths
            kind = kinds[-1]
        except (ValueError, SyntaxError, TypeError, IndexError):
            continue
        if (path,) in calls:
            parts = found.setdefault((path,), {})
            parts.setdefault(operation, _Part(kind, path=path)).nodes.append(index)
    return {name: list(parts.values()) for name, parts in found.items()}


def _split(parts: Sequence[_Part], count: int, graph: Graph) -> list[list[int]] | None:
    """The nodes of each of ``count`` calls; None where they cannot be told apart."""
    if not parts:
        return [[] for _ in range(count)]
    if not count or any(one.confused for one in parts):
        return None
    if parts[0].whole:
        return [one.nodes for one in parts] if len(parts) == count else None
    if count == 1:
        return [[node for one in parts for node in one.nodes]]
    each, rest = divmod(len(parts), count)
    kinds = [one.kind for one in parts]
    if not rest and kinds == kinds[:each] * count:  # the same operations each time
        return [[node for one in parts[k * each : (k + 1) * each] for node in one.nodes] for k in range(count)]
    runs = _runs(sorted(node for one in parts for node in one.nodes), parts[0].path, graph)
    return runs if len(runs) == count else None


def _runs(nodes: Sequence[int], path: str, graph: Graph) -> list[list[int]]:
    """Nodes that follow one another with none of another submodule in between."""
    found: list[list[int]] = []
    last = -1
    for node in nodes:
        between = graph.nodes[last + 1 : node] if found else []
        if not found or any(_elsewhere(one, path) for one in between):
            found.append([])
        found[-1].append(node)
        last = node
    return found


def _elsewhere(node: NodeProto, path: str) -> bool:
    text = _metadata(node).get("pkg.torch.onnx.name_scopes")
    return text is not None and path not in ast.literal_eval(text)


# ---- matching ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """What may be the outputs of which call: the tensors that leave its scope."""

    calls: Sequence[Call]
    graph: Graph
    scopes: Scopes
    by_call: Mapping[int, list[str]]

    @property
    def tensors(self) -> list[str]:
        """All of them, and the outputs of the graph, in the order in which they are computed."""
        found = {name: None for names in self.by_call.values() for name in names}
        found.update(dict.fromkeys(self.graph.outputs))
        return sorted(found, key=lambda name: self.graph.makers.get(name, -1))


def candidates(model: ModelProto, calls: Sequence[Call], exporter: str) -> Candidates:
    graph = Graph(model)
    found = scopes(graph, calls, exporter)
    return Candidates(calls, graph, found, {one.id: graph.leaving(found.within(one, calls)) for one in calls})


def match(given: Candidates, arrays: Mapping[str, Array]) -> list[Place]:
    """The tensor of each output of each call, in the order in which the calls return.

    ``arrays`` has the values of the candidates. No two outputs get one tensor, unless PyTorch says that they are one
    (``same``), or nothing else leaves the scope of a call, which is noted. Where several would do, their values
    decide, which is noted too.
    """
    return list(_Matching(given, arrays).places())


class _Matching:
    def __init__(self, given: Candidates, arrays: Mapping[str, Array]) -> None:
        self._given, self._arrays = given, arrays
        self._makers: dict[Key, Place] = {}
        self._holders: dict[str, Place] = {}

    def places(self) -> Iterator[Place]:
        found: list[Place] = []
        for call in self._given.calls:
            if not call.path:
                found += self._root(call)
                continue
            here = [Place(call, index) for index in range(len(call.keys))]
            self._find([place for place in here if not self._known(place)], call)
            found += here
        self._fold(found)
        return iter(found)

    def _known(self, place: Place) -> bool:
        """Whether PyTorch itself says where the tensor comes from."""
        key = place.call.keys[place.output]
        if key in self._makers:
            place.kind, place.first = "same", self._makers[key]
        elif key in place.call.inputs:
            place.kind, place.note = "input", "returns what it was given"
        else:
            self._makers[key] = place
            return False
        return True

    def _find(self, places: Sequence[Place], call: Call) -> None:
        names = self._given.by_call[call.id]
        if not names:
            confused = call.id in self._given.scopes.confused
            for place in places:
                place.note = (
                    "the graph does not say which call its nodes are from"
                    if confused
                    else "no node of the graph is from it: merged into another, computed beforehand, or not needed"
                )
                if call.batch_norm and call.inputs and not confused:
                    self._take_over(place, self._makers.get(call.inputs[0]))
            return
        fitting = {id(place): self._fitting(place, names) for place in places}
        pairs = sorted(
            (
                (_distance(self._arrays[name], place.call.outputs[place.output]), order, name)
                for order, place in enumerate(places)
                for name in fitting[id(place)]
            ),
            key=lambda pair: pair[0],
        )
        taken: set[str] = set()
        for _, order, name in pairs:
            place = places[order]
            if place.tensor is None and name not in taken:
                taken.add(name)
                rivals = sum(name in some for some in fitting.values())
                if len(fitting[id(place)]) > 1 or rivals > 1:
                    place.note = f"one of {max(len(fitting[id(place)]), rivals)} that its values tell apart"
                self._hold(place, name)
        for place in places:
            if place.tensor is None:
                shape = list(place.call.outputs[place.output].shape)
                place.note = f"no tensor of shape {shape} leaves its scope, or another output has it"

    def _fitting(self, place: Place, names: Sequence[str]) -> list[str]:
        """The tensors that may be this output: those of its dtype and shape that nobody has."""
        wanted = place.call.outputs[place.output]
        alike = [name for name in names if self._arrays[name].dtype.kind == wanted.dtype.kind]
        same = [name for name in alike if self._arrays[name].shape == wanted.shape]
        free = [name for name in same if name not in self._holders]
        if free or len(place.call.keys) > 1:
            return free
        if len(same) == 1:  # an operation that changes nothing, such as contiguous(), which has no node
            return same
        unclaimed = [name for name in alike if name not in self._holders]
        # The only tensor of a single output is that output, also where its shape is wrong.
        return unclaimed if len(unclaimed) == 1 and not same else []

    def _hold(self, place: Place, tensor: str) -> None:
        other = self._holders.get(tensor)
        if other is not None:
            place.note = f"the same tensor of the graph as {other.name}"
        self._holders.setdefault(tensor, place)
        place.kind, place.tensor = "own", tensor

    def _take_over(self, norm: Place, before: Place | None) -> None:
        """A batch norm without nodes is in the weights of what is before it, whose tensor is its output then."""
        if before is None or before.tensor is None:
            return
        tensor, before.tensor = before.tensor, None
        del self._holders[tensor]
        self._folded(before, norm)
        norm.note = ""
        self._hold(norm, tensor)

    def _fold(self, places: Sequence[Place]) -> None:
        """The other way round: what is before a batch norm has no nodes, since they are the batch norm's now."""
        for norm in places:
            before = self._makers.get(norm.call.inputs[0]) if norm.call.batch_norm and norm.call.inputs else None
            if norm.tensor and before is not None and before.kind == "unmatched":
                self._folded(before, norm)

    @staticmethod
    def _folded(before: Place, norm: Place) -> None:
        before.kind, before.first, before.note = "folded", norm, f"folded into {norm.name}"

    def _root(self, call: Call) -> Iterator[Place]:
        """The outputs of the whole module are those of the graph, in order."""
        outputs = self._given.graph.outputs
        for index in range(len(call.keys)):
            place = Place(call, index)
            first = self._makers.get(call.keys[index])
            if len(outputs) != len(call.keys):
                place.note = f"the graph has {len(outputs)} outputs, PyTorch {len(call.keys)}"
            elif first is not None and first.tensor == outputs[index]:
                place.kind, place.first = "same", first
            else:
                place.kind, place.tensor = "own", outputs[index]
            yield place


def _distance(got: Array, wanted: Array) -> float:
    """How far apart two arrays are on average; infinite where they cannot be compared."""
    if got.shape != wanted.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        left, right = got.astype(np.float64), wanted.astype(np.float64)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        found = float(np.where(same, 0.0, np.abs(left - right)).mean()) if got.size else 0.0
    return found if found == found else float("inf")
