"""Whole runs whose cells run in several workers of one process."""

import os
import signal
from pathlib import Path

import pytest

from conformance.front.plugin.declared_options import MOST_WORKERS
from conformance.front.plugin.options import Options
from conformance.process.worker import memory
from tests.extras.cluster.support import differences, project, records
from tests.kit.processes import begin_suite, gone, spawned, waited_for
from tests.kit.runs import Outcome, run_suite

CASES = """
defaults:
  about: a test of the harness
  inputs: {x: "float32[n, 6]"}
  dims: {n: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
small: {module: beside.Small, vary: {width: [2, 3]}}
wrong: {module: beside.Raises, specials: false}
"""
DYING = """
dying: {module: beside.Dying, specials: false}
hanging: {module: beside.Hanging, specials: false}
"""
PYTHON = """
import os, time, torch
class Small(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, width), torch.nn.Linear(width, 4)
    def forward(self, x):
        return self.two(torch.relu(self.one(x)))
class Raises(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 4:
            raise ValueError("planted")
        return torch.sin(x)
class Dying(torch.nn.Module):
    def forward(self, x):
        os._exit(3)
class Hanging(torch.nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(3600)
"""
SMALL, CELLS = 6, 8
"""Cells of the case ``small``, and of ``CASES``."""
BUDGET = "timed: {forward: torch.sin(x), specials: false, latency: [{at: {n: 4}, at_most: 10 s}]}\n"
BESIDE = """
def test_beside():
    print("beside the suite")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path / "project", CASES, PYTHON)


@pytest.fixture
def deadly(tmp_path: Path) -> Path:
    return project(tmp_path / "project", CASES + DYING, PYTHON)


def run(folder: Path, workers: int, *arguments: str, report: str = "reports/latest") -> Outcome:
    return run_suite(folder, "--cell-workers", str(workers), "--report", report, *arguments)


def test_the_records_are_those_of_a_run_with_one_worker(folder, tmp_path):
    several, alone = run(folder, 3), run(project(tmp_path / "alone", CASES, PYTHON), 1)
    assert (several.code, alone.code) == (1, 1), several.text
    assert len(several.records) == CELLS and differences(several.records, alone.records) == []
    assert f"{CELLS} cells" in several.text


def test_cells_that_crash_and_hang_are_told_and_harm_no_other(deadly):
    outcome = run(deadly, 2, "--cell-timeout", "4", "-k", "not hanging or export")
    assert outcome.code == 1
    ends = {record["case"]: record["signal"] for record in outcome.records.values() if record["signal"]}
    assert ends == {"dying": "exit 3", "hanging": "timeout after 4 s"}
    failed = {record["case"] for record in outcome.records.values() if record["status"] == "failed"}
    assert failed == {*ends, "wrong"}


def test_the_first_failure_ends_a_run_with_x(deadly):
    outcome = run(deadly, 2, "-x", "-k", "wrong or hanging")
    assert outcome.code == 1 and "stopping after 1 failures" in outcome.text
    assert [record["case"] for record in outcome.records.values() if record["status"] == "failed"] == ["wrong"]


def test_ctrl_c_ends_what_is_running_and_keeps_the_records(deadly):
    going_on = begin_suite(deadly, "--cell-workers", "2", "-k", "small or hanging")
    waited_for(lambda: len(records(deadly)) >= SMALL)
    running = spawned(going_on.pid)
    going_on.send_signal(signal.SIGINT)
    out, _ = going_on.communicate(timeout=60)
    assert going_on.returncode == 2 and "KeyboardInterrupt" in out and "Traceback" not in out, out
    assert records(deadly) and not (deadly / "reports/latest/run.json").exists()
    assert running and all(map(gone, running))


def test_budgets_of_time_are_measured_when_nothing_else_runs(tmp_path):
    """They are not skipped, as they are where others run beside them, and come after all other cells."""
    outcome = run(project(tmp_path / "project", CASES + BUDGET, PYTHON), 2, "-k", "small or timed")
    made = list(outcome.records.values())
    assert outcome.code == 0 and [record["check"] == "latency" for record in made].index(True) == len(made) - 1
    assert made[-1]["latency"], made[-1]["reason"]


def test_other_tests_of_the_session_run_too_and_no_test_twice(folder):
    (folder / "test_beside.py").write_text(BESIDE, encoding="utf-8")
    outcome = run(folder, 2, "test_beside.py", "-k", "small or beside", "-rA")
    assert outcome.code == 0, outcome.text
    passed = [line for line in outcome.text.splitlines() if line.startswith("PASSED ")]
    assert len(passed) == len(set(passed)) == SMALL + 1 and len(outcome.records) == SMALL


def test_a_run_takes_over_what_an_earlier_one_made(folder):
    run(folder, 2, "-k", "small", report="reports/earlier")
    outcome = run(folder, 2, "--reuse", "reports/earlier")
    assert outcome.code == 1
    reused = {id for id, record in outcome.records.items() if record["reused"]}
    assert reused == {*records(folder, "reports/earlier")}


def test_a_number_of_workers_that_cannot_be_is_refused(folder):
    outcome = run(folder, 2, "--isolation", "none")
    assert outcome.code == 4 and "--cell-workers 2 does not go with --isolation none" in outcome.text, outcome.text


@pytest.mark.parametrize("workers", [1, 4, 100])
def test_workers_share_the_memory(workers):
    config = pytest.Config.fromdictargs({}, ["-p", "no:cacheprovider", "--conformance-cell-workers", str(workers)])
    assert Options(config).cell_memory() == memory.share(workers)


def test_there_are_as_many_workers_as_cores_up_to_a_limit():
    """A process that may use one core has one worker."""
    options, cores = Options(pytest.Config.fromdictargs({}, [])), os.sched_getaffinity(0)
    assert options.cell_workers() == min(len(cores), MOST_WORKERS)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert options.cell_workers() == 1
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    "option",
    [["--stepwise"], ["--dist", "load"], ["--conformance-isolation", "none"], ["--conformance-cluster", "local:1"]],
)
def test_where_cells_run_elsewhere_or_in_a_given_order_there_is_one_worker(option):
    def workers(*more: str) -> int:
        return Options(pytest.Config.fromdictargs({}, [*option, *more])).cell_workers()

    assert workers() == workers("--conformance-cell-workers", "1") == 1
    with pytest.raises(pytest.UsageError, match="--cell-workers 2 does not go with"):
        workers("--conformance-cell-workers", "2")


@pytest.mark.parametrize(("text", "may"), [
    ("net: {forward: x, export: {torchscript: [17]}}", False), ('{"net": {"export": {"torchscript": [17]}}}', False),
    ("net: {forward: x, export: {dynamo: [20]}}", True), ("net: {forward: x, about: it exports}", True),
])  # fmt: skip
def test_what_dynamo_needs_is_imported_only_where_a_case_may_export_with_it(tmp_path, text, may):
    file = tmp_path / "case.yaml"
    file.write_text(text)
    options = Options(pytest.Config.fromdictargs({}, ["--conformance-cases", str(file)]))
    assert options.may_need_dynamo() == may


@pytest.mark.parametrize(("keyword", "may"), [
    ("", True), ("test_meaning and fp32", True), ("tensorrt-rtx and not (test_meaning and not fp32)", True),
    ("asinh", False), ("test_meaning and asinh", False),
])  # fmt: skip
def test_it_is_not_imported_for_a_keyword_that_chooses_few_cases(tmp_path, keyword, may):
    file = tmp_path / "case.yaml"
    file.write_text("net: {forward: x}")
    options = Options(pytest.Config.fromdictargs({}, ["--conformance-cases", str(file), "-k", keyword]))
    assert options.may_need_dynamo() == may
