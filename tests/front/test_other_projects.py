"""The plugin in a project of somebody else: their tests end as without it, and ours run beside them."""

import importlib.util
import json
import os
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from tests.kit.cases import write_case
from tests.kit.runs import ROOT, Outcome, run_command, run_pytest, run_suite, search_path

THEIRS = """
def pytest_addoption(parser):
    for name in ("report", "store", "examples", "precision", "cases", "random"):
        parser.addoption(f"--{name}", default="theirs")
"""
TEST = """
def test_theirs(pytestconfig):
    assert [pytestconfig.getoption(name) for name in ("report", "store", "examples")] == ["given", "theirs", "theirs"]
"""
CASE = "forward: torch.sin(x)\ninputs: {x: 'float32[n]'}\ndims: {n: 1..3}\nexport: {torchscript: [17]}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(THEIRS, encoding="utf-8")
    (tmp_path / "test_theirs.py").write_text(TEST, encoding="utf-8")
    write_case(tmp_path / "cases", CASE)
    return tmp_path


def test_options_of_theirs_with_names_of_ours_are_theirs(project):
    done = run_pytest(project, "test_theirs.py", "--report", "given", own_process=True)
    assert done.code == 0, done.text


@pytest.mark.smoke
@pytest.mark.parametrize("examples", ["--examples=1", "--conformance-examples=1"])
def test_the_suite_takes_short_and_full_names(project, examples):
    (project / "conftest.py").unlink()
    done = run_suite(project, examples, "--opset", "17", "--report", "run", "--store", "store")
    assert done.code == 0, done.text
    assert (project / "run" / "records.jsonl").exists()


def test_conformance_run_takes_case_files_in_a_project_with_such_options(project):
    words = ("--examples", "1", "cases/planted.yaml", "--report", "run", "--store", "store")
    done = run_command(project, "run", *words, own_process=True)
    assert done.code == 0, done.text
    assert "planted" in (project / "run" / "records.jsonl").read_text(encoding="utf-8")


def test_short_names_are_unknown_where_other_tests_run(project):
    (project / "conftest.py").unlink()
    done = run_pytest(project, "test_theirs.py", "--opset", "17")
    assert done.code == 4 and "unrecognized arguments: --opset" in done.text


# ---- ten kinds of project --------------------------------------------------------------------------------

PLUGINS = ROOT / "build" / "plugins"
"""Where ``.ci/nightly`` installs plugins that would load into every run of these tests."""
SEEN = """
import json, sys
def pytest_unconfigure(config):
    theirs = {name: str(value) for name, value in vars(config.option).items() if "conformance" not in name}
    settings = sys.modules.get("hypothesis")
    theirs["hypothesis"] = settings and [settings.settings.default.max_examples, settings.settings.default.deadline]
    heavy = {"torch", "onnx", "onnxruntime", "numpy", "pydantic", "ruamel.yaml", "conformance.front.plugin.session"}
    if not hasattr(config, "workerinput"):
        with open("seen.json", "w") as file:
            json.dump([theirs, [*heavy & {*sys.modules}]], file, default=str)
"""
"""A plugin that writes down the options of a session, and which modules it has imported."""
PASSES_AND_FAILS = """
import pytest
@pytest.fixture
def run():
    return "theirs"
def test_passes(run):
    assert run == "theirs"
def test_fails():
    assert 0
@pytest.mark.xfail
def test_declared():
    assert 0
@pytest.mark.skip
def test_skipped():
    pass
"""


class Project(NamedTuple):
    """A kind of project: its files besides ``PASSES_AND_FAILS`` as ``tests/test_theirs.py``, and its arguments."""

    words: tuple[str, ...] = ()
    files: dict[str, str] = {}  # noqa: RUF012
    needs: str = ""
    tests: str = PASSES_AND_FAILS


