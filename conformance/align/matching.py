"""Match the tensors of a graph with the outputs of submodules.

The output of a call is looked for among the tensors that leave its scope, by dtype and shape, which are known from
running the model once with all of them as outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from conformance.align.modules import Call, Key
from conformance.align.scopes import Scopes, scopes
from conformance.arrays import Array
from conformance.compare.close import distances
from conformance.onnxgraph.reads import Graph

if TYPE_CHECKING:
    from onnx import ModelProto

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


@dataclass(frozen=True)
class Candidates:
    """The tensors that may be the outputs of each call: those that leave its scope."""

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
        """Return whether PyTorch itself says where the tensor of ``place`` comes from, which is then noted in
        ``place``."""
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
        """Count the nodes of a batch norm and of the module before it as the batch norm's: the module is
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
    """Return how far apart two arrays are on average; infinite where they cannot be compared."""
    far = distances(got.astype(np.float64), wanted.astype(np.float64))
    return float(far.mean()) if far.size else 0.0
