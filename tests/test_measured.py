"""The benchmarks of what is located, made small, put together and repaired count rightly; their plants are met."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from benchmarks.__main__ import APART, EVIDENCE, GROUPS
from benchmarks.common import HEAD, Row, Timings
from benchmarks.coverage import fresh, shipped
from benchmarks.coverage import page as coverage
from benchmarks.culprits import edits
from benchmarks.culprits import sound as of
from benchmarks.culprits.plant import Plant, Planted
from benchmarks.culprits.planting import kernel
from benchmarks.findings import causes
from benchmarks.findings import page as findings
from benchmarks.location import memory
from benchmarks.location.page import row_of_memory
from benchmarks.passes import defects as wrong_passes
from benchmarks.passes import page as passes
from benchmarks.passes.planting import of_onnxruntime
from benchmarks.planted import Seen, walk
from benchmarks.reduction import faults
from benchmarks.reduction import page as reduction
from benchmarks.reduction import run as reducing
from benchmarks.repairs import defects as repairable
from benchmarks.repairs import page as repairs
from benchmarks.repairs import run as repairing
from benchmarks.repairs.run import Outcome, Proposal, with_paste
from conformance.records.record import Record
from conformance.worker.warm import new_worker

TABLES = [
    (wrong_passes, passes.LEAST), (faults, 20), (causes, 2 * findings.CAUSES), (repairable, repairs.LEAST),
    (fresh, coverage.PLANTS),
]  # fmt: skip


def by_name(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.what: row for row in rows}


def record(fault: str | None = "runtime", **more: Any) -> dict[str, Any]:
    made = Record(
        "accuracy[a]", "a", "torchscript", 17, "onnxruntime", "fp32", "accuracy", {"file": "a.yaml", "line": 1},
        status="failed", stage="compare", error="WrongValue", fault=fault,
    )  # fmt: skip
    return {**made.as_dict(), **more}


def seen(name: str, *records: dict[str, Any], planted: bool = True, sound: str = "") -> Seen:
    return Seen(Plant(name, "kernel", of.SIN), list(records), planted, sound)


# ---- the plants --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table, least", TABLES)
def test_there_are_as_many_plants_as_are_asked_for_each_with_a_name_of_its_own(table: Any, least: int) -> None:
    names = Counter(plant.name for plant in table.plants())
    assert names.total() >= least
    assert set(names.values()) == {1}


@pytest.mark.parametrize("table", [table for table, _ in TABLES])
def test_every_plant_is_about_a_cell_of_a_case_that_can_be_read(table: Any, tmp_path: Path) -> None:
    for number, plant in enumerate(table.plants()):
        for written in {plant.case, plant.twin} - {None}:
            cells = findings.all_cells(plant, written, tmp_path / str(number) / "planted")
            assert cells, plant.name


def test_every_pass_that_is_wrong_is_known_by_the_name_of_its_plant() -> None:
    guilty = wrong_passes.guilty()
    assert {*guilty} == {plant.name for plant in wrong_passes.plants()}
    assert guilty["onnxscript: CommonSubexpressionEliminationPass"] == "CommonSubexpressionEliminationPass"
    assert guilty["known: zeros around what is below zero"] == "Pad_Fusion"
    assert guilty["onnxsim: Tanh taken for Atan"] == "onnxsim"


def test_a_cause_is_planted_in_two_cases() -> None:
    counts = Counter(causes.cause_of(plant) for plant in causes.plants())
    assert set(counts.values()) == {2} and len(counts) >= findings.CAUSES


# ---- passes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told, verdict", [
    ({"optimizer": {"passes": ["A"]}}, "right"),
    ({"operator": {"passes": ["A"]}}, "right"),
    ({"optimizer": {"passes": ["B"]}}, "wrong"),
    ({"optimizer": {"passes": ["A", "B"]}}, "wrong"),
    ({"optimizer": {"passes": []}}, "open"),
    ({}, "open"),
    ({"status": "passed"}, "not found"),
])  # fmt: skip
def test_the_guilty_pass_and_no_other_has_to_be_named(told: dict[str, Any], verdict: str) -> None:
    assert passes.verdict(seen("a", record(**told)), "A") == verdict


def test_a_pass_that_is_named_wrongly_or_proves_nothing_is_not_met() -> None:
    names = list(wrong_passes.guilty())[:3]
    told = [record(optimizer={"passes": [wrong_passes.guilty()[name]]}) for name in names]
    rows = by_name(list(passes.rows_of([seen(name, one) for name, one in zip(names, told, strict=True)])))
    assert rows["named rightly"].met is True and rows["named wrongly"].met is True
    assert rows["wrong passes"].met is False  # three are too few
    wrong = seen(names[0], record(optimizer={"passes": ["Another"]}))
    void = seen(names[1], told[1], planted=False)
    rows = by_name(list(passes.rows_of([wrong, void])))
    assert [rows[name].met for name in ("named rightly", "named wrongly", "plants that prove nothing")] == [False] * 3


def test_a_wrong_pass_is_run_as_a_cell_and_named() -> None:
    (plant,) = (plant for plant in wrong_passes.plants() if plant.name == "onnxruntime: QuickGeluFusion")
    (found,) = walk(passes.TABLE, [plant], quick=True)
    assert found.counts and passes.verdict(found, "QuickGeluFusion") == "right"


def test_a_pass_that_changes_nothing_is_not_met() -> None:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Sin", ["x"], ["y"])], "one", [x], [y])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    planted, given = Planted(), {"x": np.ones(2, np.float32)}
    onnx.checker.check_model(data)
    with of_onnxruntime("MatMulAddFusion")(planted):
        (got,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, given)
    assert planted.times == 0
    np.testing.assert_allclose(got, np.sin(given["x"]), rtol=1e-6)


# ---- reduction ---------------------------------------------------------------------------------------------


def made_small(nodes: int = 2, shows: int | None = 1, mended: int | None = 0, **more: Any) -> reducing.Outcome:
    small = {"nodes": nodes, "seconds": 2.0, "operators": ["Sin"] * nodes}
    return reducing.Outcome("a", **{"fault": "runtime", "whole": 12, "smallest": small, **more}, shows=shows,
                            mended=mended)  # fmt: skip


def test_scripts_have_to_show_the_defect_and_its_end() -> None:
    rows = list(reduction.rows_of([made_small(), made_small(mended=None)]))
    assert [row.met for row in rows if row.target] == [True, True, True]
    rows = list(reduction.rows_of([made_small(nodes=6, shows=0, mended=1)]))
    assert [row.met for row in rows if row.target] == [False, False, False]
    none = made_small(smallest={}, shows=None, mended=None)
    others = [made_small(fault="exporter"), made_small(void="it passes")]
    (first, *_, last) = reduction.rows_of([none, *others])
    assert (first.measured, last.met) == ("0 of 1", False)


def test_a_kernel_is_put_in_the_midst_of_a_longer_module() -> None:
    cases = {plant.name: plant.case for plant in faults.plants()}
    assert cases["a sigmoid that overflows"].body.startswith('forward: "(lambda y: y + torch.atan(')
    assert cases["wrong for a batch of two"].body.startswith("module: beside.Longer\n")
    assert "class Longer(Linear):" in cases["wrong for a batch of two"].python
    assert cases["the last of tied elements"].body.startswith('forward: "x.argmax(1)"')


def test_a_process_started_with_a_plant_has_its_defect(tmp_path: Path) -> None:
    script = tmp_path / "shows.py"
    script.write_text(
        "import sys, numpy as np, onnxruntime as ort\n"
        "from onnx import TensorProto, helper\n"
        "x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in 'xy')\n"
        "graph = helper.make_graph([helper.make_node('Erf', ['x'], ['y'])], 'g', [x], [y])\n"
        "model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)\n"
        "session = ort.InferenceSession(model.SerializeToString(), None, ['CPUExecutionProvider'])\n"
        "(got,) = session.run(None, {'x': np.full(2, 0.5, 'f')})\n"
        "sys.exit(int(abs(got[0] - 0.5204999) > 1e-5))\n",
        encoding="utf-8",
    )
    key = reducing.TABLE, "an error function one part in ten thousand off"
    assert reducing.exit_code(script, reducing.environment(key)) == 1
    assert reducing.exit_code(script, {}) == 0
    assert "CONFORMANCE_PLANT" not in os.environ


# ---- findings ----------------------------------------------------------------------------------------------


def cells_of(cause: str, *records: dict[str, Any]) -> Seen:
    return seen(f"{cause}{causes.APART}1", *records)


def operator(name: str, **more: Any) -> dict[str, Any]:
    return record("exporter", operator={"operator": name}, **more)


def test_a_finding_of_two_causes_is_merged_and_a_cause_of_two_findings_is_split() -> None:
    good = [cells_of("a", operator("aten.sin"), operator("aten.sin")), cells_of("b", operator("aten.cos"))]
    found = findings.counted(good)
    assert (found.merged, found.split, len(found.found)) == ([], {}, 2)
    merged = findings.counted([*good, cells_of("c", operator("aten.cos"))])
    assert [names for _, names in merged.merged] == [["b", "c"]]
    split = findings.counted([*good, cells_of("a", operator("aten.tan"))])
    assert {cause: len(these) for cause, these in split.split.items()} == {"a": 2}
    rows = by_name(list(findings.rows_of([*good, cells_of("a", operator("aten.tan"))])))
    assert rows["findings that are split off needlessly"].measured == "50.0%"
    assert rows["findings that are split off needlessly"].met is False
    assert rows["findings of more than one cause"].met is True


def test_cells_that_pass_and_plants_that_prove_nothing_are_in_no_finding() -> None:
    quiet = cells_of("b", operator("aten.cos", status="passed"))
    void = seen(f"c{causes.APART}1", operator("aten.tan"), sound="failed")
    found = findings.counted([cells_of("a", operator("aten.sin")), quiet, void])
    assert dict(found.causes) == {"a": 1} and len(found.found) == 1
    rows = by_name(list(findings.rows_of([cells_of("a", operator("aten.sin")), quiet, void])))
    assert rows["causes without a red cell, or whose case fails by itself"].measured == "2"


# ---- repairs -----------------------------------------------------------------------------------------------

CASE = """planted:
  about: a case
  module: beside.Net
  export: {torchscript: {opsets: [17], symbolics: {"aten::sub": beside.symbolic}}, dynamo: [18]}
  onnxruntime: {config: {a: b}}
