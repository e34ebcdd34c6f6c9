"""A finding in one block: what stands in it, in which order, and what a narrow terminal does with it."""

import re
from types import SimpleNamespace

import pytest

from conformance.results.records.finding_block import describe, lines, shortened
from conformance.results.records.findings import findings
from conformance.results.records.record import Record

pytestmark = pytest.mark.smoke
BASE = {
    "id": "accuracy[net-torchscript-op17-onnxruntime-fp32]", "case": "net", "exporter": "torchscript", "opset": 17,
    "runtime": "onnxruntime", "precision": "fp32", "check": "accuracy", "status": "failed", "stage": "compare",
    "source": {"file": "cases/net.yaml", "line": 3}, "error": "WrongValue",
    "reason": "output 0: 6 of 18 values differ by more than allowed",
    "draw": {"dims": {"n": 3}, "regime": "plain", "seed": 7, "index": 0},
    "worst": {"output": 0, "index": [0, 0], "got": -0.37, "wanted": 0.102, "error": 0.472, "ratio": 211000.0},
    "inputs": {"x": "float32 [[0.0, 0.0], [0.0, 0.0]]"}, "command": "pytest -k net",
}  # fmt: skip
LOCATED = {"operator": "aten.index_add", "line": "mods.py:16", "file": "cases/mods.py",
           "source": "agg = zeros.index_add(0, dst, m)", "type": "ScatterElements", "node": "/S", "how": "value",
           "got": 1.0, "wanted": 2.0}  # fmt: skip
WITNESSES = [{"runtime": "onnx-reference", "answer": "wrong"}, {"runtime": "openvino", "answer": "wrong"},
             {"runtime": "pytorch-float64", "answer": "wrong"}]  # fmt: skip


def red(**fields):
    return fields


def block(*records, since=None):
    made = [Record(**{**BASE, **record}) for record in records or ({},)]
    (finding,) = findings(made)
    return describe(finding, since)


def test_what_a_person_needs_stands_in_the_order_in_which_it_is_needed():
    change = {**LOCATED, "change": "with reduction add, which it lacks"}
    folder = ".conformance/failing/a"
    small = {"repro": f"{folder}/repro.py", "issue": f"{folder}/issue.md", "calls": 1, "of": 9}
    made = block(red(fault="exporter", operator=change, witnesses=WITNESSES, smallest=small), since="reports/one")
    assert (made.who, made.what) == (
        "the TorchScript exporter is wrong", "aten.index_add is exported as ScatterElements without reduction add",
    )  # fmt: skip
    assert [label for label, _ in made.rows] == [
        "where", "effect", "input", "evidence", "since", "cells", "reproduce", "report", "more",
    ]  # fmt: skip
    rows = dict(made.rows)
    assert rows["where"] == ("cases/mods.py:16  agg = zeros.index_add(0, dst, m)",)
    assert rows["effect"] == ("output 0[0, 0] is -0.37, expected 0.102 (6 of 18 values wrong, 211,000 x tolerance)",)
    assert rows["input"] == ("n=3, x = float32 zeros (smallest found)",)
    assert rows["evidence"][0] == "wrong in ONNX's evaluator and OpenVINO too"
    assert rows["reproduce"][0].startswith("python .conformance/failing/a/repro.py")
    assert rows["more"][0].startswith(f"conformance explain {made.id} ")


def test_what_a_record_has_fields_for_is_not_read_out_of_sentences():
    located = {**LOCATED, "change": "in other words", "lacks": "reduction add"}
    reason, worst = "said in other words", {**BASE["worst"], "differ": [5, 17]}
    made = block(red(fault="exporter", operator=located, reason=reason, worst=worst))
    assert made.what == "aten.index_add is exported as ScatterElements without reduction add"
    assert "(5 of 17 values wrong, " in dict(made.rows)["effect"][0]
    uncounted = {**BASE["worst"], "differ": None}
    assert "values wrong" not in dict(block(red(fault="exporter", worst=uncounted)).rows)["effect"][0]


