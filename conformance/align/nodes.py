"""Which tensor of the graph is the output of which submodule.

Exporters write down where a node comes from. ``torchscript`` does so in the node's name:
``/layer1/layer1.0/conv1/Conv``, where a submodule that is only a number has the name before it in front, and a second
call of ``/sub/fc`` is ``/sub/fc_1``. ``dynamo`` has the paths in the node's metadata, but does not tell one call of a
submodule from the next.

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
batch norm that follows. ``input``: what the module was given, which it hands on. ``unmatched``: no tensor is
known."""


@dataclass
class Place:
    """One output of one call, and the tensor of the graph that it is."""

    call: Call
    output: int
    kind: Kind = "unmatched"
    tensor: str | None = None
    note: str = ""
    """What the reader has to know of the match, or why there is no match."""
    first: Place | None = None
    """The output that had the tensor first (``same``), or that this one was folded into (``folded``)."""

    @property
    def name(self) -> str:
        """``layer1.0.relu``, ``layer1.0.relu, call 2`` or ``lstm, output 1``."""
        parts = [self.call.path or "(the whole module)"]
        parts += [f"call {self.call.number + 1}"] if self.call.number else []
        parts += [f"output {self.output}"] if len(self.call.keys) > 1 else []
        return ", ".join(parts)


# ---- the graph -----------------------------------------------------------------------------------------------


class Graph:
    """The top level of a model's graph: which node makes a tensor, and which nodes read it."""

    def __init__(self, model: ModelProto) -> None:
        self.nodes: list[NodeProto] = list(model.graph.node)
        weights = {initializer.name for initializer in model.graph.initializer}
        self.inputs = [value.name for value in model.graph.input if value.name not in weights]
        self.outputs = [value.name for value in model.graph.output]
        self.makers = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in _read(node):
                self.readers.setdefault(name, []).append(index)

    def leaving(self, nodes: set[int]) -> list[str]:
        """The tensors of these nodes that other nodes read, that are outputs of the graph, or that no node reads."""
        outputs = set(self.outputs)
        return [
            name
            for index in sorted(nodes)
            if self.nodes[index].op_type != "Constant"
            for name in self.nodes[index].output
            if name and (name in outputs or not {*self.readers.get(name, ())} or {*self.readers[name]} - nodes)
        ]

    def upstream(self, tensor: str, known: set[str]) -> tuple[list[str], list[int]]:
        """The nearest tensors among ``known`` that ``tensor`` is computed from, and the nodes on the way, in order.

        Nodes that only compute sizes do not count, nor do the tensors whose sizes are taken, whose values do not
        matter.
        """
        nearest: dict[str, None] = {}
        nodes: set[int] = set()
        todo = [tensor]
        while todo:
            name = todo.pop()
            if name != tensor and name in known:
                nearest[name] = None
            elif (index := self.makers.get(name)) is not None and index not in nodes:
                nodes.add(index)
                if self.nodes[index].op_type not in ("Shape", "Size"):
                    todo += _read(self.nodes[index])
        ordered = sorted(nearest, key=lambda name: self.makers.get(name, -1))
        return ordered, self._with_values(sorted(nodes), {*nearest, *self.inputs}) or sorted(nodes)

    def _with_values(self, nodes: Sequence[int], values: set[str]) -> list[int]:
        """Those of the nodes that compute something from ``values``, in any number of steps."""
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
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {name for within in inner.node for name in within.output}
            names += [name for within in inner.node for name in _read(within) if name not in own]
            names += [value.name for value in inner.output if value.name not in own]
    return names


def rewritten(node: NodeProto) -> str:
    """The rules of the exporter's optimizer that made the node, where it says so."""
    return _metadata(node).get("pkg.onnxscript.rewriter.rule_name", "")


def _metadata(node: NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in node.metadata_props}


# ---- scopes --------------------------------------------------------------------------------------------------


