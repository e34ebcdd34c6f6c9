"""The smallest PyTorch function that an exporter gets wrong, with a script and a text for whoever mends it."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from conformance.case.files.export_keys import OnnxFile
from conformance.case.files.python import describe
from conformance.compare.judges import Judge, defaults_for
from conformance.compare.tolerance import Tolerance
from conformance.diagnose.operators.captured_program import Operator, Program, Unable
from conformance.diagnose.operators.first_operator import Search
from conformance.diagnose.operators.refused_operator import stopped_export
from conformance.diagnose.refused import arguments_of, refused_by_checker
from conformance.diagnose.search import OutOfTime, Shrinker, Step
from conformance.diagnose.smallest.extracted_function import Function, Place, Unwritten
from conformance.diagnose.smallest.function_script import reproduction
from conformance.diagnose.smallest.function_trial import RAISES, REFUSED, STOPS, FunctionTrials, gist
from conformance.diagnose.smallest.lines import Exporting, Names
from conformance.diagnose.smallest.model_trial import difference
from conformance.diagnose.smallest.reproduction import Reproduction
from conformance.diagnose.smallest.simpler_arrays import simpler_values, smaller_sizes
from conformance.models.cell_run import CellRun
from conformance.models.kept.dependency_files import imported
from conformance.process.arrays import Array
from conformance.process.errors import Details, Stopped, attempt, or_else, summarize
from conformance.process.worker import aside
from conformance.results.records.causes import cause_of_export
from conformance.results.records.record_types import Smallest
from conformance.runtimes import outputs_of

ONE = 20.0
"""Seconds that one export may take beyond those that making a function smaller may take."""
SCRIPT = 180.0
"""How long the script may take, which imports torch and its exporter anew."""
_KINDS = {"value": "values", "shape": "WrongShape", "dtype": "WrongDtype", "stops": STOPS}
"""How functions have to fail, by how the operator parts."""


@dataclass(frozen=True)
class Reduced:
    """The result of making a function smaller: what reproduces the defect, or why there is nothing."""

    about: Reproduction | None
    told: Smallest
    """What the record says of it."""


def longest(run: CellRun) -> float:
    """The seconds that looking for a function may take at most."""
    return run.settings.smallest_seconds + ONE


def reduced(run: CellRun, search: Search, operator: dict[str, object]) -> Reduced:
    """The smallest function that fails at the operator that a search has named; looked for in another process."""
    start = time.monotonic()
    result = attempt(lambda: aside.ask(lambda: _searched(run, search, operator), longest(run)))
    if isinstance(result, Exception):
        result = Reduced(None, {"why_not": summarize(result)})
    return Reduced(result.about, {**result.told, "seconds": round(time.monotonic() - start, 3)})


def _searched(run: CellRun, search: Search, operator: dict[str, object]) -> Reduced:
    deadline = time.monotonic() + run.settings.smallest_seconds
    kind = _KINDS.get(str(operator.get("how")))
    place = Place.of_search(search, arguments_of(run, run.prepared.inputs()))
    if place is None or kind is None:
        return Reduced(None, {"why_not": "capture"})
    if kind == STOPS and (run.libraries() or run.target.functions):
        return Reduced(None, {"why_not": "libraries"})
    trials = FunctionTrials(_exporting(run), kind, deadline, judge=_judging(run))
    result = _found(place, trials)
    if "calls" in result.told:  # a function was found, if perhaps too long a one
        return result
    return Reduced(None, result.told | {"differs": _differs(run, search, operator, as_exported=trials.as_exported)})


def _exporting(run: CellRun) -> Exporting:
    cell = run.cell
    assert not isinstance(run.target, OnnxFile)  # which nobody exports
    return Exporting.of(run.target, cell.exporter, cell.opset, cell.case.says.mode, _defines(run))


def _judging(run: CellRun) -> Callable[[Sequence[Array]], Judge]:
    """Return what outputs are compared by as those of the cell are: by the tightest that its case declares for one of
    them, or by the defaults, as before a conversion."""
    says = run.cell.case.says.tolerance_for(run.cell.precision)
    declared = [] if run.cell.converted else [says, *says.outputs.values()]

    def least(name: str, default: float) -> float:
        both = ((getattr(one, name), getattr(says, name)) for one in declared)
        return min(next((limit for limit in limits if limit is not None), default) for limits in both)

    def tightest(default: Tolerance | None) -> Tolerance | None:
        if default is None or not declared:
            return default
        atol = least("atol", default.atol)
        return Tolerance(least("rtol", default.rtol), atol, absolute=atol in [one.atol for one in declared])

    def judge(wanted: Sequence[Array]) -> Judge:
        judge = defaults_for(wanted)
        return dataclasses.replace(judge, tolerances=tuple(map(tightest, judge.tolerances)))

    return judge


def _differs(run: CellRun, search: Search, operator: dict[str, object], *, as_exported: bool) -> list[str]:
    """In what a function that is tried differs from the cell: it is exported with what it is run with, unless it was
    tried ``as_exported`` too, then with those sizes open that are others."""
    case, exported = run.cell.case, run.prepared.inputs()
    open_dims = any(not one.fixed and name not in run.target.static for name, one in case.dims.ranges.items())
    failing = dict(zip(run.reference.passing.in_graph(), search.inputs, strict=False))
    sizes = any(tuple(exported[name].shape) != tuple(value.shape) for name, value in failing.items())
    ways = {
        "sizes": sizes and not as_exported, "dims": open_dims, "optimizer": operator.get("stage") == "optimizer",
    }  # fmt: skip
    return [name for name, differs in ways.items() if differs]


def _found(place: Place, trials: FunctionTrials) -> Reduced:
    """The smallest function that fails at a place, or why there is none."""
    try:
        function = fewest(place, trials, trials.how.own)
    except Unwritten as call:
        return Reduced(None, {"why_not": "call", "detail": str(call)})
    except OutOfTime:
        return Reduced(None, {"why_not": "time", "tried": trials.count})
    if function is None:
        why = "right" if trials.alone else "untried"
        return Reduced(None, {"why_not": why, "tried": trials.count})
    return _made_simple(place, function, trials)


def _made_simple(place: Place, function: Function, trials: FunctionTrials) -> Reduced:
    """The function with what it can do without left out, and what the record says of it."""
    function, finished = simplified(function, trials)
    calls = tuple(step.operator for step in function.steps if step.call.function)
    by_evaluator = trials.kind not in (RAISES, REFUSED) and _by_evaluator(trials, function)
    about = reproduction(function, trials, calls, place.of, by_evaluator=by_evaluator)
    own = trials.how.code(function.own)
    fields: Smallest = {"calls": len(calls), "of": place.of, "operators": list(calls), "own_code": own}
    fields |= {} if finished else {"unfinished": True}
    return Reduced(about, fields | ({} if about else {"why_not": "length"}) | {"tried": trials.count})


def smallest_of_failed_export(run: CellRun, stop: Stopped) -> Details:
    """Leave the smallest function that cannot be exported either, or of which the checker refuses the model too,
    where that is the exporter's fault. Return what there is to know of it."""
    cell, settings = run.cell, run.settings
    refused = stop.stage == "check" and (stop.details.get("operator") or {}).get("how") == "refused"
    if (stop.stage != "export" and not refused) or stop.fault != "exporter" or not settings.smallest:
        return {}
    shown_in = settings.shown.get(cause_of_export(cell.case.name, cell.exporter, stop.error, stop.reason))
    if shown_in is not None:
        return {"smallest": {"as": shown_in}}
    start = time.monotonic()

    def left() -> Smallest:
        question = partial(_of_refused, run, stop) if refused else partial(_of_failed, run)
        try:
            result = aside.ask(question, longest(run))
        except Unable as reason:
            result = Reduced(None, {"why_not": reason.why})
        result.told["seconds"] = round(time.monotonic() - start, 3)
        place = settings.store.parent / "failing" / f"{cell.check}-{cell.label}" / "smallest"
        return leave_function(run, result, place)

    fields = attempt(left)
    if isinstance(fields, Exception):  # this only explains a failure, and must not be another
        fields = {"why_not": describe(fields, cell.case.folder)}
    return {"smallest": fields}


