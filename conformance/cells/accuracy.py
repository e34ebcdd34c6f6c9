"""The checks ``accuracy`` and ``specials``: a runtime's outputs are PyTorch's, or what a converted model means."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from conformance.case.draw.draw import Draw
from conformance.case.draw.example import Example
from conformance.case.files.python import describe
from conformance.cells.check_recorded import check_meaning
from conformance.cells.coverage import note_coverage
from conformance.cells.examples import Examples
from conformance.cells.pack_cells import leave
from conformance.diagnose.explain_failure import CaseExplainer, fault_by_others, may_saturate
from conformance.diagnose.explanations import Question, explain
from conformance.diagnose.locate import find_operator
from conformance.diagnose.nodes import saturation
from conformance.diagnose.nodes.blame import is_special
from conformance.diagnose.smallest.smallest import leave_smallest
from conformance.diagnose.smallest.smallest_function import Reduced, causes_known, leave_function
from conformance.judge.draws import Draws
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import RuntimeVerifier, opening_literal, rounding_otherwise
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.kept.answers import KeptAnswers
from conformance.models.kept.model_store import Stored
from conformance.process.arrays import Array
from conformance.process.errors import Details, NoVerdict, Stopped, attempt
from conformance.results.baseline.change import Limits
from conformance.results.records.explanation import add, note_details, unexplained
from conformance.results.records.words import base_of
from conformance.runtimes import Session, opener, registry
from conformance.runtimes.evaluator_rules import has_half
from conformance.runtimes.onnxruntime import PROVIDER as CPU
from conformance.runtimes.onnxruntime import kernels


def check_accuracy(run: CellRun) -> None:
    """The runtime's outputs are PyTorch's, for every example; ``specials`` is the same with other values.

    At another precision than fp32 they are what the converted model means (``LITERAL`` computes it).
    """
    cell, prepared = run.cell, run.prepared
    assert cell.runtime is not None
    if cell.case.says.recorded is not None:
        with run.stages("declare", "case"):
            check_meaning(run)
    stored = run.model()
    if stored.facts.sequences:
        with run.stages("declare", "case"):
            prepared.see_lengths()  # before a judge is made
    converted = converted_model(run, stored) if cell.converted else None
    model = converted or stored
    draws = Draws(cell, run.settings, prepared, run.dims(), prepared.trace())
    kept = run.kept_answers(model)
    with contextlib.ExitStack() as stack:
        meaning = None if converted is None else opening_literal(run, converted, stack)
        if meaning is not None and kept.first is None:
            meaning()  # before the runtime, which is not to blame for what nothing can load
        session, stopped = _load(run, draws, model, stack)
        verify = Verifier(run.of_cell(stored), session)
        if converted is not None:
            otherwise = rounding_otherwise(run, converted, stack)
            verify = RuntimeVerifier(run.of_cell(stored), session, meaning, otherwise)
        verify.kept = kept
        explainer = CaseExplainer(run, verify, stored, converted)
        try:
            if stopped is not None:
                explainer.check_counts(stopped)
                raise explainer.blamed(verify.example(draws.first(), prepared.inputs()), stopped)
            assert session is not None
            _note_arithmetic(run, session, model, kept)
            Examples(run, draws, verify, explainer).run()
            explainer.voices.check_confirmed(verify.example(draws.first(), prepared.inputs()))
            run.note_changes()
            if cell.check == "accuracy":
                note_coverage(run, verify)
            _note_saturation(run, verify, model)
        except Stopped as stop:
            run.note_changes()
            put_off = bool(stop.details.get("unexplained"))
            if put_off and _is_evaluator_by_default(run) and explainer.example is not None:
                # which decides whether the evaluator is believed
                fault = fault_by_others(run, verify, stored, converted, stop, explainer.example)
                unexplained(stop, known=fault)
            in_doubt = _in_doubt(run, stop, model, explainer.example)
            if in_doubt and not explainer.is_declared(stop):
                raise NoVerdict(
                    f"only ONNX's evaluator gives other values ({stop.error}), {in_doubt}, where its answer proves "
                    "nothing; runtimes: [onnx-reference, onnxruntime] would insist on it"
                ) from stop
            if _uninvited(run, stop) and not explainer.is_declared(stop):
                raise NoVerdict(
                    f"the ONNX specification's evaluator stops with {stop.error}, and nothing shows that the model "
                    "is wrong; runtimes: [onnx-reference, onnxruntime] would insist on it"
                ) from stop
            if put_off:
                raise
            if not explainer.is_declared(stop):
                found, small = find_operator(run, verify, stored, explainer.example, stop)
                more = ask_explanations(run, verify, model, explainer.example, stop)
                left = _leave_bundle(run, verify, explainer, draws, model, stop, found, small)
                add(stop, found, more, left)
            raise


def _load(
    run: CellRun, draws: Draws, model: Stored, stack: contextlib.ExitStack
) -> tuple[Session | None, Stopped | None]:
    """The runtime with the model loaded, and None; or None, and what stopped the loading."""
    cell, libraries = run.cell, run.libraries()
    assert cell.runtime is not None
    config = run.config() if "config" in registry.named(cell.runtime).takes else {}
    try:
        with run.stages("load", "runtime" if cell.converted else "exporter"):
            build = run.build(model, draws.sizes()) if registry.named(cell.runtime).builds else None
            return stack.enter_context(opener(cell.runtime, build, config)(model.file, libraries)), None
    except Stopped as stop:
        return None, stop


def _is_evaluator_by_default(run: CellRun) -> bool:
    """Return whether ONNX's evaluator runs the cell, and the case does not ask for it."""
    return run.cell.runtime == "onnx-reference" and "runtimes" not in run.cell.case.says.model_fields_set


