"""Runs of many cells: what is kept of each, and that the work grows as the cells do. Nothing here looks at a time."""

import pickle
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.case.plan.catalogue import Selection, read_suite
from conformance.case.plan.cell import Cell
from conformance.models.kept.dependency_files import needs
from conformance.results.baseline.acceptance import accept
from conformance.results.records import matrix, text
from conformance.results.records.brief import Told, brief
from conformance.results.records.record import Record
from conformance.results.records.run_file import RunWriter
from tests.kit.runs import Outcome, run_suite
from tests.kit.unrun import UNRUN
from tests.results.report.support import mixed, record

CASE = """
op{n}:
  about: one of many
  forward: torch.asinh(x)
  inputs: {{x: "float32[batch, 5]"}}
  dims: {{batch: 1..4}}
  runtimes: onnxruntime
  export: {{torchscript: {{opsets: [17], symbolics: {{"aten::asinh": symbolics.op{n}}}}}}}
"""
SYMBOLIC = "def op{n}(g, x):\n    return g.op('Asinh', x)\n"
STUB = """
import os
import shutil
import pytest
class Reports:
    def __init__(self):
        self.reports = []
    def pytest_runtest_logreport(self, report):
        self.reports.append(report)
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        kept = [report for report in self.reports if hasattr(report, "conformance")]
        lists = {id(report.user_properties) for report in self.reports if report.user_properties}
        told = [one for report in self.reports for one in report.user_properties if one[0] == "check"]
        with open("kept.txt", "w") as file:
            file.write(f"{len(kept)} {len(lists)} {len({id(one) for one in told})}")
def pytest_runtest_setup():
    if os.environ.get("EMPTIED"):
        shutil.rmtree("store")
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reports())
"""
"""A look at what pytest still has of cells at the end, and a store that is emptied before a cell."""


def write_cases(folder: Path, count: int) -> Path:
    cases = folder / "cases"
    cases.mkdir(parents=True)
    (cases / "cases.yaml").write_text("".join(CASE.format(n=n) for n in range(count)))
    (cases / "symbolics.py").write_text("".join(SYMBOLIC.format(n=n) for n in range(count)))
    return cases


def cells(folder: Path, count: int) -> list[Cell]:
    return read_suite([write_cases(folder, count)], Selection())[0]


def run_stubs(folder: Path, *arguments: str, **environment: str) -> Outcome:
    return run_suite(folder, *UNRUN, *arguments, plugin=STUB, **environment)


@pytest.fixture
def stubbed(tmp_path) -> Path:
    write_cases(tmp_path, 5)
    return tmp_path


@pytest.mark.parametrize("processes", [
    pytest.param((), id="one process"), pytest.param(("-n", "1"), id="xdist", marks=pytest.mark.thorough),
])  # fmt: skip
def test_of_finished_cells_pytest_keeps_no_records_and_equal_properties_once(stubbed, processes):
    done = run_stubs(stubbed, "--junit-xml", "junit.xml", *processes)
    assert done.code == 0, done.text
    kept, lists, checks = map(int, (stubbed / "kept.txt").read_text().split())
    run = done.records.values()
    assert kept == 0
    assert lists == len(run) == 20  # of the call of each cell, which its end shares
    assert checks == len({one["check"] for one in run}) == 4
    assert (stubbed / "junit.xml").read_text().count('name="check"') == len(run)
    assert "20 cells: 20 passed" in done.text


