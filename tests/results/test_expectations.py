"""``conformance findings --expect`` after other versions: which declared failures go, shrink or change, in a small
diff."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.front.cli import main
from conformance.results.records.run_file import RunWriter

HEAD = """# A file of somebody's.
planted:
  about: a test
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  export: {torchscript: [13, 17], dynamo: [20]}
  runtimes: [onnxruntime]
"""
OTHER = """
other:
  about: no part of it
  forward: torch.cos(x)
  inputs: {x: "float32[3]"}
"""
BLOCK = """  fails:
    # since the spring
    - when: {exporter: torchscript}   # both opsets
      stage: compare
      error: WrongValue
      because: >-
        a reason of
        two lines

    # about dynamo
    - {when: {exporter: dynamo}, stage: load, because: "it, too"}
"""
Happens = Callable[[Cell], dict[str, Any] | None]


def expect(folder: Path, text: str, happens: Happens, environment: dict[str, Any] | None = None) -> tuple[Path, str]:
    """Write a case file and a run in which its cells do what ``happens`` says, None for a cell that was not run; take
    it over, and return the file and the lines of the diff."""
    file, run = folder / "planted.yaml", folder / "run"
    file.write_text(text, encoding="utf-8")
    writer = RunWriter(run, {"started": "2026-01-01", **({"environment": environment} if environment else {})})
    for case in load(file):
        for cell in plan(case):
            said = happens(cell)
            if said is not None:
                source = {"file": str(file), "line": case.line}
                writer.add({**cell.record().as_dict(), "status": "passed", "source": source, **said})
    writer.close(1.0)
    assert main(["findings", str(run), "--expect", "all"]) == 0
    after = file.read_text(encoding="utf-8")
    diff = difflib.unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return file, "\n".join(line for line in diff if not line.startswith(("---", "+++", "@@")))


def happening(cell: Cell, works: Callable[[Cell], bool]) -> dict[str, Any] | None:
    """As both entries of ``BLOCK`` say, but for cells that work."""
    if cell.case.name != "planted" or cell.check != "accuracy":
        return {}
    if works(cell):
        return {"status": "xpassed"}
    stage = "load" if cell.exporter == "dynamo" else "compare"
    return {"status": "xfailed", "stage": stage, "error": "WrongValue"}


def failing(**said: str) -> dict[str, Any]:
    return {"status": "failed", "reason": "planted", "fault": "runtime", **said}


def test_a_failure_that_is_fixed_goes_and_nothing_else_of_the_file_changes(tmp_path, capsys):
    _, diff = expect(tmp_path, HEAD + BLOCK + OTHER, lambda cell: happening(cell, lambda of: of.exporter != "dynamo"))

    assert diff == "\n".join(f"-{line}" for line in BLOCK.splitlines()[2:8])
    out = capsys.readouterr().out
    assert "planted.yaml:11: fixed, taken out: {when: {exporter: torchscript}, stage: compare" in out
    assert "a reason of two lines" in out


def test_a_failure_that_is_fixed_at_one_opset_is_about_the_other(tmp_path, capsys):
    file, diff = expect(tmp_path, HEAD + BLOCK + OTHER, lambda cell: happening(cell, lambda of: of.opset == 13))

    assert diff == (
        "-    - when: {exporter: torchscript}   # both opsets\n"
        "+    - when: {exporter: torchscript, opset: 17}   # both opsets"
    )
    assert "planted.yaml:11: holds for fewer cells: " in capsys.readouterr().out
    assert [entry.because for entry in load(file)[0].says.fails] == ["a reason of two lines", "it, too"]


def test_a_failure_of_another_kind_keeps_its_reason_which_is_to_be_read(tmp_path, capsys):
    def happens(cell: Cell) -> dict[str, Any] | None:
        said = happening(cell, lambda of: False)
        return failing(stage="run", error="Fail") if said and cell.exporter == "dynamo" else said

    file, diff = expect(tmp_path, HEAD + BLOCK + OTHER, happens)

    assert diff.splitlines() == [
        '-    - {when: {exporter: dynamo}, stage: load, because: "it, too"}',
        '+    - {when: {exporter: dynamo}, stage: run, error: Fail, fault: runtime, because: "it, too"}',
    ]
    assert "fails otherwise, so that its reason is to be read again" in capsys.readouterr().out
    assert load(file)[0].says.fails[1].because == "it, too"


def test_what_nobody_declared_is_new_and_without_a_reason(tmp_path, capsys):
    def happens(cell: Cell) -> dict[str, Any] | None:
        return failing(stage="compare", error="WrongNaN") if cell.check == "specials" else happening(cell, bool)

    _, diff = expect(tmp_path, HEAD + OTHER, happens)

    assert '+    - {when: {check: specials}, stage: compare, error: WrongNaN, fault: runtime, because: ""}' in diff
    assert "wrote 1 new entry of `fails`; say because:" in capsys.readouterr().out


@pytest.mark.parametrize("left", ["not run", "skipped", "passes elsewhere"])
def test_what_was_not_run_is_taken_to_fail_still(tmp_path, left):
    def happens(cell: Cell) -> dict[str, Any] | None:
        if cell.exporter == "torchscript" and cell.opset == 17 and left != "passes elsewhere":
            return {"status": "skipped"} if left == "skipped" else None
        return happening(cell, lambda of: of.exporter == "torchscript" and of.opset == 13)

    file, _ = expect(tmp_path, HEAD + BLOCK, happens)

    first, _ = load(file)[0].says.fails
    assert first.when.opset is not None and 17 in first.when.opset and 13 not in first.when.opset


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  fails: [{stage: compare, because: a}]", ""),
        ("  fails:\n    - stage: compare\n      because: a", ""),
        (
            '  fails: [{stage: compare, because: "a, [b]"}, {stage: latency, because: c}]',
            "  fails: [{stage: latency, because: c}]",
        ),
        ("  fails:\n    - {stage: compare, because: a}   # x\n    # y\n  tags: [z]", "    # y\n  tags: [z]"),
    ],
)
def test_entries_go_however_they_are_written(tmp_path, before, after):
    def works(cell: Cell) -> dict[str, Any]:
        return {"status": "xpassed"} if cell.check == "accuracy" and cell.case.name == "planted" else {}

    file, _ = expect(tmp_path, f"{HEAD}{before}\n{OTHER}", works)

    assert file.read_text(encoding="utf-8") == f"{HEAD}{after}\n{OTHER}".replace("\n\n\n", "\n\n")


def test_entries_that_stand_elsewhere_are_left_and_told(tmp_path, capsys):
    text = "defaults:\n  fails: [{stage: compare, because: all of them}]\n" + HEAD
    works = lambda cell: {"status": "xpassed"} if cell.check == "accuracy" else {}  # noqa: E731

    _, diff = expect(tmp_path, text, works)

    assert diff == "" and "is to be done by hand" in (out := capsys.readouterr().out)
    assert 'planted.yaml:2: fixed, taken out: {stage: compare, because: "all of them"}' in out


def test_what_is_declared_for_other_hosts_and_single_draws_stays(tmp_path, capsys):
    fails = (
        '  fails:\n    - {when: {versions: "torch < 2.0"}, stage: compare, because: old}\n'
        "    - {when: {cpu: {lacks: avx2}}, stage: compare, because: slow}\n"
        "    - {when: {values: huge}, stage: compare, because: large}\n"
    )
    environment = {"versions": {"torch": "2.15.0"}, "cpu": {"name": "x", "instructions": ["avx2"]}}

    def happens(cell: Cell) -> dict[str, Any]:
        return failing(stage="load", error="Fail") if cell.check == "accuracy" else {}

    _, diff = expect(tmp_path, HEAD + fails, happens, environment)

    assert diff == '+    - {stage: load, error: Fail, fault: runtime, because: ""}'
    environment["versions"] = {"torch": "1.9"}
    (tmp_path / "other").mkdir()
    _, diff = expect(tmp_path / "other", HEAD + fails, happens, environment)
    assert diff.splitlines()[1] == (
        '+    - {when: {versions: ["torch < 2.0"]}, stage: load, error: Fail, fault: runtime, because: old}'
    )


VARIED = """operators:
  about: operators by samples
  forward: getattr(torch, operator)(x) * sample
  vary: {operator: [sin, cos, tan], sample: [1, 2]}
  inputs: {x: "float32[3]"}
  export: {dynamo: [20]}
  runtimes: [onnxruntime]
  specials: false
