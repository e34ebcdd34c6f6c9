"""Workers that do not fit are refused by name, and what no worker can run says so."""

import resource
from pathlib import Path

import pytest

from tests.extras.cluster.conftest import Shared
from tests.extras.cluster.support import CASES, project, records, run
from tests.kit.runs import Outcome, search_path


def installed(folder: Path, name: str, version: str) -> Path:
    """A distribution that looks installed to who has this folder on PYTHONPATH."""
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (metadata / "top_level.txt").write_text(f"{name}\n", encoding="utf-8")
    (metadata / "RECORD").write_text(f"{name}.py,,\n", encoding="utf-8")
    return folder


NEEDY = """
needy:
  about: of a command
  forward: x * 2
  inputs: {x: 'float32[3]'}
  export: {torchscript: [17]}
  needs: ['command:special-tool']
"""
LACKING = "lacking:\n  about: of a package\n  forward: beside.scaled(x)\n  inputs: {x: 'float32[3]'}\n"
SCALED = "import needed\ndef scaled(x):\n    return x * needed.SCALE\n"


@pytest.fixture(scope="module")
def mixed(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run beside a worker with another version of torch, where no worker has a package and a command."""
    place = tmp_path_factory.mktemp("mixed")
    folder = project(place / "project", CASES + NEEDY)
    (folder / "cases" / "other.yaml").write_text(LACKING.replace("beside.", "other."), encoding="utf-8")
    (folder / "cases" / "other.py").write_text(SCALED, encoding="utf-8")
    packages = installed(place / "packages", "needed", "1.0")
    (packages / "needed.py").write_text("SCALE = 2.0\n", encoding="utf-8")
    old = search_path(installed(place / "old", "torch", "1.9"))
    older = shared.cluster.workers(shared.address, "--no-nanny", "--name", "older", folder="older", PYTHONPATH=old)
    chosen = ("-k", "export and (n2 or needy or lacking)")
    outcome = run(folder, shared.address, *chosen, PYTHONPATH=search_path(packages))
    shared.cluster.end_one(older)
    assert outcome.code == 1, outcome.text
    return outcome


def test_a_worker_with_other_versions_is_refused_by_name(mixed):
    assert "worker older on " in mixed.text and "torch 1.9 (here " in mixed.text
    (passed,) = (record for record in mixed.records.values() if record["status"] == "passed")
    assert "n2" in passed["id"] and passed["worker"]["name"] == "fits"


def test_a_package_that_no_worker_has_is_told_of_the_cells_that_need_it(shared, mixed):
    lacking = {id: record for id, record in mixed.records.items() if record["error"] == "NoWorker"}
    assert lacking and lacking.keys() == {id for id in mixed.records if "lacking" in id}
    assert f"no worker of {shared.address} has package needed" in mixed.text
    assert {record["fault"] for record in lacking.values()} == {"harness"}


def test_a_cell_whose_command_no_worker_has_is_skipped(mixed):
    assert [record["status"] for id, record in mixed.records.items() if "needy" in id] == ["skipped"]


def test_where_no_worker_fits_nothing_is_run(shared, tmp_path):
    needy = run(project(tmp_path), shared.address, "-k", "small and export", "--cluster-needs", "tensorrt")
    assert needy.code == 4, needy.text
    assert "worker fits on " in needy.text and "it has no runtime tensorrt" in needy.text
    assert "Traceback" not in needy.text


@pytest.mark.thorough
def test_workers_that_cannot_write_their_files_or_make_their_store_are_left_out(cluster, tmp_path):
    """A limit on the size of files stands for a full disk: both are trouble of the host's own."""
    folder = project(tmp_path / "project")
    (folder / "cases" / "beside.bin").write_bytes(bytes(200_000))
    cases = CASES.replace("vary: {n: [2, 3, 4]}", "vary: {n: [2, 3, 4]}\n  depends: beside.bin")
    (folder / "cases" / "some.yaml").write_text(cases, encoding="utf-8")
    address = cluster.scheduler()
    full = cluster.workers(address, "--no-nanny", "--name", "full", folder="full")
    resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
    cluster.workers(address, "--no-nanny", "--name", "without", folder="without")
    (cluster.folder / "without" / ".conformance").write_text("no folder", encoding="utf-8")
    limits = ("--cluster-timeout", "15", "--store", "/proc/self/cwd/kept")
    outcome = run(folder, address, "-k", "small and export", *limits)
    assert outcome.code == 1, outcome.text
    assert "worker full on " in outcome.text and "the host allows no larger file" in outcome.text
    assert "worker without on " in outcome.text and ".conformance: cannot be made" in outcome.text
    assert {record["error"] for record in records(folder).values()} == {"NoWorker"}


IMPATIENT = """
from conformance.extras.cluster import workers
usual = workers.ANSWER
def pytest_configure():
    workers.ANSWER = 0.5
def pytest_unconfigure():
    workers.ANSWER = usual
"""


def test_no_scheduler_at_the_address(tmp_path):
    outcome = run(project(tmp_path / "project"), "tcp://127.0.0.1:9", plugin=IMPATIENT)
    assert outcome.code == 4, outcome.text
    assert "--cluster: no scheduler answers at tcp://127.0.0.1:9" in outcome.text
    assert "Traceback" not in outcome.text


@pytest.mark.parametrize("arguments, text", [
    (["--cluster", "scheduler:8786"], "give the address of a Dask scheduler, as tcp://host:8786, or local:4"),
    (["--cluster", "local:0"], "or local:4"), (["--cluster", "local:2", "--dist", "load"], "give one of them"),
    (["-p", "cacheprovider", "-p", "stepwise", "--cluster", "local:2", "--stepwise"], "--stepwise goes on behind"),
    (["--cluster", "local:2", "--cluster-needs", "fast"], "'fast' is not known"),
    (["--cluster-needs", "gpu"], "give --cluster with it"),
])  # fmt: skip
def test_options_that_cannot_be_used(tmp_path, arguments, text):
    outcome = run(project(tmp_path / "project"), None, *arguments)
    assert outcome.code == 4 and text in outcome.text, outcome.text
