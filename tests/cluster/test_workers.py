"""Workers that do not fit are refused by name, and what no worker can run says so."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.cluster.support import CASES, PYTHON, Loopback, loopback, project, records, run


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "cluster").mkdir()
    with loopback(tmp_path / "cluster") as started:
        yield started


def installed(folder: Path, name: str, version: str) -> Path:
    """A distribution that looks installed to who has this folder on PYTHONPATH."""
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (metadata / "top_level.txt").write_text(f"{name}\n", encoding="utf-8")
    (metadata / "RECORD").write_text(f"{name}.py,,\n", encoding="utf-8")
    return folder


def test_a_worker_with_other_versions_is_refused_by_name(cluster: Loopback, tmp_path):
    folder = project(tmp_path / "project")
    address = cluster.scheduler()
    cluster.workers(
        address, "--no-nanny", "--name", "older", PYTHONPATH=str(installed(tmp_path / "old", "torch", "1.9"))
    )
    refused = run(folder, address, "-k", "small and export")
    assert refused.code == 4, refused.text
    assert "worker older on " in refused.text and "torch 1.9 (here " in refused.text
    assert "Traceback" not in refused.text

    cluster.workers(address, "--no-nanny", "--name", "fits", folder="another")
    outcome = run(folder, address, "-k", "small and export")
    assert outcome.code == 0, outcome.text
    assert "worker older on " in outcome.text
    assert {record["worker"]["name"] for record in records(folder).values()} == {"fits"}

    needy = run(folder, address, "-k", "small and export", "--cluster-needs", "tensorrt")
    assert needy.code == 4, needy.text
    assert "worker fits on " in needy.text and "it has no runtime tensorrt" in needy.text


def test_a_package_that_no_worker_has_is_told_of_the_cells_that_need_it(cluster: Loopback, tmp_path):
    packages = installed(tmp_path / "packages", "needed", "1.0")
    (packages / "needed.py").write_text("SCALE = 2.0\n", encoding="utf-8")
    case = "needy:\n  about: of a package\n  forward: beside.scaled(x)\n  inputs: {x: 'float32[3]'}\n"
    python = "import needed\ndef scaled(x):\n    return x * needed.SCALE\n"
    folder = project(tmp_path / "project", CASES + case, PYTHON)
    (folder / "cases" / "other.yaml").write_text(case.replace("beside.", "other."), encoding="utf-8")
    (folder / "cases" / "some.yaml").write_text(CASES, encoding="utf-8")
    (folder / "cases" / "other.py").write_text(python, encoding="utf-8")
    address = cluster.scheduler()
    cluster.workers(address, "--no-nanny")
    outcome = run(folder, address, "-k", "export and (small or needy)", PYTHONPATH=str(packages))
    assert outcome.code == 1, outcome.text
    found = records(folder)
    lacking = {id for id, record in found.items() if record["error"] == "NoWorker"}
    assert lacking and lacking == {id for id in found if "needy" in id}
    assert f"no worker of {address} has package needed" in outcome.text
    assert all(record["fault"] == "harness" for id, record in found.items() if id in lacking)


def test_what_a_case_states_under_needs_chooses_its_worker(cluster: Loopback, tmp_path):
    tool = tmp_path / "tools" / "special-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    tool.chmod(0o755)
    case = "needy:\n  about: of a command\n  forward: x * 2\n  inputs: {x: 'float32[3]'}\n"
    case += "  needs: ['command:special-tool']\n"
    folder = project(tmp_path / "project", CASES + case, PYTHON)
    address = cluster.scheduler()
    cluster.workers(address, "--no-nanny", "--name", "plain")
    outcome = run(folder, address, "-k", "export and needy")
    assert outcome.code == 5, "where all is skipped nothing is shown"
    assert {record["status"] for record in records(folder).values()} == {"skipped"}
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    cluster.workers(address, "--no-nanny", "--name", "has the tool", folder="another", PATH=path)
    outcome = run(folder, address, "-k", "export and needy")
    assert outcome.code == 0, outcome.text
    said = [(record["status"], record["worker"]["name"]) for record in records(folder).values()]
    assert said and {*said} == {("passed", "has the tool")}


def test_a_worker_that_cannot_write_is_left_out_and_its_case_goes_to_another(cluster: Loopback, tmp_path):
    """A limit on the size of files stands for a full disk: both are trouble of the host's own."""
    folder = project(tmp_path / "project")
    (folder / "cases" / "beside.bin").write_bytes(bytes(200_000))
    cases = CASES.replace("vary: {n: [2, 3, 4]}", "vary: {n: [2, 3, 4]}\n  depends: beside.bin")
    (folder / "cases" / "some.yaml").write_text(cases, encoding="utf-8")
    address = cluster.scheduler()
    full = cluster.workers(address, "--no-nanny", "--name", "full")
    resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
    outcome = run(folder, address, "-k", "small and export", "--cluster-timeout", "5", report="reports/full")
    assert outcome.code == 1, outcome.text
    assert "worker full on " in outcome.text and "the host allows no larger file" in outcome.text
    assert {record["error"] for record in records(folder, "reports/full").values()} == {"NoWorker"}

    cluster.workers(address, "--no-nanny", "--name", "fits", folder="another")
    outcome = run(folder, address, "-k", "small and export")
    assert outcome.code == 0, outcome.text


def test_a_worker_that_cannot_make_its_store_is_left_out(cluster: Loopback, tmp_path):
    folder = project(tmp_path / "project")
    address = cluster.scheduler()
    cluster.workers(address, "--no-nanny", "--name", "without")
    (cluster.folder / "worker" / ".conformance").write_text("no folder", encoding="utf-8")
    outcome = run(
        folder, address, "-k", "small and export", "--cluster-timeout", "5", "--store", "/proc/self/cwd/kept"
    )
    assert outcome.code == 1, outcome.text
    assert "worker without on " in outcome.text and ".conformance: cannot be made" in outcome.text
    assert {record["error"] for record in records(folder).values()} == {"NoWorker"}


def test_no_scheduler_at_the_address(tmp_path):
    outcome = run(project(tmp_path / "project"), "tcp://127.0.0.1:9")
    assert outcome.code == 4, outcome.text
    assert "--cluster: no scheduler answers at tcp://127.0.0.1:9" in outcome.text
    assert "Traceback" not in outcome.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cluster", "scheduler:8786"], "give the address of a Dask scheduler, as tcp://host:8786, or local:4"),
        (["--cluster", "local:0"], "or local:4"),
        (["--cluster", "local:2", "-n", "2"], "give one of them"),
        (["--cluster", "local:2", "--isolation", "none"], "give one"),
        (
            ["-p", "cacheprovider", "-p", "stepwise", "--cluster", "local:2", "--stepwise"],
            "--stepwise goes on behind",
        ),
        (["--cluster", "local:2", "--cluster-needs", "fast"], "'fast' is not known"),
        (["--cluster-needs", "gpu"], "give --cluster with it"),
    ],
)
def test_options_that_cannot_be_used(tmp_path, arguments, text):
    outcome = run(project(tmp_path / "project"), None, *arguments)
    assert outcome.code == 4 and text in outcome.text, outcome.text