@dataclass
class Scopes:
    """Which nodes belong to which call."""

    own: dict[int, set[int]] = field(default_factory=dict)
    """By id of a call its nodes, but for those of calls inside that call."""
    confused: set[int] = field(default_factory=set)
    """Ids of calls of a submodule whose calls cannot be told apart; their nodes count as of the call around them."""

    def within(self, call: Call, calls: Sequence[Call]) -> set[int]:
        """All nodes of a call, with those of the calls inside that call."""
        return set().union(*(self.own.get(inner.id, set()) for inner in calls if call.id in inner.entered))


def scopes(graph: Graph, calls: Sequence[Call], exporter: str) -> Scopes:
    """Which nodes belong to which call, read from what the exporter wrote down."""
    begun = sorted(calls, key=lambda call: call.id)
    told = Scopes()
    if exporter == "torchscript":
        together = _grouped(begun, lambda call: tuple(map(_label, call.chain[1:])))
        parts = _by_name(graph, together)
    else:
        together = _grouped(begun, lambda call: (call.path,))
        parts = _by_metadata(graph, together)
    for name, alike in together.items():
        for working in (alike, [call for call in alike if not _hands_on(call)]):
            split = _split(parts.get(name, []), len(working), graph)
            if split is not None:
                for call, nodes in zip(working, split, strict=True):
                    told.own.setdefault(call.id, set()).update(nodes)
                break
        else:
            told.confused |= {call.id for call in alike}
            around = _around(alike)
            for part in parts[name]:
                told.own.setdefault(around, set()).update(part.nodes)
    return told


def _grouped(calls: Iterable[Call], name: Any) -> dict[tuple[str, ...], list[Call]]:
    groups: dict[tuple[str, ...], list[Call]] = {}
    for call in calls:
        groups.setdefault(name(call), []).append(call)
    return groups


def _label(path: str) -> str:
    """How TorchScript's scopes call a submodule: ``conv1``; a name that is only a number with the name before it:
    ``layer1.0``."""
    atoms = path.split(".")
    numbers = list(takewhile(str.isnumeric, reversed(atoms)))
    return path if len(numbers) == len(atoms) else ".".join(atoms[len(atoms) - len(numbers) - 1 :])


def _hands_on(call: Call) -> bool:
    """Whether the call returns nothing but what it was given, as that of a dropout does in evaluation mode."""
    return set(call.keys) <= set(call.inputs)


def _around(calls: Sequence[Call]) -> int:
    """The id of the innermost call that all ``calls`` are inside of."""
    shared = [ids[0] for ids in zip(*(call.entered[:-1] for call in calls), strict=False) if len({*ids}) == 1]
    return shared[-1] if shared else 0


@dataclass
class _Part:
    """Nodes of the same call: all of them (``whole``), or those of an operation within the call."""

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
    by_path: dict[tuple[str, ...], dict[str, _Part]] = {}
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
            parts = by_path.setdefault((path,), {})
            parts.setdefault(operation, _Part(kind, path=path)).nodes.append(index)
    return {name: list(parts.values()) for name, parts in by_path.items()}


def _split(parts: Sequence[_Part], count: int, graph: Graph) -> list[list[int]] | None:
    """The nodes of each of ``count`` calls; None where they cannot be told apart."""
    if not parts:
        return [[] for _ in range(count)]
    if not count or any(part.confused for part in parts):
        return None
    if parts[0].whole:
        return [part.nodes for part in parts] if len(parts) == count else None
    if count == 1:
        return [[node for part in parts for node in part.nodes]]
    each, rest = divmod(len(parts), count)
    kinds = [part.kind for part in parts]
    if not rest and kinds == kinds[:each] * count:  # the same operations each time
        return [[node for part in parts[k * each : (k + 1) * each] for node in part.nodes] for k in range(count)]
    runs = _runs(sorted(node for part in parts for node in part.nodes), parts[0].path, graph)
    return runs if len(runs) == count else None


