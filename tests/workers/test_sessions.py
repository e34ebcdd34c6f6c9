"""Whole runs whose cells run in several workers of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.plugin.options import MOST_WORKERS, Options
from conformance.worker import memory
from tests.cluster.support import CASES, CELLS, PYTHON, project, records, spawned, waited_for
from tests.support import Outcome, run_suite

OF_A_RUN = ("seconds", "command", "fingerprint", "smallest", "draw")
"""Fields of a record in which two runs differ: times, where the store is, and whether a failing draw was kept."""
DYING = """
dying:
  about: ends its process
  module: beside.Dying
  inputs: {x: "float32[n, 3]"}
  dims: {n: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
hanging:
  about: never comes back
  module: beside.Hanging
  inputs: {x: "float32[n, 3]"}
  dims: {n: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
"""
DYING_PYTHON = """
import os, time

class Dying(torch.nn.Module):
    def forward(self, x):
        os._exit(3)

class Hanging(torch.nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(3600)
"""
SMALL = 15
"""Cells of the case ``small``."""
TYPED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a background job
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
BUDGET = """
timed:
  about: has a budget of time
  forward: torch.sin(x)
  inputs: {x: "float32[n]"}
  dims: {n: 1..8}
  export: {torchscript: [17]}
  latency: [{at: {n: 4}, at_most: 10 s}]
"""
BESIDE = """
def test_beside():
    print("beside the suite")
"""


def run(folder: Path, workers: int, *arguments: str, report: str = "reports/latest") -> Outcome:
    return run_suite(folder, "--cell-workers", str(workers), "--report", report, *arguments)


def test_the_records_are_those_of_a_run_with_one_worker(tmp_path):
    folder = project(tmp_path)
    several = run(folder, 3)
    alone = run(folder, 1, "--store", "alone", report="reports/alone")
    assert (several.code, alone.code) == (1, 1), several.text
    there, here = records(folder), records(folder, "reports/alone")
    assert there.keys() == here.keys() and len(there) == CELLS
    differing = {
        (id, name) for id in here for name in here[id] if name not in OF_A_RUN and here[id][name] != there[id][name]
    }
    assert {name for _, name in differing} <= {"bundle"}  # whose path has the store
    assert "21 cells" in several.text.replace("\n", " ")


def test_cells_that_crash_and_hang_are_told_and_harm_no_other(tmp_path):
    folder = project(tmp_path, CASES + DYING, PYTHON + DYING_PYTHON)
    outcome = run(folder, 2, "--cell-timeout", "5")
    assert outcome.code == 1
    found = records(folder)
    ends = {id: record["signal"] for id, record in found.items() if record["signal"]}
    assert {id.partition("[")[2].partition("-")[0]: how for id, how in ends.items()} == {
        "dying": "exit 3", "hanging": "timeout after 5 s",
    }  # fmt: skip
    wrong = {id for id, record in found.items() if record["status"] == "failed" and id not in ends}
    assert wrong and all("[wrong-" in id for id in wrong)


def test_the_first_failure_ends_a_run_with_x(tmp_path):
    folder = project(tmp_path, CASES + DYING, PYTHON + DYING_PYTHON)
    outcome = run(folder, 2, "-x", "-k", "wrong or hanging")
    assert outcome.code == 1 and "stopping after 1 failures" in outcome.text
    failed = [record for record in records(folder).values() if record["status"] == "failed"]
    assert len(failed) == 1 and failed[0]["case"] == "wrong"


def test_ctrl_c_ends_what_is_running_and_keeps_the_records(tmp_path):
    folder = project(tmp_path, CASES + DYING, PYTHON + DYING_PYTHON)
    command = [sys.executable, "-c", TYPED, "-p", "no:cacheprovider", "--pyargs", "conformance"]
    going_on = subprocess.Popen(
        [*command, "--cell-workers", "2", "-k", "small or hanging"], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
    )  # fmt: skip
    waited_for(lambda: len(records(folder)) >= SMALL)
    running = spawned(going_on.pid)
    assert running
    going_on.send_signal(signal.SIGINT)
    out, _ = going_on.communicate(timeout=60)
    assert going_on.returncode == 2 and "KeyboardInterrupt" in out and "Traceback" not in out, out
    assert records(folder) and not (folder / "reports/latest/run.json").exists()
    waited_for(lambda: not any(Path(f"/proc/{process}").exists() for process in running))


def test_budgets_of_time_are_measured_when_nothing_else_runs(tmp_path):
    """They are not skipped, as they are where others run beside them, and come after all other cells."""
    folder = project(tmp_path, CASES + BUDGET)
    assert run(folder, 2, "-k", "small or timed").code == 0
    made = list(records(folder).values())
    timed = [number for number, record in enumerate(made) if record["check"] == "latency"]
    assert len(timed) == 1 and timed == [len(made) - 1]
    assert made[-1]["latency"], made[-1]["reason"]


def test_other_tests_of_the_session_run_too_and_no_test_twice(tmp_path):
    folder = project(tmp_path)
    (folder / "test_beside.py").write_text(BESIDE, encoding="utf-8")
    outcome = run(folder, 2, "test_beside.py", "-k", "small or beside", "-rA")
    assert outcome.code == 0, outcome.text
    passed = [line for line in outcome.text.splitlines() if line.startswith("PASSED ")]
    assert len(passed) == len(set(passed)) == SMALL + 1
    assert len(records(folder)) == SMALL


def test_a_run_takes_over_what_an_earlier_one_made(tmp_path):
    folder = project(tmp_path)
    run(folder, 2, "-k", "small", report="reports/earlier")
    outcome = run(folder, 2, "--reuse", "reports/earlier", report="reports/later")
    assert outcome.code == 1
    reused = {id for id, record in records(folder, "reports/later").items() if record["reused"]}
    assert reused == set(records(folder, "reports/earlier"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cell-workers", "0"], "--cell-workers 0: give a number from 1"),
        (["--cell-workers", "two"], "invalid int value: 'two'"),
        (["--cell-workers", "2", "-n", "2"], "--cell-workers 2 does not go with -n: give one of them"),
        (["--cell-workers", "2", "--isolation", "none"], "--cell-workers 2 does not go with --isolation none"),
        (["--cell-workers", "2", "--cluster", "local:1"], "--cell-workers 2 does not go with --cluster"),
    ],
)
def test_a_number_of_workers_that_cannot_be_is_refused(tmp_path, arguments, message):
    outcome = run_suite(project(tmp_path), *arguments)
    assert outcome.code == 4 and message in outcome.text, outcome.text


def test_one_worker_goes_with_everything(tmp_path):
    outcome = run_suite(project(tmp_path), "--cell-workers", "1", "-n", "2", "-k", "small")
    assert outcome.code == 0, outcome.text


@pytest.mark.parametrize(("workers", "share"), [(1, 8), (2, 4), (4, 2)])
def test_workers_share_the_memory(tmp_path, monkeypatch, workers, share):
    config = pytest.Config.fromdictargs({}, ["-p", "no:cacheprovider", "--cell-workers", str(workers)])
    monkeypatch.setattr(memory, "_machine", lambda: 8 * memory.GIB)
    assert Options(config).cell_memory() == pytest.approx(share * 0.9)


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (64, MOST_WORKERS)])
def test_there_are_as_many_workers_as_cores_up_to_a_limit(monkeypatch, cores, workers):
    config = pytest.Config.fromdictargs({}, [])
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert Options(config).cell_workers() == workers


def test_where_a_run_goes_on_behind_the_test_that_failed_last_there_is_one_worker():
    assert Options(pytest.Config.fromdictargs({}, ["--stepwise"])).cell_workers() == 1
    with pytest.raises(pytest.UsageError, match="--cell-workers 2 does not go with --stepwise"):
        Options(pytest.Config.fromdictargs({}, ["--stepwise", "--cell-workers", "2"])).cell_workers()