def records() -> list[Record]:
    """Records of everything that the end of a run tells of."""
    slow = {"seconds": {"export": 400.0, "run": 0.25}}
    cost = {"fidelity": {"output": 0, "sqnr": 42.5, "cosine": 1.0}, "worst": {"ratio": 0.5, "output": 0}}
    share = {"fidelity": {"changed": 0.25}, "worst": {"ratio": "inf"}}
    hurried = {"examples": 40, "seconds": 20.0}
    left = [{"what": "environment", "kind": "variable", "when": "run", "outcome": "put back"}]
    budget = {"verdict": "broken", "ratio": 2.5, "seconds": None, "text": "1.2 x pytorch"}
    timed = {"latency": {"budgets": [budget], "own": {"samples": [0.5] * 40}}}
    return [
        *mixed(),
        record("g", **slow),
        record("g", opset=18, ill_conditioned=3, dropped_draws=2, left_out=hurried, reused=True, changed=left),
        record("h", precision="fp16", check="fidelity", runtime=None, **cost),
        record("h", precision="int8", check="fidelity", runtime=None, **share),
        record("i", check="latency", status="failed", **timed),
        record("i", check="latency", opset=18, status="skipped", reason="run it without -n"),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_end_of_a_run_tells_the_same_of_what_is_kept(width):
    def told(of: Sequence[Told]) -> list[str]:
        parts = (matrix.fidelity, matrix.latency, matrix.slow, matrix.changed, text.draws_not_run)
        return [*matrix.lines(of, width), matrix.counts(of), *(line for part in parts for line in part(of))]

    whole = records()
    kept = [brief(one) for one in whole]
    assert told(kept) == told(whole) and len(pickle.dumps(kept)) < len(pickle.dumps(whole)) / 3


def test_writing_a_run_file_takes_no_more_memory_for_more_cells(tmp_path):
    def peak(count: int) -> int:
        writer = RunWriter(tmp_path / str(count), {"started": None, "environment": {}})
        for number in range(count):
            writer.add(record(f"op{number}").as_dict())
        tracemalloc.start()
        try:
            writer.close(1.0)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # what is imported or kept at the first time
    assert peak(800) < peak(100) + 100_000  # of 1.6 MB


def test_python_that_was_edited_is_parsed_again(tmp_path):
    (cell, *_) = cells(tmp_path, 1)
    before = needs(cell.case).digest()
    shared = tmp_path / "cases" / "symbolics.py"
    (tmp_path / "cases" / "helpers.py").write_text("FACTOR = 2\n")
    shared.write_text("import helpers\n" + shared.read_text())
    during = needs(cell.case).digest()
    assert before != during
    (tmp_path / "cases" / "helpers.py").write_text("FACTOR = 3\n")
    assert needs(cell.case).digest() not in (before, during)


def test_an_earlier_run_whose_cells_are_gone_lends_nothing(stubbed):
    assert run_stubs(stubbed, "--report", "earlier").code == 0
    cases = stubbed / "cases" / "cases.yaml"
    cases.write_text(CASE.format(n=0).replace("op0:", "new:") + CASE.format(n=1))
    done = run_stubs(stubbed, "--reuse", "earlier", "--baseline", "earlier")
    assert done.code == 1, done.text  # cells that vanished
    reused = {name for name, one in done.records.items() if one["reused"]}
    assert len(done.records) == 8 and reused == {name for name in done.records if "[op1-" in name}
    assert done.text.count("vanished: in the earlier run only: 16") == 1


def test_a_store_that_is_emptied_meanwhile_loses_no_cell(stubbed):
    done = run_stubs(stubbed, "--store", "store", "-k", "op0 and export", EMPTIED="yes")
    assert done.code == 0 and len(done.records) == 1, done.text


def test_a_plain_id_is_looked_up_and_a_pattern_is_not(tmp_path):
    header = {"started": None, "seconds": 1.0, "environment": {}}
    run = [record(f"op{number}") for number in range(12)]

    def chosen(*names: str) -> list[str]:
        (tmp_path / "baseline.jsonl").unlink(missing_ok=True)
        return [change.id for change in accept(tmp_path / "baseline.jsonl", (header, run), names)]

    one, other = run[3].id, run[11].id
    assert chosen(other, one, other) == [other, one]
    assert chosen(one.replace("op3", "op?")) == sorted(item.id for item in run[:10])
    assert chosen("*op3-*", one) == [one]
