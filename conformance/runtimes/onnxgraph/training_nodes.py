"""Find the nodes of a model that compute as in training, as a module does that was exported without ``eval()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.random_nodes import drops_at_random
from conformance.runtimes.onnxgraph.reads import OWN, all_nodes, held, opset_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_STATISTICS = 14
"""The opset from which BatchNormalization says by an attribute that it trains; before, it has more outputs then."""


def training_nodes(model: ModelProto) -> list[str]:
    """Return the nodes that train, in words: BatchNormalization that goes by the values of the batch at hand, and
    Dropout that drops at random. Whoever reads the new statistics means to train."""
    nodes, opset = [*all_nodes(model)], opset_of(model)
    constants = {tensor.name: tensor for tensor in model.graph.initializer} | held(nodes)
    read = {name for node in nodes for name in node.input} | {value.name for value in model.graph.output}
    found = []
    for node in nodes:
        if node.domain in OWN and node.op_type == "BatchNormalization":
            trains = _goes_by_batch(node, opset) and not read & {*filter(None, node.output[1:])}
        else:
            trains = node.domain in OWN and drops_at_random(node, constants)
        found += [f"{node.op_type} '{node.name or node.output[0]}'"] if trains else []
    return found


def _goes_by_batch(node: NodeProto, opset: int) -> bool:
    if opset >= _STATISTICS:
        return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
    return sum(map(bool, node.output)) > 1


def in_training(model: ModelProto) -> str | None:
    """Say which nodes of a model train, and what to do; None where none does."""
    found = training_nodes(model)
    if not found:
        return None
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    what = "is" if len(found) == 1 else "are"
    how = (
        "its outputs depend on whatever else is in the batch"
        if found[0].startswith("Batch")
        else "its outputs are others at each run"
    )
    return f"{found[0]}{more} {what} in training mode, so that {how}: export the module after module.eval()"
