"""Find the nodes of a model that draw random numbers, of which no two runs have to agree, and those that compute as
in training, as a module does that was exported without ``eval()``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import OWN, all_nodes, held, needs, opset_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

OPERATORS = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
_RATIO, _TRAINING = 1, 2
"""The places of Dropout's inputs that decide whether it is random."""


def random_nodes(model: ModelProto) -> list[str]:
    """Return the operators of a model that draw random numbers, in its functions and bodies too, each once.

    Dropout draws them in training alone. A mode that is an input is no constant: it is drawn as inference.
    """
    nodes = [*all_nodes(model)]
    constants = {tensor.name: tensor for tensor in model.graph.initializer} | held(nodes)
    return [*dict.fromkeys(node.op_type for node in nodes if _is_random(node, constants))]


def drawn_for(model: ModelProto, output: int) -> list[str]:
    """Return the same of the nodes that an output of the graph, by place, depends on."""
    from onnx import ModelProto

    wanted, kept = {model.graph.output[output].name}, ModelProto()
    kept.functions.extend(model.functions)
    kept.graph.initializer.extend(model.graph.initializer)
    for node in reversed(model.graph.node):
        if wanted.intersection(node.output):
            wanted.update(needs(node))
            kept.graph.node.append(node)
    return random_nodes(kept)


def _is_random(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    return node.domain in OWN and (node.op_type in OPERATORS or drops_at_random(node, constants))


def drops_at_random(node: NodeProto, constants: Mapping[str, TensorProto]) -> bool:
    """Return whether a node is a Dropout that trains, by what constants say of it."""
    if node.op_type != "Dropout":
        return False
    return _value(node, _TRAINING, constants, 0.0) != 0 and _value(node, _RATIO, constants, 0.5) != 0


def _value(node: NodeProto, place: int, constants: Mapping[str, TensorProto], otherwise: float) -> float:
    """Return the number of a constant input; ``otherwise`` for one that is not there, or that no constant gives."""
    from onnx import TensorProto, numpy_helper

    name = node.input[place] if place < len(node.input) else ""
    if name not in constants or constants[name].data_location == TensorProto.EXTERNAL:  # no single number is so large
        return otherwise
    return float(numpy_helper.to_array(constants[name]).reshape(-1)[0])


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
