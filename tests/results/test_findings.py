"""Red cells with one cause are one finding: which cells are put together, since when, and what accepts them."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.front.cli import main
from conformance.front.commands.findings.fails_revision import entries
from conformance.front.commands.findings.fails_text import inserted
from conformance.process.errors import CaseFileError
from conformance.results.records.finding_block import describe, lines
from conformance.results.records.findings import findings, key_of, since
from conformance.results.records.record import Record, cell_id, cell_label
from conformance.results.records.run_file import RunWriter
from conformance.results.records.text import name_of_finding
from tests.kit.runs import run_suite
from tests.kit.unrun import UNRUN


def red(case: str = "a", check: str = "accuracy", **more: Any) -> Record:
    """A failed record; its fault is the exporter's unless it says otherwise."""
    about = {
        "exporter": "torchscript", "opset": 17, "runtime": "onnxruntime", "precision": "fp32",
        **{name: more.pop(name) for name in ("exporter", "opset", "runtime", "precision") if name in more},
    }  # fmt: skip
    id = cell_id(check, cell_label(case, **about))
    fields = {"status": "failed", "stage": "compare", "error": "WrongValue", "reason": "planted", "fault": "exporter"}
    source = more.pop("source", {"file": "cases/a.yaml", "line": 3})
    return Record(id=id, case=case, check=check, source=source, **{**about, **fields, **more})


def causes(*records: Record) -> list[list[str]]:
    return [[cell.id for cell in finding.cells] for finding in findings(records)]


GELU = {"of": "onnxruntime", "passes": ["GeluFusionL2"]}
OPTIMIZER = {"fault": "runtime", "conclusion": "optimizer", "optimizer": GELU}
OTHER = {"file": "cases/b.yaml", "line": 9}


def at(line: int, file: str = "cases/beside.py", *, own: bool = True) -> dict[str, Any]:
    return {"place": {"file": file, "line": line, "own": own}}


def raised(error: str, reason: str, place: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"stage": "export", "error": error, "reason": reason, **place, **more}


FROZEN = {"operator": {"operator": "aten.cos", "how": "path", "line": "beside.py:7", "stage": "capture"}}
REFUSED = raised("GuardOnDataDependentSymNode", "Could not guard on data-dependent expression u0 > 0", at(7))
LINE = "torch/onnx/_core.py"
KEY = "KeyError: 'sym_size_int_{}'"
ONE = [
    [("a", {"stage": "declare", "error": "SIGSEGV", "signal": "SIGSEGV", "fault": "case", **at(5)}),
     ("b", {"stage": "run", "error": "SIGSEGV", "signal": "SIGSEGV", "fault": "reference", **at(5)})],
    [("a", raised("KeyError", "KeyError: 'gate' (beside.py:9)", at(9), exporter="torchscript")),
     ("b", raised("TorchExportError", "TorchExportError, caused by KeyError: 'gate' (beside.py:9)", at(9),
                  exporter="dynamo"))],
    [(name, raised("KeyError", KEY.format(ord(name)), at(3, LINE, own=False))) for name in "ab"],
    [("a", {"stage": "run", "error": error, "runtime": runtime, "operator": {"operator": "aten.view"}})
     for runtime, error in (("onnxruntime", "Fail"), ("onnx-reference", "ValueError"))],
    [("a", FROZEN), ("b", {**FROZEN, "fault": None, "operator": {**FROZEN["operator"], "operator": "aten.sin"}}),
     ("c", {**REFUSED, "exporter": "dynamo"})],
]  # fmt: skip
"""Cells of several cases that come to one finding, by what differs from a plain one."""


@pytest.mark.parametrize("records", [
    [red(opset=13), red(opset=17), red(runtime="openvino"), red(check="specials", error="WrongNaN")],
    [red(**OPTIMIZER), red("b", source=OTHER, exporter="dynamo", **OPTIMIZER)],
    [red(own_code=["sym.f for aten::f"]), red("b", source=OTHER, own_code=["sym.f for aten::f"])],
    [red(fault="runtime", parts_at={"operator": "Resize", "how": "parts", "node": n}, source=s)
     for n, s in (("one", OTHER), ("two", {"file": "c", "line": 1}))],
    [red(stage="export", error="Unsupported", reason=f"aten::asinh at opset {opset} is not supported", opset=opset,
         source={"file": "c", "line": opset}) for opset in (9, 10)],
    *([red(case, source={"file": "cases/a.yaml", "line": n}, **more) for n, (case, more) in enumerate(cells)]
      for cells in ONE),
    [red("a-n1", fault="case", error="Vacuous"), red("a-n2", fault="case", error="Vacuous")],
    [red(stage="declare", error="CannotWrite", fault="harness", reason=f"full at {n}", case=f"c{n}") for n in (1, 2)],
])  # fmt: skip
@pytest.mark.smoke
def test_cells_with_one_cause_are_one_finding(records):
    assert len(causes(*records)) == 1


