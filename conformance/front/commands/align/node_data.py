"""Paint what ``conformance align`` found on a graph, as node data of Model Explorer has it.

The keys are those by which its adapter for ONNX (``model-explorer-onnx``) calls nodes, and the rest is
``GraphNodeData`` of ``model_explorer/node_data_builder.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import Graph

if TYPE_CHECKING:
    from conformance.front.commands.align.table import AlignAnswer, Row

RIGHT, OFF, FIRST = "#a5d6a7", "#ffcc80", "#ef5350"
"""Colours of nodes that are right, of others that differ, and of the first that does."""


def node_data(answer: AlignAnswer) -> dict[str, object]:
    """Return plain data: the first measure of each node that was compared, of its worst output, and its colour."""
    import onnx

    graph = Graph(onnx.load(answer.model, load_external_data=False))
    nodes = {
        tensor: node.name or f"<node_{place}>" for place, node in enumerate(graph.nodes) for tensor in node.output
    }
    compared = [row for row in answer.rows if row.badness > -math.inf and row.tensor in nodes]
    worst_last = sorted(compared, key=lambda row: (row.first, row.parts, row.badness))
    results = {nodes[row.tensor]: _painted(row, answer.measures[0]) for row in worst_last}
    return {"name": f"{answer.measures[0]}: {answer.heading}", "results": results}


def _painted(row: Row, measure: str) -> dict[str, object]:
    value = -row.badness if measure.startswith("dB") else row.badness
    shown = value if math.isfinite(value) else row.measures[0]  # JSON has no infinity
    return {"value": shown, "bgColor": FIRST if row.first else OFF if row.parts else RIGHT}
