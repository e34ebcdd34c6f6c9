"""``conformance doctor`` says what runs here, and nothing of whose host it is."""

from pathlib import Path

from conformance.results.records import known
from tests.kit.runs import run_command

CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--runtime", "--own")
"""


def test_it_says_what_is_installed_what_runs_and_what_collides(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/conftest.py").write_text(CONFTEST, encoding="utf-8")
    told = run_command(tmp_path, "doctor", "--store", Path.home() / "a store")
    assert told.code == 0
    lines = [line.split() for line in told.text.splitlines()]
    assert [words[0] for words in lines if words[0] in SECTIONS] == SECTIONS
    assert "onnxruntime: runs here" in told.text and "torch 2." in told.text and "~/a store" in told.text
    assert "tests/conftest.py has options of our names (--runtime): ours are --conformance-..." in told.text
    defects = known.by_package()
    assert defects and all(f" {name}: {len(those)} defects: {', '.join(those)}\n" in told.text
                           for name, those in defects.items())  # fmt: skip
    assert "hunter2" not in told.text and str(Path.home()) not in told.text


SECTIONS = ["conformance", "processor", "installed", "runtimes", "known", "GPU", "store", "pytest"]
