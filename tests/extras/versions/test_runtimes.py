"""A bundle under several versions of a runtime: what differs, and which release changed a cell."""

import sys
from pathlib import Path

import pytest

from conformance.extras.versions import runtimes
from conformance.extras.versions.environments import Environment, Wanted, between
from conformance.front import cli
from conformance.process.errors import UserError
from conformance.results.records.run_file import read_run
from tests.cells.test_bundle import pack
from tests.extras.versions.support import BODY, CELL, FAILED, StandIn, changed, leaves, versions_in

RELEASES = ["1.26.0", "1.27.0", "1.27.1", "1.28.0", "1.29.0", "1.30.0", "1.31.0", "1.32.0"]


def of(version: str) -> Wanted:
    return Wanted("onnxruntime", "onnxruntime", version)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    code, place = pack(tmp_path_factory.mktemp("packed"), BODY, "", "--runtime", "onnxruntime", "--examples", "4")
    assert code == 0
    return place


@pytest.fixture(scope="module")
def passed(bundle: Path) -> Path:
    """The run that this Python makes of the bundle."""
    here = Environment(of("1.26.0"), Path(sys.executable), "1.26.0")
    run = runtimes.replayed(here, bundle, "", bundle.parent / "made", 600.0)
    (record,) = read_run(run)[1]
    assert (record.id, record.status) == (CELL, "passed")
    return run


@pytest.fixture
def home(tmp_path: Path, stand_in: StandIn, passed: Path) -> Path:
    """The cell fails from 1.30 on."""
    failed = changed(passed, tmp_path / "failed", **FAILED)
    stand_in(RELEASES, lambda version: leaves(failed if version >= "1.30" else passed))
    return tmp_path


def asked(bundle: Path, *arguments: str) -> int:
    return cli.main(["versions", str(bundle), *arguments])


def test_a_version_that_breaks_a_cell_is_told_with_what_it_broke(bundle, home, capsys):
    assert asked(bundle, "--runtime", "onnxruntime==1.27.*,1.28.0,latest") == 1
    told = capsys.readouterr().out
    assert "onnxruntime 1.27.0: 1 cell: 1 passed" in told and "onnxruntime 1.32.0: 1 cell: 1 failed" in told
    assert "from onnxruntime 1.27.0 to onnxruntime 1.28.0:\n  no change" in told
    after = told.partition("from onnxruntime 1.28.0 to onnxruntime 1.32.0:")[2]
    assert "newly failing: 1" in after and CELL in after and "1 regression" in after
    assert read_run(home / "reports/versions/onnxruntime-1.28.0")[1][0].status == "passed"


def test_versions_that_agree_are_a_success(bundle, home):
    assert asked(bundle, "--runtime", "onnxruntime==1.26.0,1.27.0") == 0
    assert asked(bundle, "--runtime", "onnxruntime==1.30.0,1.31.0") == 1, "it fails in both"


def test_the_release_that_changed_a_cell_is_found_by_bisection(bundle, home, capsys):
    assert asked(bundle, "--runtime", "onnxruntime==1.26.0,latest", "--bisect", CELL) == 1
    *tried, found = capsys.readouterr().out.splitlines()
    assert found == f"{CELL} is passed up to 1.29.0, and otherwise from onnxruntime 1.30.0 on"
    assert len(tried) == 5, "the two ends, and the logarithm of what lies between"


@pytest.mark.parametrize(("arguments", "text"), [
    (["--runtime", "onnxruntme==1.30"], "no package brings 'onnxruntme'; did you mean 'onnxruntime'?"),
    (["--runtime", "onnxruntime==new"], "'new' is no version such as 1.27.1 or 1.27.*, nor 'latest'"),
    (["--runtime", "onnxruntime==1.27.0,1.28.0", "--bisect", "accuracy[other]"], "there is no cell accuracy[other]"),
    (["--runtime", "onnxruntime==1.27.0", "--bisect", CELL], "names one version; name the first and the last"),
])  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence(bundle, home, capsys, arguments, text):
    assert asked(bundle, *arguments) == 2
    told = capsys.readouterr().err
    assert text in told and "Traceback" not in told


def test_what_a_replay_said_is_told_where_it_left_no_run(bundle, tmp_path):
    here = Environment(of("1.27.0"), Path(sys.executable), "1.27.0")
    with pytest.raises(
        UserError, match=r"onnxruntime 1\.27\.0: the replay ended with 2 and said: .*none of its 1 cells"
    ):
        runtimes.replayed(here, bundle, "accuracy[other]", tmp_path, 600.0)


@pytest.mark.parametrize(("first", "last", "found"), [
    ("1.27.*", "1.29.0", RELEASES[2:5]), ("1.26.0", "latest", RELEASES),
    ("1.30.0", "1.28.0", "1.30.0 is no earlier release than 1.28.0"),
    ("1.2", "latest", "there is no onnxruntime 1.2"), ("1.2.*", "latest", "there is no onnxruntime 1.2"),
])  # fmt: skip
def test_releases_between_two_versions_are_those_of_pip(first, last, found):
    if isinstance(found, str):
        with pytest.raises(UserError, match=found):
            between(RELEASES, of(first), of(last))
    else:
        assert between(RELEASES, of(first), of(last)) == found


def test_an_environment_has_what_a_replay_needs_and_no_torch(tmp_path, wheels):
    found = runtimes.made(of("1.27.*"), tmp_path / "environments")
    assert found.name == "onnxruntime 1.27.1"
    assert versions_in(found.python) == {"numpy": "2.0", "onnx": "1.20", "onnxruntime": "1.27.1"}
    (site,) = found.python.parent.parent.glob("lib/python*/site-packages")
    assert (site / "conformance" / "front" / "cli.py").is_file()


KEPT = sorted((Path(__file__).parents[2] / "kept").iterdir())
"""Bundles of models that releases of torch made, none of which may break. Of torch V, made in the checkout:
``conformance pack tests/kept/torch-V --cases cases/registration --runtime onnxruntime --precision fp32 --opset 17,20
--examples 2``."""


@pytest.mark.parametrize("release", KEPT, ids=lambda release: release.name)
def test_what_an_earlier_torch_exported_still_holds(tmp_path, release):
    arguments = ["--runtime", "onnxruntime", "--report", str(tmp_path / "run"), "--store", str(tmp_path / "store")]
    assert cli.main(["replay", str(release), *arguments]) == 0
    records = read_run(tmp_path / "run")[1]
    assert len(records) > 30 and {record.status for record in records} <= {"passed", "xfailed"}
