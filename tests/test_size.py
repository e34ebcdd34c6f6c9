"""Runs of many cells: what is kept of each, and that the work grows as the cells do. Nothing here looks at a time."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.baseline import Change, accept
from conformance.depends import imports
from conformance.depends.fingerprint import Fingerprints
from conformance.plan.catalogue import Selection, read_suite
from conformance.plan.cell import Cell
from conformance.plugin.planning import Planning
from conformance.plugin.properties import Properties
from conformance.records import matrix, text
from conformance.records.brief import brief
from conformance.records.run_file import RunWriter, read_run
from tests.report.support import mixed, record
from tests.support import run_suite

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

import conformance.checks.runner


class Stub:
    def __init__(self, settings, timeout, worker, shown):
        pass

    def __call__(self, cell, on_wait=None, then=None):
        if os.environ.get("EMPTIED"):
            shutil.rmtree("store")
        record = cell.record()
        record.examples = 24
        return record


conformance.checks.runner.Runner = Stub


class Reports:
    reports = []

    def pytest_runtest_logreport(self, report):
        self.reports.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        kept = [report for report in self.reports if hasattr(report, "conformance")]
        lists = {id(report.user_properties) for report in self.reports if report.user_properties}
        told = [one for report in self.reports for one in report.user_properties if one[0] == "check"]
        with open("kept.txt", "w") as file:
            file.write(f"{len(kept)} {len(lists)} {len({id(one) for one in told})}")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reports())
"""
"""Cells that cost nothing, and a look at what pytest still has of them at the end."""


def write_cases(folder: Path, count: int) -> Path:
    cases = folder / "cases"
    cases.mkdir(parents=True)
    (cases / "cases.yaml").write_text("".join(CASE.format(n=n) for n in range(count)))
    (cases / "symbolics.py").write_text("".join(SYMBOLIC.format(n=n) for n in range(count)))
    return cases


def cells(folder: Path, count: int) -> list[Cell]:
    return read_suite([write_cases(folder, count)], Selection())[0]


def twice_as_many(work: Callable[[int], int]) -> None:
    """Holds the calls that ``work`` counts for so many cells against those for twice as many."""
    few, many = work(20), work(40)
    assert many <= 2 * few + 4, (few, many)


# ---- what is kept ----------------------------------------------------------------------------------------


@pytest.fixture
def stubbed(tmp_path) -> Path:
    write_cases(tmp_path, 5)
    (tmp_path / "conftest.py").write_text(STUB)
    return tmp_path


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_of_finished_cells_pytest_keeps_no_records_and_equal_properties_once(stubbed, processes):
    done = run_suite(stubbed, "--isolation", "none", "--junit-xml", "junit.xml", *processes)
    assert done.code == 0, done.text
    kept, lists, checks = map(int, (stubbed / "kept.txt").read_text().split())
    run = read_run(stubbed / "reports" / "latest")[1]
    assert kept == 0
    assert lists == len(run) == 20  # of the call of each cell, which its end shares
    assert checks == len({one["check"] for one in run}) == 4
    properties = (stubbed / "junit.xml").read_text().count('name="check"')
    assert properties == len(run)
    assert "20 cells: 20 passed; 240 examples verified" in done.text


def test_properties_that_differ_stay_apart():
    properties = Properties()
    given = [("examples", 1), ("examples", True), ("examples", 1.0), ("list", [1]), ("command", "a")]
    assert repr(properties.shared(given)) == repr(properties.shared(given)) == repr(given)
    assert properties.shared([("a", "x")])[0] is properties.shared([("a", "".join(["x"]))])[0]