"""


def test_an_operator_is_named_whose_samples_all_fail_and_a_sample_that_alone_does(tmp_path, capsys):
    fails = "  fails:\n    - {when: {with: {operator: sinn}}, stage: load, because: no such one}\n"

    def happens(cell: Cell) -> dict[str, Any]:
        wrong = cell.case.varied in (
            {"operator": "cos", "sample": 2},
            *({"operator": "tan", "sample": n} for n in (1, 2)),
        )
        return failing(stage="compare", error="WrongValue") if wrong and cell.check == "accuracy" else {}

    file, diff = expect(tmp_path, VARIED + fails, happens)

    assert [line.partition(", stage")[0] for line in diff.splitlines()] == [
        "+    - {when: {with: {operator: cos, sample: 2}}", "+    - {when: {with: {operator: tan}}",
    ]  # fmt: skip
    assert "planted.yaml:10: about no cell" in capsys.readouterr().out
    text = file.read_text(encoding="utf-8").replace('because: ""', "because: known")

    def fixed(cell: Cell) -> dict[str, Any]:
        declared = cell.case.varied["operator"] == "tan" or cell.case.varied == {"operator": "cos", "sample": 2}
        if not declared or cell.check != "accuracy":
            return {}
        works = cell.case.varied == {"operator": "tan", "sample": 1}
        return {"status": "xpassed"} if works else {"status": "xfailed", "stage": "compare", "error": "WrongValue"}

    (tmp_path / "later").mkdir()
    _, diff = expect(tmp_path / "later", text, fixed)
    assert diff.splitlines()[1].startswith("+    - {when: {with: {operator: tan, sample: 2}}, stage: compare")
    assert len(diff.splitlines()) == 2


def test_more_entries_than_a_case_may_have_are_not_written(tmp_path, capsys):
    names = ["sin", "cos", "tan", "exp", "log", "abs", "neg", "erf", "ceil", "floor", "sqrt", "asin", "acos", "atan"]
    text = VARIED.replace("[sin, cos, tan]", f"[{', '.join(names)}]").replace("[1, 2]", "[1, 2, 3, 4, 5]")

    def happens(cell: Cell) -> dict[str, Any]:  # each with an error of its own
        number = names.index(str(cell.case.varied["operator"])) * 5 + cell.case.varied["sample"]
        return failing(stage="load", error=f"Error{number}") if cell.check == "accuracy" else {}

    _, diff = expect(tmp_path, text, happens)

    assert diff == "" and "not written: 70 entries, and a case has at most 64" in capsys.readouterr().out


def test_a_run_of_another_version_is_a_sentence(tmp_path, capsys):
    (tmp_path / "records.jsonl").write_text('{"schema": 99}\n', encoding="utf-8")

    assert main(["findings", str(tmp_path), "--expect", "all"]) == 2

    assert "is not a run of schema 1" in (said := capsys.readouterr().err) and "Traceback" not in said