def _uninvited(run: CellRun, stop: Stopped) -> bool:
    """Return whether the evaluator cannot run a model that nobody finds fault with, and only the default has it
    run."""
    return _is_evaluator_by_default(run) and stop.stage in ("load", "run") and stop.fault in (None, "runtime")


def _in_doubt(run: CellRun, stop: Stopped, model: Stored, example: Example | None) -> str | None:
    """Why ONNX's evaluator is not believed, where another runtime gives PyTorch's values and only the default has it
    run: it is written for the tests of the specification, which have few NaN, infinities and halves."""
    if example is None or not _is_evaluator_by_default(run) or (stop.stage, stop.fault) != ("compare", "runtime"):
        return None
    if is_special(example, stop):
        return "of NaN and infinities"
    import onnx

    return "in 16 bits" if has_half(onnx.load(model.file, load_external_data=False)) else None


def _note_arithmetic(run: CellRun, session: Session, model: Stored, kept: KeptAnswers) -> None:
    """Note in the record which provider runs the model, and in which arithmetic. On the CPU that is as it was in an
    earlier run of the same model with the same options and instructions."""
    cell = run.cell
    assert cell.runtime is not None
    run.record.arithmetic = dict(session.arithmetic)
    if cell.converted and not registry.named(cell.runtime).builds:
        run.record.arithmetic["storage"] = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
    provider = registry.named(cell.runtime).provider
    if provider or (cell.converted and cell.runtime == "onnxruntime"):
        # a model that does not run fails later, at its first example
        with contextlib.suppress(Stopped), run.stages("run", "runtime"):
            config = run.config()
            told = None if provider else kept.kernels(config)
            if told is None:
                told = kernels(model.file, run.libraries(), run.prepared.inputs(), config, provider or CPU)
                kept.add_kernels(config, told)
            run.record.arithmetic |= told


def _note_saturation(run: CellRun, verify: Verifier, model: Stored) -> None:
    """Note in the record of a passing cell whether saturation brought its error close to what is allowed.

    On a processor that does not saturate the error is smaller, and a comparison of runs on both has to know why.
    """
    record = run.record
    if record.status != "passed" or not may_saturate(run) or not record.worst or not record.draw:
        return
    ratio = float(record.worst["ratio"])
    if ratio < Limits.accuracy_floor:
        return
    example = verify.example(Draw(**record.draw))

    def closer(outputs: list[Array]) -> bool:
        worst = verify.compare(outputs, example.right()).worst
        return worst is None or worst.ratio * Limits.accuracy_factor <= ratio

    witness = saturation.ask(model.file, run.libraries(), run.config(), example.inputs, None, closer)
    note_details(record, {"cause": saturation.cause_shown_by(witness)})


def _leave_bundle(
    run: CellRun,
    verify: Verifier,
    explainer: CaseExplainer,
    draws: Draws,
    model: Stored,
    stop: Stopped,
    found: Details,
    small: Reduced | None,
) -> Details:
    """Leave a bundle that reproduces an unexpected failure where there is no PyTorch; return what is known of the
    smallest function or model in it."""
    example = explainer.example
    if example is None:
        return {}
    folder = attempt(lambda: leave(run, verify, model, draws, example))
    if isinstance(folder, Exception):  # the failure itself is what counts
        return {"no_bundle": describe(folder, run.cell.case.folder)}
    if not run.settings.smallest:
        return {}

    def left() -> dict[str, Any] | None:
        place = folder / "smallest"
        if small is not None:
            return leave_function(run, small, place, causes_known(run, found.get("operator") or {}))
        return leave_smallest(run, model.file, example, stop, place)

    told = attempt(left)
    if isinstance(told, Exception):
        told = {"why_not": describe(told, run.cell.case.folder)}
    return {"smallest": told}


def ask_explanations(
    run: CellRun, verify: Verifier, model: Stored, example: Example | None, stop: Stopped
) -> Details:
    """Return what the explanations that anybody may add say of a failing example."""
    if example is None or stop.stage not in ("load", "run", "compare"):
        return {}
    try:
        wanted = example.wanted
    except Stopped:  # nobody can say what is right, as where a converted model stops at its meaning too
        return {}
    cell = run.cell

    def judge(outputs: Sequence[Array]) -> bool:
        return verify.judged(example, list(outputs)).verdict == "verified"

    question = Question(
        cell.case.name, cell.exporter, cell.opset, str(cell.runtime), cell.precision, stop.stage, stop.error,
        stop.fault, model.file, tuple(map(str, run.libraries())), run.config(), example.inputs, wanted, judge,
    )  # fmt: skip
    told = explain(question)
    return {"explained": told} if told else {}
