"""Find as few nodes as still fail, and then smaller shapes, simpler values and plain names for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.draw.simplest import simpler, smaller
from conformance.diagnose.search import OutOfTime, least, part
from conformance.diagnose.smallest.model_trial import ModelTrials
from conformance.process.arrays import Array, equal
from conformance.runtimes.onnxgraph.cut import Cut, Cutter, declare
from conformance.runtimes.onnxgraph.reads import copy_of, inside, needs

if TYPE_CHECKING:
    pass


MOST_SIZES = 8
"""Of how many different sizes of axes smaller ones are tried."""
MOST_ARRAYS = 12
"""For how many inputs and constants simpler values are tried."""


def simplified(cut: Cut, trials: ModelTrials) -> Cut:
    """A model that fails alike with fewer outputs, smaller shapes, simpler values and plain names, as far as there is
    time for it."""
    try:
        for candidate in (_remade(cut), _with_one_output(cut)):
            if candidate is not None and trials.fails(candidate):
                cut = candidate
        cut = _values(_shapes(_bypassed(cut, trials), trials), trials)
        renamed = _renamed(cut)
        return renamed if trials.fails(renamed) else cut
    except OutOfTime:
        return cut


def _remade(cut: Cut, arrays: Mapping[str, Array] | None = None) -> Cut:
    """The model with other arrays for some inputs and constants: with the shapes of these, without texts of its
    exporter, and without functions that it does not call."""
    from onnx import numpy_helper

    arrays = arrays or {}
    feeds = {name: arrays.get(name, value) for name, value in cut.feeds.items()}
    known = {**cut.constants, **{name: value for name, value in arrays.items() if name not in feeds}}
    model = copy_of(cut.model)
    graph = model.graph
    used = {one for node in graph.node for one in needs(node)}
    known = {name: value for name, value in known.items() if name in used}
    for field in (graph.initializer, graph.input):
        del field[:]
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in known.items())
    graph.input.extend(declare(name, value) for name, value in feeds.items())
    for node in graph.node:
        for text in ("doc_string", "metadata_props"):
            node.ClearField(text)
    called = {(node.domain, node.op_type) for node in graph.node}
    if not any((function.domain, function.name) in called for function in model.functions):
        del model.functions[:]
        domains = {node.domain for node in graph.node} | {""}
        imports = [entry for entry in cut.model.opset_import if entry.domain in domains or entry.domain == "ai.onnx"]
        del model.opset_import[:]
        model.opset_import.extend(imports)
    return Cut(model, feeds)


def _with_one_output(cut: Cut) -> Cut | None:
    """The model with its last output alone; None where it has one."""
    if len(cut.model.graph.output) < 2:
        return None
    model = copy_of(cut.model)
    del model.graph.output[:-1]
    return Cut(model, cut.feeds)


def _bypassed(cut: Cut, trials: ModelTrials) -> Cut:
    """The model without nodes whose input may stand in their output's place, as that of an Identity between two nodes
    that fail together."""
    number = len(cut.model.graph.node) - 1
    while number >= 0 and len(cut.model.graph.node) > 1:
        for name in dict.fromkeys(cut.model.graph.node[number].input):
            candidate = _without(cut, number, name) if name else None
            if candidate is not None and trials.fails(candidate):
                cut = candidate
                break
        number -= 1
    return cut


def _without(cut: Cut, number: int, name: str) -> Cut | None:
    """The model with ``name`` in place of what a node makes; None where that would be an input given back."""
    model = copy_of(cut.model)
    graph = model.graph
    (made, *others) = [output for output in graph.node[number].output if output]
    shown = {value.name for value in graph.output}
    given = name in cut.feeds or name in cut.constants
    if others or (made in shown and (given or name in shown)):
        return None
    del graph.node[number]
    for node in graph.node:
        node.input[:] = [name if one == made else one for one in node.input]
    for value in graph.output:
        value.name = name if value.name == made else value.name
    used = {one for node in graph.node for one in node.input}
    return _remade(Cut(model, {own: value for own, value in cut.feeds.items() if own in used}))


def _shapes(cut: Cut, trials: ModelTrials) -> Cut:
    """Smaller sizes, one after the other: all axes of one size together, as they mostly belong together."""
    sizes = {size for array in (*cut.feeds.values(), *cut.constants.values()) for size in array.shape if size > 1}
    for size in sorted(sizes, reverse=True)[:MOST_SIZES]:
        for candidate in _with_size(cut, size):
            if trials.fails(candidate):
                cut = candidate
                break
    return cut


def _with_size(cut: Cut, size: int) -> Iterator[Cut]:
    """The model with smaller ones in place of a size; first also where it stands among integers, as in the target of
    a Reshape."""
    for count, sliced in smaller({**cut.constants, **cut.feeds}, size):
        told = {
            name: np.where(value == size, count, value).astype(value.dtype) if value.dtype == np.int64 else value
            for name, value in sliced.items()
        }
        if any(not np.array_equal(told[name], sliced[name]) for name in told if told[name].dtype == np.int64):
            yield _remade(cut, told)
        yield _remade(cut, sliced)


def _values(cut: Cut, trials: ModelTrials) -> Cut:
    """Simpler values of each input, then of each constant."""
    for name in [*cut.feeds, *cut.constants][:MOST_ARRAYS]:
        value = cut.feeds[name] if name in cut.feeds else cut.constants[name]
        for candidate in simpler(value):
            if equal(candidate, value):
                continue
            changed = _remade(cut, {name: candidate})
            if trials.fails(changed):
                cut = changed
                break
    return cut


def _renamed(cut: Cut) -> Cut:
    """The model with names of ours, where no node has a graph inside, whose names would have to follow."""
    if any(True for node in cut.model.graph.node for _ in inside(node)):
        return cut
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
    best: list[int] = every

    def fails(chosen: Sequence[int]) -> bool:
        nonlocal best
        failed = bool(chosen) and trials.fails(cutter.of(chosen))
        if failed and len(chosen) < len(best):
            best = list(chosen)
        return failed

    try:
        # Each node has the reference's own inputs, so that one which fails is wrong by itself.
        single = next((number for number in every if trials.fails(cutter.of([number]))), None)
        if single is not None:
            return [single], True
        if not fails(every):
            return None
        return part(_range(every, fails), fails) or best, True
    except OutOfTime:
        return (best, False) if len(best) < len(every) else None


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
