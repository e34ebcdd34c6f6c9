"""The node that got an operator's tensor wrong, as a record has it, and the change of it that makes right what the
operator's nodes compute.

Of the nodes that an operator becomes, only the last has a value of PyTorch's to be held against. The nodes are cut
out of the graph, fed with what PyTorch has before the operator, and changed one by one until they give what PyTorch
has after it. Generating changes and keeping those that hold is how programs are repaired (Weimer, Nguyen, Le Goues,
Forrest: "Automatically Finding Patches Using Genetic Programming", ICSE 2009). A change that is right where it was
looked for and nowhere else is the danger of that (Smith, Barr, Le Goues, Brun: "Is the Cure Worse Than the Disease?
Overfitting in Automated Program Repair", FSE 2015). So PyTorch's operator is asked for more than the draws show.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from conformance.diagnose.operators.captured_program import Program
from conformance.diagnose.operators.changes import changes
from conformance.diagnose.operators.forced import Parting
from conformance.diagnose.operators.piece import Piece, PieceTrial
from conformance.diagnose.operators.probes import Probe
from conformance.diagnose.operators.scene import NodeChange
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import or_else
from conformance.process.worker import aside
from conformance.runtimes.onnxgraph.reads import Graph, label, operator_of, reads, rewritten
from conformance.runtimes.onnxgraph.reads import nodes as all_of

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
    given: Iterable[tuple[Sequence[object], Inputs]],
    libraries: Sequence[str],
) -> dict[str, object]:
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
    told: dict[str, object] = {"tensor": parting.tensor}
    own = parting.tensor not in (agreeing or ())  # else no node was made, and that of another operator is not wrong
    if agreeing is not None and own:
        # back to tensors that agree with PyTorch's: it has nothing to hold against what is between them
        between = known.computing(node.output, agreeing)
        names = [label(known.nodes[index]) for index in between if known.nodes[index].op_type != "Constant"]
        told |= {"among": names[-AMONG:]} if len(names) > 1 else {}
        whole = known.computing(last.output, agreeing)
        nodes = [known.nodes[index] for index in sorted([*whole, *_unread(known, whole, agreeing)])]
        search = partial(mended, model, nodes, parting, program, given, libraries)
        # a runtime may crash at a change
        found = or_else(None, lambda: aside.ask(lambda: _on_one_thread(search), SECONDS))
        if found is not None:
            node = found.node
            told |= {"tensor": next(filter(None, node.output))}
            told |= {"change": found.changes[0]} if found.changes else {}
            told |= {"lacks": found.lacks} if found.lacks else {}
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


def _unread(known: Graph, between: Sequence[int], agreeing: Set[str]) -> Iterator[int]:
    """The nodes before the last of these that nothing leads from to an output: one of them may have to be read. They
    are computed of what the others are computed of, or of tensors that agree."""
    living = {*known.computing(known.outputs)}
    made = {name for index in between for name in known.nodes[index].output}
    fixed = {*known.inputs, *agreeing, *made}
    for index, node in enumerate(known.nodes[: max(between)]):
        if index not in living and all(name in fixed or name not in known.makers for name in reads(node)):
            fixed |= {*node.output}
            yield index


def _dtype(parting: Parting) -> dict[str, object]:
    kinds = {int: "int64", bool: "bool", float: "float32"}
    if type(parting.value) in kinds:
        return {"dtype": kinds[type(parting.value)]}
    dtype = getattr(parting.value, "dtype", None)
    return {} if dtype is None else {"dtype": str(dtype).removeprefix("torch.")}


def _of_sizes(known: Graph, node: NodeProto) -> bool:
    """Return whether a node computes with sizes alone: nothing that it needs is a tensor's content."""
    measured = {name for one in known.nodes if one.op_type in ("Shape", "Size") for name in one.output}
    if measured & {*node.output}:
        return True
    read = {name for index in known.computing(node.output, measured) for name in reads(known.nodes[index])}
    return bool(measured & read) and not read & {*known.inputs}


TRIED = 1500
"""How many changes are tried."""
BYTES = 2**31
"""How many bytes all of them together may be given and give; fewer are tried where one takes much."""
KEPT = 4
"""How many changes are told at most."""
OTHERS = 5
"""On how many other inputs a change has to hold, as far as PyTorch takes them."""
UNDEFINED = "values for which PyTorch gives NaN or infinity"
SPECIAL = ("NaN", "infinity", UNDEFINED)
"""The kinds of values of which a change may leave one wrong. One that is right for some numbers alone may be so since
other nodes do the rest, as a softmax takes out what is added to a row."""


@dataclass(frozen=True)
class Mended:
    """A node of an operator's that is wrong, as far as can be told."""

    node: NodeProto
    changes: list[str]
    """The change of the node with which all of them are right, then others that do as well, each with its node; none
    where the node is the first that breaks the rules of its operator, or cannot be computed."""
    breaks: str | None = None
    """The rule that it breaks."""
    lacks: str | None = None
    """What the first change adds to it, if that is all."""


