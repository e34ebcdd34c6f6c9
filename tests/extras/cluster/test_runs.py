"""Cells that run on other workers come to the same verdicts, whatever happens to the workers."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.extras.cluster.support import CELLS, PYTHON, dask_workers, differences, project, records, run
from tests.kit.processes import begin_suite, gone, spawned, waited_for
from tests.kit.runs import run_command

ENDLESS = PYTHON.replace("super().__init__()", "super().__init__()\n        if n == 4:\n            time.sleep(600)")


def endless(folder: Path) -> Path:
    """The project, whose run does not end while a test looks at it, however busy the host is."""
    return project(folder, python="import time\n" + ENDLESS)


def has_records(folder: Path, number: int) -> bool:
    lines = (folder / "reports/latest/records.jsonl").read_text(encoding="utf-8").splitlines()
    return len(lines) > number


STORE = ("--store", "/proc/self/cwd/kept")
"""A store whose path means another folder to the workers."""


def test_the_records_are_those_of_a_run_without_a_cluster(shared, tmp_path):
    """They come with their workers, which see neither project nor store, and with the bundle of the failing cell."""
    folder, chosen = project(tmp_path / "project"), ("-k", "n2 and onnxruntime or wrong")
    assert run(folder, shared.address, *STORE, *chosen).code == 1  # the planted mistake
    assert run(folder, None, *STORE, *chosen, report="reports/here").code == 1
    made = records(folder)
    assert differences(made, records(folder, "reports/here")) == []
    assert len(made) == 5 and all(record["worker"]["cpu"]["name"] for record in made.values())
    bundle = made["accuracy[wrong-torchscript-op17-onnxruntime-fp32]"]["bundle"].rpartition("/")[2]
    assert json.loads((folder / "kept" / "failing" / bundle / "bundle.json").read_text(encoding="utf-8"))
    header = json.loads((folder / "reports/latest/records.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert header["environment"]["workers"], "of a busy host the second worker may come after the run has begun"


@pytest.mark.thorough
def test_the_only_worker_is_killed_and_replaced(cluster, tmp_path):
    """Another run, which stops at once, leaves the cells of this one alone."""
    folder = project(tmp_path / "project")
    address = cluster.scheduler()
    nanny = cluster.workers(address)
    going_on = begin_suite(folder, "--cluster", address)
    waited_for(lambda: has_records(folder, 1))
    assert run(folder, address, "--cluster-needs", "tensorrt", report="reports/other").code == 4
    os.kill(dask_workers(nanny.pid)[0], signal.SIGKILL)
    out, _ = going_on.communicate(timeout=120)
    assert going_on.returncode == 1, out
    found = records(folder)
    assert len(found) == CELLS and {record["error"] for record in found.values()} == {None, "WrongValue"}


@pytest.mark.thorough
def test_ctrl_c_ends_the_tasks_and_keeps_the_records(shared, tmp_path):
    folder = endless(tmp_path / "project")
    going_on = begin_suite(folder, "--cluster", shared.address)
    waited_for(lambda: has_records(folder, 1))
    running = spawned(shared.worker)
    going_on.send_signal(signal.SIGINT)
    out, _ = going_on.communicate(timeout=60)
    assert going_on.returncode == 2 and "KeyboardInterrupt" in out and "Traceback" not in out, out
    assert 0 < len(records(folder)) < CELLS
    assert running and all(map(gone, running))

    again = run(folder, shared.address, "--reuse", "reports/latest", "-k", "n2", report="reports/again")
    assert again.code == 0, again.text
    assert any(record["reused"] for record in records(folder, "reports/again").values())


@pytest.mark.thorough
def test_a_scheduler_that_goes_away_leaves_the_records_that_came(cluster, tmp_path):
    folder = endless(tmp_path / "project")
    address = cluster.scheduler()
    cluster.workers(address)
    going_on = begin_suite(folder, "--cluster", address)
    waited_for(lambda: has_records(folder, 1))
    os.killpg(cluster.processes[0].pid, signal.SIGKILL)
    out, _ = going_on.communicate(timeout=120)
    assert going_on.returncode == 2, out
    assert f"the scheduler at {address} is gone" in out and "--reuse takes it over" in out
    assert "Traceback" not in out
    assert 0 < len(records(folder)) < CELLS


@pytest.mark.thorough
def test_a_cluster_on_this_machine(tmp_path):
    folder = project(tmp_path / "project")
    outcome = run(folder, "local:1", "-k", "n2 and accuracy", "-x")
    assert outcome.code == 0, outcome.text
    assert {record["status"] for record in records(folder).values()} == {"passed"}
    assert not list((folder / ".conformance" / "cluster").glob("conformance-*"))


KEPT = Path(__file__).parents[2] / "kept"


@pytest.mark.thorough
def test_a_bundle_is_replayed_on_workers_as_it_is_here(shared, tmp_path):
    (bundle,) = KEPT.iterdir()
    command = ("replay", bundle, "--runtime", "onnx-reference", "-k", "celu", "--report")
    here = run_command(tmp_path, *command, "here")
    there = run_command(tmp_path, *command, "there", "--cluster", shared.address)
    assert (here.code, there.code) == (0, 0), there.text
    assert differences(records(tmp_path, "there"), records(tmp_path, "here")) == []
    assert {record["worker"]["name"] for record in records(tmp_path, "there").values()} == {"fits"}
    assert here.text.splitlines()[-2] == there.text.splitlines()[-2]