TWO = [
    (raised("KeyError", "KeyError: 'gate'", at(9)), raised("KeyError", "KeyError: 'gate'", at(10))),
    (raised("KeyError", "KeyError: 'gate'", at(9)), raised("KeyError", "KeyError: 'norm'", at(9))),
    (raised("ValueError", "ValueError: x", at(3, LINE, own=False), fault="case"),) * 2,
    ({"stage": "run", "error": "Fail", "fault": "runtime", **at(3, "onnxruntime/session.py", own=False)},) * 2,
    (FROZEN, {"operator": {**FROZEN["operator"], "line": "beside.py:8"}}),
    ({"own_code": ["beside.Own.symbolic"], **at(9)}, {"own_code": ["beside.Own.symbolic"], **at(9, "net/beside.py")}),
    [raised("ValueError", f"inferred a static shape of {size} for dimension inputs['x'].shape[{axis}]",
            at(3, LINE, own=False), exporter="dynamo") for size, axis in ((3, 0), (4, 2))],
]  # fmt: skip
"""Cells of two cases that come to two findings: another line, another text, or a line to which many causes come."""


@pytest.mark.parametrize("left, right", [
    (red(), red("b", source=OTHER)), (red(), red(error="WrongShape")), (red(), red(exporter="dynamo")),
    (red(fault="runtime"), red(fault="runtime", runtime="openvino")), (red(**OPTIMIZER), red(fault="runtime")),
    (red(**OPTIMIZER), red(**{**OPTIMIZER, "optimizer": {"of": "onnxruntime", "passes": ["MatMulAddFusion"]}})),
    (red(fault="runtime", parts_at={"operator": "Resize", "how": "parts"}),
     red(fault="runtime", parts_at={"operator": "Pad", "how": "parts"})),
    (red(stage="export", error="Unsupported", reason="no aten::asinh"),
     red(stage="export", error="Unsupported", reason="no aten::celu")),
    (red(fault="precision", precision="fp16"), red(fault="precision", precision="int8")),
    (red(), red(status="xpassed")),
    *((red("a", **one), red("b", source=OTHER, **other)) for one, other in TWO),
])  # fmt: skip
@pytest.mark.smoke
def test_cells_with_two_causes_are_two(left, right):
    assert len(causes(left, right)) == 2


def test_what_is_not_red_is_no_finding():
    assert causes(red(status="xfailed"), red(status="passed"), red(status="skipped")) == []


def test_a_finding_has_the_same_id_in_every_run_and_says_what_and_where():
    (one,) = findings([red(**OPTIMIZER), red(opset=13, **OPTIMIZER)])
    (two,) = findings([red("b", source=OTHER, **OPTIMIZER)])
    assert one.id == two.id
    block = describe(one)
    assert (block.who, block.what) == (
        "ONNX Runtime's optimizer is wrong",
        "GeluFusionL2 changes what the model computes",
    )
    assert ("cells", ("a (cases/a.yaml:3), torchscript, opset 13, 17: ONNX Runtime fp32 (accuracy)",)) in block.rows


def test_names_of_others_are_harmless():
    (one,) = findings([red("a\x1b[2J\n::error::", reason="\x1b[31m", source={"file": "\x1b", "line": 1})])
    assert all(said.isprintable() for said in lines(describe(one), 1, 1, 80))


def test_since_when_is_the_earliest_run_of_an_unbroken_row():
    (finding,) = findings([red(), red(opset=13)])

    def run(name: str, *records: Record) -> tuple[str, dict[str, Record]]:
        return name, {record.id: record for record in records}

    broken, other, sound = red(), red(error="WrongShape"), red(status="passed", stage=None, error=None)
    assert since(finding, []) is None and since(finding, [run("one", broken), run("two", broken)]) == "one"
    assert since(finding, [run("one", broken), run("two", sound), run("three", broken)]) == "three"
    assert since(finding, [run("one", broken), run("two", other)]) is None
    assert since(finding, [run("one", red(opset=13))]) == "one"


FILE = """
planted:
  about: a test
  forward: torch.sin(x)
  inputs: {{x: "float32[batch, 3]"}}
  dims: {{batch: 1..4}}
  export: {{torchscript: [13, 17], dynamo: [20]}}
  runtimes: [onnxruntime, onnx-reference]
{more}
"""


def written(folder: Path, more: str = "") -> tuple[Path, list[Any]]:
    file = folder / "planted.yaml"
    file.write_text(FILE.format(more=more).strip() + "\n", encoding="utf-8")
    return file, [cell for case in load(file) for cell in plan(case)]


