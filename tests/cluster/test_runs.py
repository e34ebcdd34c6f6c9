"""Cells that run on other workers come to the same verdicts, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support import (
    CELLS,
    PYTHON,
    Loopback,
    dask_workers,
    loopback,
    project,
    records,
    run,
    spawned,
    waited_for,
)

OF_A_RUN = ("seconds", "worker", "command", "fingerprint", "smallest", "draw")
"""Fields of a record in which two runs differ: times, who made it, and whether a failing draw is one that was
kept, as where the cell was run again in a fresh process since others had run before it."""


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "cluster").mkdir()
    with loopback(tmp_path / "cluster") as started:
        yield started


ENDLESS = PYTHON.replace("super().__init__()", "super().__init__()\n        if n == 4:\n            time.sleep(600)")


def endless(folder: Path) -> Path:
    """The project, whose run does not end while a test looks at it, however busy the host is."""
    return project(folder, python="import time\n" + ENDLESS)


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The fields in which cells differ that should not, with the values."""
    assert there.keys() == here.keys()
    return [
        (id, name, value, here[id][name])
        for id, record in there.items()
        for name, value in record.items()
        if name not in OF_A_RUN and value != here[id][name]
    ]


TYPED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a background job
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def started(folder: Path, address: str, *arguments: str) -> subprocess.Popen[str]:
    """The suite, while it goes on."""
    command = [sys.executable, "-c", TYPED, "-p", "no:cacheprovider", "--pyargs", "conformance"]
    return subprocess.Popen(
        [*command, "--cluster", address, *arguments], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
    )  # fmt: skip


def has_records(folder: Path, number: int) -> bool:
    lines = (folder / "reports/latest/records.jsonl").read_text(encoding="utf-8").splitlines()
    return len(lines) > number


def test_the_records_are_those_of_a_run_without_a_cluster_also_where_workers_are_killed(cluster: Loopback, tmp_path):
    """The workers see neither the project nor the store, whose path means another folder to them."""
    folder, store = project(tmp_path / "project"), ("--store", "/proc/self/cwd/kept")
    address = cluster.scheduler()
    nannies = cluster.workers(address, "--nworkers", "2")
    going_on = started(folder, address, *store)
    waited_for(lambda: has_records(folder, 2))
    os.kill(dask_workers(nannies.pid)[0], signal.SIGKILL)
    out, _ = going_on.communicate(timeout=120)
    assert going_on.returncode == 1, out  # the planted mistake

    assert run(folder, None, *store, report="reports/here").code == 1
    assert differences(records(folder), records(folder, "reports/here")) == []
    made = records(folder)
    assert len(made) == CELLS
    assert all(record["worker"]["cpu"]["name"] for record in made.values())
    failing = made["accuracy[wrong-torchscript-op17-onnxruntime-fp32]"]
    bundle = folder / "kept" / "failing" / failing["bundle"].rpartition("/")[2]
    assert json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    header = json.loads((folder / "reports/latest/records.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert header["environment"]["workers"], "of a busy host the second worker may come after the run has begun"


def test_the_only_worker_is_killed_and_replaced(cluster: Loopback, tmp_path):
    """Another run, which stops at once, leaves the cells of this one alone."""
    folder = project(tmp_path / "project")
    address = cluster.scheduler()
    nanny = cluster.workers(address)
    going_on = started(folder, address)
    waited_for(lambda: has_records(folder, 1))
    assert run(folder, address, "--cluster-needs", "tensorrt", report="reports/other").code == 4
    os.kill(dask_workers(nanny.pid)[0], signal.SIGKILL)
    out, _ = going_on.communicate(timeout=120)
    assert going_on.returncode == 1, out
    found = records(folder)
    assert len(found) == CELLS and {record["error"] for record in found.values()} == {None, "WrongValue"}


def test_ctrl_c_ends_the_tasks_and_keeps_the_records(cluster: Loopback, tmp_path):
    folder = endless(tmp_path / "project")
    address = cluster.scheduler()
    worker = cluster.workers(address, "--no-nanny")
    going_on = started(folder, address)
    waited_for(lambda: has_records(folder, 1))
    running = spawned(worker.pid)
    going_on.send_signal(signal.SIGINT)
    out, _ = going_on.communicate(timeout=60)
    assert going_on.returncode == 2 and "KeyboardInterrupt" in out and "Traceback" not in out, out
    assert 0 < len(records(folder)) < CELLS
    assert running
    waited_for(lambda: not any(Path(f"/proc/{process}").exists() for process in running))

    again = run(folder, address, "--reuse", "reports/latest", "-k", "n2", report="reports/again")
    assert again.code == 0, again.text
    assert any(record["reused"] for record in records(folder, "reports/again").values())


def test_the_bundle_of_the_failure_that_ends_a_run_is_brought_back(cluster: Loopback, tmp_path):
    folder = project(tmp_path / "project")
    address = cluster.scheduler()
    cluster.workers(address)
    assert run(folder, address, "-x", "-k", "wrong", "--store", "/proc/self/cwd/kept").code == 1
    (failing,) = (record for record in records(folder).values() if record["status"] == "failed")
    bundle = folder / "kept" / "failing" / failing["bundle"].rpartition("/")[2]
    assert json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))


