"""Decide whether a failure with a file counts: somebody besides the two that part has to show who is right.

What a file means is computed by ONNX's evaluator, or by ONNX Runtime where that abstains. That another one gives
other values shows that one of the two is wrong, and not which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.case.draw.example import Example
from conformance.compare.close import Limit, differs
from conformance.compare.judges import Right, defaults_for
from conformance.diagnose.nodes import blame
from conformance.diagnose.nodes.other_runtime import ask
from conformance.judge.red_cell import CheckedCell, RedCell
from conformance.judge.verify_converted import evaluated, meaning_of
from conformance.models.cell_run import CellRun
from conformance.process.arrays import Array
from conformance.process.errors import NoVerdict, Stopped, Unavailable, or_else
from conformance.results.records.explanation import kernels
from conformance.runtimes import registry
from conformance.runtimes.other_shapes import other_shape
from conformance.runtimes.unsupported import refusal


def unsupported(red: RedCell) -> Unavailable | None:
    """Of a file: the runtime says that it does not support it. Raise Stopped where it stops at a shape of its own
    making, which is no want of support."""
    run, stop = red.of.run, red.stop
    if stop.stage not in ("load", "run") or (run.cell.case.says.onnx is None and not _is_of_others(run)):
        return None
    said = refusal(run.cell.runtime, stop.__cause__)
    if said is not None and run.cell.runtime == "openvino" and red.example is not None:
        model, inputs = red.of.model.file, red.example.inputs
        other = other_shape(model, inputs)
        if other is not None and ask(registry.LITERAL, model, run.libraries(), inputs).outputs is not None:
            text = f"{other}, and ONNX Runtime runs the model. {said}"
            raise Stopped(stop.stage, "WrongShape", text, "runtime") from stop
    return None if said is None else Unavailable(said)


def unseconded(red: RedCell) -> Unavailable | None:
    """Of a file: the runtime gives other values than the only one who computes what it means."""
    run, example = red.of.run, red.example
    if red.stop.stage != "compare" or example is None:
        return None
    if _is_of_others(run) and run.cell.check != "fidelity":
        text = _without_evaluator(red.of, example, red.stop)
    elif run.cell.case.says.onnx is None:
        return None
    elif run.cell.is_of_own_file or not (run.cell.converted or _is_another(red.of)):
        text = _without_second(red.of, example, red.stop)
    elif run.cell.check == "fidelity":
        text = _unconverted(red.of, example, example.wanted)
    else:
        return None
    return None if text is None else NoVerdict(text)


def _is_of_others(run: CellRun) -> bool:
    """Return whether the cell runs a file that somebody else has converted."""
    cell = run.cell
    return cell.converted and not cell.is_of_own_file and cell.case.says.precisions[cell.precision].of_others


def _without_evaluator(of: CheckedCell, example: Example, stop: Stopped) -> str | None:
    """Say that what a file means that others have converted is the word of one alone, ONNX Runtime's or of bf16 and
    fp8 the evaluator's, and a runtime with kernels of its own gives other values."""
    run, runtime, converted = of.run, of.run.cell.runtime or "", of.converted
    if kernels(runtime) == "onnxruntime" or converted is None:
        return None
    by_evaluator = meaning_of(run.cell.precision) == registry.EVALUATOR
    session = None if by_evaluator else evaluated(converted.file)
    outputs = None if session is None else or_else(None, lambda: session.run(example.inputs))
    if _agrees(of, outputs, example):
        return None
    entry = registry.named(runtime)
    others = [*registry.second_opinions(runtime), *([registry.named(entry.wide_form)] if entry.wide_form else [])]
    for other in others:
        if kernels(other.name) in ("onnxruntime", registry.EVALUATOR):  # both have said what they compute
            continue
        asked = ask(other.name, converted.file, run.libraries(), example.inputs, run.config())
        if _agrees(of, asked.outputs, example, values_only=other.values_only):
            return None
    third = "nobody else computes the file" if outputs is None else "ONNX's evaluator agrees with neither"
    who = "ONNX's evaluator" if by_evaluator else "ONNX Runtime"
    return f"{entry.title} and {who} give other values ({stop.error}), and {third}"


def _is_another(of: CheckedCell) -> bool:
    """Return whether another file is run than the one that says what is right: a difference may be its own."""
    target = of.run.cell.case.says.export.onnx
    return target is not None and target.file is not None


def _unconverted(of: CheckedCell, example: Example, meaning: list[Array]) -> str | None:
    """Say that ONNX Runtime, which computes what a converted model means, gives other values than ONNX's evaluator
    for the file itself: what the precision costs cannot be told of that then."""
    asked = ask(registry.LITERAL, of.exported.file, of.run.libraries(), example.inputs)
    if asked.outputs is None or not _contradict(asked.outputs, meaning):
        return None
    text = "ONNX Runtime and ONNX's evaluator give other values for the file itself"
    return f"{text}, so that nobody knows the cost of {of.run.cell.precision}"


