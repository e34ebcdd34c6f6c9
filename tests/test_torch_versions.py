"""The suite under several releases of torch: their environments, and what is said of the cells that differ."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import HOME, cli
from conformance.errors import UserError
from conformance.records.run_file import read_run
from conformance.versions import exporters, pip
from conformance.versions.wanted import Environment, Wanted
from tests.support import write_case
from tests.test_packaging import project
from tests.test_versions import BODY, WRONG

CELL = "accuracy[planted-torchscript-op17-onnxruntime-fp32]"
RELEASES = ["2.9.0", "2.10.0", "2.10.1", "2.11.0"]


def torch(version: str) -> Wanted:
    return Wanted("torch", "torch", version)


# ---- the environments, made by pip of a folder of wheels ---------------------------------------------------------


def wheel(folder: Path, name: str, version: str, *needs: str) -> None:
    """A wheel with a module that has no more than its version."""
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {need}\n" for need in needs)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}/__init__.py", f"__version__ = {version!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


def installed(name: str, version: str, *needs: str, url: str | None = None) -> Any:
    """What ``importlib.metadata`` would say of an installed package."""
    return SimpleNamespace(name=name, version=version, requires=[*needs], read_text=lambda file: url)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip looks. Here torch is 2.11.0, with a package of CUDA, and a vision that wants it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("2.8.0", *RELEASES, "2.10.1+cpu"):
        wheel(folder, "torch", version, "cuda_parts")
    wheel(folder, "cuda_parts", "1.0")
    for version, least in (("0.1", "2.9"), ("0.2", "2.11")):
        wheel(folder, "vision", version, f"torch>={least}")
    for version in ("1.0", "1.1"):
        wheel(folder, "arrays", version)
    here = [
        installed("torch", "2.11.0+cu130", "cuda-parts"), installed("cuda_parts", "2.0"),
        installed("vision", "0.2", "torch>=2.11"), installed("arrays", "1.0"),
        installed("onnx-export-conformance", "0.2.0", url="{}"),
    ]  # fmt: skip
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: iter(here))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.11.0+cu130")
    monkeypatch.setattr(exporters, "ROOM", 1)
    constraints = tmp_path / "constraints.txt"  # of the environment at hand, as tox has them
    constraints.write_text("torch==2.11.0\n", encoding="utf-8")
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONSTRAINT": str(constraints),
    }.items():
        monkeypatch.setenv(name, value)
    return folder


def versions_in(python: Path) -> dict[str, str]:
    site = next(python.parent.parent.glob("lib/python*/site-packages"))
    return {
        path.name.split("-")[0]: path.name.removesuffix(".dist-info").split("-")[1]
        for path in site.glob("*.dist-info") if not path.name.startswith(("pip-", "setuptools-"))
    }  # fmt: skip


def test_only_torch_differs_in_an_environment_which_is_made_once_and_never_taken_by_halves(
    wheels, tmp_path, monkeypatch
):
    told: list[str] = []
    home = tmp_path / "environments"
    found = exporters.made(torch("2.10.*"), home, told.append)
    assert found.name == "torch 2.10.1"
    assert versions_in(found.python) == {
        "torch": "2.10.1", "cuda_parts": "1.0", "vision": "0.1", "arrays": "1.0",
    }, "the build without a label, what it brings, the vision that admits it, and arrays as here"  # fmt: skip
    assert (found.python.parent.parent / f"lib/python{pip.PYTHON}/site-packages/conformance/cli.py").is_file()
    assert len(told) == 1 and "of some 5 GB" in told[0]

    made: list[Sequence[str]] = []
    install = pip.install
    monkeypatch.setattr(pip, "install", lambda *given: (made.append(given), install(*given)))
    assert exporters.made(torch("2.10.1"), home, told.append) == Environment(torch("2.10.1"), found.python, "2.10.1")
    assert not made, "it was there"
    (home / f"torch-2.10.1-py{pip.PYTHON}" / "complete.txt").unlink()
    exporters.made(torch("2.10.1"), home, told.append)
    assert len(made) == 1, "what is not said to be complete is made again"


def test_the_torch_that_is_installed_needs_no_environment(wheels, tmp_path):
    found = exporters.made(torch("latest"), tmp_path / "environments", print)
    assert found == Environment(torch("latest"), Path(sys.executable), "2.11.0")
    assert not (tmp_path / "environments").exists()


def test_what_was_installed_from_a_folder_is_told_and_left(wheels, tmp_path, monkeypatch):
    told: list[str] = []
    here = [installed("torch", "2.11.0"), installed("mine", "1.0", url='{"url": "file:///mine"}')]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: iter(here))
    found = exporters.made(torch("2.9.0"), tmp_path / "environments", told.append)
    assert told[0] == "mine is not taken along: it was installed from a folder or a repository"
    assert "mine" not in versions_in(found.python)


@pytest.mark.parametrize(("version", "text"), [
    ("2.12.*", f"pip has no torch==2.12.* for Python {pip.PYTHON}; it has 2.9.0, 2.10.0, 2.10.1, 2.11.0"),
    ("2.8.0", "torch 2.8.0 is too old; the suite runs with 2.9 and later"),
])  # fmt: skip
def test_a_release_that_cannot_be_had_is_one_sentence(wheels, tmp_path, version, text):
    with pytest.raises(UserError) as raised:
        exporters.made(torch(version), tmp_path / "environments", print)
    assert str(raised.value) == f"--exporter: {text}"


def test_packages_that_cannot_be_had_together_leave_no_half_environment(wheels, tmp_path):
    (wheels / "arrays-1.0-py3-none-any.whl").unlink()
    with pytest.raises(UserError, match=r"torch 2.9.0 for Python .* cannot be had: No matching .* arrays==1.0"):
        exporters.made(torch("2.9.0"), tmp_path / "environments", print)
    assert not [*tmp_path.glob("environments/*/")]


def test_ctrl_c_leaves_no_half_environment(wheels, tmp_path, monkeypatch):
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pip, "install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exporters.made(torch("2.9.0"), tmp_path / "environments", print)
    assert not [*tmp_path.glob("environments/*/")]


def test_earlier_environments_make_room_and_a_full_disk_is_told(wheels, tmp_path, monkeypatch):
    home, told = tmp_path / "environments", []
    first = exporters.made(torch("2.9.0"), home, told.append)
    free = [0]
    monkeypatch.setattr(exporters.shutil, "disk_usage", lambda place: SimpleNamespace(free=free[0]))
    monkeypatch.setattr(exporters, "ROOM", 9 * 10**9)
    removed = shutil.rmtree

    def remove(folder: Path, **options: bool) -> None:
        free[0] += 10**10 if Path(folder) == first.python.parent.parent and first.python.exists() else 0
        removed(folder, **options)

    monkeypatch.setattr(exporters.shutil, "rmtree", remove)
    exporters.made(torch("2.10.0"), home, told.append)
    assert not first.python.exists() and any("is removed, to have room" in line for line in told)
    free[0] = 4 * 10**9
    shutil.rmtree(home / f"torch-2.10.0-py{pip.PYTHON}")
    with pytest.raises(UserError, match=r"an environment of torch takes 9 GB; 4\.0 are free in"):
        exporters.made(torch("2.9.0"), home, told.append)


def test_an_environment_in_which_a_suite_runs_is_not_removed(wheels, tmp_path, monkeypatch):
    """Another call makes room while the suite runs, and once it has ended."""
    home, told = tmp_path / "environments", []
    first = exporters.made(torch("2.9.0"), home, told.append)
    monkeypatch.setattr(exporters.shutil, "disk_usage", lambda place: SimpleNamespace(free=0))
    full = r"takes 9 GB; 0\.0 are free in"

    def meanwhile(command: Sequence[str], **options: object) -> SimpleNamespace:
        with pytest.raises(UserError, match=full):
            exporters.made(torch("2.10.0"), home, told.append)
        assert first.python.exists()
        Path(command[command.index("--report") + 1]).mkdir()
        return SimpleNamespace(returncode=0)

    with monkeypatch.context() as during:
        during.setattr(exporters, "ROOM", 9 * 10**9)
        during.setattr(exporters, "subprocess", SimpleNamespace(run=meanwhile, STDOUT=subprocess.STDOUT))
        exporters.suite_run(first, tmp_path / "runs", [], told.append)
        with pytest.raises(UserError, match=full):
            exporters.made(torch("2.10.0"), home, told.append)
    assert not first.python.exists() and any("is removed, to have room" in line for line in told)
    with pytest.raises(UserError, match=r"environment of torch 2\.9\.0 was removed by another process"):
        exporters.suite_run(first, tmp_path / "runs", [], told.append)


def test_the_least_torch_is_that_of_the_project():
    assert any(need.startswith(f"torch>={exporters.LEAST};") for need in project()["dependencies"])


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Environments are stood in for by this one; from 2.11 on its models come out wrong."""
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "sitecustomize.py").write_text(WRONG, encoding="utf-8")

    def stand_in(wanted: Wanted, home: Path, tell: object) -> Environment:
        version = RELEASES[-1] if wanted.version == "latest" else wanted.version
        python = tmp_path / f"python-{version}"
        paths = [*([str(tmp_path / "wrong")] if version == "2.11.0" else []), str(HOME.parent)]
        python.write_text(
            f"#!/bin/sh\nPYTHONPATH='{':'.join(paths)}' exec '{sys.executable}' \"$@\"\n", encoding="utf-8"
        )
        python.chmod(0o755)
        return Environment(wanted, python, version)

    monkeypatch.setattr(exporters, "made", stand_in)
    monkeypatch.setattr("conformance.versions.bisection.available", lambda package: RELEASES)
    monkeypatch.chdir(tmp_path)
    write_case(tmp_path / "cases", BODY, "")
    return tmp_path


