"""Find the nodes of a model that draw random numbers, of which no two runs have to agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from conformance.runtimes.onnxgraph.reads import OWN, all_nodes, held, needs

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
