"""``conformance findings --fix`` for cases that prove too little: the edit that a record proposes, on all draws."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.case.files.case_file import load
from conformance.extras.repairs.fixes import fixes
from conformance.extras.repairs.trials import Fix, RepairTrials
from conformance.process.worker.isolation import Worker
from conformance.results.records.findings import findings
from conformance.results.records.record import Record
from tests.judge.test_remedies import FIRST, NOTHING, VACUOUS, ZERO_BY_INIT, cell_of, with_lines
from tests.kit.cases import PASSED, Bench, say, verdict
from tests.models.test_coverage import BLOCK

pytestmark = pytest.mark.own_store

Found = Callable[[Record], list[Fix]]


def all_of(record: Record, trials: RepairTrials) -> list[Fix]:
    (finding,) = findings([record])
    (case,) = load(Path(str(record.source["file"])))
    assert finding.key.component == "case"
    return [*fixes(finding, case, record, trials)]


@pytest.fixture
def found(bench: Bench, worker: Worker) -> Found:
    return lambda record: all_of(record, RepairTrials(worker, bench.store))


def body_of(body: str) -> str:
    return say(
        body, "specials: false", "runtimes: onnxruntime", "" if "export:" in body else "export: {torchscript: 17}"
    )


def pasted(bench: Bench, record: Record, paste: str) -> Record:
    """The record of the case's accuracy cell with the lines of a change in its file, as somebody would paste them."""
    yaml, _, python = paste.partition("\nin beside.py:\n")
    lines = "\n".join(line[2:] for line in python.splitlines())
    return bench.run_cell(cell_of(bench, with_lines(Path(str(record.source["file"])), yaml, lines)))


PYTHON = ZERO_BY_INIT + FIRST
HOLLOW = 'module: beside.Net\ninputs: {x: "float32[q, 4]"}\ndims: {q: 1..4}'
TOLERANCE = "declare the tolerance that float32 itself needs here"


@pytest.mark.parametrize("body, python, error, what, line", [
    (VACUOUS["saturated"][0], PYTHON, "Vacuous", "draw other values", "inputs"),
    (VACUOUS["zero by init"][0], PYTHON, "Vacuous", "give parameters that are all zero values", ""),
    (VACUOUS["constant"][0], PYTHON, "Vacuous", "say why the output is right though any would pass", "vacuous"),
    (VACUOUS["a tolerance above the values"][0], PYTHON, "Vacuous", "compare by the default tolerance", ""),
    (NOTHING["negative logarithms"][0], PYTHON, "NothingVerified", "draw other values", "uniform"),
    pytest.param(NOTHING["digits cancel"][0], PYTHON, "IllConditioned", TOLERANCE, "float32 itself is off by up to",
                 marks=pytest.mark.thorough),
    (HOLLOW, BLOCK, "Hollow", "wake the weights", "weights: awake"),
])  # fmt: skip
def test_the_edit_that_a_record_proposes_is_tried(bench, found, body, python, error, what, line):
    record = bench.run(body_of(body), python)
    assert record.error == error
    (fix,) = found(record)
    assert fix.what == what and line in fix.paste and "examples verified" in fix.shown
    assert ("float32 itself" in fix.paste) is (what == TOLERANCE)
    assert verdict(pasted(bench, record, fix.paste)) == PASSED


@pytest.fixture(scope="module")
def ill_conditioned(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Record:
    """A case of which float32 itself is off, for which a tolerance is proposed."""
    bench = Bench(tmp_path_factory.mktemp("ill"), store)
    record = bench.run(body_of(NOTHING["digits cancel"][0]), PYTHON, examples=6)
    assert record.error == "IllConditioned"
    assert record.remedy is not None and record.remedy["kind"] == "tolerance to declare"
    return record


class WrongElsewhere(RepairTrials):
    """The case has another cell whose runtime is shown to be wrong."""

    def record(self, cell: Any) -> Record:
        return dataclasses.replace(cell.record(), status="failed", fault="runtime")


def test_no_tolerance_is_told_where_another_runtime_does_better_or_that_would_hide_a_wrong_cell(
    bench, worker, found, ill_conditioned
):
    nearer = [{"runtime": "onnx-reference", "answer": "nearer"}]
    assert found(dataclasses.replace(ill_conditioned, witnesses=nearer)) == []
    assert all_of(ill_conditioned, WrongElsewhere(worker, bench.store)) == []


def test_no_edit_is_told_with_which_another_cell_of_the_case_fails(bench, worker):
    body = body_of(VACUOUS["saturated"][0]).replace("torchscript: 17", "torchscript: [17, 18]")
    record = bench.run(body, ZERO_BY_INIT, opset=17, examples=6)
    assert (
        all_of(record, RepairTrials(worker, bench.store))
        and all_of(record, WrongElsewhere(worker, bench.store)) == []
    )