def test_a_release_of_torch_that_breaks_a_cell_is_told(place, capsys):
    words = ["--cases", "cases", "--precision", "fp32", "--examples", "2", "-k", "accuracy"]
    assert cli.main(["versions", "--exporter", "torch==2.10.0,latest", *words]) == 1
    told = capsys.readouterr().out
    assert "torch 2.10.0: the suite runs; what it prints is in reports/versions/torch-2.10.0.txt" in told
    assert "torch 2.10.0: 1 cell: 1 passed" in told and "torch 2.11.0: 1 cell: 1 failed" in told
    assert CELL in told.partition("from torch 2.10.0 to torch 2.11.0:")[2]
    assert "1 passed" in (place / "reports/versions/torch-2.10.0.txt").read_text(encoding="utf-8")
    assert read_run(place / "reports/versions/torch-2.11.0")[1][0]["status"] == "failed"


def test_the_release_of_torch_that_changed_a_cell_is_found(place, capsys):
    words = ["--cases", "cases", "--bisect", CELL]
    assert cli.main(["versions", "--exporter", "torch==2.9.0,2.11.0", *words]) == 1
    *_, found = capsys.readouterr().out.splitlines()
    assert found == f"{CELL} is passed up to 2.10.1, and otherwise from torch 2.11.0 on"


@pytest.mark.parametrize(("words", "text"), [
    (["--exporter", "tensorflow==2.9.0"], "--exporter tensorflow==2.9.0: no package brings 'tensorflow'"),
    (["bundle", "--exporter", "torch==2.9.0"], "bundle: with --exporter the suite is run, and no bundle"),
    (["--runtime", "onnxruntime==1.30.0"], "--runtime onnxruntime==1.30.0: name the bundle to replay"),
    (["bundle", "--runtime", "onnxruntime", "-n", "2"], "-n is for --exporter; with --runtime the bundle says"),
    (["--exporter", "torch==2.9.0", "--cases", "nowhere"], "said: FAILED test_suite.py::test_case_file[nowhere]"),
    (["--exporter", "torch==2.9.0", "--cases", "cases", "-k", "other"], "torch 2.9.0: pytest ended with 5 and said"),
    (["--exporter", "torch==2.9.0", "--bisect", CELL], "torch==2.9.0 names one version; name the first and the last"),
])  # fmt: skip
def test_what_cannot_be_asked_of_versions_is_one_sentence(place, capsys, words, text):
    assert cli.main(["versions", *words]) == 2
    told = capsys.readouterr().err
    assert text in told and "Traceback" not in told
