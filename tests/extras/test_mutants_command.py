"""``conformance mutants``: a case that draws too little is told so, with the input that would have shown it."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.front.cli import main
from tests.extras.test_mutants import FLATTENED

WEAK = f"\nweak:\n  about: flattened\n{textwrap.indent(FLATTENED, '  ')}\n"
"""Runs only the shape that it was exported with, so that no size that is baked in shows."""
LOOSE = WEAK.replace("weak", "loose") + "  tolerance: {fp32: {rtol: 0.1, atol: 0.5, because: a test}}\n"
STRONG = WEAK.replace("weak", "strong").replace(
    "examples: {shapes: 0, values: 2, boundary: 1}", "examples: {shapes: 4}"
)
WRONG = WEAK.replace("weak", "wrong").replace("values: 2", "values: 1")  # one draw is vacuous, so that the cell fails

Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Runs the command on a case file: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases").mkdir()

    def run(cases: str, *arguments: str) -> tuple[int, str, str]:
        (tmp_path / "cases" / "some.yaml").write_text(cases, encoding="utf-8")
        code = main(["mutants", "--store", str(tmp_path / "store"), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_survivor_is_told_with_the_input_that_shows_it(told):
    code, out, _ = told(WEAK, "--each", "6", "--min-kill", "1")
    assert code == 1
    lines = out.splitlines()
    (at,) = (number for number, line in enumerate(lines) if "(size baked in)" in line)
    assert lines[at].startswith("  survived: Reshape") and lines[at].endswith("cases/some.yaml:2")
    assert "inputs that the cell did not draw show it: " in lines[at + 1]
    assert lines[at + 2].lstrip().startswith("x = float32")
    assert lines[0].startswith("weak-torchscript-op17-onnxruntime-fp32: ")
    killed, defects = (int(word) for word in lines[-1 if "killed" in lines[-1] else -2].split() if word.isdigit())
    assert 0 < killed < defects


@pytest.mark.thorough
def test_a_survivor_that_the_tolerance_hides_is_told_as_such(told):
    code, out, _ = told(LOOSE, "--each", "5")
    assert code == 0, "without --min-kill any share will do"
    assert "is scaled by 1.01 (weights changed)" in out and "of what the tolerance allows" in out


def test_a_case_that_draws_enough_kills_all_and_what_has_no_mutants_is_told_beside_it(told, tmp_path):
    (tmp_path / "cases" / "broken.yaml").write_text("broken: {forward: [}\n", encoding="utf-8")
    code, out, err = told(WRONG + STRONG, "--min-kill", "1")
    assert code == 0
    assert "survived" not in out and "100.0%" in out and re.search(r"killed ([1-9]\d*) of \1 defects", out)
    assert "wrong-torchscript-op17-onnxruntime-fp32: no mutants, as its cell has failed" in out
    assert "broken.yaml:1" in err


NARROW = """
narrow:
  about: a range in which the remainder of a division is the number itself
  forward: x * (i % 7)
  inputs: {x: "float32[n]", i: {type: "int64[n]", values: {integers: {low: LOW, high: TOP}}}}
  dims: {n: 2..9}
  runtimes: onnxruntime
  specials: false
  export: {torchscript: [17]}
"""


@pytest.mark.thorough
@pytest.mark.parametrize("low, top, all_killed", [(0, 1, False), (-40, 40, True)])
def test_what_shows_only_beyond_the_values_of_the_case_survives(told, low, top, all_killed):
    _, out, _ = told(NARROW.replace("LOW", str(low)).replace("TOP", str(top)), "--each", "5")
    assert ("100.0%" in out) is all_killed
    assert ("survived" in out and "beyond the values that the case declares" in out) is not all_killed


def test_where_nothing_can_be_planted_the_exit_code_is_1(told):
    code, out, _ = told(WRONG)
    assert code == 1
    assert "killed 0 of 0 defects" in out


@pytest.mark.parametrize("arguments, said", [
    (("-k", "nothing"), "no cell is selected"), (("-k", "and"), "is no expression"),
    (("--exporter", "dynamos"), "there is no 'dynamos'"),
])  # fmt: skip
def test_what_selects_no_cell_is_a_mistake_of_the_user(told, arguments, said):
    code, _, err = told(WEAK, *arguments)
    assert (code, said in err) == (2, True)


@pytest.mark.parametrize("arguments", [("--min-kill", "2"), ("--min-kill", "most"), ("--each", "0")])
def test_a_share_is_from_0_to_1_and_a_count_at_least_1(told, arguments):
    with pytest.raises(SystemExit) as stopped:
        told(WEAK, *arguments)
    assert stopped.value.code == 2