def _of_failed(run: CellRun) -> Reduced:
    """Raise Unable where the export does not stop, or nothing of it can be seen."""
    deadline = time.monotonic() + run.settings.smallest_seconds
    run.set_apart()
    stopped = stopped_export(run.cell.exporter, run.export)
    program, error = stopped.program, stopped.error
    if program is None:
        return Reduced(None, {"why_not": "uncaptured"})
    inputs = arguments_of(run, run.prepared.inputs())
    trials = FunctionTrials(_exporting(run), RAISES, deadline, gist(error))
    try:
        for operator in _suspects(program, str(error), stopped.operator):
            place = Place.at(program, operator, inputs)
            with contextlib.suppress(Unwritten):
                function = fewest(place, trials, trials.how.own)
                if function is not None:
                    return _made_simple(place, function, trials)
    except OutOfTime:
        return Reduced(None, {"why_not": "time", "tried": trials.count})
    return Reduced(None, {"why_not": "exported", "tried": trials.count})


def _of_refused(run: CellRun, stop: Stopped) -> Reduced:
    deadline = time.monotonic() + run.settings.smallest_seconds
    run.set_apart()
    refused = refused_by_checker(run)
    operator = refused.operator
    inputs = arguments_of(run, run.prepared.inputs())
    place = None if operator is None else Place.in_exhibit(refused.exhibit, operator, inputs)
    if place is None:
        return Reduced(None, {"why_not": "capture"})
    kind = _KINDS[refused.form] if refused.form else REFUSED
    return _found(place, FunctionTrials(_exporting(run), kind, deadline, stop.error))


