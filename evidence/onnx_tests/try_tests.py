"""Run ONNX's tests as files of the suite, in one pool of processes, and keep a line of each."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from conformance.case.files.case_file import cases_of
from conformance.case.files.document import Document
from conformance.case.files.onnx_header import header
from conformance.case.plan.settings import Settings
from conformance.cells.check_models import CheckedModel, Model, check_models, run_model
from conformance.cells.runner import Runner
from conformance.process.disk.recorded_data import beside, read_recorded
from conformance.process.disk.recorded_tensors import read_interface
from conformance.process.errors import UserError, summarize
from conformance.process.worker.isolation import Death, Worker
from conformance.process.worker.warm import new_file_worker
from evidence.onnx_tests.all_tests import Shipped

Way: TypeAlias = Literal["recorded", "drawn"]
RUNTIMES = ("onnxruntime", "openvino")
SECONDS = 60.0
"""Seconds that a cell may take."""
_KEPT = ("check", "runtime", "status", "stage", "error", "fault", "reason", "examples", "witnesses", "conclusion")


@dataclass
class Result:
    """Hold the verdicts on one test."""

    name: str
    operator: str
    opset: int
    seconds: float
    cells: list[dict[str, Any]] = field(default_factory=list)
    refused: str | None = None
    evaluator: str | None = None
    """``right`` where ONNX's evaluator gives the recorded outputs, else why not; asked where no runtime does."""

    def of(self, runtime: str, *checks: str) -> list[dict[str, Any]]:
        return [cell for cell in self.cells if cell["runtime"] == runtime and cell["check"] in checks]

    def verified(self, runtime: str) -> bool:
        return any(
            cell["status"] == "passed" and cell["examples"] for cell in self.of(runtime, "recorded", "accuracy")
        )

    def red(self) -> list[dict[str, Any]]:
        return [cell for cell in self.cells if cell["status"] == "failed"]

    def gives_recorded(self, runtime: str) -> bool:
        """Return whether a runtime gives the recorded outputs."""
        return any(cell["status"] == "passed" for cell in self.of(runtime, "recorded"))

    def falsely_accused(self) -> list[dict[str, Any]]:
        """Return the reds that blame a runtime which gives the recorded outputs."""
        return [
            cell for cell in self.red()
            if cell["fault"] == "runtime" and cell["runtime"] and self.gives_recorded(cell["runtime"])
        ]  # fmt: skip


def read_results(file: Path) -> list[Result]:
    """Return the results that were kept; a line that was not written to its end is left out."""
    results = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            results.append(Result(**json.loads(line)))
        except ValueError:
            continue
    return results


def run_tests(tests: Sequence[Shipped], way: Way, file: Path, store: Path, jobs: int) -> list[Result]:
    """Run the tests that have no result yet, and return those of all."""
    known = {result.name: result for result in read_results(file)}
    by_name = {test.name: test for test in tests}
    left = [Model(test.file, test.name) for test in tests if test.name not in known]
    settings = Settings(store=store, observe=False, smallest=False, smallest_seconds=1.0)
    start = time.monotonic()

    def runner(worker: Worker) -> Runner:
        return Runner(settings, SECONDS, worker)

    def check(worker: Worker, runner: Runner, model: Model) -> CheckedModel:
        return run_model(model, lambda dims: case_of_test(model, RUNTIMES, way), runner, lambda record: None)

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        for one in check_models(left, jobs, runner, check, lambda line: print(line, flush=True)):
            result = _result(by_name[one.model.name], one)
            known[result.name] = result
            stream.write(json.dumps(dataclasses.asdict(result)) + "\n")
            stream.flush()
    if left:
        print(f"{len(left):,} models in {time.monotonic() - start:,.0f} s, {jobs} at a time")
    alone = [known[test.name] for test in tests if not any(map(known[test.name].verified, RUNTIMES))]
    _ask_evaluator([one for one in alone if one.evaluator is None], by_name)
    ordered = [known[test.name] for test in tests]
    others = [result for name, result in known.items() if name not in by_name]
    lines = (json.dumps(dataclasses.asdict(result)) for result in (*ordered, *others))
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ordered


def case_of_test(model: Model, runtimes: Sequence[str], way: Way | None = None) -> Any:
    """Return the case of a test: its recorded data, and with ``drawn`` values around it; without ``way`` only those.

    Raises UserError where the file makes no case.
    """
    says: dict[str, Any] = {
        "about": "a test of ONNX", "onnx": model.file.name, "runtimes": list(runtimes), "specials": False,
        "examples": {"shapes": 2}, "export": {"onnx": {"opsets": [header(model.file).opset]}},
    }  # fmt: skip
    if way is not None:
        says["recorded"] = {"data": [one.name for one in beside(model.file)], "only": way == "recorded"}
    document = Document(model.file.absolute(), {}, {(model.name,): (1, 1)})
    cases, problems = cases_of(model.name, says, document)
    if problems:
        raise UserError(problems[0].message)
    return cases[0]


def _result(test: Shipped, one: CheckedModel) -> Result:
    cells = [{name: record.as_dict()[name] for name in _KEPT} for record in one.records]
    opset = header(test.file).opset
    return Result(test.name, test.operator, opset, round(one.seconds, 3), cells, one.refused)


def _ask_evaluator(results: Sequence[Result], tests: dict[str, Shipped]) -> None:
    """Note whether ONNX's evaluator gives what was recorded, of tests that no runtime has verified."""
    with new_file_worker() as worker:
        for result in results:
            answer = worker.call(_evaluated, tests[result.name].file, timeout=SECONDS)
            result.evaluator = answer.how if isinstance(answer, Death) else answer


def _evaluated(progress: object, file: Path) -> str:
    """Return ``right``, or how ONNX's evaluator differs from recorded data, or why it cannot run the model."""
    from conformance.case.files.recording import ATOL, RTOL
    from conformance.compare.recorded_values import difference
    from conformance.process.errors import attempt
    from conformance.runtimes import opener

    (one,) = read_recorded(beside(file), read_interface(file)).sets
    inputs: Any = one.inputs

    def run() -> Any:
        with opener("onnx-reference")(file, []) as session:
            return session.run(inputs)

    given = attempt(run)
    if isinstance(given, Exception):
        return summarize(given)
    found = difference(given, one.outputs, RTOL, ATOL)
    return "right" if found is None else found.text
