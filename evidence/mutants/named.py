"""Which node a record names for a mutant, whose changed node is known.

What is wrong with an export is looked for by exporting again. So that a mutant stands for a wrong exporter there too,
whatever is exported while its cell runs comes out as the mutant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

from conformance.extras.mutants.probe import MadeMutant
from conformance.process.worker.isolation import Worker
from tests.plants.planted import Holding

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

Place = Literal["changed", "neighbour", "among", "elsewhere", "open"]


@dataclass(frozen=True)
class Named:
    """The node that a record names, seen from the changed one: that node itself, one that it reads from or that reads
    from it, another one with the changed one ``among`` those that the record says may be wrong too, another one, or
    none (``open``)."""

    place: Place
    node: str = ""
    """Its operator and name; of ``open``, why none is named."""
    told: int = 1
    """How many nodes the record says may be the wrong one."""

    @property
    def right(self) -> bool:
        return self.place in ("changed", "neighbour")


NOBODY = Named("open")


def exporting(worker: Worker, made: MadeMutant) -> Any:
    """The worker as it is for calls in which the exporter gives a mutant."""
    return Holding(worker, _planted, made)


def _planted(progress: object, made: MadeMutant, function: Callable[..., Any], args: tuple[object, ...]) -> Any:
    import onnx

    from conformance.diagnose.operators import first_operator
    from conformance.models import cell_run as models
    from conformance.process.worker.state import judging

    original: Callable[..., Any] = vars(models)["export"]
    data = model_of(made).read_bytes()

    def export(*arguments: Any, **options: Any) -> Any:
        exported = original(*arguments, **options)
        return dataclasses.replace(exported, model=onnx.load_from_string(data))

    # No pass of the exporter's is at fault, and looking for one exports many times.
    with mock.patch.object(models, "export", export), mock.patch.object(first_operator, "guilty", lambda right: []):
        judging.remember().accept()  # it is no case that has replaced them
        answer = function(progress, *args)
    judging.remember().accept()
    return answer


def model_of(made: MadeMutant) -> Path:
    """The file of a mutant, which is alone in its store."""
    (file,) = made.store.rglob("*.onnx")
    return file


def named(
    progress: object, made: MadeMutant, operator: Mapping[str, Any] | None, parts_at: Mapping[str, Any] | None
) -> Named:
    """Where the node stands that a record names in its field ``operator``, or else in ``parts_at``."""
    import onnx

    from conformance.runtimes.onnxgraph.reads import label

    graph = onnx.load(model_of(made), load_external_data=False).graph
    operator, parts_at = operator or {}, parts_at or {}
    told = operator if operator.get("node") or operator.get("tensor") else parts_at
    found = _found(graph, str(told.get("node") or ""), str(told.get("tensor") or ""))
    if found is None:
        return Named("open", str(operator.get("unable") or operator.get("how") or "nothing is said"))
    name = f"{found.op_type} {found.name or found.output[0]}"
    changed = list(_changed(graph, made.node))
    among = [str(one) for one in told.get("among") or ()]
    count = max(len(among), 1)
    if any(found is node for node in changed):
        return Named("changed", name, count)
    if any(_adjacent(found, node) for node in changed):
        return Named("neighbour", name, count)
    known = any(label(node) in among for node in changed)
    return Named("among" if known else "elsewhere", name, count)


def _found(graph: GraphProto, name: str, tensor: str) -> NodeProto | None:
    for node in graph.node:
        if (name and node.name == name) or (not name and tensor and tensor in node.output):
            return node
    return next((node for node in graph.node if tensor and tensor in node.output), None)


def _changed(graph: GraphProto, label: str) -> Iterator[NodeProto]:
    """The node that a mutant changed; of a constant, those that read it."""
    what, _, name = label.partition(" ")
    for node in graph.node:
        if name in (node.input if what == "constant" else node.output):
            yield node


def _adjacent(one: NodeProto, other: NodeProto) -> bool:
    return bool({*one.output} & {*other.input} or {*other.output} & {*one.input})
