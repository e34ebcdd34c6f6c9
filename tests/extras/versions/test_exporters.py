"""The suite under several releases of torch: their environments, and what is said of the cells that differ."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import HOME
from conformance.extras.versions import torch_releases
from conformance.extras.versions.environments import PYTHON, Environment, Wanted
from conformance.front import cli
from conformance.process.errors import UserError
from conformance.results.records.run_file import read_run
from tests.extras.versions.support import BODY, CELL, FAILED, StandIn, changed, leaves, python, versions_in
from tests.kit.cases import write_case
from tests.project.test_packaging import project

RELEASES = ["2.9.0", "2.10.0", "2.10.1", "2.11.0"]
NO_ROOM = r"an environment of torch takes 9 GB; 4\.0 are free in"


def torch(version: str) -> Wanted:
    return Wanted("torch", "torch", version)


def installed(name: str, version: str, *needs: str, url: str | None = None) -> Any:
    """What ``importlib.metadata`` says of an installed package."""
    return SimpleNamespace(name=name, version=version, requires=[*needs], read_text=lambda file: url)


HERE = [
    installed("torch", "2.11.0+cu130", "cuda-parts"), installed("cuda_parts", "2.0"),
    installed("vision", "0.2", "torch>=2.11"), installed("arrays", "1.0"),
    installed("onnx-export-conformance", "0.2.0", url="{}"),
]  # fmt: skip
"""An environment whose torch has a package of CUDA, and a vision that wants this torch."""


def made(home: Path, version: str, tell: Any = print, free: int = 10**10, here: Any = HERE) -> Environment:
    return torch_releases.made(torch(version), home, tell, here=here, free=lambda folder: free)


@pytest.fixture
def earlier(tmp_path: Path) -> Environment:
    """An environment of an earlier call, whose suite runs until there is a file ``go``."""
    folder = tmp_path / "environments" / f"torch-2.9.0-py{PYTHON}"
    wait = f"touch '{tmp_path}/started'; while [ ! -e '{tmp_path}/go' ]; do sleep 0.02; done; mkdir -p \"$report\""
    found = Environment(torch("2.9.0"), python(folder / "bin" / "python", wait), "2.9.0")
    (folder / "complete.txt").write_text("torch===2.9.0\n", encoding="utf-8")
    return found


def test_only_torch_differs_in_an_environment_which_is_made_once_and_never_taken_by_halves(wheels, tmp_path):
    told: list[str] = []
    home, mine = tmp_path / "environments", installed("mine", "1.0", url='{"url": "file:///mine"}')
    found = made(home, "2.10.*", told.append, here=[*HERE, mine])
    assert found.name == "torch 2.10.1"
    assert versions_in(found.python) == {
        "torch": "2.10.1", "cuda_parts": "1.0", "vision": "0.1", "arrays": "1.0",
    }, "the build without a label, what it brings, the vision that admits it, and arrays as here"  # fmt: skip
    assert (found.python.parent.parent / f"lib/python{PYTHON}/site-packages/conformance/front/cli.py").is_file()
    assert told[0] == "mine is not taken along: it was installed from a folder or a repository"
    assert len(told) == 2 and "of some 5 GB" in told[1]

    again = made(home, "2.10.1", told.append)
    assert (again, len(told)) == (Environment(torch("2.10.1"), found.python, "2.10.1"), 2), "it was there"
    (home / f"torch-2.10.1-py{PYTHON}" / "complete.txt").unlink()
    made(home, "2.10.1", told.append)
    assert len(told) == 3, "what is not said to be complete is made again"


def test_the_torch_that_is_installed_needs_no_environment(wheels, tmp_path):
    assert made(tmp_path / "environments", "latest") == Environment(torch("latest"), Path(sys.executable), "2.11.0")
    assert not (tmp_path / "environments").exists()


@pytest.mark.parametrize(("version", "text"), [
    ("2.12.*", f"pip has no torch==2.12.* for Python {PYTHON}; it has 2.9.0, 2.10.0, 2.10.1, 2.11.0"),
    ("2.8.0", "torch 2.8.0 is too old; the suite runs with 2.9 and later"),
])  # fmt: skip
def test_a_release_that_cannot_be_had_is_one_sentence(wheels, tmp_path, version, text):
    with pytest.raises(UserError) as raised:
        made(tmp_path / "environments", version)
    assert str(raised.value) == f"--exporter: {text}"


def test_packages_that_cannot_be_had_together_leave_no_half_environment(wheels, tmp_path):
    (wheels / "arrays-1.0-py3-none-any.whl").unlink()
    with pytest.raises(UserError, match=r"torch 2.9.0 for Python .* cannot be installed: No matching .* arrays==1.0"):
        made(tmp_path / "environments", "2.9.0")
    assert not [*tmp_path.glob("environments/*/")]


def test_an_environment_in_which_a_suite_runs_is_not_removed(wheels, earlier, tmp_path):
    """Another call wants its room while the suite runs, and takes it once that has ended."""
    home, told = tmp_path / "environments", list[str]()
    with ThreadPoolExecutor() as threads:
        run = threads.submit(torch_releases.suite_run, earlier, tmp_path / "runs", [], told.append)
        while not ((tmp_path / "started").exists() or run.done()):
            time.sleep(0.01)
        try:
            with pytest.raises(UserError, match=NO_ROOM):
                made(home, "2.10.0", told.append, 4 * 10**9)
            assert earlier.python.exists()
        finally:
            (tmp_path / "go").touch()
        run.result()
    with pytest.raises(UserError, match=NO_ROOM):
        made(home, "2.10.0", told.append, 4 * 10**9)
    assert not earlier.python.exists() and any("is removed, to have room" in line for line in told)
    with pytest.raises(UserError, match=r"environment of torch 2\.9\.0 was removed by another process"):
        torch_releases.suite_run(earlier, tmp_path / "runs", [], told.append)


def test_the_least_torch_is_that_of_the_project():
    assert f"torch>={torch_releases.LEAST}" in project()["optional-dependencies"]["torch"]


WORDS = ["--cases", "cases", "--precision", "fp32", "--examples", "2", "-k", "accuracy"]


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that this Python makes of the suite, with the arguments of the command."""
    folder = tmp_path_factory.mktemp("made")
    write_case(folder / "cases", BODY)
    words = ["--cases", str(folder / "cases"), *WORDS[2:], "--store", str(folder / "store")]
    here = Environment(torch("2.10.0"), folder / "python", "2.10.0")
    here.python.write_text(
        f"#!/bin/sh\nPYTHONPATH='{HOME.parent}' exec '{sys.executable}' \"$@\"\n", encoding="utf-8"
    )
    here.python.chmod(0o755)
    run = torch_releases.suite_run(here, folder / "reports", words, print)
    assert "1 passed" in (folder / "reports" / "torch-2.10.0.txt").read_text(encoding="utf-8")
    (record,) = read_run(run)[1]
    assert (record.id, record.status) == (CELL, "passed")
    return run


