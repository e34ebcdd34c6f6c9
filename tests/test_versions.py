"""A bundle under several versions of a runtime: what differs, and which release changed a cell."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conformance import cli
from conformance.errors import UserError
from conformance.records.run_file import read_run
from conformance.versions import bisection, pip, runtimes
from conformance.versions.bisection import between, bisected
from conformance.versions.wanted import Environment, Wanted, wanted_of
from tests.test_bundle import pack

CELL = "accuracy[planted-torchscript-op17-onnxruntime-fp32]"
BODY = """
forward: torch.sin(x)
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..4}
export: {torchscript: [17]}
specials: false
runtimes: [onnxruntime]
"""
RELEASES = ["1.26.0", "1.27.0", "1.27.1", "1.28.0", "1.29.0", "1.30.0", "1.31.0", "1.32.0"]
WRONG = """
import sys
def broken(run):
    return lambda self, *given, **named: [array + array.dtype.type(1) for array in run(self, *given, **named)]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "conformance.runtimes.onnxruntime":
            return None
        sys.meta_path.remove(self)
        import onnxruntime
        onnxruntime.InferenceSession.run = broken(onnxruntime.InferenceSession.run)
sys.meta_path.insert(0, Finder())
"""
"""A ``sitecustomize`` with which each output of ONNX Runtime is off by one."""


def of(version: str) -> Wanted:
    return Wanted("onnxruntime", "onnxruntime", version)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code, place = pack(tmp_path_factory.mktemp("packed"), BODY, "", "--runtime", "onnxruntime", "--examples", "4")
    assert code == 0
    return place


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Environments are stood in for by this one; from 1.30 on its ONNX Runtime is wrong."""

    def stand_in(wanted: Wanted, home: Path) -> Environment:
        version = RELEASES[-1] if wanted.version == "latest" else wanted.version.replace("*", "0")
        python = tmp_path / f"python-{version}"
        wrong = version >= "1.30"
        (tmp_path / "wrong").mkdir(exist_ok=True)
        (tmp_path / "wrong/sitecustomize.py").write_text(WRONG, encoding="utf-8")
        path = f"PYTHONPATH='{tmp_path / 'wrong'}' " if wrong else ""
        python.write_text(f"#!/bin/sh\n{path}exec '{sys.executable}' \"$@\"\n", encoding="utf-8")
        python.chmod(0o755)
        return Environment(wanted, python, version)

    monkeypatch.setattr(runtimes, "made", stand_in)
    monkeypatch.setattr(bisection, "available", lambda package: RELEASES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(bundle: Path, *arguments: str) -> int:
    return cli.main(["versions", str(bundle), *arguments])


# ---- the command -----------------------------------------------------------------------------------------------


def test_a_version_that_breaks_a_cell_is_told_with_what_it_broke(bundle, home, capsys):
    assert asked(bundle, "--runtime", "onnxruntime==1.27.*,1.28.0,latest") == 1
    told = capsys.readouterr().out
    assert "onnxruntime 1.27.0: 1 cell: 1 passed" in told
    assert "onnxruntime 1.32.0: 1 cell: 1 failed" in told
    assert "from onnxruntime 1.27.0 to onnxruntime 1.28.0:\n  no change" in told
    after = told.partition("from onnxruntime 1.28.0 to onnxruntime 1.32.0:")[2]
    assert "newly failing: 1" in after and CELL in after and "1 regression" in after
    assert read_run(home / "reports/versions/onnxruntime-1.28.0")[1][0]["status"] == "passed"


def test_versions_that_agree_are_a_success(bundle, home):
    assert asked(bundle, "--runtime", "onnxruntime==1.26.0,1.27.0") == 0


def test_the_release_that_changed_a_cell_is_found_by_bisection(bundle, home, capsys):
    assert asked(bundle, "--runtime", "onnxruntime==1.26.0,latest", "--bisect", CELL) == 1
    *tried, found = capsys.readouterr().out.splitlines()
    assert found == f"{CELL} is passed up to 1.29.0, and otherwise from onnxruntime 1.30.0 on"
    assert len(tried) == 5, "the two ends, and the logarithm of what lies between"


@pytest.mark.parametrize(("arguments", "text"), [
    (["--runtime", "onnxruntme==1.30"], "no package brings 'onnxruntme'; did you mean 'onnxruntime'?"),
    (["--runtime", "onnxruntime==new"], "'new' is no version such as 1.27.1 or 1.27.*, nor 'latest'"),
    (["--runtime", "onnxruntime==1.27.0,1.28.0", "--bisect", "accuracy[other]"], "none of its 1 cells"),
    (["--runtime", "onnxruntime==1.27.0,1.28.0", "--bisect", CELL], "is the same in both: passed"),
    (["--runtime", "onnxruntime==1.27.0", "--bisect", CELL], "names one version; name the first and the last"),
])  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence(bundle, home, capsys, arguments, text):
    assert asked(bundle, *arguments) == 2
    told = capsys.readouterr().err
    assert text in told and "Traceback" not in told


def test_a_folder_without_a_bundle_is_told(home, capsys):
    assert asked(home / "nowhere", "--runtime", "onnxruntime") == 2
    assert "there is no bundle here" in capsys.readouterr().err


# ---- its parts -------------------------------------------------------------------------------------------------


def test_versions_are_named_in_order():
    named = wanted_of("--runtime", "onnxruntime==1.27.*,1.30.0,latest", runtimes.PACKAGES)
    assert [wanted.requirement for wanted in named] == ["onnxruntime==1.27.*", "onnxruntime==1.30.0", "onnxruntime"]
    assert wanted_of("--runtime", "onnx-reference", runtimes.PACKAGES) == [Wanted("onnx-reference", "onnx", "latest")]


@pytest.mark.parametrize(("first", "last", "found"), [
    ("1.27.*", "1.29.0", RELEASES[2:5]), ("1.26.0", "latest", RELEASES), ("1.31.0", "1.32.*", RELEASES[-2:]),
])  # fmt: skip
def test_releases_between_two_versions_are_those_of_pip(first, last, found):
    assert between(RELEASES, of(first), of(last)) == found


@pytest.mark.parametrize(("first", "last", "text"), [
    ("1.30.0", "1.28.0", "1.30.0 is no earlier release than 1.28.0"),
    ("1.2", "latest", "there is no onnxruntime 1.2"),
])  # fmt: skip
def test_versions_that_are_no_two_releases_in_order_are_refused(first, last, text):
    with pytest.raises(UserError, match=text):
        between(RELEASES, of(first), of(last))


@pytest.mark.parametrize("bad", range(1, len(RELEASES)))
def test_bisection_finds_each_release(tmp_path, monkeypatch, bad):
    monkeypatch.setattr(bisection, "available", lambda package: RELEASES)
    monkeypatch.setattr(
        bisection, "read_run", lambda place: ({}, json.loads(Path(place).read_text(encoding="utf-8")))
    )

    def ask(wanted: Wanted) -> Path:
        failed = RELEASES.index(wanted.version) >= bad
        record = {"id": CELL, "status": "failed" if failed else "passed", "error": "WrongValue" if failed else None}
        (tmp_path / "run").write_text(json.dumps([record]), encoding="utf-8")
        return tmp_path / "run"

    told = bisected(of(RELEASES[0]), of(RELEASES[-1]), CELL, ask, lambda line: None)
    assert told.endswith(f"up to {RELEASES[bad - 1]}, and otherwise from onnxruntime {RELEASES[bad]} on")


def test_an_environment_has_what_a_replay_needs_and_the_last_word_of_pip_is_told(tmp_path, monkeypatch):
    commands: list[list[str]] = []

    def run(command, what):
        commands.append([*command])
        return f"{tmp_path}/site\n1.27.1\n" if "-c" in command else ""

    monkeypatch.setattr(pip, "ran", run)
    found = runtimes.made(of("1.27.*"), tmp_path)
    assert found.name == "onnxruntime 1.27.1" and (tmp_path / "site/conformance/cli.py").is_file()
    install = next(command for command in commands if "install" in command)
    assert "onnxruntime==1.27.*" in install and not any("torch" in word for word in install)
    assert [word for word in install if word.startswith("onnxruntime")] == ["onnxruntime==1.27.*"]


def test_what_pip_says_is_told_in_one_sentence(monkeypatch, tmp_path):
    python = tmp_path / "python"
    said = "echo 'ERROR: Could not find a version' >&2\necho 'ERROR: none for it' >&2"
    python.write_text(f"#!/bin/sh\n{said}\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(pip.sys, "executable", str(python))
    with pytest.raises(UserError, match="the versions of onnxruntime cannot be had: none for it"):
        pip.available("onnxruntime")


# ---- what was shipped ------------------------------------------------------------------------------------------

KEPT = sorted((Path(__file__).parent / "kept").iterdir())
"""Bundles of models that releases of torch made, none of which may break. Of torch V, made in the checkout:
``conformance pack tests/kept/torch-V --cases cases/registration --runtime onnxruntime --precision fp32 --opset 17,20
--examples 2``."""


@pytest.mark.parametrize("release", KEPT, ids=lambda release: release.name)
def test_what_an_earlier_torch_exported_still_holds(tmp_path: Path, release: Path) -> None:
    arguments = ["--runtime", "onnxruntime", "--report", str(tmp_path / "run"), "--store", str(tmp_path / "store")]
    assert cli.main(["replay", str(release), *arguments]) == 0
    records = read_run(tmp_path / "run")[1]
    assert len(records) > 30
    assert {record["status"] for record in records} <= {"passed", "xfailed"}
