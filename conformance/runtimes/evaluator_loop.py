"""Run the nodes of ONNX's evaluator one after another, which for small arrays takes as long as what they compute.

The evaluator looks up the names of each node in protobuf, formats what it would log and keeps all results until the
end. Here the names are read once, and a result is kept as long as a later node reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator


@dataclass(frozen=True, slots=True)
class _NodeRun:
    """A node, ready to run."""

    compute: Callable[..., Sequence[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    context: bool
    """True if it reads results by name, as a loop's body does."""
    done: tuple[str, ...]
    """Results that no later node reads."""


class NodeLoop:
    """The nodes of a graph that has no attributes of its own, as the body of a function may have."""

    def __init__(self, evaluator: ReferenceEvaluator) -> None:
        nodes = [
            (node, tuple(node.input), tuple(node.output), bool(node.need_context())) for node in evaluator.rt_nodes_
        ]
        last = {name: at for at, (_, inputs, outputs, _) in enumerate(nodes) for name in (*outputs, *inputs)}
        kept = {*evaluator.output_names, ""}
        done: list[list[str]] = [[] for _ in nodes]
        if not any(context for *_, context in nodes):
            for name in {name for _, _, outputs, _ in nodes for name in outputs} - kept:
                done[last[name]].append(name)
        self._steps = [
            _NodeRun(node.run, inputs, outputs, context, tuple(names))
            for (node, inputs, outputs, context), names in zip(nodes, done, strict=True)
        ]
        self._outputs = [*evaluator.output_names]

    def run(self, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[Any]:
        """Return the outputs of the graph. Raises KeyError where an input is missing, and what a node raises."""
        results = {"": None, **weights, **inputs}
        for step in self._steps:
            arrays = [results[name] for name in step.inputs]
            given = step.compute(*arrays, context=results) if step.context else step.compute(*arrays)
            results.update(zip(step.outputs, given, strict=False))
            for name in step.done:
                results.pop(name, None)
        return [results[name] for name in self._outputs]
