"""The check ``export``: the graph is what the case says, and does not depend on the shape it was traced at.

Shape inference has rules of its own for the sizes of some outputs, such as those of pooling with ``ceil_mode``, which
PyTorch and the runtimes compute otherwise. A wrong model is refused for the same reason, so that somebody has to run
a model that nothing else refuses.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from conformance.case.draw.draw import Draw, seed_of
from conformance.case.draw.example import Example
from conformance.case.files.export_keys import TorchScript
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import matches
from conformance.case.plan.settings import Settings
from conformance.diagnose.operators.captured_program import Operator, Unable
from conformance.diagnose.operators.first_operator import of_operator
from conformance.diagnose.operators.refused_operator import stopped_export
from conformance.diagnose.refused import SECONDS, placed
from conformance.judge.verify import Verifier
from conformance.models.cell_run import CellRun
from conformance.models.exporters import graph
from conformance.models.exporters.graph import Facts
from conformance.models.kept.model_store import Stored
from conformance.models.reference.float64_model import in_float64, load
from conformance.process.arrays import Array, Inputs, same
from conformance.process.errors import Details, Stopped, or_else
from conformance.process.worker import aside
from conformance.results.records.words import REGIMES
from conformance.runtimes import opener, registry
from conformance.runtimes.evaluator_rules import has_half
from conformance.runtimes.inferred import inferred
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.reads import nodes

OTHER_VALUES = 3
"""With how many other values of each regime it is tried whether an input is used."""
SECOND_TRACE_SECONDS = 2.0
"""An export that takes longer than this is not traced at a second point."""


def check_export(run: CellRun) -> None:
    """The graph is what the case says, and does not depend on the shape it was traced at."""
    _check_unused(run)
    stored = run.model()
    case, cell = run.cell.case, run.cell
    sizes = run.prepared.trace()
    with run.stages("check", "exporter"):
        order, outputs = run.reference.passing.in_graph(), run.reference.output_names(run.prepared.inputs())
        absent = {*order} - {*stored.facts.inputs, *case.says.unused}
        unused = [name for name in order if name in absent and _is_used(run, name, REGIMES) is False]
        wanted = [name for name in order if name not in unused]
        findings = list(graph.signature(case, stored.facts, wanted, sizes, run.target.static, outputs))
        for entry in case.says.graph:
            if matches(entry.when, cell):
                findings += graph.assertions(entry, stored.facts)
        if findings:
            details: Details = {"findings": [finding.text for finding in findings]}
            raise Stopped("check", findings[0].error, findings[0].text, "exporter", details)
        if unused:
            names = ", ".join(unused)
            text = f"no value drawn for {names} changes an output, and the graph has no such input"
            text = f"{text}; unused: [{names}] says so"
            raise Stopped("check", "UnusedInput", text, "case")
        abstains = run.reference.abstains
        if abstains is not None:
            text = f"{abstains}; what is right was computed by ONNX Runtime node by node, with its optimizer off"
            run.record.warnings = [*run.record.warnings, {"name": "reference", "error": "Abstains", "text": text}]
        check_doubted(run, stored)
        check_own_overflow(run, stored.file)
        run.note_changes()
        _check_second_trace(run, stored)
    run.record.examples = 1


def _check_unused(run: CellRun) -> None:
    """Stopped where PyTorch's outputs hang on the values of an input that the case says forward does not use."""
    for name in run.cell.case.says.unused:
        if _is_used(run, name, REGIMES[:1]):
            text = f"forward does use {name}: its outputs depend on it; take it out of unused"
            raise Stopped("declare", "UsedInput", text, "case")


def _is_used(run: CellRun, name: str, regimes: Sequence[str]) -> bool | None:
    """Return whether PyTorch's outputs change with the values of an input, or forward refuses some of them.

    None where none of ``OTHER_VALUES`` draws of each regime has other values, so that nothing shows it."""
    sizes, inputs = run.prepared.trace(), run.prepared.inputs()
    right = run.reference.afresh(inputs)
    draws = [Draw(sizes, regime, seed) for regime in regimes for seed in range(OTHER_VALUES)]
    drawn = [run.prepared.maker(draw)[name] for draw in draws]
    others = [values for values in drawn if not same([values], [inputs[name]])]
    for values in others:
        got = or_else(None, functools.partial(run.reference.afresh, {**inputs, name: values}))
        if got is None or not same(right, got):
            return True
    return False if others else None


