"""Assign the nodes of a graph to calls of submodules.

Exporters write down where a node comes from. ``torchscript`` does so in the node's name:
``/layer1/layer1.0/conv1/Conv``, where a submodule that is only a number has the name before it in front, and a second
call of ``/sub/fc`` is ``/sub/fc_1``. ``dynamo`` has the paths in the node's metadata, but does not tell one call of a
submodule from the next.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from conformance.align.modules import Call
from conformance.onnxgraph.reads import Graph, metadata

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass
class Scopes:
    """The nodes of each call."""

    own: dict[int, set[int]] = field(default_factory=dict)
    """By id of a call its nodes, but for those of calls inside that call."""
    confused: set[int] = field(default_factory=set)
    """Ids of calls of a submodule whose calls cannot be told apart; their nodes count as of the call around them."""

    def within(self, call: Call, calls: Sequence[Call]) -> set[int]:
        """All nodes of a call, with those of the calls inside that call."""
        return set().union(*(self.own.get(inner.id, set()) for inner in calls if call.id in inner.entered))


def scopes(graph: Graph, calls: Sequence[Call], exporter: str) -> Scopes:
    """Return which nodes belong to which call, read from what the exporter wrote down."""
    begun = sorted(calls, key=lambda call: call.id)
    told = Scopes()
    if exporter == "torchscript":
        together = _grouped(begun, lambda call: tuple(map(scope_label, call.chain[1:])))
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


def scope_label(path: str) -> str:
    """Return how TorchScript's scopes call a submodule: ``conv1``; a name that is only a number with the name before
    it: ``layer1.0``."""
    atoms = path.split(".")
    numbers = list(takewhile(str.isnumeric, reversed(atoms)))
    return path if len(numbers) == len(atoms) else ".".join(atoms[len(atoms) - len(numbers) - 1 :])


def _hands_on(call: Call) -> bool:
    """Return whether the call returns nothing but what it was given, as that of a dropout does in evaluation mode."""
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
        told = metadata(node)
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
    text = metadata(node).get("pkg.torch.onnx.name_scopes")
    return text is not None and path not in ast.literal_eval(text)
