"""What is known of outside packages is named where it fits a red cell or a doubt, and nowhere else."""

import json

import pytest

from conformance.front.cli import main
from conformance.front.commands import outcomes
from conformance.results.records import known
from conformance.results.records.finding_block import describe, lines, markdown
from conformance.results.records.findings import findings
from conformance.results.records.record import Record
from conformance.results.records.run_file import SCHEMA, read_run
from conformance.results.report.html import page

pytestmark = pytest.mark.smoke
BASE = {
    "id": "accuracy[net-torchscript-op17-onnxruntime-fp32]", "case": "net", "exporter": "dynamo", "opset": 17,
    "runtime": "onnxruntime", "precision": "fp32", "check": "accuracy", "status": "failed", "stage": "compare",
    "source": {"file": "net.yaml", "line": 3}, "error": "WrongValue", "reason": "planted",
}  # fmt: skip
OF_EXPORTER = {"fault": "exporter", "operator": {"operator": "aten.planted", "how": "value"}}
OF_RUNTIME = {"fault": "runtime", "runtime": "openvino", "parts_at": {"operator": "Planted", "how": "parts"}}
ALONE = {"fault": "runtime", "runtime": "openvino", "graph": {"nodes": {"Planted": 2, "Cast": 1}}}
DOUBT = {"status": "skipped", "stage": "declare", "error": None, "doubted": "WrongValue", "exporter": "onnx",
         "runtime": "onnxruntime", "graph": {"nodes": {"Planted": 1}}}  # fmt: skip
PASS = {"fault": "runtime", "conclusion": "optimizer", "graph": {"nodes": {"Planted": 1}},
        "optimizer": {"of": "onnxruntime", "passes": ["PlantedFusion"]}}  # fmt: skip
WITNESSES = [{"runtime": "openvino", "answer": "wrong"}]
TABLE = """known,who,package,versions,operators,errors,when
findings/exporter,torchscript dynamo,torch,"<3,>=2.15",aten.planted,WrongValue WrongInf,
findings/runtime,openvino,openvino,==2026.4.1,Other Planted,WrongValue,
findings/evaluator,onnx-reference,onnx,>=1,Planted,WrongValue,
findings/pass,onnxruntime,onnxruntime,>=1,PlantedFusion,WrongValue,
whole numbers,onnxruntime,onnxruntime,>=1,Whole,WrongValue,integer
no such processor,onnxruntime,onnxruntime,>=1,Exp,WrongValue,lacks avx512f
"""
VERSIONS = {"torch": "2.15.0+cpu", "openvino": "2026.4.1", "onnx": "1.23.2", "onnxruntime": "1.32.0"}
CPU = {"name": "planted", "instructions": ["avx2"]}


@pytest.fixture(autouse=True)
def planted(tmp_path, monkeypatch):
    (tmp_path / "known.csv").write_text(TABLE, encoding="utf-8")
    monkeypatch.setattr(known, "FILE", tmp_path / "known.csv")
    known.table.cache_clear()
    yield
    known.table.cache_clear()


def said(record, versions=VERSIONS, cpu=CPU):
    return known.fitting(Record(**{**BASE, **record}), {"versions": versions, "cpu": cpu})


EXPORTER = "findings/exporter (torch 2.15.0+cpu)"
RUNTIME = "findings/runtime (openvino 2026.4.1)"


@pytest.mark.parametrize("record, fits", [
    (OF_EXPORTER, [EXPORTER]),
    ({**OF_EXPORTER, "fault": None}, [EXPORTER]),
    ({**OF_EXPORTER, "operator": {"operator": "aten.layer", "within": "aten.planted"}}, [EXPORTER]),
    (OF_RUNTIME, [RUNTIME]),
    (ALONE, [RUNTIME]),
    (DOUBT, ["findings/evaluator (onnx 1.23.2)"]),
    (PASS, ["findings/pass (onnxruntime 1.32.0)"]),
    ({**OF_RUNTIME, "fault": None, "runtime": "onnxruntime", "witnesses": WITNESSES}, [RUNTIME]),
])  # fmt: skip
def test_what_fits_is_named_with_the_version_that_ran(record, fits):
    assert said(record) == fits