def mended(
    model: ModelProto,
    nodes: Sequence[NodeProto],
    parting: Parting,
    program: Program,
    given: Iterable[tuple[Sequence[object], Inputs]],
    libraries: Sequence[str],
) -> Mended | None:
    """The node with the likeliest change that makes what the nodes give right, or else that which cannot be computed.
    None where neither is known.

    ``nodes`` are those that an operator becomes, in order. ``given`` has inputs as the program takes them and as the
    graph does, in the same order, the failing ones first: the change has to hold on the others too.
    """
    piece, inputs = Piece(model, nodes, parting, program, libraries), iter(given)
    trial = piece.trial(*next(inputs))
    if trial is None or not trial.wanted or piece.right(piece.model, trial):
        return None
    scene = piece.scene(trial)
    size = sum(value.nbytes for value in (*trial.feeds.values(), *scene.values.values()))
    limit = min(TRIED, max(BYTES // max(size, 1), 1))
    more = itertools.starmap(piece.trial, itertools.islice(inputs, OTHERS))
    exam = _Exam(piece, [trial, *(one for one in more if one is not None)])
    found = _chosen(exam, changes(scene), limit)
    if found:
        (node, what), *rest = [(piece.node_of(change.made), what) for change, what in found]
        others = [f"{label(piece.call_of(other))}: {piece.tell(other, what)}" for other, what in rest]
        rule, first, change = piece.rule_broken_by(node, scene), piece.tell(node, what), found[0][0]
        lacks = change.lacks if first == change.what else None
        return Mended(piece.call_of(node), [first, *others], rule, lacks)
    rules = ((node, piece.rule_broken_by(node, scene)) for node in piece.nodes)
    breaking = next(((node, rule) for node, rule in rules if rule is not None), None)
    if breaking is not None:
        return Mended(piece.call_of(breaking[0]), [], breaking[1])
    needed = {*filter(None, piece.given), *(name for node in piece.nodes for name in reads(node))}
    stops = (node for node in piece.nodes if (needed & {*node.output}) - {*scene.values})
    stopping = next(stops, None)
    return None if stopping is None else Mended(piece.call_of(stopping), [])


def _chosen(exam: _Exam, kinds: Iterable[Iterable[NodeChange]], limit: int) -> list[tuple[NodeChange, str]]:
    """The first changes that are right for all values, each with what is said of it: those of one kind, and of
    several at one place the first. Where there is none, those that leave wrong only what is special."""
    whole: dict[tuple[str, str], tuple[NodeChange, str]] = {}
    partly: dict[tuple[str, str], tuple[NodeChange, str]] = {}
    tried = itertools.count()
    for kind in kinds:
        for change in kind:
            place = (change.made, change.place)
            if next(tried) == limit or len(whole) == KEPT:
                return [*(whole or partly).values()][:KEPT]
            left = exam.leaves_wrong(change) if place not in whole else None
            if left and len(left) == 1 and left[0] in SPECIAL:
                partly.setdefault(place, (change, f"{change.what} (but not for {' and '.join(left)})"))
            elif left == []:
                whole[place] = (change, change.what)
        if whole:
            break
    return [*(whole or partly).values()][:KEPT]


class _Exam:
    """The examples that a change has to be right for: the trials, and then values for which PyTorch's operator is
    run."""

    def __init__(self, piece: Piece, trials: Sequence[PieceTrial]) -> None:
        self._piece, self._trials = piece, trials

    def leaves_wrong(self, change: NodeChange) -> list[str] | None:
        """The kinds of special values for which the nodes are wrong with a change; None where it is no repair: wrong
        for others too, or for special ones alone that were right without it."""
        model = self._piece.changed(change)
        if model is None or not all(self._piece.right(model, trial) for trial in self._trials):
            return None
        kinds = dict[str, None]()
        for probe, trial, before in self._probed:
            after = self._piece.wrong(model, trial)
            if after is None:
                return None
            for wrong, was, right in zip(after, before, trial.wanted, strict=True):
                plain = np.isfinite(right) if right.dtype.kind == "f" else np.ones(right.shape, bool)
                if not probe.kind and (wrong & plain).any():
                    return None
                if wrong.any() and not (wrong & was).any():
                    return None
                if wrong.any():
                    kinds[probe.kind or UNDEFINED] = None
        return [*kinds]

    @cached_property
    def _probed(self) -> list[tuple[Probe, PieceTrial, list[Array]]]:
        """The probes, with where the nodes are wrong without a change; made once a change is right for the trials."""
        return [*self._probe()]

    def _probe(self) -> Iterator[tuple[Probe, PieceTrial, list[Array]]]:
        for probe, trial in self._piece.probed(self._trials):
            wrong = self._piece.wrong(self._piece.model, trial)
            yield probe, trial, [np.ones(one.shape, bool) for one in trial.wanted] if wrong is None else wrong