@pytest.mark.parametrize("failing, when", [
    (lambda cell: cell.check in ("accuracy", "specials"), {}),
    (lambda cell: cell.check == "specials", {"check": "specials"}),
    (lambda cell: cell.runtime == "onnxruntime" and cell.opset == 20,
     {"runtime": "onnxruntime", "exporter": "dynamo"}),
    (lambda cell: cell.runtime and cell.opset == 13, {"opset": 13}),
    (lambda cell: cell.runtime and cell.opset in (13, 20), {"opset": [13, 20]}),
])  # fmt: skip
def test_an_entry_is_about_just_the_cells_that_failed(tmp_path, failing, when):
    _, cells = written(tmp_path)
    failed = {
        cell.id: dataclasses.replace(cell.record(), stage="compare", error="WrongValue", fault="runtime")
        for cell in cells
        if failing(cell)
    }
    made = list(entries(failed, cells))
    assert [entry.get("when", {}) for entry in made] == [when]
    assert {entry["stage"] for entry in made} == {"compare"} and {entry["because"] for entry in made} == {""}


@pytest.mark.parametrize("more", [
    "", "  fails: [{stage: load, when: {opset: 13}, because: said}]",
    "  fails:\n    - {stage: load, when: {opset: 13}, because: said}\n", "  specials: false\n\n\n# a comment",
])  # fmt: skip
def test_entries_are_written_and_refused_until_they_say_because(tmp_path, capsys, more):
    file, cells = written(tmp_path, more)
    run = tmp_path / "run"
    writer = RunWriter(run, {"started": "2026-01-01"})
    for cell in cells:
        if cell.opset == 17 and cell.runtime:
            record = cell.record()
            record.status, record.stage, record.error, record.fault = "failed", "compare", "WrongValue", "runtime"
            record.source = {"file": str(file), "line": cell.case.line}
            writer.add({**record.as_dict(), "reason": "planted"})
    writer.close(1.0)
    before = file.read_text(encoding="utf-8")
    assert main(["findings", str(run)]) == 1
    ids = re.findall(r"conformance explain (\w{8}) ", capsys.readouterr().out)
    assert main(["findings", str(run), *(word for id in ids for word in ("--expect", id))]) == 0
    assert "say because:" in capsys.readouterr().out
    after = file.read_text(encoding="utf-8")
    assert after != before
    with pytest.raises(CaseFileError, match="because: give the reason for the failure"):
        load(file)
    file.write_text(after.replace('because: ""', "because: known"), encoding="utf-8")
    (case, *_) = load(file)
    assert [entry.because for entry in case.says.fails].count("known") == 1, "one entry is about both runtimes"


def test_what_is_not_written_line_by_line_is_not_edited():
    assert inserted("a: {about: x, forward: y}\n", 1, ["{stage: run}"]) is None
    assert inserted("a:\n  fails: [\n  ]\n", 1, ["{stage: run}"]) is None


def test_a_finding_that_is_not_there_is_told(tmp_path, capsys):
    RunWriter(tmp_path / "run", {"started": "2026-01-01"}).close(1.0)
    assert main(["findings", str(tmp_path / "run")]) == 0
    assert main(["findings", str(tmp_path / "run"), "--expect", "12345678"]) == 2
    assert "no finding of" in capsys.readouterr().err


def test_a_red_run_shows_its_findings_first_and_names_them_last(tmp_path):
    (tmp_path / "planted.yaml").write_text(FILE.format(more="  tags: [fails]"), encoding="utf-8")
    outcome = run_suite(tmp_path, "--cases", "planted.yaml", "-n0", *UNRUN)
    assert outcome.code == 1
    said = outcome.text
    assert said.index("1 of ") < said.index(" conformance =") < said.index("FAILED ") and " FAILURES =" not in said
    failed = [record for record in outcome.records.values() if record["status"] == "failed"]
    keys = {key_of(Record.from_dict(record)) for record in failed}
    assert f"{len(failed)} red cells: {len(keys)} finding" in said
    assert said.count("\nFAILED ") == len(keys)


def test_a_headline_says_what_the_text_says():
    """TorchScript names the node that makes a value too, which is none of the operator that it stops at."""
    reason = (
        "SymbolicValueError: Unsupported: ONNX export of operator Unfold, input size not accessible.  [Caused by the "
        "value 'x defined in (%x : Float(*, *) = prim::Param()' in the TorchScript graph. The containing node has "
        "kind 'prim::Param'.]"
    )
    assert key_of(red(stage="export", error="SymbolicValueError", reason=reason))[2:4] == ("operator", "Unfold")
    (finding,) = findings([red(**FROZEN)])
    assert "the exporter, the branch at cases/beside.py:7: control flow on data" in name_of_finding(finding.key)