@pytest.mark.parametrize("record, who, what", [
    ({"fault": "exporter", "exporter": "dynamo", "operator": LOCATED},
     "the dynamo exporter is wrong", "other values"),
    ({"fault": "exporter", "exporter": "dynamo", "stage": "export", "operator": {**LOCATED, "how": "raises"}},
     "the dynamo exporter does not export the module", "the exporter stops at aten.index_add"),
    ({"fault": "exporter", "own_code": ["mods.f for aten::index_add"], "operator": LOCATED},
     "the case's own mods.f for aten::index_add is wrong", "aten.index_add is exported"),
    ({"fault": "exporter", "own_code": ["mods.f for aten::sin"], "operator": LOCATED},
     "the case's own mods.f for aten::sin, or the exporter, is wrong", "aten.index_add is exported"),
    ({"fault": "exporter", "operator": {**LOCATED, "how": "path"}},
     "the TorchScript exporter keeps what it saw for one example", "one way of a branch, or one length of a loop"),
    ({"fault": "exporter", "operator": {**LOCATED, "how": "constant"}},
     "the TorchScript exporter keeps what it saw for one example", "an argument of aten.index_add is exported as"),
    ({"fault": "exporter", "operator": {**LOCATED, "how": "number or path"}},
     "the TorchScript exporter keeps what it saw for one example", "a number, a branch or a loop as the example had"),
    ({"fault": "exporter", "exporter": "onnx"}, "the file is wrong", "WrongValue"),
    ({"fault": "exporter", "shipped": "net.onnx"}, "net.onnx is wrong", "WrongValue"),
    ({"fault": "precision", "precision": "fp16", "shipped": "net.onnx", "conversion": {"tool": "net.onnx"}},
     "net.onnx is wrong", "WrongValue"),
    ({"fault": "precision", "precision": "fp16", "shipped": "net.onnx", "conversion": {"tool": "onnxruntime 1.32.0"}},
     "the conversion to fp16 costs too much", "WrongValue"),
    ({"fault": "runtime", "parts_at": {"operator": "TopK", "how": "parts", "by": "openvino"}},
     "ONNX Runtime is wrong", "TopK computes other values"),
    ({"fault": "runtime", "conclusion": "optimizer", "optimizer": {"of": "onnxruntime", "passes": ["GeluFusion"]}},
     "ONNX Runtime's optimizer is wrong", "GeluFusion changes"),
    ({"fault": "precision", "precision": "fp16"}, "the conversion to fp16 costs too much", "WrongValue"),
    ({"fault": "reference"}, "PyTorch itself is wrong", "WrongValue"),
    ({"fault": "case", "stage": "declare", "error": "NoSuchDraw"}, "the case needs a change", "6 of 18"),
    ({"fault": "case", "stage": "declare", "error": "ValidationError", "source": {"file": "net.onnx", "line": 1}},
     "the file needs a change", "6 of 18"),
    ({"fault": None}, "it is open who is wrong", "WrongValue"),
    ({"fault": None, "unexplained": True}, "nobody was asked yet who is wrong", "WrongValue"),
    ({"status": "xpassed"}, "a declared failure does not happen any more", "6 of 18"),
])  # fmt: skip
def test_the_first_lines_say_who_and_what(record, who, what):
    made = block(record)
    assert made.who == who and what in made.what


def test_the_cell_that_was_explained_speaks_for_its_cause_and_the_others_are_a_line():
    first = red(id="b", opset=18, fault="exporter", operator=LOCATED)
    others = [dict(first, id=str(number), opset=number, explained_with="b", worst=None) for number in range(9, 14)]
    rows = dict(block(*others, first).rows)
    assert "expected 0.102" in rows["effect"][0]
    assert rows["cells"] == (
        "net (cases/net.yaml:3), torchscript, opset 9, 10, 11, 12, 13, 18: ONNX Runtime fp32 (accuracy)",
    )


def test_a_graph_with_a_size_baked_in_is_of_the_cause_whose_number_was_kept():
    kept = red(id="b", fault="exporter", operator={**LOCATED, "how": "constant"})
    graphs = red(id="a", check="export", runtime=None, stage="check", error="ShapeBakedIn", fault="exporter")
    assert [len(one.cells) for one in findings([Record(**{**BASE, **one}) for one in (graphs, kept)])] == [2]
    other = dict(graphs, case="another")
    assert len(findings([Record(**{**BASE, **one}) for one in (other, kept)])) == 2


def test_cells_that_fail_alike_are_one_finding_until_somebody_is_asked():
    evaluator = red(id="a", runtime="onnx-reference", fault="exporter", unexplained=True)
    both = [Record(**{**BASE, **one}) for one in (red(id="b", unexplained=True), evaluator)]
    (finding,) = findings(both)
    assert finding.key.component == "exporter" and len(finding.cells) == 2
    rows = dict(describe(finding).rows)
    assert rows["more"] == (f"conformance explain {finding.id}  (all that is known)",)


def test_each_entry_that_is_out_of_date_is_named():
    stale = [
        red(id=str(line), status="xpassed", error=None, reason=f"it works, but a.yaml:{line} says otherwise")
        for line in (3, 9)
    ]
    told = findings([Record(**{**BASE, **one}) for one in stale])
    assert sorted(describe(one).what for one in told) == sorted(one["reason"] for one in stale)