def _suspects(program: Program, said: str, stopped: Operator | None) -> list[Operator]:
    """A call of each operator of a program; first those at which the exporter is known to have stopped, then those
    that it names."""
    first = () if stopped is None else (stopped.called, stopped.operator)
    calls = {(one.operator, str(one.constants)): one for one in program.operators if not one.plumbing}
    plain = said.replace("::", ".")
    named = {key: re.search(rf"\b{re.escape(key[0])}\b", plain) is not None for key in calls}
    return [calls[key] for key in sorted(calls, key=lambda key: (key[0] not in first, not named[key]))]


def _by_evaluator(trials: FunctionTrials, function: Function) -> bool:
    """Return whether ONNX's evaluator computes of the model what ONNX Runtime does."""
    feeds = {name: function.inputs[own] for own, name in Names.of(function).inputs.items()}

    def agrees() -> bool:
        import onnx

        got = outputs_of(onnx.load_from_string(trials.model), "onnx-reference", (), feeds)
        return bool(trials.actual) and difference(got, trials.actual, trials.limit, trials.floor) is None

    return or_else(False, agrees)


def causes_known(run: CellRun, operator: Mapping[str, object]) -> list[str]:
    """Return what an issue says of the cause: what the operator became, a change that helps, and what the exporter
    itself warns of."""
    named, kind, change = (operator.get(name) for name in ("operator", "type", "change"))
    became = [f"`{named}` becomes the ONNX operator {kind}."] if named and kind else []
    helps = [f"A change of that node that makes it right: {change}."] if change else []
    return [*became, *helps, *(f"The exporter warns: {text}" for text in run.warned)] if became else []


def leave_function(run: CellRun, small: Reduced, folder: Path, cause: Sequence[str] = ()) -> Smallest:
    """Write the script about a function, run it, and keep it with its text where it shows the defect; what the
    record says of it."""
    if small.about is None:
        return small.told.copy()
    about = dataclasses.replace(small.about, cause=cause)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _copy(run, about.modules, folder)
    left = about.leave(folder, SCRIPT)
    if "repro" not in left:
        shutil.rmtree(folder, ignore_errors=True)
    return small.told | left


