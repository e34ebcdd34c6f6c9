"""Find the first operator whose exported form computes other values: ``operators.first_operator`` for a cell.

Where PyTorch itself is at fault, find its operator: each call is made a second time, of the same inputs in float64.
"""

from __future__ import annotations

import linecache
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from conformance.case.draw.example import Example
from conformance.case.files.declaration import Case
from conformance.compare.close import Limit, differs
from conformance.compare.judges import Right, defaults_for
from conformance.diagnose.nodes.layers import LayeredPair, worst_layer
from conformance.diagnose.nodes.second_file import parting, parting_in
from conformance.diagnose.nodes.sides import literal_side
from conformance.diagnose.operators.captured_program import Unable
from conformance.diagnose.operators.first_operator import Failing, Search, locate
from conformance.diagnose.own_code import Own, accused, own_code, told_of, turn
from conformance.diagnose.refused import in_the_case_file, placed
from conformance.diagnose.smallest.smallest_function import Reduced, longest, reduced
from conformance.judge.draws import draws
from conformance.judge.red_cell import RedCell
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import meaning_of
from conformance.judge.wrong_reference import WRONG
from conformance.models.cell_run import CellRun
from conformance.models.coverage.operator_calls import line_of_call, name_of
from conformance.models.kept.model_store import Stored
from conformance.models.reference.dispatch import Arguments, Keywords, Operator, OperatorCalls
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Details, Stopped, attempt, or_else, summarize
from conformance.process.worker import aside
from conformance.process.worker.warm import one_thread
from conformance.results.records.causes import cause_of_smallest
from conformance.runtimes import registry
from conformance.runtimes.registry import LITERAL

SECONDS = 120.0
"""How long an operator may be looked for. It is done in a process of its own, which is then ended."""


def find_operator(red: RedCell) -> tuple[Details, Reduced | None]:
    """Find the first operator that parts for a failure that is the exporter's, or may be, or the operator of PyTorch
    that is wrong where PyTorch itself is; or why none can be named. Beside it stands which code of the case's own may
    be behind it. With it comes the smallest function that fails there, where it is the exporter's fault and no other
    cell of the case has shown it."""
    run, verify, stored, example, stop = red.of.run, red.of.verify, red.of.exported, red.example, red.stop
    if stop.fault == "runtime":
        return _by_cuts(red), None
    if stop.details.get("conclusion") == "unsaid":  # which no operator of PyTorch is behind
        return {}, None
    if run.cell.exporter == "onnx":  # which nobody exports
        return _second_file(red), None
    if example is not None and stop.fault == "reference" and stop.stage == "compare":
        start = time.perf_counter()
        found = or_else(None, lambda: aside.ask(lambda: wrong_operator(run.reference, example.inputs), SECONDS))
        verify.add_seconds("locate", time.perf_counter() - start)
        return {"operator": found} if found is not None else {}, None
    if example is None or stop.fault not in ("exporter", None) or stop.stage not in ("load", "run", "compare"):
        return {}, None
    start = time.perf_counter()
    seconds = SECONDS + (longest(run) if stop.fault == "exporter" and run.settings.smallest else 0.0)
    located = attempt(lambda: aside.ask(lambda: _located(run, verify, stored, example, stop), seconds))
    if isinstance(located, Exception):  # this only explains a failure, and must not be another
        located = {"unable": "raised", "detail": summarize(located)}, None
    told, small = located
    own = own_code(run)
    second = told.pop("second_seconds", 0.0)
    told = _at_own_code(run.cell.case, told, own)
    details: Details = {"operator": told}
    if told.get("how") == "path":
        details["hints"] = ["branch"]
    if stop.fault == "exporter":
        details |= told_of(accused(own, told))
    reducing = (small.told.get("seconds") if small is not None else None) or 0.0  # which the record has apart
    verify.add_seconds("second place", second)
    verify.add_seconds("locate", time.perf_counter() - start - reducing - second)
    return details, small