@pytest.fixture
def place(tmp_path: Path, stand_in: StandIn, passed: Path) -> Path:
    """The cell fails from torch 2.11 on."""
    failed = f"{leaves(changed(passed, tmp_path / 'failed', **FAILED))}; exit 1"
    stand_in(RELEASES, lambda version: failed if version == "2.11.0" else leaves(passed))
    return tmp_path


def test_a_release_of_torch_that_breaks_a_cell_is_told(place, capsys):
    assert cli.main(["versions", "--exporter", "torch==2.10.0,latest", *WORDS]) == 1
    told = capsys.readouterr().out
    assert "torch 2.10.0: the suite runs; what it prints is in reports/versions/torch-2.10.0.txt" in told
    assert "torch 2.10.0: 1 cell: 1 passed" in told and "torch 2.11.0: 1 cell: 1 failed" in told
    assert CELL in told.partition("from torch 2.10.0 to torch 2.11.0:")[2]
    assert read_run(place / "reports/versions/torch-2.11.0")[1][0].status == "failed"


@pytest.mark.parametrize(("words", "text"), [
    (["--exporter", "tensorflow==2.9.0"], "--exporter tensorflow==2.9.0: no package brings 'tensorflow'"),
    (["bundle", "--exporter", "torch==2.9.0"], "bundle: with --exporter the suite is run, and no bundle"),
    (["--runtime", "onnxruntime==1.30.0"], "--runtime onnxruntime==1.30.0: name the bundle to replay"),
    (["--exporter", "torch==2.9.0"], "torch 2.9.0: pytest ended with 1 and said: FAILED test_suite.py::test_file[x]"),
    (["--exporter", "torch==2.10.0"], "torch 2.10.0: pytest ended with 5 and said: no tests ran"),
])  # fmt: skip
def test_what_cannot_be_asked_of_versions_is_one_sentence(stand_in, capsys, words, text):
    nothing, failing = "echo 'no tests ran'; exit 5", "echo 'FAILED test_suite.py::test_file[x]'; echo bye; exit 1"
    stand_in(RELEASES, lambda version: failing if version == "2.9.0" else nothing)
    assert cli.main(["versions", *words]) == 2
    told = capsys.readouterr().err
    assert text in told and "Traceback" not in told
