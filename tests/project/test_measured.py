"""The pages about what is located, made small, put together and repaired count rightly; their plants are met."""

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from benchmarks.common import HEAD
from conformance.results.records.record import Record
from evidence import findings, passes
from evidence.coverage import page as coverage
from evidence.parsed_outputs import compared
from evidence.reduction import page as reduction
from evidence.reduction import run as reducing
from evidence.repairs import page as repairs
from evidence.repairs.run import Outcome, Proposal, with_paste
from tests.plants import coverage as fresh
from tests.plants import findings as causes
from tests.plants import reduction as faults
from tests.plants import repairs as repairable
from tests.plants import sound as of
from tests.plants.passes import defects as wrong_passes
from tests.plants.plant import Plant
from tests.plants.planted import Seen

TABLES = [
    (wrong_passes, passes.LEAST), (faults, 20), (causes, 2 * findings.CAUSES), (repairable, repairs.LEAST),
    (fresh, coverage.PLANTS),
]  # fmt: skip


def record(fault: str | None = "runtime", **more: Any) -> dict[str, Any]:
    made = Record(
        "accuracy[a]", "a", "torchscript", 17, "onnxruntime", "fp32", "accuracy", {"file": "a.yaml", "line": 1},
        status="failed", stage="compare", error="WrongValue", fault=fault,
    )  # fmt: skip
    return {**made.as_dict(), **more}


def seen(name: str, *records: dict[str, Any], planted: bool = True, sound: str = "") -> Seen:
    return Seen(Plant(name, "kernel", of.SIN), list(records), planted, sound)


@pytest.mark.parametrize("table, least", TABLES)
def test_there_are_as_many_plants_as_are_asked_for_each_with_a_name_of_its_own(table, least):
    names = Counter(plant.name for plant in table.plants())
    assert names.total() >= least and set(names.values()) == {1}


@pytest.mark.parametrize("table", [table for table, _ in TABLES])
def test_every_plant_is_about_a_cell_of_a_case_that_can_be_read(table, tmp_path):
    for number, plant in enumerate(table.plants()):
        for written in {plant.case, plant.twin} - {None}:
            cells = findings.all_cells(plant, written, tmp_path / str(number) / "planted")
            assert cells, plant.name


@pytest.mark.parametrize("told, verdict", [
    ({"optimizer": {"passes": ["A"]}}, "right"), ({"operator": {"passes": ["A"]}}, "right"),
    ({"optimizer": {"passes": ["B"]}}, "wrong"), ({"optimizer": {"passes": ["A", "B"]}}, "wrong"),
    ({"optimizer": {"passes": []}}, "open"), ({}, "open"), ({"status": "passed"}, "not found"),
])  # fmt: skip
def test_the_guilty_pass_and_no_other_has_to_be_named(told, verdict):
    assert passes.verdict(seen("a", record(**told)), "A") == verdict


def test_a_process_started_with_a_plant_has_its_defect(tmp_path):
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
    assert reducing.exit_code(script, reducing.environment(key)) == 1 and reducing.exit_code(script, {}) == 0
    assert "CONFORMANCE_PLANT" not in os.environ


def cells_of(cause: str, *records: dict[str, Any]) -> Seen:
    return seen(f"{cause}{causes.APART}1", *records)


def operator(name: str, **more: Any) -> dict[str, Any]:
    return record("exporter", operator={"operator": name}, **more)


def test_a_finding_of_two_causes_is_merged_and_a_cause_of_two_findings_is_split():
    good = [cells_of("a", operator("aten.sin"), operator("aten.sin")), cells_of("b", operator("aten.cos"))]
    found = findings.counted(good)
    assert (found.merged, found.split, len(found.found)) == ([], {}, 2)
    merged = findings.counted([*good, cells_of("c", operator("aten.cos"))])
    assert [names for _, names in merged.merged] == [["b", "c"]]
    split = findings.counted([*good, cells_of("a", operator("aten.tan"))])
    assert {cause: len(these) for cause, these in split.split.items()} == {"a": 2}
    rows = {row.what: row for row in findings.rows_of([*good, cells_of("a", operator("aten.tan"))])}
    assert rows["findings that are split off needlessly"].measured == "50.0%"
    assert rows["findings that are split off needlessly"].met is False
    assert rows["findings of more than one cause"].met is True


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
def test_a_proposal_is_pasted_as_a_reader_does(paste, name, expected):
    case = YAML(typ="safe", pure=True).load(with_paste(CASE, paste))["planted"]
    assert case.pop(name) == expected
    rest = YAML(typ="safe", pure=True).load(CASE)["planted"]
    rest.pop(name, None)
    assert case == rest


@pytest.mark.parametrize("page, outcomes, line", [
    (passes, [seen("onnxruntime: ConvAddFusion", record(optimizer={"passes": ["Other"]}))],
     "| onnxruntime: ConvAddFusion | ConvAddFusion | Other | wrong |"),
    (reduction, [reducing.Outcome("a", fault="runtime", whole=12, shows=1, mended=0, smallest={
        "nodes": 1, "seconds": 2.0, "operators": ["Sin"]})],
     "| a | runtime | 1 | 12 | Sin | ends with 1 | 0 | 2.0 |"),
    (findings, [cells_of("a", operator("aten.sin")), cells_of("b", operator("aten.sin"))],
     "- exporter, operator, aten.sin, values (2 cells): a; b"),
    (repairs, [Outcome("symbolic: a", "aten.sub", [Proposal("one", ""), Proposal("two", "it fails")])],
     "- symbolic: a, two: it fails"),
], ids=["passes", "reduction", "findings", "repairs"])  # fmt: skip
def test_a_page_has_a_line_for_what_was_found(page, outcomes, line, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "study", lambda quick: outcomes)
    page.write("on a host")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert HEAD in text and line in text and text.endswith("\non a host\n")


def test_outputs_of_another_dtype_are_not_right_but_for_float64():
    small, whole, double = np.ones(2, np.int8), np.ones(2, np.uint8), np.ones(2)
    assert compared([small], [small]) == ("right", "") and compared([small], [whole]) == ("wrong", "int8 for uint8")
    assert compared([double.astype(np.float32)], [double]) == ("right", "")
