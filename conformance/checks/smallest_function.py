"""The smallest PyTorch function that an exporter gets wrong, with a script and a text for whoever mends it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.align.operators.locate import Search
from conformance.case.export import OnnxFile
from conformance.checks.functions.lines import Exporting, Names
from conformance.checks.functions.program import Place, Unwritten
from conformance.checks.functions.search import fewest, simplified
from conformance.checks.functions.trial import STOPS, Trials
from conformance.checks.functions.written import VALUES, Shown, issue, script
from conformance.checks.models import CellRun
from conformance.checks.reduce.trial import OutOfTime, difference
from conformance.checks.reduce.written import shows
from conformance.depends.files import imported
from conformance.errors import display_path
from conformance.records.environment import environment, versions
from conformance.runtimes import opener
from conformance.worker import aside

SECONDS = 30.0
"""How long a function is made smaller; then the smallest so far is left."""
ONE = 20.0
"""Seconds that one export may take beyond that."""
SCRIPT = 180.0
"""How long the script may take, which imports torch and its exporter anew."""
_KINDS = {"value": "values", "shape": "WrongShape", "dtype": "WrongDtype", "stops": STOPS}
"""How functions have to fail, by how the operator parts."""


@dataclass(frozen=True)
class Reduced:
    """What came of making a function smaller: one that fails, or why there is none."""

    shown: Shown | None
    told: dict[str, Any]
    """What the record says of it."""


def longest() -> float:
    """The seconds that looking for a function may take at most."""
    return SECONDS + ONE


def reduced(run: CellRun, search: Search, operator: dict[str, Any]) -> Reduced:
    """The smallest function that fails at the operator that a search has named; looked for in another process."""
    start = time.monotonic()
    try:
        found = aside.ask(lambda: _searched(run, search, operator), longest())
    except Exception as error:
        found = Reduced(None, {"why_not": f"{type(error).__name__}: {error}".splitlines()[0][:300]})
    return Reduced(found.shown, {**found.told, "seconds": round(time.monotonic() - start, 3)})


def _searched(run: CellRun, search: Search, operator: dict[str, Any]) -> Reduced:
    deadline = time.monotonic() + SECONDS
    cell = run.cell
    kind = _KINDS.get(str(operator.get("how")))
    place = Place.of_search(search)
    if place is None or kind is None:
        return Reduced(None, {"why_not": "capture"})
    if kind == STOPS and (run.libraries() or run.target.functions):
        return Reduced(None, {"why_not": "libraries"})
    assert not isinstance(run.target, OnnxFile)  # nobody's export, of which no function is looked for
    how = Exporting.of(run.target, cell.exporter, cell.opset, cell.case.says.mode)
    trials = Trials(how, kind, deadline)
    try:
        found = fewest(place, trials, how.own)
    except Unwritten as call:
        return Reduced(None, {"why_not": "call", "detail": str(call)})
    except OutOfTime:
        return Reduced(None, {"why_not": "time", "tried": trials.count})
    if found is None:
        return Reduced(None, {"why_not": "right", "tried": trials.count})
    function = found
    function, finished = simplified(function, trials)
    calls = tuple(step.operator for step in function.steps if step.call.function)
    shown = Shown(
        function, how, kind, trials.limit, trials.allowed(), _by_evaluator(trials, function), calls, place.of
    )
    told = {"calls": len(calls), "of": place.of, "operators": list(calls), "own_code": how.code(function.own)}
    return Reduced(shown, {**told, **({} if finished else {"unfinished": True}), "tried": trials.count})


def _by_evaluator(trials: Trials, function: Any) -> bool:
    """Whether ONNX's evaluator computes of the model what ONNX Runtime does."""
    feeds = {name: function.inputs[given] for given, name in Names.of(function).inputs.items()}
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        file.write_bytes(trials.model)
        with opener("onnx-reference")(file, ()) as session:
            return (
                bool(trials.actual)
                and difference(session.run(feeds), trials.actual, trials.limit, trials.floor) is None
            )
    return False


def leave_function(run: CellRun, found: Reduced, folder: Path) -> dict[str, Any]:
    """Writes the script about a function, runs it, and keeps it with its text where it shows the defect; what the
    record says of it."""
    shown, told = found.shown, dict(found.told)
    if shown is None:
        return told
    written = script(shown)
    if written is None:
        return {**told, "why_not": "length"}
    text, arrays = written
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _copy(run, shown.how.code(shown.function.own), folder)
    if arrays:
        np.savez(folder / VALUES, allow_pickle=False, **arrays)
    file = folder / "repro.py"
    file.write_text(text, encoding="utf-8")
    lives, said = shows(file, SCRIPT)
    if not lives:
        shutil.rmtree(folder, ignore_errors=True)
        return {**told, "why_not": said[-400:] or "it said nothing"}
    about = environment([])
    packages = {name: versions().get(name) for name in ("torch", "onnxscript", "onnx", "onnxruntime", "numpy")}
    packages |= {"Python": about["python"], "platform": about["platform"]}
    (folder / "issue.md").write_text(issue(text, said, shown, packages), encoding="utf-8")
    return {**told, "repro": display_path(file), "issue": display_path(folder / "issue.md")}


def _copy(run: CellRun, code: Sequence[str], folder: Path) -> None:
    """Copies the files of functions beside the case, with those that these import there."""
    beside = run.cell.case.folder.resolve()
    for file in imported(beside, [name.partition(".")[0] for name in code]):
        if file.is_relative_to(beside):
            place = folder / file.relative_to(beside)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
