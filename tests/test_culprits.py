"""The benchmark of known culprits: what counts as named, that plants are defects, and that its page says so."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.common import HEAD
from benchmarks.culprits import edits, page
from benchmarks.culprits import run as runs
from benchmarks.culprits import sound as of
from benchmarks.culprits.plant import CULPRITS, Culprit, Plant, Written
from benchmarks.culprits.planting import exported, kernel, optimizer, refusing
from benchmarks.culprits.run import Outcome, part, plants
from benchmarks.culprits.score import named, verdict

ROOT = Path(__file__).parent.parent


def record(fault: str | None, **more: Any) -> dict[str, Any]:
    fields = {"status": "failed", "stage": "compare", "error": "WrongValue", "conclusion": None, "reason": "planted"}
    return {**fields, "witnesses": [], "own_code": [], "cause": None, "fault": fault, **more}


OPTIMIZER = record("runtime", conclusion="optimizer")
NAMES = {
    "exporter": record("exporter"), "optimizer": OPTIMIZER, "kernel": record("runtime"),
    "conversion": record("precision"), "reference": record("reference"), "case": record("case"),
    "host": record("harness", error="CannotWrite"),
}  # fmt: skip


@pytest.mark.parametrize("culprit", CULPRITS)
def test_the_record_that_names_the_culprit_is_right_and_any_other_is_wrong(culprit: Culprit) -> None:
    found = {who: verdict(culprit, False, NAMES[who]) for who in CULPRITS}
    others = dict.fromkeys(CULPRITS, "wrong")
    if culprit == "optimizer":  # ONNX Runtime is named, only not which part of it
        others["kernel"] = "open"
    assert found == {**others, culprit: "right"}


@pytest.mark.parametrize("culprit", CULPRITS)
def test_no_fault_is_open_and_no_failure_is_not_found(culprit: Culprit) -> None:
    assert verdict(culprit, False, record(None, conclusion="nobody")) == "open"
    assert verdict(culprit, False, record(None, status="passed")) == "not found"
    skipped = record(None, status="skipped", reason="the package 'planted' is not installed")
    assert verdict(culprit, False, skipped) == ("right" if culprit == "host" else "not found")


@pytest.mark.parametrize("told, who", [
    (record("harness", error="OutOfMemory"), "host"),
    (record("runtime", error="OutOfMemory"), "kernel"),
    (record("case", error="OutOfMemory"), "case"),
    (record("harness", error="AssertionError"), "harness"),
    (record("runtime", cause={"name": "saturation"}), "host"),
    (record("runtime", conclusion="optimizer"), "optimizer"),
    (record(None, conclusion="strictness"), None),
])  # fmt: skip
def test_who_a_record_names(told: dict[str, Any], who: str | None) -> None:
    assert named(told) == who


def test_a_mistake_in_the_harness_names_nobody_rightly() -> None:
    assert {verdict(culprit, False, record("harness", error="KeyError")) for culprit in CULPRITS} == {"wrong"}


def test_a_wrong_symbolic_of_the_cases_own_has_to_be_named_as_such() -> None:
    assert verdict("exporter", True, record("exporter", own_code=["beside.symbolic for aten::sub"])) == "right"
    assert verdict("exporter", True, record("exporter")) == "wrong"
    assert verdict("exporter", True, record("case")) == "right"


# ---- the plants ------------------------------------------------------------------------------------------


def test_there_are_as_many_plants_as_are_asked_for() -> None:
    counts = Counter(plant.culprit for plant in plants())
    least = {
        "exporter": 30, "optimizer": 12, "kernel": 20, "conversion": 15, "reference": 10, "case": 20, "host": 10
    }  # fmt: skip
    assert all(counts[culprit] >= number for culprit, number in least.items()), counts
    assert counts.total() >= page.PLANTS


def test_every_plant_is_one_cell_of_a_case_that_can_be_read(tmp_path: Path) -> None:
    for number, plant in enumerate(plants()):
        for written in {plant.case, plant.twin} - {None}:
            assert written is not None
            folder = tmp_path / f"{number}-{written is plant.case}"
            assert runs.cell_of(plant, written, folder).check == plant.check


def test_edits_change_what_they_say_and_leave_a_valid_model() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    nodes = [helper.make_node("Sub", ["x", "one"], ["d"]), helper.make_node("Relu", ["d"], ["y"])]
    constant = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])

    def model() -> onnx.ModelProto:
        graph = helper.make_graph(nodes, "small", [x], [y], [constant])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    for edit in (
        edits.swapped("Sub"), edits.left_out("Relu"), edits.exchanged("Relu", "Abs"), edits.of_output(edits.times(2)),
        edits.behind("Sub", edits.plus(1)), edits.before("Relu", edits.rounded_to("FLOAT16")),
        edits.constant("Sub", 1, edits.scaled(2)), edits.named("one", edits.scaled(2)),
    ):  # fmt: skip
        changed = model()
        assert edit(changed) == 1
        onnx.checker.check_model(changed, full_check=True)
        assert changed.SerializeToString() != model().SerializeToString()
    assert edits.left_out("Conv")(model()) == 0


# ---- running them ------------------------------------------------------------------------------------------


HALF = edits.behind("Sin", edits.times(0.5))
UNSOUND = of.case("torch.sin(x) * 0", of.X, of.BATCH)
OWN = [
    Plant("half", "exporter", of.SIN, exported(HALF)),
    Plant("half", "kernel", of.SIN, kernel(HALF)),
    Plant("half", "optimizer", of.SIN, optimizer(HALF)),
    Plant("half, and someone else is named", "conversion", of.SIN, kernel(HALF)),
    Plant("nowhere to be planted", "exporter", of.SIN, exported(edits.left_out("Conv"))),
    Plant("planted and harmless", "kernel", of.SIN, kernel(edits.behind("Sin", edits.times(1)))),
    Plant("not implemented", "kernel", of.SIN, refusing("Sin", "NotImplemented", "planted")),
    Plant("in a case that does not pass", "exporter", UNSOUND, exported(HALF)),
    Plant("too few outputs", "case", Written(f"{of.SIN.body}\noutputs: [a, b]"), sound=of.SIN),
]


class _Table:
    @staticmethod
    def plants() -> Iterator[Plant]:
        yield from OWN


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "TABLES", (_Table,))
        patch.setattr(runs, "run_planted", _run_own)
        return list(part(0, 1, 1))


def _run_own(*arguments: Any) -> Any:
    runs.TABLES = (_Table,)  # type: ignore[assignment]  # the worker is another process
    return _run_planted(*arguments)


_run_planted = runs.run_planted


def test_plants_are_run_and_scored(outcomes: list[Outcome]) -> None:
    found = {(outcome.culprit, outcome.name): (outcome.verdict, outcome.counts) for outcome in outcomes}
    assert found == {
        ("exporter", "half"): ("right", True),
        ("kernel", "half"): ("right", True),
        ("optimizer", "half"): ("right", True),
        ("conversion", "half, and someone else is named"): ("wrong", True),
        ("exporter", "nowhere to be planted"): ("not found", False),
        ("kernel", "planted and harmless"): ("not found", True),
        ("kernel", "not implemented"): ("right", True),
        ("exporter", "in a case that does not pass"): ("wrong", False),
        ("case", "too few outputs"): ("right", True),
    }


def test_the_rows_count_plants_that_prove_something(outcomes: list[Outcome]) -> None:
    rows = {row.what: row for row in page.rows_of(outcomes)}
    assert (rows["all"].measured, rows["all"].repeats) == ("5 named rightly", 7)
    assert rows["named rightly"].compared_with == "5 of 7"
    assert rows["named rightly"].met is False
    assert (rows["named wrongly or not found"].measured, rows["named wrongly or not found"].met) == ("2", False)
    assert (rows["plants that prove nothing"].measured, rows["plants that prove nothing"].met) == ("2", False)
    right = [outcome for outcome in outcomes if outcome.verdict == "right"]
    assert all(row.met for row in page.rows_of(right) if row.target)


def test_the_page_lists_what_was_not_named_rightly(
    outcomes: list[Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "culprits.md")
    page.write(outcomes, "on a host")
    text = (tmp_path / "culprits.md").read_text(encoding="utf-8")
    assert "| kernel | 3 | 2 | 0 | 1 | 0 |" in text
    assert "- wrong: conversion, half, and someone else is named. Named: kernel (failed, compare, WrongValue" in text
    assert "- not found: kernel, planted and harmless. Named: nobody (passed)" in text
    assert "- exporter, nowhere to be planted: the defect was not met" in text
    assert "- exporter, in a case that does not pass: the sound form does not pass: failed, compare, Vacuous" in text
    assert "half. Named" not in text.partition("## Not named rightly")[2].partition("exporter, half.")[2]
    assert "| optimizer | fault `runtime` and conclusion `optimizer` |" in text


def test_the_command_prints_a_tenth_and_writes_nothing() -> None:
    before = page.PAGE.read_bytes()
    command = [sys.executable, "-m", "benchmarks", "--quick", "culprits"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(HEAD)
    rows = [line.split(" | ") for line in run.stdout[len(HEAD) :].strip().splitlines()]
    assert [row[0].removeprefix("| ") for row in rows] == [
        *CULPRITS, "all", "named rightly", "named wrongly or not found", "plants that prove nothing"
    ]  # fmt: skip
    assert int(rows[-1][4]) == -(-len(plants()) // 10)
    assert page.PAGE.read_bytes() == before


@pytest.mark.parametrize("name, fault, conclusion", [
    ("kernel: 8-bit weights read too large", "runtime", "meaning"),
    ("optimizer: an activation lost in a converted model, int8", "runtime", "optimizer"),
    ("optimizer: an activation lost in a converted model, fp16", "runtime", "optimizer"),
])  # fmt: skip
def test_of_a_converted_model_the_optimizer_and_the_kernels_are_named(name: str, fault: str, conclusion: str) -> None:
    (outcome,) = part(0, 1, 1, name)
    assert (outcome.record["fault"], outcome.record["conclusion"]) == (fault, conclusion)
