"""Find as few nodes as still fail, and then smaller shapes, simpler values and plain names for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from conformance.diagnose.search import OutOfTime, Shrinker, Step, least, part
from conformance.diagnose.smallest.model_trial import ModelTrials
from conformance.diagnose.smallest.simpler_arrays import simpler_values, smaller_sizes
from conformance.runtimes.onnxgraph.cut import Cut, Cutter
from conformance.runtimes.onnxgraph.reads import copy_of, inside

if TYPE_CHECKING:
    from onnx import GraphProto


def simplified(cut: Cut, trials: ModelTrials) -> Cut:
    """A model that fails alike with fewer outputs, smaller shapes, simpler values and plain names, as far as there is
    time for it."""
    return trials.smallest(cut, _fewer_texts, _fewer_nodes, smaller_sizes, simpler_values, _plain_names)[0]


def _fewer_texts(cut: Cut) -> list[Step[Cut]]:
    return [lambda cut: [cut.edited()], lambda cut: [_with_one_output(cut)]]


def _with_one_output(cut: Cut) -> Cut | None:
    """The model with its last output alone; None where it has one."""
    if len(cut.model.graph.output) < 2:
        return None
    model = copy_of(cut.model)
    del model.graph.output[:-1]
    return Cut(model, cut.feeds)


def _fewer_nodes(cut: Cut) -> Iterator[Step[Cut]]:
    """Yield a step for each node, from the last: an input of it may stand in its output's place, as that of an
    Identity between two nodes that fail together."""
    for number in reversed(range(len(cut.model.graph.node))):
        yield partial(_without, number)


def _without(number: int, cut: Cut) -> Iterator[Cut]:
    """Yield the model with an input of a node in place of what that makes, but no input that would be given back."""
    graph = cut.model.graph
    (made, *others) = filter(None, graph.node[number].output)
    shown = {value.name for value in graph.output}
    for name in dict.fromkeys(filter(None, graph.node[number].input)):
        if len(graph.node) > 1 and not others and not (made in shown and name in {*shown, *cut.arrays}):
            yield cut.edited(partial(_bypass, number, made, name))


def _bypass(number: int, made: str, name: str, graph: GraphProto) -> None:
    del graph.node[number]
    for node in graph.node:
        node.input[:] = [name if one == made else one for one in node.input]
    for value in graph.output:
        value.name = name if value.name == made else value.name


def _plain_names(cut: Cut) -> list[Step[Cut]]:
    """A step to names of ours, where no node has a graph inside, whose names would have to follow."""
    inner = any(True for node in cut.model.graph.node for _ in inside(node))
    return [] if inner else [lambda cut: [_renamed(cut)]]


def _renamed(cut: Cut) -> Cut:
    model = copy_of(cut.model)
    graph = model.graph
    kinds = (
        ("x", [value.name for value in graph.input]), ("c", [tensor.name for tensor in graph.initializer]),
        ("y", [value.name for value in graph.output]),
        ("t", [name for node in graph.node for name in node.output if name]),
    )  # fmt: skip
    names: dict[str, str] = {"": ""}
    for letter, own in kinds:
        new = [name for name in dict.fromkeys(own) if name not in names]
        names |= {name: f"{letter}{number}" if len(new) > 1 else letter for number, name in enumerate(new)}
    for value in (*graph.input, *graph.initializer, *graph.output):
        value.name = names[value.name]
    for number, node in enumerate(graph.node):
        node.name = f"n{number}"
        for field in (node.input, node.output):
            field[:] = [names[name] for name in field]
    graph.name = "smallest"
    return Cut(model, {names[name]: value for name, value in cut.feeds.items()})


def fewest(cutter: Cutter, trials: ModelTrials) -> tuple[list[int], bool] | None:
    """The numbers of as few nodes as are known to fail, and whether the search came to its end; None where the whole
    model does not fail once it is cut, so that nothing can be taken away."""
    every = list(range(len(cutter.nodes)))
    chosen = Shrinker[Sequence[int]](lambda numbers: trials.fails(cutter.of(numbers)), key=tuple, cost=len)
    finished = False
    with contextlib.suppress(OutOfTime):
        # Each node has the reference's own inputs, so that one which fails is wrong by itself.
        if not any(chosen.fails([number]) for number in every) and chosen.fails(every):
            part(_range(every, chosen.fails), chosen.fails)
        finished = True
    numbers = chosen.best
    return None if numbers is None or (numbers == every and not finished) else ([*numbers], finished)


def _range(every: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """The shortest beginning that fails, from its latest start; where that is not monotone, what was met of it, or a
    window of few nodes."""
    end = least(1, len(every), lambda count: fails(every[:count]))
    head = every[:end] if fails(every[:end]) else every
    skipped = len(head) - least(1, len(head), lambda count: fails(head[len(head) - count :]))
    tail = head[skipped:] if fails(head[skipped:]) else head
    if len(tail) <= _FEW:
        return tail
    for width in (2, 4, _FEW):
        for start in range(len(tail) - width, -1, -max(width // 2, 1)):
            if fails(tail[start : start + width]):
                return tail[start : start + width]
    return tail


_FEW = 8
"""So many nodes are left to delta debugging at once."""