@pytest.mark.parametrize("record", [
    {**OF_EXPORTER, "operator": {"operator": "aten.other"}},
    {**OF_EXPORTER, "exporter": "onnx"},
    {**OF_EXPORTER, "error": "WrongShape"},
    {**OF_EXPORTER, "fault": "runtime"},
    {**OF_EXPORTER, "own_code": ["mods.f for aten::planted"]},
    {**OF_EXPORTER, "operator": None, "reason": "aten.planted"},
    {**OF_RUNTIME, "runtime": "onnxruntime"},
    {**OF_RUNTIME, "parts_at": {"operator": "Relu", "how": "parts"}},
    {**OF_RUNTIME, "fault": "exporter"},
    {**OF_RUNTIME, "fault": "case"},
    {**OF_RUNTIME, "parts_at": None},
    {**ALONE, "graph": {"nodes": {"Planted": 1, "Relu": 1}}},
    {**ALONE, "status": "passed", "error": None},
    {**DOUBT, "doubted": None},
    {**DOUBT, "exporter": "dynamo"},
    {**PASS, "optimizer": {"of": "onnxruntime", "passes": ["OtherFusion"]}},
])  # fmt: skip
def test_what_does_not_fit_is_not_named(record):
    assert said(record) == []


def test_another_version_and_a_package_that_was_not_there_are_told_nothing():
    assert said(OF_EXPORTER, {**VERSIONS, "torch": "2.14.1"}) == said(OF_EXPORTER, {**VERSIONS, "torch": "3.0"}) == []
    assert said(OF_RUNTIME, {"openvino": None}) == said(OF_RUNTIME, {}) == []
    there = known.by_package({"versions": {"openvino": "2026.4.1", "torch": "2.1"}})
    assert there == {"openvino 2026.4.1": ["runtime"]}


def test_conditions_are_those_that_a_record_and_its_host_carry():
    whole = {"fault": "runtime", "parts_at": {"operator": "Whole", "how": "parts"}}
    worst = {"output": 0, "index": [0], "ratio": 2.0}
    assert said({**whole, "worst": {**worst, "got": 3}}) == ["whole numbers (onnxruntime 1.32.0)"]
    assert said({**whole, "arithmetic": {"arithmetic": "i32"}}) == ["whole numbers (onnxruntime 1.32.0)"]
    assert said({**whole, "worst": {**worst, "got": 3.0}}) == said({**whole, "worst": {**worst, "got": True}}) == []
    exp = {"fault": "runtime", "parts_at": {"operator": "Exp", "how": "parts"}}
    assert said(exp) and not said(exp, cpu={"instructions": ["avx2", "avx512f"]}) and not said(exp, cpu=None)
    wide = {"name": "w", "host": "h", "cpu": {"name": "wide", "instructions": ["avx512f"]}}
    assert not said({**exp, "worker": wide})


def test_it_stands_in_the_block_and_decides_nothing():
    environment = {"versions": VERSIONS, "cpu": CPU}
    records = [Record(**{**BASE, **OF_EXPORTER})]
    (finding,), (plain,) = findings(records, environment), findings(records, {})
    block, without = describe(finding), describe(plain)
    assert dict(block.rows)["known"] == (EXPORTER,) and "known" not in dict(without.rows)
    assert (block.who, block.what, finding.key) == (without.who, without.what, plain.key)
    assert f"  known      {EXPORTER}" in lines(block, 1, 1, 100)
    assert f"known        {EXPORTER}" in markdown(block)


def test_a_doubt_is_told_by_what_is_installed_and_an_old_run_by_what_it_ran_with(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(known, "_here", lambda: {"versions": {**VERSIONS, "onnx": "9"}, "cpu": CPU})
    doubted = Record(**{**BASE, **DOUBT})
    assert "  known: findings/evaluator (onnx 9)" in [*outcomes([doubted])]
    header = {"schema": SCHEMA, "environment": {"versions": VERSIONS, "cpu": CPU}, "seconds": 1.0}
    red = Record(**{**BASE, **OF_EXPORTER, "id": "accuracy[red]"})
    (tmp_path / "run.json").write_text(
        json.dumps({**header, "records": [doubted.as_dict(), red.as_dict()]}), encoding="utf-8"
    )
    assert main(["explain", "*", "--run", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "  known: findings/evaluator (onnx 1.23.2)\n" in told and f"  known: {EXPORTER}\n" in told
    assert EXPORTER in page([("run", *read_run(tmp_path))])