def test_a_short_block_tells_a_finding_from_others_and_how_to_see_all_of_it():
    told = list(lines(shortened(block(red(fault="exporter", operator=LOCATED, witnesses=WITNESSES))), 1, 1, 80))
    assert len(told) <= 10 and "conformance explain" in told[-1]
    assert any("cases/mods.py:16" in line for line in told) and not any("evidence" in line for line in told)


@pytest.mark.parametrize("width", [40, 60, 118])
def test_lines_fit_but_for_what_is_to_be_copied(width):
    made = block(red(fault="exporter", operator=LOCATED, witnesses=WITNESSES, command="pytest -k " + "x" * 200))
    told = list(lines(made, 1, 1, width))
    copied = [line for line in told if re.search("x{200}|cases/mods.py:16|conformance (explain|findings)", line)]
    assert all(len(line) <= max(width, 33) for line in told if line not in copied) and len(copied) == 5
    assert len(told) <= 30 or width == 40


@pytest.mark.parametrize("encoding, sign", [("utf-8", "─"), ("ascii", "-"), ("cp1252", "-"), (None, "-")])
def test_a_rule_is_of_signs_that_the_stream_knows(encoding, sign):
    stream = SimpleNamespace(encoding=encoding)
    assert next(lines(block(), 1, 1, 80, stream)).startswith(sign * 10)


def test_what_others_wrote_does_nothing():
    made = block(red(fault="exporter", reason="\x1b[31m\n::error::x", operator={**LOCATED, "source": "\x1b[2J"}))
    assert all(line.isprintable() for line in lines(made, 1, 400, 80))


@pytest.mark.parametrize("case", ["网络模型", "n" * 200])
def test_names_of_cases_may_be_long_or_in_any_script(case):
    assert any(case[:20] in line for line in lines(block(red(case=case, fault="exporter")), 1, 1, 60))


def test_a_term_is_explained_where_it_is_met_first_and_only_there():
    low = red(error="LowFidelity", reason="output 0: SQNR 21.0 dB, and SQNR 20.0 dB; at least 40 dB expected",
              worst=None, fault="precision")  # fmt: skip
    first, second = (" ".join(" ".join(lines(block(low), number, 2, 100)).split()) for number in (1, 2))
    clause = "SQNR 21.0 dB (signal to quantization noise: higher is better), and SQNR 20.0 dB; at least"
    assert clause in first and clause in second
    assert "opset 17 (the version of ONNX's operators)" in first and "opset 17: ONNX Runtime fp32" in second
    assert "signal to" not in " ".join(lines(block(), 2, 2, 100))


def test_cells_of_both_exporters_in_one_finding_name_both():
    made = block(red(fault="exporter", operator=LOCATED), red(fault="exporter", operator=LOCATED, exporter="dynamo"))
    assert made.who == "both exporters are wrong"


def test_that_openvino_stops_too_is_no_evidence_as_it_lacks_operators():
    stops = [{"runtime": name, "answer": "stops", "error": "RuntimeError"} for name in ("onnx-reference", "openvino")]
    failed = red(stage="load", error="Fail", fault="exporter", witnesses=stops)
    assert dict(block(failed).rows)["evidence"] == ("it stops in ONNX's evaluator too",)


def test_that_calls_change_the_module_stands_as_evidence_beside_what_the_exporter_warned_of():
    """A model keeps no state, so whoever looks at wrong values of a module that does wants to know it first."""
    state = {"name": "state", "text": "calling the module changes calls; each call was compared as it was built"}
    warned = {"name": "export", "text": "Removing mutation from node aten::add_"}
    rows = dict(block(red(fault="exporter", warnings=[state, warned], operator=LOCATED)).rows)
    assert rows["evidence"][-2:] == (
        "calling the module changes calls, and an exported model keeps no state",
        "the exporter warned: Removing mutation from node aten::add_",
    )


def test_a_table_in_a_reason_keeps_its_lines():
    reason = "the inputs differ:\n  a.onnx  b.onnx\n  x       no match\ngive them the same names"
    made = block({"fault": "case", "stage": "declare", "error": "OtherInterface", "reason": reason})
    assert made.what == "the inputs differ:"
    assert dict(made.rows)["to do"] == ("  a.onnx  b.onnx", "  x       no match", "give them the same names")
    printed = [*lines(made, 1, 1, 60)]
    assert any(line.endswith("  a.onnx  b.onnx") for line in printed)


def test_both_shapes_are_told_where_the_first_line_names_the_operator():
    reason = "output 0 has shape (2, 4) instead of (3, 4)"
    wrong = red(fault="exporter", error="WrongShape", reason=reason, worst=None)
    located = {**LOCATED, "how": "shape", "got": [2], "wanted": [3]}
    assert dict(block({**wrong, "operator": located}).rows)["effect"] == (reason,)
    assert reason in block(wrong).what and "effect" not in dict(block(wrong).rows)