def _check_second_trace(run: CellRun, stored: Stored) -> None:
    """Stopped where the graph differs when it is traced at other sizes: it has a size baked in."""
    sizes = run.prepared.trace()
    odd = run.prepared.trace(odd=True)
    held = all(sizes[name] == odd[name] for name in sizes if name not in run.target.static)
    affordable = stored.seconds["export"] <= SECOND_TRACE_SECONDS
    target = run.target
    if not isinstance(target, TorchScript) or held or not affordable:
        return
    # In training mode the statistics of the example are part of the model.
    if run.cell.case.says.mode == "train" or target.options.training not in (None, "eval"):
        return
    name = run.key
    if run.outcomes.same_graph(name, stored.facts.structure):
        return
    with run.stages("export", "exporter"):
        again = graph.structure(run.export(odd=True).model)
    if again != stored.facts.structure:
        if run.reference.training(run.prepared.inputs()):  # as a module may that sets itself to train
            return
        text = (
            f"the graph traced at {_sizes(odd)} differs from the one traced at {_sizes(sizes)}: "
            "a size, or what follows from the values, is baked in"
        )
        raise Stopped("check", "ShapeBakedIn", text, "exporter")
    run.outcomes.note_same_graph(name, again)


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


ASKED = tuple(runtime.name for runtime in registry.RUNTIMES if runtime.in_cases and not runtime.absent)
"""The runtimes that are asked, each with kernels of its own."""


def check_doubted(run: CellRun, stored: Stored) -> None:
    """Stopped where shape inference refuses the model and nobody shows that it is wrong to: no runtime runs it,
    or one that does gives other shapes or values than PyTorch. The record's warning says who gives the same."""
    if not stored.facts.doubted:
        return
    error, text = stored.facts.doubted
    verify = Verifier(run.of_cell(stored))
    agree = set(ASKED)
    for example in _examples(run, verify):
        answers = {name: _answer(run, verify, stored, name, example) for name in ASKED}
        wrong = [f"{name}: {told}" for name, told in answers.items() if told]
        who = "PyTorch" if run.cell.case.says.onnx is None else "running it"
        declared = _declared_otherwise(stored.facts, example.wanted, who)
        ran = {name for name, told in answers.items() if told is not None}
        if declared or wrong or not ran:
            why = declared or "; ".join(wrong) or f"neither {' nor '.join(ASKED)} can run it"
            raise run.of_exporter(graph.invalid_model(error, f"{text} ({why})"))
        agree &= ran
    run.record.warnings = [
        {**warning, "agree": sorted(agree)} if warning["name"] == "shape inference" else warning
        for warning in run.record.warnings
    ]


def _examples(run: CellRun, verify: Verifier) -> Iterator[Example]:
    """The inputs that the model was traced with, and others of odd sizes where the model takes them."""
    traced = run.prepared.trace()
    for odd in (False, True):
        sizes = run.prepared.trace(odd=odd)
        if all(sizes[name] == traced[name] for name in run.target.static):
            # the seed of a draw with given inputs says nothing
            yield verify.example(Draw(sizes, "plain", 0), run.prepared.inputs(odd=odd))


def _answer(run: CellRun, verify: Verifier, stored: Stored, runtime: str, example: Example) -> str | None:
    """Return what is wrong with a runtime's outputs, empty where they are PyTorch's; None where it does not run the
    model or its outputs tell nothing."""
    wanted = example.wanted

    def outputs() -> list[Array]:
        with opener(runtime, config=run.config())(stored.file, run.libraries()) as session:
            return session.run(example.inputs)

    got = or_else(None, outputs)
    if got is None:
        return None
    verify.judge_of(wanted)
    comparison = verify.judged(example, got)
    if comparison.verdict == "failed":
        return f"{comparison.error}, {comparison.text}"
    return "" if comparison.verdict == "verified" else None


def _declared_otherwise(facts: Facts, wanted: Sequence[Array], who: str) -> str:
    """Return which output the model itself declares with another size than ``who`` gives it; empty where none is."""
    known: Mapping[str, Sequence[object] | None] = facts.outputs
    if facts.sequences or len(known) != len(wanted):
        return ""
    for (name, dims), array in zip(known.items(), wanted, strict=True):
        shape = array.shape
        fixed = [(axis, dim) for axis, dim in enumerate(dims or ()) if isinstance(dim, int)]
        if dims is not None and (len(dims) != len(shape) or any(shape[axis] != dim for axis, dim in fixed)):
            return f"the model declares {name} with dims {dims}, {who} gives {list(shape)}"
    return ""


SHARED = 2**16
"""Bytes in which what is known of a call has to fit."""


