"""``[tool.conformance]`` of ``pyproject.toml``: options that count unless a command line has others."""

import argparse
import importlib
from pathlib import Path

import pytest

from conformance.front.cli import _STANDING, COMMANDS
from tests.kit.cases import write_case
from tests.kit.runs import AS_RUN, Outcome, run_command, run_pytest, run_suite
from tests.kit.unrun import UNRUN

CASE = "forward: torch.sin(x)\ninputs: {x: 'float32[3]'}\nexport: {torchscript: [13, 17]}\n"
SAID = """
[project]
name = "theirs"  # opset = 3

[tool.conformance]
cases = ["theirs"]
opset = 17
runtime = ["onnxruntime", "onnx-reference"]
report = "reports/standing"
no-observe = true
random = false
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_case(tmp_path / "theirs", CASE, name="theirs")
    write_case(tmp_path / "cases", CASE, name="other")
    (tmp_path / "pyproject.toml").write_text(SAID, encoding="utf-8")
    (tmp_path / "deep").mkdir()
    return tmp_path


def ran(folder: Path, report: str = "reports/standing") -> set[str]:
    """The cases, opsets and runtimes of a run."""
    lines = (folder / report / "records.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    return {line.split('"id":"')[1].partition("[")[2].partition("]")[0] for line in lines}


EXPORT, RUNTIME = "theirs-torchscript-op17", "theirs-torchscript-op17-onnxruntime-fp32"
ALL = [EXPORT, RUNTIME, RUNTIME.replace("onnxruntime", "onnx-reference")]
OTHERS = [name.replace("theirs", "other") for name in ALL]


@pytest.mark.parametrize("start, words, cells", [
    ("", ("--pyargs", "conformance"), ALL),
    ("", AS_RUN, ALL),
    ("deep", AS_RUN, ALL),
    pytest.param("", (*AS_RUN, "-n", "1"), ALL, marks=pytest.mark.thorough),
    ("", (*AS_RUN, "--runtime", "onnxruntime"), [EXPORT, RUNTIME]),
    ("", (*AS_RUN, "-o", "addopts=--conformance-runtime=onnxruntime"), [EXPORT, RUNTIME]),
    ("", (*AS_RUN, "cases"), OTHERS),
    ("", (*AS_RUN, "--cases=cases"), OTHERS),
    ("", (*AS_RUN, "--cases", "cases", "--opset=13"), [name.replace("17", "13") for name in OTHERS]),
])  # fmt: skip
def test_it_counts_wherever_a_run_starts_and_the_command_line_wins(project, start, words, cells):
    done = run_pytest(project / start, *words, *UNRUN)
    assert done.code == 0 and ran(project) == {*cells}, done.text


def test_a_run_says_by_what_it_was_selected(project):
    assert run_suite(project, *UNRUN, "--report", "mine").code == 0
    header = (project / "mine/records.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert '"--conformance-opset=17"' in header and '"--conformance-no-observe"' in header
    assert "conformance-random" not in header and not (project / "reports").exists()


def test_a_baseline_that_stands_there_is_compared_with(project):
    file = project / "pyproject.toml"
    assert run_suite(project, *UNRUN, "--report", "before", "--opset", "13,17").code == 0
    file.write_text(f'{SAID.replace("opset = 17", "")}baseline = "before"\n', encoding="utf-8")
    (project / "theirs/theirs.yaml").write_text((project / "theirs/theirs.yaml").read_text().replace("13, ", ""))
    done = run_suite(project / "deep", *UNRUN)
    assert done.code == 1 and "vanished" in done.text, done.text


def test_tests_of_other_projects_do_not_read_it(project):
    (project / "pyproject.toml").write_text("[tool.conformance]\nrunitme = 1\n", encoding="utf-8")
    (project / "test_theirs.py").write_text("def test_theirs():\n    pass\n")
    assert run_pytest(project, "test_theirs.py").code == 0


@pytest.mark.parametrize("text, said", [
    ('runitme = "onnxruntime"', ":3: [tool.conformance] has no key 'runitme'; did you mean 'runtime'?"),
    ("xyzzy = 1", ":3: [tool.conformance] has no key 'xyzzy'; known: baseline, budget, cases, "),
    ('opset = 17\n"xyzzy" = 1', ":4: [tool.conformance] has no key 'xyzzy'; known: "),
    ("run = true", ":3: [tool.conformance] has no key 'run'"),
    ('budget = "soon"', ":3: [tool.conformance] budget: 'soon' is not a time such as 60s or 5m above 0"),
    ("opset = true", ":3: [tool.conformance] opset: true is neither a text, a number, nor a list of them"),
    ("random = 1", ":3: [tool.conformance] random: 1 is neither true nor false"),
    ('isolation = "proces"', ":3: [tool.conformance] isolation: 'proces' is not known; did you mean 'process'?"),
    ("opset = ", ": Invalid value"),
])  # fmt: skip
def test_what_no_option_takes_is_a_sentence_with_its_line(tmp_path, text, said):
    write_case(tmp_path / "cases", CASE)
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\n")  # so that pytest itself reads no pyproject.toml
    (tmp_path / "pyproject.toml").write_text(f"\n[tool.conformance]\n{text}\n", encoding="utf-8")
    for outcome, code in ((run_pytest(tmp_path, *AS_RUN, "-c", "setup.cfg"), 4), (check(tmp_path), 2)):
        assert outcome.code == code and f"pyproject.toml{said}" in outcome.text, outcome.text
        assert "Traceback" not in outcome.text


def check(folder: Path, *words: str) -> Outcome:
    return run_command(folder, "check", "net.onnx", *words)


def test_conformance_check_takes_what_it_knows_of_it(tmp_path):
    import onnx.parser

    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[3] x) => (float[3] y) { y = Sin(x) }'
    (tmp_path / "net.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    said = '[tool.conformance]\nprecision = "fp16"\nruntime = "onnxruntime"\nshard = "1/2"\n'
    (tmp_path / "pyproject.toml").write_text(said, encoding="utf-8")
    assert "-fp16]" in (done := check(tmp_path)).text and "int8" not in done.text and "openvino" not in done.text
    assert "-int8]" in (done := check(tmp_path, "--precision=int8")).text and "fp16" not in done.text


def test_every_command_with_a_store_takes_that_of_the_file():
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"conformance.front.commands.{name}").arguments(parser)
        taken = _STANDING.get(name, ())
        assert all(f"--{option} " in parser.format_help() for option in taken), name
        assert ("store" in taken) == (parser.get_default("store") is not None and name != "replay"), name