"""


@pytest.mark.parametrize("paste, name, expected", [
    ("export: {dynamo: [20]}", "export", {"dynamo": [20]}),
    ("export: {torchscript: {opsets: [18], ...}}, the rest of it as it is", "export",
     {"torchscript": {"opsets": [18], "symbolics": {"aten::sub": "beside.symbolic"}}}),
    ("export: {dynamo: {opsets: [20], ...}}, the rest of it as it is", "export", {"dynamo": {"opsets": [20]}}),
    ("onnxruntime: {config: {c: 'd'}}", "onnxruntime", {"config": {"a": "b", "c": "d"}}),
    ('precisions: {fp16: {exclude: {torchscript: ["n"]}}}', "precisions",
     {"fp16": {"exclude": {"torchscript": ["n"]}}}),
])  # fmt: skip
def test_a_proposal_is_pasted_as_a_reader_does(paste: str, name: str, expected: Any) -> None:
    case = YAML(typ="safe", pure=True).load(with_paste(CASE, paste))["planted"]
    assert case.pop(name) == expected
    rest = YAML(typ="safe", pure=True).load(CASE)["planted"]
    rest.pop(name, None)
    assert case == rest


def test_what_is_no_entry_of_a_case_cannot_be_pasted() -> None:
    for paste in ("take another opset", "export: {dynamo: [20"):
        with pytest.raises(ValueError, match="what is proposed is no"):
            with_paste(CASE, paste)


def test_a_proposal_that_does_not_pass_mends_nothing_and_is_told() -> None:
    right, wrong = Proposal("export with dynamo", ""), Proposal("another opset", "accuracy[a]: WrongValue")
    outcomes = [
        Outcome("symbolic: a", "aten.sub", [wrong, right]), Outcome("symbolic: b", "aten.add", [wrong]),
        Outcome("pass: c", "", [right]), Outcome("pass: d", "", void="it passes"),
    ]  # fmt: skip
    rows = by_name(list(repairs.rows_of(outcomes)))
    assert rows["with a verified fix"].compared_with == "1 of 2" and rows["with a verified fix"].met is False
    assert (rows["fixes that do not pass when they are pasted"].measured, rows["located defects"].measured) == (
        "2",
        "2",
    )
    assert rows["with a verified fix, symbolic"].measured == "1 of 2"


# ---- coverage and memory -----------------------------------------------------------------------------------


def network(defect: str, way: str, status: str, error: str | None = None, *, planted: bool = True) -> Seen:
    name = fresh.name_of(fresh.NETWORKS[0], defect, way)
    return seen(name, record(None, status=status, error=error), planted=planted)


def test_a_defect_in_a_branch_that_is_green_is_not_met() -> None:
    outcomes = [
        network("scale", "as it is", "failed", "Hollow"), network("epsilon", "as it is", "passed"),
        network("scale", "woken", "failed", "WrongValue"), network("sound", "woken", "passed"),
        network("scale", "declared hollow", "passed"), network("sound", "as it is", "failed", "Hollow"),
    ]  # fmt: skip
    rows = by_name(list(coverage.rows_of_fresh({one.plant.name: one for one in outcomes})))
    green = {way: rows[f"defects in branches that are green, the case {way}"] for way in fresh.WAYS}
    assert (green["as it is"].measured, green["as it is"].met) == ("1", False)
    assert (green["woken"].measured, green["woken"].met) == ("0", True)
    assert (green["declared hollow"].measured, green["declared hollow"].met) == ("1", None)
    assert rows["defects planted in branches"].measured == "2"
    assert rows["woken networks without a defect that are red"].met is True


def test_shares_are_of_calls_and_costs_of_times() -> None:
    shares = [shipped.Share("a", 9, 10), shipped.Share("b", 0, 0, "varies"), shipped.Share("c", 30, 30, hollow=True)]
    seen_row, hollow = coverage.rows_of_shares(shares)
    assert (seen_row.measured, seen_row.compared_with) == ("97.5%", "39 of 40; in the case that sees least 90%")
    assert (hollow.measured, hollow.compared_with) == ("1", "1 of which nothing can be said")
    small = Timings({"with": [1.2, 1.3, 1.2], "without": [1.0, 1.0, 1.0]})
    large = Timings({"with": [2.5, 1.5, 1.5], "without": [1.0, 1.0, 1.0]})
    rows = list(coverage.rows_of_costs([("a", False, small), ("resnet50", True, large)]))
    assert [row.met for row in rows] == [True, "unclear"]


def test_a_defect_in_a_branch_is_there_while_the_module_is_exported_and_no_longer() -> None:
    from conformance.checks import models

    class Branch:
        defect = ""

    class Reference:
        module = type("Net", (), {"branch": Branch()})()

    given = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "export", lambda reference: given.append(reference.module.branch.defect))
        with fresh.exported_with("scale")(Planted()):
            models.export(Reference)  # type: ignore[attr-defined, call-arg, arg-type]
    assert given == ["scale"] and Reference.module.branch.defect == ""


def test_memory_is_held_against_the_cell_that_passes() -> None:
    assert row_of_memory(memory.Peaks("a", 100, 199, "Gemm")).met is True
    assert row_of_memory(memory.Peaks("a", 100, 201, "Gemm")).met is False


def test_a_plant_that_is_met_and_one_that_is_not_are_told_apart() -> None:
    half = kernel(edits.behind("Sin", edits.times(0.5)))
    assert Seen(Plant("a", "kernel", of.SIN, half), [record()], True).counts
    assert not Seen(Plant("a", "kernel", of.SIN, half), [record()], False).counts
    assert "without the defect it is failed" in seen("a", record(), sound="failed").void


# ---- the pages, which a whole run writes at its end ----------------------------------------------------------


def written(page: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, outcomes: Any) -> str:
    monkeypatch.setattr(page, "PAGE", folder / "page.md")
    monkeypatch.setattr(page, "study", lambda quick: outcomes)
    page.write("on a host")
    text = (folder / "page.md").read_text(encoding="utf-8")
    assert HEAD in text and text.endswith("\non a host\n")
    return text


def test_every_group_that_writes_a_page_does_so_by_its_name_alone() -> None:
    assert {"passes", "reduction", "findings", "repairs", "coverage"} <= {*EVIDENCE} <= APART <= {*GROUPS}
    assert all(callable(GROUPS[name].rows) and callable(GROUPS[name].write) for name in EVIDENCE)


def test_the_page_of_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, void = "onnxruntime: ConvAddFusion", "onnxscript: FuseConvPad"
    outcomes = [seen(name, record(optimizer={"passes": ["Other"]})), seen(void, record(), planted=False)]
    text = written(passes, monkeypatch, tmp_path, outcomes)
    assert f"| {name} | ConvAddFusion | Other | wrong |" in text
    assert f"- {void}: the defect was not met" in text


def test_the_page_of_small_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = made_small(smallest={"why_not": "a | b\nc"}, shows=None, mended=None)
    text = written(reduction, monkeypatch, tmp_path, [made_small(), none, made_small(void="it passes")])
    assert "| a | runtime | 2 | 12 | Sin, Sin | ends with 1 | 0 | 2.0 |" in text
    assert "| a / b c |" in text and "- a: it passes" in text


def test_the_page_of_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [
        cells_of("a", operator("aten.sin"), record(None)), cells_of("b", operator("aten.sin")),
        seen(f"c{causes.APART}1", record(), sound="failed"),
    ]  # fmt: skip
    text = written(findings, monkeypatch, tmp_path, outcomes)
    assert "- exporter, operator, aten.sin, values (2 cells): a; b" in text
    assert "- a: exporter, operator, aten.sin, values (2 cells); open, onnxruntime, case, values (1 cells)" in text
    assert "- c, case 1: without the defect it is failed" in text


def test_the_page_of_repairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [
        Outcome("symbolic: a", "aten.sub", [Proposal("one", ""), Proposal("two", "it fails")]),
        Outcome("symbolic: b", ""), Outcome("pass: c", "", void="it passes"),
    ]  # fmt: skip
    text = written(repairs, monkeypatch, tmp_path, outcomes)
    assert "| symbolic: a | aten.sub | one; two |" in text and "| symbolic: b | nowhere | nothing |" in text
    assert "- symbolic: a, two: it fails" in text and "- pass: c: it passes" in text


def test_the_page_of_coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(plant: Plant) -> dict[str, Any]:
        return record(None, status="passed" if "woken" in plant.name else "failed", error="Hollow")

    outcomes = {plant.name: Seen(plant, [told(plant)], True) for plant in fresh.plants()}
    times = Timings({"with": [1.2], "without": [1.0]})
    monkeypatch.setattr(shipped, "shares", lambda quick: [shipped.Share("a", 1, 2), shipped.Share("b", 2, 2)])
    monkeypatch.setattr(shipped, "costs", lambda quick: [("a", False, times), ("large", True, times)])
    text = written(coverage, monkeypatch, tmp_path, outcomes)
    assert "| LayerScale, epsilon | Hollow | Hollow | green |" in text
    assert "- `a`: 1 of 2\n" in text and "`b`" not in text
    assert "| large | 1.20 s | 1.00 s | 1.20 × |" in text
    assert "| defects planted in branches | 40 |" in text


def test_a_defect_is_located_and_what_mends_it_is_pasted(tmp_path: Path) -> None:
    (plant,) = (plant for plant in repairable.plants() if plant.name == "pass: NotWhereFusion")
    with new_worker() as worker:
        found = repairing.outcome_of(worker, plant, tmp_path)
    assert (found.located, found.void) == ("NotWhereFusion", "")
    assert [(one.what, one.wrong) for one in found.proposals] == [("switch off NotWhereFusion", "")]
