"""The smallest model that still shows a fault of ONNX Runtime or OpenVINO, with a script and a text for whoever mends
it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.draw.example import Example, given
from conformance.compare.excuses import largest_of
from conformance.compare.judges import Tolerances
from conformance.compare.tolerance import Tolerance
from conformance.diagnose.nodes.guilty_pass import Broken, guilty
from conformance.diagnose.search import Asking, OutOfTime, Shrinker, Step, least, part, search_aside
from conformance.diagnose.smallest.model_script import reproduction
from conformance.diagnose.smallest.model_trial import ONE, ModelFailure, ModelTrials, kind_of, limit_of, outcome_of
from conformance.diagnose.smallest.simpler_arrays import simpler_values, smaller_sizes
from conformance.judge.comparer import WrongAnswer
from conformance.models.bundle.bundle_files import CELLS
from conformance.models.bundle.bundle_layout import BundleWriter, write_model, write_set
from conformance.models.bundle.entry import Entry
from conformance.models.cell_run import CellRun
from conformance.process.arrays import Array
from conformance.process.disk.onnx_models import on_disk
from conformance.process.errors import Details, Stopped, display_path
from conformance.process.worker import aside
from conformance.results.records.environment import environment
from conformance.results.records.record_types import Smallest
from conformance.runtimes import outputs_of, registry
from conformance.runtimes.onnxgraph.cut import Cut, Cutter, expose
from conformance.runtimes.onnxgraph.reads import copy_of, inside, operator_of
from conformance.runtimes.tensorrt.build_options import Build, covering

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

SECONDS = 30.0
"""How long a runtime may take for what is right for a model, or for one of its nodes."""
SCRIPT = 60.0
"""How long the script may take."""


def leave_smallest(run: CellRun, model: Path, example: Example, stop: Stopped, folder: Path) -> Smallest | None:
    """Write a bundle of the smallest model that fails as ``model`` does at the example into ``folder``, and give
    what is known of it, for the record; None where the fault is not theirs, or nobody says what is right.

    ``nodes`` of ``of`` are left, ``operators`` are theirs. ``repro`` and ``issue`` are files that were written,
    ``repro`` after it had shown the defect in a process of its own; else ``why_not`` is what it said. ``passes`` are
    those of the optimizer that break the small model. ``unfinished`` is true where time ran out.
    """
    failure = _failure(run, example, stop)
    if failure is None:
        return None
    start = time.monotonic()
    search = _searched(model, failure, example, run.settings.smallest_seconds)
    if search is None:
        return None
    cut, most, finished, tried = search
    failure = _with_passes_of(cut, failure)
    expected = _expected(cut, failure)
    shutil.rmtree(folder, ignore_errors=True)
    _write(run, cut, failure, expected, example, folder)
    fields: Smallest = {
        "bundle": display_path(folder), "nodes": len(cut.model.graph.node), "of": most,
        "operators": [operator_of(node) for node in cut.model.graph.node], "passes": list(failure.passes),
        **({} if finished else {"unfinished": True}),
    }  # fmt: skip
    about = None if failure.libraries else reproduction(cut, failure, expected)
    if about is None:
        fields["why_not"] = "libraries" if failure.libraries else "length"
    else:
        fields |= about.leave(folder, SCRIPT)
    return {**fields, "tried": tried, "seconds": round(time.monotonic() - start, 3)}


def _failure(run: CellRun, example: Example, stop: Stopped) -> ModelFailure | None:
    details = stop.details
    runtime = run.cell.runtime
    if runtime is None or stop.fault != "runtime" or details.get("cause"):
        return None
    entry = registry.named(runtime)
    if not entry.scripted or (entry.values_only and (stop.stage != "compare" or run.cell.converted)):
        return None
    right = _who_is_right(runtime, details)
    if right is None:
        return None
    worst = stop.worst if isinstance(stop, WrongAnswer) else None
    off = math.inf
    if worst is not None and math.isfinite(worst.error):
        off = worst.error / (largest_of(example.wanted[worst.output]) or 1.0)
    passes = tuple((details.get("optimizer") or {}).get("passes") or ())
    kind = kind_of(stop.stage, stop.error)
    return ModelFailure(kind, right, limit_of(off), run.libraries(), run.config(), passes, runtime)


def _who_is_right(runtime: str, details: Details) -> str | None:
    """The runtime that computes what is right for the whole model, or for the node at which ONNX Runtime parts."""
    if details.get("conclusion") == "optimizer":
        return "onnxruntime-unoptimized"
    others = [other.name for other in registry.second_opinions(runtime) if other.computes_with != runtime]
    for witness in details.get("witnesses") or ():
        if witness["answer"] == "agrees" and witness["runtime"] in others:
            return str(witness["runtime"])
    place = details.get("parts_at") or {}
    return place.get("by") if place.get("how") == "parts" else None


_Found = tuple[Cut, int, bool, int]
"""The small model, the nodes of the whole one, whether the search came to its end, how many models were tried."""


def _searched(model: Path, failure: ModelFailure, example: Example, seconds: float) -> _Found | None:
    """The smallest model; None where nothing can be taken away."""
    import onnx

    loaded = onnx.load(model)
    values = reference_values(loaded, failure.right, failure.libraries, example.inputs, SECONDS)
    cutter = Cutter(loaded, values)

    def search(ask: Asking, deadline: float) -> _Found | None:
        trials = ModelTrials(failure, deadline, ask)
        numbers, finished = fewest(cutter, trials) or ([], False)
        cut = cutter.of(numbers) if numbers else None
        return None if cut is None else (simplified(cut, trials), len(cutter.nodes), finished, trials.count)

    return search_aside(search, seconds, ONE)


def _with_passes_of(cut: Cut, failure: ModelFailure) -> ModelFailure:
    """The failure with the passes that break the small model, of which helpers have mostly dropped out."""
    if not failure.of_optimizer:
        return failure
    outcome = outcome_of(failure, _expected(cut, failure))
    with on_disk(cut.model) as file:
        guilt = guilty(Broken(file, failure.libraries, cut.feeds, failure.config or {}, outcome)) or {}
    passes = tuple(guilt.get("passes") or failure.passes)
    return dataclasses.replace(failure, passes=passes)


def _expected(cut: Cut, failure: ModelFailure) -> list[Array]:
    """Return what is right for the small model, asked in a process of its own."""
    question = partial(outputs_of, cut.model, failure.right, failure.libraries, cut.feeds, failure.config)
    return [np.asarray(array) for array in aside.ask(question, SECONDS)]


def _write(
    run: CellRun, cut: Cut, failure: ModelFailure, expected: Sequence[Array], example: Example, folder: Path
) -> None:
    """Write the bundle, which any replay reads."""
    cell = run.cell
    name = "test_smallest"
    writer = BundleWriter(folder, environment([]))
    place = folder / CELLS / name
    with on_disk(cut.model) as file:
        libraries = write_model(place, file, failure.libraries)
    names = list(cut.feeds)
    small = given(example.draw, dict(cut.feeds), list(expected), None, None, ())
    sets = [write_set(place, 0, small, names, [])]
    tolerances = tuple(
        Tolerance(0.0, failure.limit * (largest_of(array) or 1.0), absolute=True) if array.dtype.kind == "f" else None
        for array in expected
    )
    judge = Tolerances(tolerances, (False,) * len(expected))
    build = Build(covering({name: value.shape for name, value in cut.feeds.items()}, ()))
    writer.add(Entry(
        name=name, case=cell.case.name, exporter=cell.exporter, opset=cell.opset, precision="fp32", check="accuracy",
        source=run.record.source, graph={}, inputs=names, judge=judge.as_dict(), build=build.as_dict(), sets=sets,
        runtimes=[failure.runtime], excused=list(range(len(expected))), libraries=libraries,
        config=dict(failure.config or {}),
    ))  # fmt: skip


MOST_BYTES = 2**30
"""Above this size the tensors of a model are not held in memory together, and nothing is cut out of it."""


def reference_values(
    model: ModelProto, runtime: str, libraries: Sequence[str], inputs: Mapping[str, Array], seconds: float
) -> dict[str, Array]:
    """All tensors of a model by name, as a runtime computes them; raises what that raises, ``aside.Lost`` where it
    takes its process along, and MemoryError where there are too many bytes of them."""
    shown = expose(model, (name for node in model.graph.node for name in node.output))
    names = [output.name for output in shown.graph.output]

    def question() -> list[Array]:
        arrays = outputs_of(shown, runtime, libraries, inputs)
        if sum(getattr(array, "nbytes", 0) for array in arrays) > MOST_BYTES:
            raise MemoryError
        return arrays

    arrays = aside.ask(question, seconds)
    if len(arrays) != len(names):
        raise ValueError("a tensor of the model is a sequence")
    return {**inputs, **dict(zip(names, arrays, strict=True))}


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