def records() -> list[dict[str, Any]]:
    """Records of everything that the end of a run tells of."""
    slow = {"seconds": {"export": 400.0, "run": 0.25}}
    cost = {"fidelity": {"output": 0, "sqnr": 42.5, "cosine": 1.0}, "worst": {"ratio": 0.5, "output": 0}}
    share = {"fidelity": {"changed": 0.25}, "worst": {"ratio": "inf"}}
    left = [{"what": "environment", "kind": "variable", "when": "run", "outcome": "put back"}]
    budget = {"verdict": "broken", "ratio": 2.5, "seconds": None, "text": "1.2 x pytorch"}
    timed = {"latency": {"budgets": [budget], "own": {"samples": [0.5] * 40}}}
    return [
        *mixed(),
        record("g", **slow), record("g", opset=18, ill_conditioned=3, dropped_draws=2, reused=True, changed=left),
        record("h", precision="fp16", check="fidelity", runtime=None, **cost),
        record("h", precision="int8", check="fidelity", runtime=None, **share),
        record("i", check="latency", status="failed", **timed),
        record("i", check="latency", opset=18, status="skipped", reason="run it without -n"),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_end_of_a_run_tells_the_same_of_what_is_kept(width):
    def told(of: list[dict[str, Any]]) -> list[str]:
        parts = (matrix.fidelity, matrix.latency, matrix.slow, matrix.changed, text.dropped_draws)
        return [*matrix.lines(of, width), matrix.counts(of), *(line for part in parts for line in part(of))]

    whole = records()
    kept = [brief(one) for one in whole]
    assert told(kept) == told(whole)
    assert len(json.dumps(kept)) < len(json.dumps(whole)) / 4


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_run_file_is_written_as_before(tmp_path, count):
    header = {"started": "2026-01-01", "environment": {"flags": [], "versions": {"onnx": "1"}, "cpu": None}}
    writer = RunWriter(tmp_path, header)
    odd = {"reason": 'a\nline, "quotes", \u2028, ✓ and []', "outputs": [], "changed": [{"what": "x\\n"}], "worst": {}}
    for number in range(count):
        writer.add(record(f"op{number}", **odd))
    writer.close(1.5)
    first, *lines = map(json.loads, (tmp_path / "records.jsonl").read_text().splitlines())
    run = {**first, "seconds": 1.5, "records": lines}
    assert (tmp_path / "run.json").read_text() == json.dumps(run, indent=1) + "\n"
    assert len(lines) == count


def test_writing_a_run_file_takes_no_more_memory_for_more_cells(tmp_path):
    def peak(count: int) -> int:
        writer = RunWriter(tmp_path / str(count), {"started": None, "environment": {}})
        for number in range(count):
            writer.add(record(f"op{number}"))
        tracemalloc.start()
        try:
            writer.close(1.0)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # what is imported or kept at the first time
    assert peak(800) < peak(100) + 100_000  # of 1.6 MB


# ---- what is done ----------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch) -> Callable[[Any, str], Callable[[], int]]:
    """``counted(owner, name)``: says how often a function has been called since it was asked last."""

    def count(owner: Any, name: str) -> Callable[[], int]:
        calls = itertools.count()
        function, last = getattr(owner, name), [-1]

        def counting(*arguments: Any, **named: Any) -> Any:
            next(calls)
            return function(*arguments, **named)

        def since() -> int:
            now = next(calls)
            number, last[0] = now - last[0] - 1, now
            return number

        monkeypatch.setattr(owner, name, counting)
        return since

    return count


def test_accepting_all_compares_no_change_with_all_others(tmp_path, counted):
    calls = counted(Change, "__eq__")
    header = {"started": None, "seconds": 1.0, "environment": {}}

    def changes(count: int) -> int:
        run = [record(f"op{number}") for number in range(count)]
        names = ["*", *(one["id"] for one in run)]
        calls()
        chosen = accept(tmp_path / f"{count}.jsonl", (header, run), names)
        assert [change.id for change in chosen] == sorted(one["id"] for one in run)
        return calls()

    twice_as_many(changes)


def test_a_plain_id_is_looked_up_and_a_pattern_is_not(tmp_path):
    header = {"started": None, "seconds": 1.0, "environment": {}}
    run = [record(f"op{number}") for number in range(12)]

    def chosen(*names: str) -> list[str]:
        (tmp_path / "baseline.jsonl").unlink(missing_ok=True)
        return [change.id for change in accept(tmp_path / "baseline.jsonl", (header, run), names)]

    one, other = run[3]["id"], run[11]["id"]
    assert chosen(other, one, other) == [other, one]
    assert chosen(one.replace("op3", "op?")) == sorted(item["id"] for item in run[:10])
    assert chosen("*op3-*", one) == [one]


def test_the_matrix_looks_at_no_case_once_for_every_other():
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def compared(count: int) -> int:
        run = []
        for number in range(count):
            for which in ({"check": "fidelity", "runtime": None}, {}):
                run.append(record(f"op{number}", precision="fp16", **which) | {"case": Name(f"op{number}")})
        Name.compared = 0
        list(matrix.lines(run, 200))
        return Name.compared

    twice_as_many(compared)


def test_python_that_cases_share_is_parsed_once(tmp_path, counted):
    parsed = counted(imports, "_nodes")
    for count in (4, 8):
        found = cells(tmp_path / str(count), count)
        fingerprints = Fingerprints({})
        imports._imports_in.cache_clear()  # of the same text in the other folder
        parsed()
        assert len({fingerprints(cell) for cell in found}) == len(found)
        assert parsed() == 1


def test_python_that_was_edited_is_parsed_again(tmp_path):
    (cell, *_) = cells(tmp_path, 1)
    before = Fingerprints({})(cell)
    shared = tmp_path / "cases" / "symbolics.py"
    (tmp_path / "cases" / "helpers.py").write_text("FACTOR = 2\n")
    shared.write_text("import helpers\n" + shared.read_text())
    during = Fingerprints({})(cell)
    assert before != during
    (tmp_path / "cases" / "helpers.py").write_text("FACTOR = 3\n")
    assert Fingerprints({})(cell) not in (before, during)


def test_cells_of_processes_that_ended_are_looked_up(tmp_path, monkeypatch):
    names = [0]
    name = Cell.id.fget
    assert name is not None

    def counting(cell: Cell) -> str:
        names[0] += 1
        return str(name(cell))

    def looked_up(count: int) -> int:
        found = cells(tmp_path / str(count), count)
        ids = [cell.id for cell in found]
        planning = Planning(None, None, lambda: None)  # type: ignore[arg-type]
        monkeypatch.setattr(Planning, "__call__", lambda _: (found, {}))
        names[0] = 0
        assert [planning.named(one) for one in ids] == found
        assert planning.named("accuracy[gone]") is None
        return names[0]

    monkeypatch.setattr(Cell, "id", property(counting))
    twice_as_many(looked_up)


# ---- earlier runs, and stores that others empty ----------------------------------------------------------


def test_an_earlier_run_whose_cells_are_gone_lends_nothing(stubbed):
    assert run_suite(stubbed, "--isolation", "none", "--report", "earlier").code == 0
    cases = stubbed / "cases" / "cases.yaml"
    cases.write_text(CASE.format(n=0).replace("op0:", "new:") + CASE.format(n=1))
    done = run_suite(stubbed, "--isolation", "none", "--reuse", "earlier", "--baseline", "earlier")
    assert done.code == 1, done.text  # cells that vanished
    run = {one["id"]: one["reused"] for one in read_run(stubbed / "reports" / "latest")[1]}
    assert len(run) == 8
    assert {name for name, reused in run.items() if reused} == {name for name in run if "[op1-" in name}
    assert done.text.count("vanished: in the earlier run only: 16") == 1


def test_a_store_that_is_emptied_meanwhile_loses_no_cell(stubbed, monkeypatch):
    monkeypatch.setenv("EMPTIED", "yes")
    done = run_suite(stubbed, "--isolation", "none", "--store", "store", "-k", "op0 and export")
    assert done.code == 0, done.text
    assert len(read_run(stubbed / "reports" / "latest")[1]) == 1