def _second_file(red: RedCell) -> Details:
    """Return the node at which a file parts from the one that it has to compute the same as."""
    run, example, stop = red.of.run, red.example, red.stop
    target, case = run.cell.case.says.export.onnx, run.cell.case
    if target is None or target.file is None or example is None or run.cell.converted:
        return {}
    if stop.stage != "compare" or stop.fault not in ("exporter", None):
        return {}
    start = time.perf_counter()
    files = case.folder / f"{case.says.onnx}", case.folder / target.file
    drawn = or_else(example, lambda: red.of.verify.example(example.draw))  # simple values are those of many tensors
    place = None
    for one in (drawn, example):
        if place is None:
            ask = partial(parting, *files, run.libraries(), one.inputs)
            place = or_else(None, partial(aside.ask, ask, SECONDS))
    red.of.verify.add_seconds("locate", time.perf_counter() - start)
    return {} if place is None else {"parts_at": place.as_dict()}


def most_lost(red: RedCell) -> Details:
    """Return the node of a file that others have converted whose layer loses most by itself."""
    run, example, model = red.of.run, red.example, red.of.converted
    if example is None or model is None or not run.cell.case.says.precisions[run.cell.precision].of_others:
        return {}
    libraries, runtime, files = run.libraries(), meaning_of(run.cell.precision), (red.of.exported.file, model.file)
    start = time.perf_counter()

    def found() -> Any:
        one = literal_side(files[0], libraries, example.inputs, LITERAL)
        other = literal_side(files[1], libraries, example.inputs, runtime)
        return worst_layer(LayeredPair(one, other, runtime, libraries))

    place = or_else(None, lambda: aside.ask(found, SECONDS))
    red.of.verify.add_seconds("locate", time.perf_counter() - start)
    return {} if place is None else {"parts_at": place.as_dict()}


def _by_cuts(red: RedCell) -> Details:
    """Return the first node of which OpenVINO computes other values than a runtime that is right. Of ONNX Runtime,
    ``nodes.blame`` has looked at each node by itself."""
    run, example, stop = red.of.run, red.example, red.stop
    runtime, witnesses = run.cell.runtime or "", stop.details.get("witnesses") or ()
    right = next((one["runtime"] for one in witnesses if one["answer"] == "agrees" and not one.get("config")), None)
    of_its_own = bool(runtime) and registry.named(runtime).values_only
    if not of_its_own or right is None or example is None or stop.stage != "compare" or run.cell.converted:
        return {}
    start = time.perf_counter()
    place = or_else(None, lambda: parting_in(red.of.model.file, run.libraries(), example.inputs, runtime, right))
    red.of.verify.add_seconds("locate", time.perf_counter() - start)
    return {} if place is None else {"parts_at": place.as_dict()}


def _located(
    run: CellRun, verify: Verifier, stored: Stored, example: Example, stop: Stopped
) -> tuple[dict[str, Any], Reduced | None]:
    run.set_apart()
    run.reference.restore()
    told, search = locate(question(run, verify, stored, example))
    if told.get("how") in ("path", "number or path"):
        # where that raises, the first call on the other way is all that is known
        line = or_else({}, lambda: _line_of(turn(run, example.inputs)))
        told |= line | ({"how": "path"} if line else {})
    in_file = placed(run, told)
    if search is None or stop.fault != "exporter" or not run.settings.smallest:
        return in_file, None
    shown_in = run.settings.shown.get(cause_of_smallest(run.record.case, run.cell.exporter, in_file))
    return in_file, Reduced(None, {"as": shown_in}) if shown_in else reduced(run, search, told)


_CAPTURED_OTHERWISE = ("capture", "again", "interpreted")
"""Why no operator is named where what was captured is not what the module computes."""


def _at_own_code(case: Case, told: dict[str, object], own: Sequence[Own]) -> dict[str, Any]:
    """The line at which the module itself goes another way while it is exported, where that is what is wrong."""
    found = next((one for one in own if one.line is not None), None)
    if told.get("unable") not in _CAPTURED_OTHERWISE or found is None:
        return told
    known = {"operator": found.name.partition(" at ")[0], "how": "export", "stage": "capture"}
    return in_the_case_file(known | _line_of(found), case)


