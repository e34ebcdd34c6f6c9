"""The nodes of a graph: which of them make a tensor, which read it, and what the exporter wrote down about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from conformance.verdict.nodes import captured

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


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
            for name in reads(node):
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
                    todo += reads(self.nodes[index])
        ordered = sorted(nearest, key=lambda name: self.makers.get(name, -1))
        return ordered, self._with_values(sorted(nodes), {*nearest, *self.inputs}) or sorted(nodes)

    def _with_values(self, nodes: Sequence[int], values: set[str]) -> list[int]:
        """Those of the nodes that compute something from ``values``, in any number of steps."""
        reached, kept = set(values), []
        for index in nodes:
            node = self.nodes[index]
            if node.op_type not in ("Shape", "Size") and reached & {*reads(node)}:
                reached.update(node.output)
                kept.append(index)
        return kept

    def node_of(self, tensor: str) -> NodeProto | None:
        index = self.makers.get(tensor)
        return None if index is None else self.nodes[index]


def label(node: NodeProto) -> str:
    """``Slice val_6``: its operator, and its name or that of its first output."""
    return f"{node.op_type} {node.name or next(filter(None, node.output), '')}"


def reads(node: NodeProto) -> list[str]:
    """Return what a node reads, its subgraphs included."""
    return [*filter(None, node.input), *captured(node)]


def rewritten(node: NodeProto) -> str:
    """The rules of the exporter's optimizer that made the node, where it says so."""
    return metadata(node).get("pkg.onnxscript.rewriter.rule_name", "")


def metadata(node: NodeProto) -> dict[str, str]:
    """Return what the exporter wrote down about a node, by key."""
    return {entry.key: entry.value for entry in node.metadata_props}
