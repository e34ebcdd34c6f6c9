"""The checks of a cell: what each looks at, as a sequence of stages. A check returns or raises Stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance import blame, graph, saturation, symbolics
from conformance.accuracy import Examples
from conformance.baseline.change import Limits
from conformance.blame import Opinion
from conformance.budgets import check_latency
from conformance.cellrun import CellRun
from conformance.compare import Array
from conformance.draws import Draws
from conformance.engine import try_engine
from conformance.errors import Stopped, display_path
from conformance.explain import Ask, Explainer
from conformance.inputs import Draw, Inputs
from conformance.pack import leave
from conformance.plan import matches
from conformance.precision import loss
from conformance.precision.judge import FidelityVerifier, RuntimeVerifier
from conformance.precision.loss import LITERAL
from conformance.runtimes import opener
from conformance.runtimes.onnxruntime import kernels
from conformance.schema.export import Symbolic, TorchScript
from conformance.schema.words import base_of
from conformance.source import describe
from conformance.store import Stored
from conformance.trial import trial_of
from conformance.verify import Verifier

SECOND_TRACE_SECONDS = 2.0
"""An export that takes longer than this is not traced at a second point."""


def _check_export(run: CellRun) -> None:
    """The graph is what the case says, and does not depend on the shape it was traced at."""
    stored = run.model()
    case, cell = run.cell.case, run.cell
    sizes, _ = run.prepared.trace()
    with run.stages("check", "exporter"):
        findings = list(graph.signature(case, stored.facts, run.reference.graph_order(), sizes, run.target.static))
        for entry in case.says.graph:
            if matches(entry.when, cell):
                findings += graph.assertions(entry, stored.facts)
        if findings:
            stop = Stopped("check", findings[0].error, findings[0].text, findings[0].fault)
            stop.details = [f"also: {finding.text}" for finding in findings[1:]]
            stop.details.append(f"the graph has {_counts(stored.facts.nodes)}")
            raise stop
        _check_second_trace(run, stored)
    run.record.examples = 1


def _counts(nodes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in nodes.items()) or "no nodes"


def _check_second_trace(run: CellRun, stored: Stored) -> None:
    """A graph that differs when it is traced at other sizes has a size baked in."""
    sizes, _ = run.prepared.trace()
    odd, _ = run.prepared.trace(odd=True)
    held = all(sizes[name] == odd[name] for name in sizes if name not in run.target.static)
    affordable = stored.seconds["export"] <= SECOND_TRACE_SECONDS
    target = run.target
    if not isinstance(target, TorchScript) or held or not affordable:
        return
    # In training mode the statistics of the example are part of the model.
    if run.cell.case.says.mode == "train" or target.options.training not in (None, "eval"):
        return
    with run.stages("export", "exporter"):
        again = graph.structure(run.export(odd=True).model)
    if again != stored.facts.structure:
        text = (
            f"the graph traced at {_sizes(odd)} differs from the one traced at {_sizes(sizes)}: "
            "a size, or what follows from the values, is baked in"
        )
        raise Stopped("check", "ShapeBakedIn", text, "exporter")


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _check_registration(run: CellRun) -> None:
    """Without its symbolics the export fails as declared; with them it works and uses every tensor input;
    afterwards the registry is as before."""
    target = run.target
    assert isinstance(target, TorchScript)
    before = symbolics.snapshot()
    declared: dict[str, Symbolic] = {**target.symbolics, **target.registers}
    with run.stages("export", "exporter"):
        without = _error_of(lambda: run.export(with_symbolics=False))
        exported = run.export()
        plain = None if without else graph.structure(run.export(with_symbolics=False).model)
    with run.stages("check", "case"):
        for operator, names in exported.usage.fights.items():
            text = (
                f"{operator} is registered by {', then by '.join(names)}: the last one wins, so their order decides"
            )
            raise Stopped("check", "RegistrationFight", text, "case")
        _check_was_needed(declared, without, plain == graph.structure(exported.model))
        uncalled = [name for name, count in exported.usage.calls.items() if not count]
        if uncalled:
            text = f"the symbolic of {uncalled[0]} was never called: the module does not use this operator"
            raise Stopped("check", "UnusedSymbolic", text, "case")
        _check_ignored(declared, exported.usage)
        changed = symbolics.changed_since(before)
        if changed:
            raise Stopped(
                "check", "RegistryChanged", f"left changed after the export: {', '.join(changed)}", "harness"
            )
    run.record.examples = 2


def _error_of(action: Callable[[], Any]) -> str | None:
    try:
        action()
    except Exception as error:
        return type(error).__name__ if not isinstance(error, Stopped) else error.error
    return None


def _check_was_needed(declared: Mapping[str, Symbolic], without: str | None, same_graph: bool) -> None:
    found = without or ("the same graph" if same_graph else "another graph")
    wanted = {one.without for one in declared.values()}
    if found not in wanted:
        what = f"stops with {found}" if without else f"gives {found}"
        text = f"without the symbolic the export {what}; declared is {' or '.join(sorted(wanted))}"
        raise Stopped("check", "NotNeeded" if same_graph else "OtherFailure", text, "case")


def _check_ignored(declared: Mapping[str, Symbolic], usage: symbolics.Usage) -> None:
    for operator, names in usage.ignored.items():
        allowed = declared[operator].ignores if operator in declared else {}
        lost = [name for name in names if name not in allowed]
        if lost:
            which = declared[operator].function if operator in declared else "the symbolic"
            text = f"{which} ignores {', '.join(lost)} of {operator}: the model cannot depend on it"
            raise Stopped("check", "IgnoredInput", text, "case")


def _check_accuracy(run: CellRun) -> None:
    """The runtime's outputs are PyTorch's, for every example; ``specials`` is the same with other values.

    At another precision they are what the converted model means (``onnxruntime`` with its optimizer off).
    """
    cell, prepared = run.cell, run.prepared
    assert cell.runtime is not None
    stored = run.model()
    converted = run.converted(stored) if cell.converted else None
    model = converted or stored
    dims, traced = run.dims(), prepared.trace()[0]
    parts = (cell, run.record, run.stages, run.reference, prepared.maker, list(stored.facts.outputs))
    draws = Draws(cell, run.settings, prepared, dims, traced)
    with contextlib.ExitStack() as stack:
        verify: Verifier
        if converted is None:
            verify = Verifier(*parts)
        else:
            verify = RuntimeVerifier(*parts)
            with run.stages("load", "precision"):
                verify.meaning = stack.enter_context(opener(LITERAL)(model.file, run.libraries()))
        explainer = Explainer(run.settings, run.record, verify, dims, _whom_to_ask(run, verify, stored, converted))
        try:
            _run_examples(run, verify, explainer, draws, model, stack)
        except Stopped as stop:
            _leave_bundle(run, verify, explainer, draws, model, stop)
            raise


def _run_examples(
    run: CellRun, verify: Verifier, explainer: Explainer, draws: Draws, model: Stored, stack: contextlib.ExitStack
) -> None:
    cell, libraries, inputs = run.cell, run.libraries(), run.prepared.trace()[1]
    assert cell.runtime is not None
    config = run.config() if cell.runtime == "onnxruntime" else {}
    try:
        with run.stages("load", "runtime" if cell.converted else "exporter"):
            build = run.build(model, draws.sizes()) if cell.runtime == "tensorrt" else None
            open_model = opener(cell.runtime, build, config)
            verify.session = stack.enter_context(open_model(model.file, libraries))
    except Stopped as stop:
        raise explainer.blamed(stop, inputs) from stop
    run.record.arithmetic = dict(verify.session.arithmetic)
    if cell.converted and cell.runtime == "onnxruntime":
        run.record.arithmetic["storage"] = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
        # a model that does not run is found below
        with contextlib.suppress(Stopped), run.stages("run", "runtime"):
            run.record.arithmetic |= kernels(model.file, libraries, inputs, config)
    Examples(cell, run.settings, run.record, draws, verify, explainer).run()
    _note_saturation(run, verify, model)


def _note_saturation(run: CellRun, verify: Verifier, model: Stored) -> None:
    """Notes in the record of a cell that came close to its limit whether saturation brought it there: on a processor
    that does not saturate it will be further away, and a comparison of the two runs has to know why."""
    record = run.record
    if record.status != "passed" or not _may_saturate(run) or not record.worst or not record.draw:
        return
    ratio = float(record.worst["ratio"])
    if ratio < Limits.accuracy_floor:
        return
    inputs = verify.inputs(Draw(**record.draw))
    wanted, exact = verify.wanted(inputs)

    def closer(outputs: list[Array]) -> bool:
        worst = verify.compare(outputs, wanted, exact).worst
        return worst is None or worst.ratio * Limits.accuracy_factor <= ratio

    record.cause = saturation.ask(model.file, run.libraries(), run.config(), inputs, None, closer).cause


def _may_saturate(run: CellRun) -> bool:
    nodes = (run.record.graph or {}).get("nodes") or {}
    says = run.cell.case.says.onnxruntime
    return run.cell.runtime == "onnxruntime" and saturation.possible(nodes, says.config, run.settings.instructions)


def _leave_bundle(
    run: CellRun, verify: Verifier, explainer: Explainer, draws: Draws, model: Stored, stop: Stopped
) -> None:
    """What reproduces an unexpected failure where there is no PyTorch."""
    if explainer.shown is None or explainer.is_declared(stop):
        return
    draw = Draw(**run.record.draw) if run.record.draw else draws.first()
    try:
        run.record.bundle = display_path(leave(run, verify, model, draws, draw, explainer.shown))
    except Exception as error:  # the failure itself is what counts
        run.record.details.append(f"no bundle could be left: {describe(error, run.cell.case.folder)}")


def _whom_to_ask(run: CellRun, verify: Verifier, stored: Stored, converted: Stored | None) -> Ask:
    """Finds out who is at fault: by other runtimes, or for a converted model by where the loss comes from."""

    def find(stop: Stopped, inputs: Inputs) -> Opinion:
        libraries = run.libraries()
        if converted is None:
            opinion = _ask_others(run, verify, stop, stored, inputs)
        else:
            opinion = Opinion(stop.fault or ("precision" if run.cell.check == "fidelity" else "runtime"))
            if stop.stage == "run" and _stops(stored, libraries, inputs):
                opinion = Opinion("exporter", ["the exported fp32 model stops there too"])
        if stop.stage == "compare":
            run.reference.restore()
            file = converted.file if converted is not None else None
            output = (run.record.fidelity or {}).get("output")
            found = loss.by_stage(
                run.reference(inputs), stored.file, file, run.cell.runtime, libraries, inputs, output,
                run.cell.case.says.onnxruntime.config,
            )  # fmt: skip
            run.record.loss = dict(found)
            opinion.lines += loss.lines(found)
            if run.cell.check == "fidelity" and loss.greatest(found) == "export":
                opinion.fault = "exporter"
            if _may_saturate(run):
                answer = _ask_the_switch(run, verify, (converted or stored).file, inputs)
                opinion.lines += answer.lines
                if answer.cause is not None:
                    run.record.cause, opinion.fault = answer.cause, "runtime"
        return opinion

    return find


def _ask_the_switch(run: CellRun, verify: Verifier, model: Path, inputs: Inputs) -> saturation.Answer:
    """Whether the runtime is right where its 8-bit kernels cannot saturate."""
    assert verify.session is not None
    try:
        wanted, exact = verify.wanted(inputs)
        got = verify.session.run(inputs)
    except Exception:  # the failure that is explained is of another kind
        return saturation.NOTHING
    conditioning = verify.conditioning(inputs, wanted, exact)

    def agrees(outputs: list[Array]) -> bool:
        return verify.compare(outputs, wanted, exact, conditioning).verdict != "failed"

    return saturation.ask(model, run.libraries(), run.config(), inputs, got, agrees)


def _stops(stored: Stored, libraries: Sequence[str], inputs: Inputs) -> bool:
    """Whether the exported model, before any conversion, cannot be run on these inputs."""
    try:
        with opener("onnxruntime-unoptimized")(stored.file, libraries) as session:
            session.run(inputs)
    except Exception:
        return True
    return False


def _ask_others(run: CellRun, verify: Verifier, stop: Stopped, stored: Stored, inputs: Inputs) -> Opinion:
    try:
        wanted, exact = verify.wanted(inputs)
    except Stopped:
        return Opinion("case")
    example = blame.Example(
        run.cell.runtime or "", stored.file, run.libraries(), inputs, wanted, exact, verify.judge_of(wanted),
        verify.session, bool(run.target.own_code()), run.cell.case.says.onnxruntime.config,
    )  # fmt: skip
    return blame.find(example, stop)


def _check_fidelity(run: CellRun) -> None:
    """The converted model, by its own semantics, is as close to PyTorch in float32 as its precision is due to be."""
    cell, prepared = run.cell, run.prepared
    stored = run.model()
    converted = run.converted(stored)
    dims, traced, libraries = run.dims(), prepared.trace()[0], run.libraries()
    parts = (cell, run.record, run.stages, run.reference, prepared.maker, list(stored.facts.outputs))
    verify = FidelityVerifier(*parts)
    explainer = Explainer(run.settings, run.record, verify, dims, _whom_to_ask(run, verify, stored, converted))
    verify.explain = explainer.blamed
    with contextlib.ExitStack() as stack:
        with run.stages("load", "precision"):
            verify.session = stack.enter_context(opener(LITERAL)(converted.file, libraries))
        storage = {"fp16": "float16", "int8": "int8"}[base_of(cell.precision)]
        run.record.arithmetic = {**verify.session.arithmetic, "storage": storage}
        Examples(
            cell, run.settings, run.record, Draws(cell, run.settings, prepared, dims, traced), verify, explainer
        ).run()


def _check_engine(run: CellRun) -> None:
    """What only an engine on a GPU can show."""
    cell = run.cell
    stored = run.model()
    model = run.converted(stored) if cell.converted else stored
    draws = Draws(cell, run.settings, run.prepared, run.dims(), run.prepared.trace()[0])
    kind = RuntimeVerifier if cell.converted else Verifier
    names = list(stored.facts.outputs)
    verify = kind(cell, run.record, run.stages, run.reference, run.prepared.maker, names)
    with run.stages("declare", "case"):
        trial = trial_of(run, verify, draws)
    build = run.build(model, draws.sizes())
    try_engine(run.record, lambda name: run.stages(name, "runtime"), model.file, build, trial)


CHECKS: dict[str, Callable[[CellRun], None]] = {
    "export": _check_export,
    "registration": _check_registration,
    "accuracy": _check_accuracy,
    "specials": _check_accuracy,
    "fidelity": _check_fidelity,
    "engine": _check_engine,
    "latency": check_latency,
}