PROFILE = """
from hypothesis import settings
settings.register_profile("theirs", max_examples=7, deadline=None)
settings.load_profile("theirs")
"""
DRAWS = """
from hypothesis import given, strategies
calls = []
@given(strategies.integers())
def test_draws(number):
    calls.append(number)
def test_profile():
    assert 1 <= len(calls) <= 7
"""
PROJECTS = {
    "plain": Project(),
    "pytest-xdist": Project(("-n", "2")),
    "hypothesis with a profile": Project(files={"conftest.py": PROFILE}, tests=DRAWS),
    "pytest-benchmark": Project(
        ("--benchmark-min-rounds=3", "--benchmark-disable-gc"),
        tests="def test_sum(benchmark): benchmark(sum, [1, 2])",
    ),
    "importlib": Project(
        ("--import-mode=importlib",), {"tests/deep/test_theirs.py": "def test_same_name(): pass"}
    ),
    "src": Project(
        files={
            "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = 'src'\ntestpaths = ['tests']\n"
            "addopts = '--strict-markers --strict-config'\nfilterwarnings = ['error']\n",
            "src/theirs/__init__.py": "VALUE = 1\n",
        },
        tests="from theirs import VALUE\ndef test_value(): assert VALUE == 1",
    ),
    "monorepo": Project(
        ("one", "two"),
        {
            "one/pyproject.toml": "[tool.pytest.ini_options]\n", "one/test_one.py": "def test_one(): pass",
            "two/pytest.ini": "[pytest]\n", "two/conftest.py": THEIRS, "two/test_two.py": "def test_two(): assert 0",
        },
    ),
    "pytest-asyncio": Project(
        ("-o", "asyncio_mode=auto", "-p", "no:randomly"),
        needs="pytest_asyncio",
        tests="async def test_waits(): assert True",
    ),
    "pytest-randomly": Project(("-p", "randomly", "--randomly-seed=3"), needs="pytest_randomly"),
    "pytest-rerunfailures": Project(("--reruns", "1", "-p", "no:randomly"), needs="pytest_rerunfailures"),
    "pytest-cov": Project(("--cov=tests", "--cov-report=term", "-p", "no:randomly"), needs="pytest_cov"),
}  # fmt: skip
QUICK = ("plain", "hypothesis with a profile", "monorepo")


@pytest.fixture
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Project, Path]:
    made: Project = PROJECTS[request.param]
    there = (PLUGINS / made.needs).is_dir() or (PLUGINS / f"{made.needs}.py").is_file()
    if made.needs and not there and importlib.util.find_spec(made.needs) is None:
        pytest.skip(f"{made.needs} is not installed; .ci/nightly does so")
    for name, text in {"tests/test_theirs.py": made.tests, "seen.py": SEEN, **made.files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return made, tmp_path


def run_theirs(kind: tuple[Project, Path], *words: str) -> tuple[Outcome, dict[str, str], list[object]]:
    made, folder = kind
    plugins = PLUGINS if made.needs else folder
    known = os.pathsep.join([str(ROOT), search_path(folder, str(plugins))])
    junit = folder / "junit.xml"
    done = run_pytest(
        folder, "-p", "seen", "--junit-xml", junit, *made.words, *words, own_process=True, PYTHONPATH=known
    )
    cases = ElementTree.parse(junit).iter("testcase")
    ended = {f"{case.get('classname')}.{case.get('name')}": str([part.tag for part in case]) for case in cases}
    return done, ended, json.loads((folder / "seen.json").read_text(encoding="utf-8"))


def kinds(quick: tuple[str, ...]) -> list[object]:
    """Each kind of project; others than the ``quick`` ones only with the slow tests."""
    return [pytest.param(name, marks=[] if name in quick else pytest.mark.thorough) for name in PROJECTS]


@pytest.mark.parametrize("kind", kinds(QUICK), indirect=True)
def test_their_tests_end_as_without_the_plugin(kind):
    done, ended, (options, imported) = run_theirs(kind)
    without, ended_without, (options_without, imported_without) = run_theirs(kind, "-p", "no:conformance.plugin")
    assert "conformance" not in without.text
    assert (done.code, ended) == (without.code, ended_without) and ended, done.text
    for name in ("plugins", "file_or_dir"):
        del options[name], options_without[name]
    assert options == options_without
    assert {*imported} == {*imported_without}


@pytest.mark.parametrize("kind", kinds(("importlib",)), indirect=True)
def test_our_cells_run_in_such_a_project(kind):
    made, folder = kind
    write_case(folder / "cases", CASE)
    words = [word for word in made.words if "/" not in word and not (folder / word).is_dir()]
    known = os.pathsep.join([str(ROOT), search_path(folder, str(PLUGINS if made.needs else folder))])
    unrun = ("-p", "tests.kit.unrun", "--isolation", "none")
    done = run_suite(folder, *unrun, *words, own_process=True, PYTHONPATH=known)
    assert done.code == 0, done.text
    assert len(done.records) == 5, sorted(done.records)