def _without_second(of: CheckedCell, example: Example, stop: Stopped) -> str | None:
    """Say that the only one who gives other values than a runtime is who says what is right, or that the runtime is
    known to compute such models otherwise.

    One of the two is wrong, and nobody else shows which: a runtime is not accused by that alone.
    """
    run, runtime, model = of.run, of.run.cell.runtime or "", of.exported.file
    entry = registry.named(runtime)
    own_way = entry.no_witness and registry.function(entry.no_witness)(model, example.inputs)
    if own_way:
        return f"{entry.title} gives no verdict here: {own_way}"
    reference = run.reference
    if reference.abstains is not None:
        itself = kernels(runtime) == "onnxruntime"  # which gives other values than without its optimizer
        if itself or _agrees(of, reference.seconded(example.inputs), example):
            return None
    alike: dict[str, list[Array]] = {}
    for other in registry.second_opinions(runtime):
        if other.name == "onnx-reference" or (reference.abstains and kernels(other.name) == "onnxruntime"):
            continue
        asked = ask(other.name, model, run.libraries(), example.inputs, run.config())
        if _agrees(of, asked.outputs, example, values_only=other.values_only):
            return None
        if stop.error == "WrongShape" and _shapes(asked.outputs) == _shapes(example.wanted):
            return None
        if asked.outputs is not None and kernels(other.name) != kernels(runtime):
            alike[other.title] = asked.outputs
    if reference.abstains is None and _is_far_off(of, example):
        return None
    who = "ONNX's evaluator" if reference.abstains is None else "ONNX Runtime"
    others = f"and {' and '.join(alike)} not those of {who}" if alike else "and nobody else computes the file"
    own = ask(runtime, model, run.libraries(), example.inputs, run.config()).outputs if alike else None
    sides = [title for title, outputs in alike.items() if own is not None and _agree(own, outputs)]
    if sides:
        others = f"and {' and '.join(sides)} those of {entry.title}: {who} is alone with its own"
    why = f": {reference.abstains}" if reference.abstains else ""
    if reference.oracle_missing and not reference.abstains:
        why = f"; nobody computes it in float64 ({reference.oracle_missing})"
    return f"{entry.title} and {who} give other values ({stop.error}), {others}{why}"


def _is_far_off(of: CheckedCell, example: Example) -> bool:
    """Return whether the cell's runtime is far off by what another one computes in float32 of a file in float64:
    so coarse an answer is enough to tell which of two is wrong that differ by more than that."""
    run, runtime = of.run, of.run.cell.runtime or ""
    if not any(array.dtype == np.float64 for array in (*example.inputs.values(), *example.wanted)):
        return False
    for other in registry.second_opinions(runtime):
        if not other.values_only or kernels(other.name) == kernels(runtime):
            continue
        model, libraries = of.exported.file, run.libraries()
        coarse = ask(other.name, model, libraries, example.inputs, run.config(), anyway=True).outputs
        own = ask(runtime, model, libraries, example.inputs, run.config()).outputs
        if coarse is not None and own is not None:
            return _contradict(own, example.wanted) and not _contradict(coarse, example.wanted)
    return False


def check_confirmed(of: CheckedCell, example: Example) -> None:
    """Raise NoVerdict where ONNX Runtime both runs a file and says what it means, and nobody else gives the same
    values: compared with itself, it shows that its optimizer is right, and nothing of its kernels.

    Raise Stopped where two others agree with each other on other values.
    """
    run, runtime = of.run, of.run.cell.runtime or ""
    reference = run.reference
    by_itself = reference.abstains is not None and kernels(runtime) == "onnxruntime"
    if run.cell.case.says.onnx is None or _is_another(of):
        return
    if run.cell.converted and not run.cell.is_of_own_file:
        text = _unconverted(of, example, reference(example.inputs))
        if text is not None:
            raise NoVerdict(text)
        return
    if not by_itself:
        return
    voices = {"ONNX's evaluator": reference.seconded(example.inputs)}
    for other in registry.second_opinions(runtime):
        if kernels(other.name) != kernels(runtime) and other.name != "onnx-reference":
            asked = ask(other.name, of.exported.file, run.libraries(), example.inputs, run.config()).outputs
            voices[other.title] = asked and blame.in_dtypes_of(example.wanted, asked)
    given = {title: outputs for title, outputs in voices.items() if outputs is not None}
    if any(_agrees(of, outputs, example) for outputs in given.values()):
        return
    others = " and ".join(given)
    if len(given) > 1 and _agree(*given.values()):
        text = f"{others} give other values than ONNX Runtime, and the same as each other"
        raise Stopped("compare", "WrongValue", text, "runtime")
    said = f"{others} gives other values" if len(given) == 1 else "others give other values, each its own"
    raise NoVerdict(
        f"ONNX Runtime is compared with itself here ({reference.abstains}), "
        f"and {said if given else 'nobody else computes the file'}"
    )


def _agrees(of: CheckedCell, outputs: list[Array] | None, example: Example, *, values_only: bool = False) -> bool:
    """Return whether outputs are right for an example, as far as the cell's runtime has to be."""
    if outputs is None:
        return False
    got = blame.in_dtypes_of(example.wanted, outputs) if values_only else outputs
    return of.verify.judged(example, got).verdict != "failed"


def _shapes(outputs: list[Array] | None) -> list[tuple[int, ...]] | None:
    return None if outputs is None else [array.shape for array in outputs]


def _agree(first: list[Array], *others: list[Array]) -> bool:
    """Return whether several agree as closely as an exporter's model has to agree with PyTorch."""
    judge = defaults_for(first)
    return all(judge.compare(other, Right(first)).verdict != "failed" for other in others)


_LENIENT = 1e-3
"""The largest difference of two answers that do not contradict each other, relative to the largest value."""


def _contradict(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Return whether outputs are further apart than any rounding takes them; whole numbers may be those of a tie."""
    return len(one) != len(other) or any(
        b.dtype.kind in "fU" and differs(a, b, Limit(share=_LENIENT), dtypes=False) is not None
        for a, b in zip(one, other, strict=True)
    )
