"""The node that got an operator's tensor wrong, as a record has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

from conformance.align.operators.captured_program import Program
from conformance.align.operators.forced import Parting
from conformance.align.operators.mended import Mended, mended
from conformance.arrays import Inputs
from conformance.errors import or_else
from conformance.onnxgraph.reads import Graph, label, operator_of, reads, rewritten
from conformance.onnxgraph.reads import nodes as all_of
from conformance.worker import aside

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_HANDED_ON = ("Cast", "Identity")
"""Nodes that only hand on what the node before them got wrong."""
SECONDS = 60.0
"""How long a change may be looked for."""
AMONG = 64
"""How many nodes a record names of those that may be the wrong one, from the last."""
NAMED = 6
"""How many names of nodes, operators or changes a list has at most."""


def of_node(
    model: ModelProto,
    final: ModelProto,
    parting: Parting,
    program: Program,
    agreeing: Set[str] | None,
    given: Iterable[tuple[Sequence[Any], Inputs]],
    libraries: Sequence[str],
) -> dict[str, Any]:
    """The node among those that the operator became: that of which a small change makes them right, or else the last.

    ``agreeing`` are the tensors that are as in PyTorch, None where that is not known; ``given`` as for ``mended``;
    ``final`` is the graph as it was exported, where ``model`` is that before the exporter's own passes.
    """
    known = Graph(model)
    last = node = known.node_of(parting.tensor)
    if last is None or node is None:
        return {}
    others = {tensor for tied in program.ties.values() for tensor in tied}
    while node.op_type in _HANDED_ON and node.input[0] not in others:
        before = known.node_of(node.input[0])
        if before is None:
            break
        node = before
    told: dict[str, Any] = {"tensor": parting.tensor}
    own = parting.tensor not in (agreeing or ())  # else no node was made, and that of another operator is not wrong
    if agreeing is not None and own:
        between = _between(known, node, agreeing)
        names = [label(known.nodes[index]) for index in between if known.nodes[index].op_type != "Constant"]
        told |= {"among": names[-AMONG:]} if len(names) > 1 else {}
        whole = _between(known, last, agreeing)
        nodes = [known.nodes[index] for index in sorted([*whole, *_unread(known, whole, agreeing)])]
        search = partial(mended, model, nodes, parting, program, given, libraries)
        # a runtime may crash at a change
        found = or_else(None, lambda: aside.ask(lambda: _on_one_thread(search), SECONDS))
        if found is not None:
            node = found.node
            told |= {"tensor": next(filter(None, node.output))}
            told |= {"change": found.changes[0]} if found.changes else {}
            told |= {"others": found.changes[1:]} if found.changes[1:] else {}
            told |= {"breaks": found.breaks} if found.breaks else {}
    told |= {"node": node.name, "type": operator_of(node)} | _dtype(parting)
    kept = ((one.name, one.op_type) for one in all_of(final.graph))
    if model is not final and (node.name, node.op_type) not in kept:
        told["removed"] = True
    if rewritten(node):
        told["rules"] = rewritten(node)
    if _of_sizes(known, node):
        told["sizes"] = True
    return told


def _on_one_thread(question: Callable[[], Mended | None]) -> Mended | None:
    """The answer, computed on one thread: in a fork the others are not there."""
    import torch

    torch.set_num_threads(1)
    return question()


def _between(known: Graph, last: NodeProto, agreeing: Set[str]) -> list[int]:
    """A node, and those before it back to tensors that agree with PyTorch's, in order: any of them may be the wrong
    one, since PyTorch has nothing to hold against what is between them."""
    return _upstream(known, last.output, agreeing)


def _upstream(known: Graph, names: Iterable[str], end: Set[str]) -> list[int]:
    """The nodes that tensors are computed by, back to others, in order."""
    found: set[int] = set()
    todo = list(names)
    while todo:
        index = known.makers.get(todo.pop())
        if index is not None and index not in found:
            found.add(index)
            todo += [name for name in reads(known.nodes[index]) if name not in end]
    return sorted(found)


def _unread(known: Graph, between: Sequence[int], agreeing: Set[str]) -> Iterator[int]:
    """The nodes before the last of these that nothing leads from to an output: one of them may have to be read. They
    are computed of what the others are computed of, or of tensors that agree."""
    living = {*_upstream(known, known.outputs, set())}
    made = {name for index in between for name in known.nodes[index].output}
    fixed = {*known.inputs, *agreeing, *made}
    for index, node in enumerate(known.nodes[: max(between)]):
        if index not in living and all(name in fixed or name not in known.makers for name in reads(node)):
            fixed |= {*node.output}
            yield index


def _dtype(parting: Parting) -> dict[str, Any]:
    kinds = {int: "int64", bool: "bool", float: "float32"}
    if type(parting.value) in kinds:
        return {"dtype": kinds[type(parting.value)]}
    dtype = getattr(parting.value, "dtype", None)
    return {} if dtype is None else {"dtype": str(dtype).removeprefix("torch.")}


def _of_sizes(known: Graph, node: NodeProto) -> bool:
    """Return whether a node computes with sizes alone: nothing that it needs is a tensor's content."""
    todo, seen, sizes = [node], set(), False
    while todo:
        node = todo.pop()
        if node.op_type in ("Shape", "Size"):
            sizes = True
            continue
        for name in reads(node):
            if name in known.inputs:
                return False
            maker = known.node_of(name)
            if maker is not None and name not in seen:
                seen.add(name)
                todo.append(maker)
    return sizes