def _runs(nodes: Sequence[int], path: str, graph: Graph) -> list[list[int]]:
    """The nodes, parted wherever a node of another submodule lies in between."""
    runs: list[list[int]] = []
    last = -1
    for node in nodes:
        between = graph.nodes[last + 1 : node] if runs else []
        if not runs or any(_elsewhere(skipped, path) for skipped in between):
            runs.append([])
        runs[-1].append(node)
        last = node
    return runs


def _elsewhere(node: NodeProto, path: str) -> bool:
    text = _metadata(node).get("pkg.torch.onnx.name_scopes")
    return text is not None and path not in ast.literal_eval(text)


# ---- matching ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """Which tensors may be the outputs of which call: those that leave its scope."""

    calls: Sequence[Call]
    graph: Graph
    scopes: Scopes
    by_call: Mapping[int, list[str]]

    @property
    def tensors(self) -> list[str]:
        """The candidates of all calls, and the outputs of the graph, in the order in which they are computed."""
        tensors = {name: None for names in self.by_call.values() for name in names}
        tensors.update(dict.fromkeys(self.graph.outputs))
        return sorted(tensors, key=lambda name: self.graph.makers.get(name, -1))


def candidates(model: ModelProto, calls: Sequence[Call], exporter: str) -> Candidates:
    graph = Graph(model)
    told = scopes(graph, calls, exporter)
    return Candidates(calls, graph, told, {call.id: graph.leaving(told.within(call, calls)) for call in calls})


def match(given: Candidates, arrays: Mapping[str, Array]) -> list[Place]:
    """The tensor of each output of each call, in the order in which the calls return.

    ``arrays`` has the values of the candidates. No two outputs get the same tensor, unless PyTorch says that they are
    the same (``same``), or nothing else leaves the scope of a call, which is noted. Where several tensors would do,
    their values decide, which is noted too.
    """
    return list(_Matching(given, arrays).places())


class _Matching:
    def __init__(self, given: Candidates, arrays: Mapping[str, Array]) -> None:
        self._given, self._arrays = given, arrays
        self._makers: dict[Key, Place] = {}
        self._holders: dict[str, Place] = {}

    def places(self) -> Iterator[Place]:
        places: list[Place] = []
        for call in self._given.calls:
            if not call.path:
                places += self._root(call)
                continue
            here = [Place(call, index) for index in range(len(call.keys))]
            self._find([place for place in here if not self._known(place)], call)
            places += here
        self._fold(places)
        return iter(places)

    def _known(self, place: Place) -> bool:
        """Whether PyTorch itself says where the tensor of ``place`` comes from, which is then noted in ``place``."""
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
                rivals = sum(name in names for names in fitting.values())
                if len(fitting[id(place)]) > 1 or rivals > 1:
                    place.note = f"one of {max(len(fitting[id(place)]), rivals)} that its values tell apart"
                self._hold(place, name)
        for place in places:
            if place.tensor is None:
                shape = list(place.call.outputs[place.output].shape)
                place.note = f"no tensor of shape {shape} leaves its scope, or another output has it"

    def _fitting(self, place: Place, names: Sequence[str]) -> list[str]:
        """The tensors that may be this output: those of its dtype and shape that no other output has."""
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
        holder = self._holders.get(tensor)
        if holder is not None:
            place.note = f"the same tensor of the graph as {holder.name}"
        self._holders.setdefault(tensor, place)
        place.kind, place.tensor = "own", tensor

    def _take_over(self, norm: Place, before: Place | None) -> None:
        """Gives a batch norm without nodes, which is in the weights of the module ``before`` it, the tensor of that
        module."""
        if before is None or before.tensor is None:
            return
        tensor, before.tensor = before.tensor, None
        del self._holders[tensor]
        self._folded(before, norm)
        norm.note = ""
        self._hold(norm, tensor)

    def _fold(self, places: Sequence[Place]) -> None:
        """Where the nodes of a batch norm and of the module before it count as the batch norm's: the module is
        folded."""
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
        distance = float(np.where(same, 0.0, np.abs(left - right)).mean()) if got.size else 0.0
    return float("inf") if np.isnan(distance) else distance