def crashed_export(progress: object, cell: Cell, settings: Settings) -> dict[str, object] | None:
    """In a worker: the call at which an export ends its process, as fields of ``Record.operator``; None where another
    export does not, or at none.

    Each call is written into memory that the two processes share before it is translated, so that the last one is
    there when the process is not.
    """
    with mmap.mmap(-1, SHARED) as shared, CellRun.opened(cell, settings) as run:

        def begun(operator: Operator) -> None:
            data = json.dumps(placed(run, of_operator(operator))).encode()
            shared[:] = (data if len(data) <= SHARED else b"").ljust(SHARED)

        def question() -> None:
            run.set_apart()
            stopped_export(cell.exporter, run.export, begun)

        with contextlib.suppress(Unable):
            try:
                aside.ask(question, SECONDS)
            except aside.Lost:
                data = shared[:].strip(b"\0 ")
                return {**json.loads(data), "stage": "translation", "how": "crashes"} if data else None
    return None


DRAWS = 8
MOST = 0.5
"""The share of draws from which an overflow is the file's failure, and no matter of single values."""
LARGEST = float(np.finfo(np.float16).max)
FAR = 0.5
"""The distance, as a share of the largest value of its output, up to which a value may be off before what overflows
inside counts as a loss: an infinity that is divided by leaves zeros."""


def check_own_overflow(run: CellRun, file: Path) -> None:
    """Stopped where a file gives NaN, infinities or values that are far off on most ordinary draws, of which float64
    has numbers, as 16 bits do not hold what a node computes; a warning in the record where it does on some of them.
    """
    if run.cell.case.says.onnx is None or not has_half(read_graph(file)):
        return
    draws = (Draw(run.prepared.trace(), "plain", seed_of(run.cell.case.name, "overflow", k)) for k in range(DRAWS))
    found = [(inputs, how) for inputs in map(run.prepared.maker, draws) if (how := _loses(run, file, inputs))]
    lost = [(how, node) for inputs, how in found if (node := or_else(None, partial(_first_beyond, file, inputs)))]
    if not lost:
        return
    how, node = lost[0]
    text = (
        f"on {len(lost)} of {DRAWS} draws of ordinary values outputs are {how}, where the same in float32 "
        f"has numbers: {node}, and float16 holds {LARGEST:g}"
    )
    if len(lost) >= MOST * DRAWS:
        raise Stopped("check", "Overflow", text, "case")
    run.record.warnings = [*run.record.warnings, {"name": "overflow", "error": "Overflow", "text": text}]


def _loses(run: CellRun, file: Path, inputs: Inputs) -> str:
    """Say how outputs are lost of which float64 has numbers, also where each node is computed in float32 and rounded
    once; nothing where none is."""

    def outputs() -> list[Array]:
        with opener(registry.LITERAL)(file, run.libraries()) as session:
            return session.run(inputs)

    got, exact = or_else(None, outputs), run.reference.oracle(inputs)
    if got is None or exact is None:
        return ""
    floats = [(one, true) for one, true in zip(got, exact, strict=False)
              if true.dtype.kind == one.dtype.kind == "f" and one.shape == true.shape]  # fmt: skip
    if any((np.isfinite(true) & ~np.isfinite(one)).any() for one, true in floats):
        return "NaN or infinite"
    far = any((np.abs(one - true) > FAR * np.abs(true).max(initial=0.0, where=np.isfinite(true))).any()
              for one, true in floats)  # fmt: skip
    return "off by more than half of the largest" if far else ""


def _first_beyond(file: Path, inputs: Mapping[str, Array]) -> str | None:
    """Say at which node of a file a value of float16 is larger than that holds, in float64."""
    from onnx import TensorProto
    from onnx.reference import ReferenceEvaluator

    loaded = load(file)
    known = inferred(loaded).graph
    halves = {one.name for one in (*known.value_info, *known.output)
              if one.type.tensor_type.elem_type == TensorProto.FLOAT16}  # fmt: skip
    model = in_float64(loaded)
    wide = {name: value.astype(float) if value.dtype.kind == "f" else value for name, value in inputs.items()}
    values = dict[str, Any](ReferenceEvaluator(model).run(None, wide, intermediate=True))
    for node in nodes(model.graph):
        for name in halves.intersection(node.output):
            value = np.asarray(values.get(name, 0.0))
            if value.dtype.kind == "f" and (size := np.abs(value).max(initial=0.0)) > LARGEST:
                return f"{node.op_type} '{node.name or name}' computes {size:.4g}"
    return None