TWICE = """
import copy

def pytest_collection_modifyitems(items):
    for item in items[:]:
        twin = copy.copy(item)
        twin._initrequest()
        items.append(twin)
"""


def test_a_cell_that_is_tested_twice_is_run_once(cluster: Loopback, tmp_path):
    folder = project(tmp_path / "project")
    (folder / "twice.py").write_text(TWICE, encoding="utf-8")
    address = cluster.scheduler()
    cluster.workers(address)
    ran = run(folder, address, "-k", "n2", "-p", "twice", PYTHONPATH=str(folder))
    assert ran.code == 0, ran.text
    lines = (folder / "reports/latest/records.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    ids = [json.loads(line)["id"] for line in lines]
    assert len(ids) == 2 * len(set(ids)) > 0


def test_a_scheduler_that_goes_away_leaves_the_records_that_came(cluster: Loopback, tmp_path):
    folder = endless(tmp_path / "project")
    address = cluster.scheduler()
    cluster.workers(address)
    going_on = started(folder, address)
    waited_for(lambda: has_records(folder, 1))
    os.killpg(cluster.processes[0].pid, signal.SIGKILL)
    out, _ = going_on.communicate(timeout=120)
    assert going_on.returncode == 2, out
    assert f"the scheduler at {address} is gone" in out and "--reuse takes it over" in out
    assert "Traceback" not in out
    assert 0 < len(records(folder)) < CELLS


def test_a_cluster_on_this_machine(tmp_path):
    folder = project(tmp_path / "project")
    outcome = run(folder, "local:2", "-k", "small and accuracy", "-x")
    assert outcome.code == 0, outcome.text
    assert {record["status"] for record in records(folder).values()} == {"passed"}
    assert not list((folder / ".conformance" / "cluster").glob("conformance-*"))


KEPT = Path(__file__).parents[1] / "kept"


def test_a_bundle_is_replayed_on_workers_as_it_is_here(cluster: Loopback, tmp_path):
    (bundle,) = KEPT.iterdir()
    address = cluster.scheduler()
    nannies = cluster.workers(address, "--nworkers", "2")
    command = [
        sys.executable,
        "-m",
        "conformance",
        "replay",
        str(bundle),
        "--runtime",
        "onnx-reference",
        "-k",
        "opset",
    ]
    command[-2:] = ["--report"]
    here = subprocess.run([*command, "here"], cwd=tmp_path, capture_output=True, text=True, check=True)
    there = subprocess.run(
        [*command, "there", "--cluster", address], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert there.returncode == 0, there.stdout + there.stderr
    assert nannies.poll() is None
    assert differences(records(tmp_path, "there"), records(tmp_path, "here")) == []
    assert len({record["worker"]["name"] for record in records(tmp_path, "there").values()}) == 2
    assert here.stdout.splitlines()[-2] == there.stdout.splitlines()[-2]