def _defines(run: CellRun) -> list[str]:
    """The modules that the case's module or expression is made of; importing them defines operators of their own."""
    case = run.cell.case
    if case.says.module is not None:
        return [case.says.module.partition(".")[0]]
    names = re.findall(r"(?<![\w.])[A-Za-z_]\w*(?=\.)", case.says.forward or "")
    return [name for name in dict.fromkeys(names) if (case.folder / f"{name}.py").is_file()]


def _copy(run: CellRun, modules: Sequence[str], folder: Path) -> None:
    """Copy the files of modules beside the case, with those that these import there."""
    beside = run.cell.case.folder.resolve()
    for file in imported(beside, modules):
        if file.is_relative_to(beside):
            place = folder / file.relative_to(beside)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


def fewest(place: Place, trials: FunctionTrials, own: Collection[str]) -> Function | None:
    """The function of as few calls as fail alike; None where none does. Raises OutOfTime, and
    Unwritten where the call itself cannot be written."""
    for chosen in place.choices():
        for way in _ways(place, chosen, trials.kind):
            made = partial(_in_a_way, place, way, own)
            try:
                function = made(chosen)
            except Unwritten:
                if len(chosen) == 1:
                    raise
                continue
            right = trials.right
            if trials.fails(function):
                trials.settle()
                return made(_fewer(place, chosen, made, trials))
            if len(chosen) == 1 and trials.right > right:
                trials.alone = True
                trials.as_exported |= way is _AS_EXPORTED
    return None


_Way = bool | None
_AS_EXPORTED: _Way = None
"""To export a function at the sizes at which the module is exported, and to run it at those at which it fails."""


def _ways(place: Place, chosen: list[Operator], kind: str) -> tuple[_Way, ...]:
    """Return whether sizes are open (True) or fixed, in the order in which it is tried; and at last as the module is,
    if the function may not stop for the sizes alone."""
    first = place.counted(chosen)
    return (first, not first, *([_AS_EXPORTED] if place.traced and kind != STOPS else []))


def _in_a_way(place: Place, way: _Way, own: Collection[str], chosen: Sequence[Operator]) -> Function | None:
    function = place.function(chosen, dynamic=way is not False, own=own)
    return place.as_exported(function) if way is _AS_EXPORTED else function


def _fewer(
    place: Place, chosen: list[Operator], made: Callable[[list[Operator]], Function | None], trials: FunctionTrials
) -> list[Operator]:
    """The calls without those that may as well be given as values."""

    def fails(calls: list[Operator]) -> bool:
        with contextlib.suppress(Unwritten):
            return trials.fails(made(calls))
        return False

    def steps(calls: list[Operator]) -> Iterator[Step[list[Operator]]]:
        yield from (partial(_without_call, one) for one in calls[::-1] if one is not place.operator)

    return Shrinker(fails).smallest(chosen, steps)[0]


def _without_call(call: Operator, calls: list[Operator]) -> list[list[Operator]]:
    return [[other for other in calls if other is not call]]


def simplified(function: Function, trials: FunctionTrials) -> tuple[Function, bool]:
    """The function without code of the case that it does not need, with smaller sizes and simpler values; whether
    there was time for all of it."""
    return trials.smallest(function, _less, smaller_sizes, simpler_values)


def _less(function: Function) -> Iterator[Step[Function]]:
    """Yield a step for each operator with code of the case, and one to sizes that are fixed."""
    for operator in function.own:
        yield partial(_without_code, operator)
    if function.dynamic and not function.traced:
        yield lambda one: [dataclasses.replace(one, dynamic=False)]


def _without_code(operator: str, function: Function) -> list[Function]:
    return [dataclasses.replace(function, own=tuple(name for name in function.own if name != operator))]
