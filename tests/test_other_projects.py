"""The plugin in a project of somebody else: no option meets one of theirs, and ours are still there by full names."""

from pathlib import Path

import pytest

from tests.kit.cases import write_case
from tests.kit.runs import run_command, run_pytest, run_suite

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