def _line_of(found: Own | None) -> dict[str, object]:
    """A line of Python with its text, as a record has it."""
    if found is None or found.line is None:
        return {}
    file, number = found.line
    source = linecache.getline(file, number).strip()
    return {"line": f"{Path(file).name}:{number}", **({"source": source} if source else {})}


def follow(
    run: CellRun, verify: Verifier, stored: Stored, example: Example, runtime: str = LITERAL
) -> tuple[Search, dict[str, object] | None]:
    """The search with all operators of an example, and what a record has of the first that parts; None where the
    outputs are right. Raises Unable where operators cannot be seen."""
    run.reference.restore()
    search = Search(question(run, verify, stored, example, runtime), whole=True)
    try:
        return search, search.found()
    except Unable as reason:
        return search, None if reason.why == "vanished" else {"unable": reason.why, "detail": str(reason)}


def question(run: CellRun, verify: Verifier, stored: Stored, example: Example, runtime: str = LITERAL) -> Failing:
    """Say why the exported model does not give what is right for an example.

    Of a converted model's cell it is asked about the model before its conversion, by the default tolerances.
    """
    cell, reference, inputs = run.cell, run.reference, example.inputs
    right = [np.array(array) for array in verify.of_pytorch(example)]
    exact = reference.oracle(inputs) if cell.converted else None

    def arguments(given: Inputs) -> list[object]:
        positional, keywords = reference.arguments(given)
        return [*positional, *keywords.values()]

    def fails(outputs: Sequence[Array]) -> bool:
        got = list(outputs)
        if cell.converted:
            return defaults_for(right).compare(got, Right(right, exact, None, inputs)).verdict == "failed"
        return verify.judged(example, got).verdict == "failed"

    def wrong(got: Sequence[Array], right: Sequence[Array], inputs: Inputs) -> bool:
        judge = defaults_for(right) if cell.converted else verify.judge_of(right)
        if judge.compare(got, Right(right, None, None, inputs)).verdict != "failed":
            return False
        exact = reference.oracle(inputs)  # what rounding decides, or PyTorch leaves open, is nobody's mistake
        moved = verify.conditioning(inputs, list(right), exact)
        return judge.compare(got, Right(right, exact, moved, inputs)).verdict == "failed"

    return Failing(
        cell.exporter, stored.facts.structure, lambda at: run.export(inputs=at).model, arguments,
        reference.passing.in_graph(), run.libraries(), inputs, fails,
        lambda: map(run.prepared.maker, draws(run.prepared)), wrong, runtime,
    )  # fmt: skip


def wrong_operator(reference: Reference, inputs: Inputs) -> dict[str, object]:
    """The record's field ``operator``: the first call whose float32 result is further from its float64 result than
    ``WRONG`` of the largest value there, which no rounding of one operator explains. Says so where there is none."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    told: list[dict[str, object]] = []
    one_thread()

    class Compares(OperatorCalls):
        def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
            if told or func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
                return func(*args, **kwargs)
            wide, wide_keywords = tree_map(_widened, (args, kwargs))  # before the call, which may write to its inputs
            result = func(*args, **kwargs)
            exact = attempt(lambda: func(*wide, **wide_keywords))
            if isinstance(exact, Exception):  # the operator has no float64 form
                return result
            if any(_far(*both) for both in zip(tree_leaves(result), tree_leaves(exact), strict=False)):
                line = line_of_call()
                told.append({"operator": name_of(func), **({"line": line} if line else {})})
            return result

    positional, keywords = reference.arguments(inputs)
    reference.restore()
    with torch.no_grad(), reference.standing(), Compares():
        reference.module(*positional, **keywords)
    return told[0] if told else {"unable": "nothing"}


def _widened(value: object) -> object:
    """A tensor, or a dtype, of float32 as one of float64."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    return torch.float64 if value is torch.float32 else value


def _far(got: object, right: Any) -> bool:
    """Return whether a float32 result is off by more than one operator rounds; what is infinite or NaN is passed
    over."""
    import torch

    if not (isinstance(got, torch.Tensor) and got.dtype == torch.float32 and got.numel()):
        return False
    if not bool(right.isfinite().all()):
        return False
    return differs(got.numpy(), right.numpy(), Limit(share=WRONG), dtypes=False) == "value"
