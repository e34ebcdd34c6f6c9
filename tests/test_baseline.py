"""Comparing runs, the committed baseline, accepting changes, and runs made in shards."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.baseline import (
    KINDS,
    Limits,
    accept,
    case_of,
    compare_runs,
    environment_changes,
    gate,
    lines,
    load,
    merge,
    parse_shard,
    read_baseline,
    seconds_of,
    selection_of,
    shard,
    write_baseline,
)
from conformance.baseline.ids import fields_of
from conformance.baseline.line import FAMILIES
from conformance.records.record import Record
from conformance.records.run_file import RunWriter, read_run

HEADER: dict[str, Any] = {
    "schema": 1,
    "started": "2026-11-01T10:00:00+00:00",
    "seconds": 12.5,
    "environment": {
        "conformance": "0.1.0",
        "python": "3.11.7",
        "platform": "Linux",
        "cpu": {"name": "A", "instructions": ["avx2", "avx512f"]},
        "cores": 2,
        "gpu": None,
        "versions": {"torch": "2.15.0", "onnx": "1.23.2", "tensorrt": None},
        "flags": ["conformance"],
    },
}
GRAPH = {"opset": 17, "nodes": {"Asinh": 1, "Cast": 2, "Constant": 3}, "sha": "aa"}


def record(name: str = "accuracy[one-dynamo-op20-onnxruntime-fp32]", **more: Any) -> dict[str, Any]:
    """A cell that passed, with the given fields changed."""
    fields = fields_of(name)
    source = {"file": f"cases/{fields['case']}.yaml", "line": 3}
    worst = {"output": 0, "index": [0], "got": 1.0, "wanted": 1.0, "error": 1e-7, "ratio": 0.2, "dims": {}}
    base = Record(
        id=name, source=source, examples=48, worst=worst, seconds={"declare": 0.1, "run": 0.4}, **fields
    ).as_dict()
    return {**base, **more}


FAILED = {"status": "failed", "stage": "compare", "error": "WrongValue", "reason": "output 0", "fault": "runtime"}
CRASHED = {"status": "failed", "stage": "run", "error": "Crash", "reason": "SIGSEGV", "fault": "runtime"}
XFAILED = {"status": "xfailed", "stage": "export", "error": "Unsupported", "reason": "because", "fault": "exporter"}
XPASSED = {"status": "xpassed", "reason": "it works, but", "fault": "case"}
SKIPPED = {"status": "skipped", "stage": "load", "reason": "no GPU"}


def run(*records: dict[str, Any], **header: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return {**copy.deepcopy(HEADER), **header}, list(records)


def environment(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(HEADER["environment"]), **changes}


def test_on_another_processor_an_error_that_is_larger_by_rounding_is_told_and_gates_nothing():
    """Its kernels sum in another order; a cell that then fails is a regression all the same."""
    other = environment(cpu={"name": "another", "instructions": ["avx2"]})
    before = run(record(**worst(0.2)), environment=environment(cpu={"name": "one", "instructions": ["avx512f"]}))
    rounded = {"worst": {"output": 0, "ratio": 0.6, "rounding": 0.2}}
    (change,) = compare_runs(before, run(record(**rounded), environment=other))
    assert (change.kind, change.regression) == ("accuracy worse", False)
    assert "another processor" in change.text
    (change,) = compare_runs(before, run(record(status="failed"), environment=other))
    assert (change.kind, change.regression) == ("newly failing", True)


def worst(ratio: Any) -> dict[str, Any]:
    return {"worst": {"output": 0, "ratio": ratio}}


def latency(median: float, low: float, high: float) -> dict[str, Any]:
    return {"latency": {"own": {"median": median, "interval": [low, high]}}}


def kinds(before: Any, after: Any, **how: Any) -> list[str]:
    return [change.kind for change in compare_runs(before, after, **how)]


def of_one(before: dict[str, Any], after: dict[str, Any], **how: Any) -> Any:
    """The only change from one record to another."""
    (change,) = compare_runs(run(record(**before)), run(record(**after)), **how)
    return change


# ---- each kind, planted --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "kind", "regression", "said"),
    [
        ({}, FAILED, "newly failing", True, "passed, now fails at compare (WrongValue: output 0); at fault: runtime"),
        (SKIPPED, FAILED, "newly failing", True, "skipped (no GPU), now fails"),
        (XFAILED, FAILED, "newly failing", True, "fails as declared at export"),
        (XPASSED, FAILED, "newly failing", True, "passes though declared to fail, now fails"),
        (FAILED, {}, "newly passing", False, "fails at compare (WrongValue: output 0), now passed"),
        (XFAILED, {}, "newly passing", False, "now passed"),
        (SKIPPED, {}, "newly passing", False, "skipped (no GPU), now passed"),
        ({}, XPASSED, "xpassed", True, "now passes though declared to fail"),
        (XFAILED, XPASSED, "xpassed", True, "now passes though declared to fail"),
        ({}, XFAILED, "newly expected to fail", True, "now fails as declared at export"),
        (FAILED, XFAILED, "expected failure changed", False, "now fails as declared at export"),
        (SKIPPED, XFAILED, "expected failure changed", False, "now fails as declared"),
        (XFAILED, {**XFAILED, "stage": "run"}, "expected failure changed", False, "fails as declared at run"),
        (XFAILED, {**XFAILED, "fault": "runtime"}, "expected failure changed", False, "at fault: runtime"),
        ({}, SKIPPED, "newly skipped", True, "passed, now skipped (no GPU)"),
        (FAILED, SKIPPED, "newly skipped", True, "now skipped"),
        (FAILED, CRASHED, "failing otherwise", False, "now fails at run (Crash: SIGSEGV)"),
        (worst(0.2), worst(0.4), "accuracy worse", True, "0.4 of what is allowed, was 0.2 (2 times)"),
        (worst(0.01), worst(0.1), "accuracy worse", True, "0.1 of what is allowed"),
        ({"worst": None}, worst(0.5), "accuracy worse", True, "was 0"),
        (worst(0.8), worst(0.3), "accuracy better", False, "0.3 of what is allowed, was 0.8"),
        ({}, {"examples": 23}, "examples fewer", True, "23 examples verified, were 48"),
        ({}, {"examples": 3, "ill_conditioned": 45}, "examples fewer", True, "45 were too ill-conditioned"),
        (
            latency(1e-3, 0.9e-3, 1.1e-3), latency(1.3e-3, 1.2e-3, 1.4e-3), "slower", True,
            "median 1.3 ms, was 1 ms (1.30 times)",
        ),
        (latency(2e-3, 1.9e-3, 2.1e-3), latency(1e-3, 0.9e-3, 1.1e-3), "faster", False, "median 1 ms, was 2 ms"),
    ],
)  # fmt: skip
def test_a_difference_is_told(before, after, kind, regression, said):
    change = of_one(before, after)
    assert (change.kind, change.regression, change.accepted) == (kind, regression, False)
    assert said in change.text
    assert "\n" not in change.text
    assert change.source == {"file": "cases/one.yaml", "line": 3}
    assert gate([change]) == regression


def test_a_budget_that_could_not_be_decided_is_told_and_gates_nothing():
    """Only --require latency fails it; one that was not measured at all is newly skipped."""
    budgets = [{"text": "1.2 x pytorch", "verdict": "inconclusive"}]
    undecided = {**SKIPPED, "stage": "latency", "reason": "inconclusive: 1.2 x", "latency": {"budgets": budgets}}
    change = of_one(beside(1e-3, 2e-3), undecided)
    assert (change.kind, change.regression) == ("newly skipped", False)
    assert "inconclusive" in change.text
    assert of_one(beside(1e-3, 2e-3), {**undecided, "latency": None}).regression
    failed = of_one({}, {**undecided, "status": "failed", "error": "Inconclusive"})
    assert (failed.kind, failed.regression) == ("newly failing", True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FAILED, {**FAILED, "reason": "output 0, other values"}),
        (XFAILED, {**XFAILED, "reason": "other words"}),
        (SKIPPED, {**SKIPPED, "reason": "other words"}),
        (XPASSED, XPASSED),
        (worst(0.2), worst(0.39)),
        (worst(0.001), worst(0.09)),
        (worst(0.09), worst(0.001)),
        ({}, {"examples": 24}),
        ({}, {"examples": 500}),
        (latency(1e-3, 0.9e-3, 1.1e-3), latency(1.2e-3, 1.15e-3, 1.3e-3)),
        (latency(1e-3, 0.9e-3, 1.3e-3), latency(1.4e-3, 1.2e-3, 1.9e-3)),
        (latency(1e-3, 0.9e-3, 1.1e-3), {"latency": None}),
        ({}, latency(1.4e-3, 1.2e-3, 1.9e-3)),
        ({}, {"graph": {**GRAPH, "opset": 18}}),
        ({"graph": GRAPH}, {"graph": {**GRAPH, "opset": 18}}),
        ({}, {"seconds": {}, "command": "other", "fingerprint": "other", "details": ["x"], "reused": True}),
    ],
)
def test_what_is_no_difference_is_not_told(before, after):
    assert compare_runs(run(record(**before)), run(record(**after))) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"sqnr": 40.0}, {"sqnr": 37.0}, ["accuracy worse"]),
        ({"sqnr": 40.0}, {"sqnr": 37.1}, []),
        ({"sqnr": 40.0}, {"sqnr": 45.0}, ["accuracy better"]),
        ({"sqnr": "inf"}, {"sqnr": 60.0}, ["accuracy worse"]),
        ({"sqnr": "inf"}, {"sqnr": "inf"}, []),
    ],
)
def test_a_precision_is_judged_by_its_decibels(before, after, expected):
    name = "fidelity[one-dynamo-op20-int8]"
    assert kinds(run(record(name, fidelity=before)), run(record(name, fidelity=after))) == expected


def test_decibels_far_from_what_is_due_are_noise():
    name = "fidelity[one-dynamo-op20-int8]"
    before, after = (record(name, fidelity={"sqnr": sqnr}, **worst(0.001)) for sqnr in (90.0, 80.0))
    assert compare_runs(run(before), run(after)) == []


def test_a_precision_that_is_counted_is_judged_by_its_ratio():
    name = "fidelity[one-dynamo-op20-int8]"
    before, after = (record(name, fidelity={"changed": share}, **worst(share * 10)) for share in (0.01, 0.05))
    assert kinds(run(before), run(after)) == ["accuracy worse"]


def test_limits_can_be_set():
    before, after = run(record(**worst(0.02))), run(record(**worst(0.05), examples=40))
    assert kinds(before, after) == []
    assert kinds(before, after, accuracy_floor=0.01, examples_factor=0.9) == ["accuracy worse", "examples fewer"]
    assert kinds(before, after, accuracy_floor=0.01, accuracy_factor=3) == []


def test_a_cell_that_is_gone_is_a_regression_and_one_that_is_new_is_not():
    one, two = record(), record("export[two-dynamo-op20]")
    (vanished,) = compare_runs(run(one, two), run(one))
    assert (vanished.id, vanished.kind, vanished.regression) == (two["id"], "vanished", True)
    assert (vanished.before, vanished.after) == ("passed", None)
    (added,) = compare_runs(run(one), run(one, two))
    assert (added.id, added.kind, added.regression, added.before) == (two["id"], "newly added", False, None)


@pytest.mark.parametrize(("how", "kind"), [(FAILED, "newly failing"), (XPASSED, "xpassed")])
def test_a_new_cell_that_fails_is_a_regression(how, kind):
    (change,) = compare_runs(run(), run(record(**how)))
    assert (change.kind, change.regression, change.before) == (kind, True, None)


def test_a_new_cell_that_is_skipped_says_so():
    (change,) = compare_runs(run(), run(record(**SKIPPED)))
    assert (change.kind, change.text) == ("newly added", "new, skipped (no GPU)")


def test_several_changes_of_one_cell_are_all_told():
    after = record(**worst(0.9), examples=1)
    assert kinds(run(record()), run(after)) == ["accuracy worse", "examples fewer"]


def test_a_run_with_a_cell_twice_is_refused():
    with pytest.raises(ValueError, match=r"the later run has accuracy\[one.* twice"):
        compare_runs(run(record()), run(record(), record()))


# ---- graphs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ({**GRAPH, "opset": 18}, "opset 17 -> 18"),
        ({**GRAPH, "nodes": {"Asinh": 1, "Constant": 3}}, "6 -> 4 nodes (Cast 2 -> 0)"),
        ({**GRAPH, "nodes": {"Asinh": 1, "Cast": 2}}, "(Constant 3 -> 0); constants were folded"),
        (
            {**GRAPH, "nodes": {**GRAPH["nodes"], "Mul": 1, "Constant": 1}},
            "6 -> 5 nodes (Constant 3 -> 1, Mul 0 -> 1)",
        ),
        ({**GRAPH, "sha": "bb"}, "same nodes, other bytes"),
    ],
)
def test_another_graph_is_told_but_no_regression(graph, said):
    name = "export[one-dynamo-op20]"
    (change,) = compare_runs(run(record(name, graph=GRAPH)), run(record(name, graph=graph)))
    assert (change.kind, change.regression) == ("graph changed", False)
    assert said in change.text
    assert ("folded" in change.text) == ("folded" in said)


def test_other_bytes_are_no_change_where_another_version_exported():
    name = "export[one-dynamo-op20]"
    newer = environment(versions={"torch": "2.16.0", "onnx": "1.23.2", "tensorrt": None})
    before = run(record(name, graph=GRAPH))
    assert compare_runs(before, run(record(name, graph={**GRAPH, "sha": "bb"}), environment=newer)) == []
    other = {**GRAPH, "sha": "bb", "opset": 18}
    assert kinds(before, run(record(name, graph=other), environment=newer)) == ["graph changed"]


def test_a_graph_that_explains_a_failure_is_told_with_it():
    name = "export[one-dynamo-op20]"
    after = record(name, graph={**GRAPH, "opset": 18}, **{**FAILED, "stage": "check"})
    assert kinds(run(record(name, graph=GRAPH)), run(after)) == ["newly failing", "graph changed"]


# ---- environments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"versions": {"torch": "2.16.0", "onnx": "1.23.2"}}, "torch 2.15.0 -> 2.16.0"),
        ({"versions": {**HEADER["environment"]["versions"], "tensorrt": "8.6.0"}}, "tensorrt not installed -> 8.6.0"),
        ({"cpu": {"name": "B", "instructions": ["avx2", "avx512f"]}}, "cpu A -> B"),
        ({"cpu": {"name": "A", "instructions": ["avx2"]}}, "cpu instructions: now without avx512f"),
        ({"gpu": {"name": "H200"}}, "gpu none -> H200"),
        ({"python": "3.12.1"}, "python 3.11.7 -> 3.12.1"),
        ({"flags": ["conformance", "--examples", "2"]}, "arguments: conformance -> conformance --examples 2"),
    ],
)
def test_what_explains_changes_is_told(changes, said):
    assert said in environment_changes(run(), run(environment=environment(**changes)))


def test_equal_environments_have_nothing_to_tell():
    assert environment_changes(run(), run()) == []


@pytest.mark.parametrize("other", [{"cpu": {"name": "B"}}, {"gpu": "H200"}])
def test_latencies_of_another_processor_are_not_compared(other):
    before = run(record(**latency(1e-3, 0.9e-3, 1.1e-3)))
    after = run(record(**latency(9e-3, 8.9e-3, 9.1e-3)), environment=environment(**other))
    assert compare_runs(before, after) == []
    assert "latencies are not comparable: other processor" in environment_changes(before, after)


def test_a_run_that_did_not_finish_says_why_cells_are_missing():
    header, records = run()
    del header["seconds"]
    (line,) = environment_changes(run(), (header, records))
    assert "did not finish" in line


def beside(own: float, other: float, name: str = "pytorch fp32") -> dict[str, Any]:
    samples = [own * factor for factor in (0.95, 0.98, 1, 1.02, 1.05) for _ in range(10)]
    return {
        "latency": {
            "own": {"median": own, "samples": samples},
            "other": {"name": name, "median": other, "samples": []},
        }
    }


def test_what_a_record_keeps_of_a_measurement_is_enough_to_compare(tmp_path):
    change = of_one(beside(1e-3, 2e-3), beside(1.4e-3, 2e-3))
    assert (change.kind, change.before, change.after) == ("slower", 1e-3, 1.4e-3)
    assert change.text == "median 1.4 ms, was 1 ms (1.40 times); pytorch fp32 beside it 2 ms, was 2 ms"
    baseline = load(written(tmp_path, record(**beside(1e-3, 2e-3))))
    assert kinds(baseline, run(record(**beside(1.4e-3, 2e-3)))) == ["slower"]
    assert kinds(baseline, run(record(**beside(1.4e-3, 2.8e-3)))) == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (beside(2e-3, 4e-3), []),
        (beside(2e-3, 3e-3), ["slower"]),
        (beside(2e-3, 1e-3), ["slower"]),
        (beside(1e-3, 1e-3), []),
        (beside(0.5e-3, 1e-3), []),
        (beside(0.5e-3, 2e-3), ["faster"]),
        (beside(2e-3, 4e-3, "tensorrt fp16"), ["slower"]),
    ],
)
def test_a_host_that_slows_both_sides_is_no_slower_runtime(after, expected):
    assert kinds(run(record(**beside(1e-3, 2e-3))), run(record(**after))) == expected


def test_a_few_samples_support_nothing():
    few = [{"latency": {"own": {"median": median, "samples": [median] * 5}}} for median in (1e-3, 9e-3)]
    assert compare_runs(*(run(record(**one)) for one in few)) == []


# ---- filtered runs -------------------------------------------------------------------------------------


def test_only_what_was_selected_can_vanish():
    cells = [record(f"accuracy[{case}-dynamo-op{opset}-onnxruntime-fp32]") for case in "ab" for opset in (18, 20)]
    before, after = run(*cells), run(cells[0])
    assert kinds(before, after) == ["vanished"] * 3
    (gone,) = compare_runs(before, after, selected=lambda one: one["opset"] == 18)
    assert gone.id == cells[2]["id"]
    (gone,) = compare_runs(before, after, selected={cells[0]["id"], cells[3]["id"]})
    assert gone.id == cells[3]["id"]


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (["--opset", "20"], "a20 b20"),
        (["--opset=18,20", "--exporter", "dynamo"], "a18 a20 b18 b20"),
        (["--runtime", "tensorrt"], ""),
        (["--precision", "fp16"], ""),
        (["--cases", "./cases/a.yaml"], "a18 a20"),
        (["--cases", "cases/"], "a18 a20 b18 b20"),
        (["--cases", "cases/b.yaml", "--opset", "18"], "b18"),
        (["--cases", "cases/a.yaml", "--cases", "cases/b.yaml"], "a18 a20 b18 b20"),
        (["-n", "2", "--report", "there", "--examples", "3", "-q"], "a18 a20 b18 b20"),
        (["--timeout", "60", "--benchmark-json", "times.json", "--log-level", "INFO"], "a18 a20 b18 b20"),
        (["--cases", f"{Path.cwd()}/cases"], "a18 a20 b18 b20"),
        (["--cases", f"{Path.cwd()}/cases/a.yaml"], "a18 a20"),
        (["--cases", "/checked/out/on/another/host/cases/b.yaml"], "b18 b20"),
        (["tests"], "a18 a20 b18 b20"),
        (["--report", "conformance/run"], "a18 a20 b18 b20"),
    ],
)
def test_the_arguments_of_a_run_say_what_it_was_to_run(flags, kept):
    cells = [record(f"accuracy[{case}-dynamo-op{opset}-onnxruntime-fp32]") for case in "ab" for opset in (18, 20)]
    predicate, note = selection_of(run(environment=environment(flags=["conformance", *flags]))[0])
    found = [f"{one['case']}{one['opset']}" for one in cells if predicate is None or predicate(one)]
    assert (" ".join(found), note) == (kept, None)


@pytest.mark.parametrize("word", ["conformance", "./conformance/", "/checked/out/conformance"])
def test_the_whole_suite_may_be_named_by_any_path(word):
    assert selection_of(run(environment=environment(flags=["-q", word]))[0]) == (None, None)


def test_a_variant_of_a_precision_is_selected_by_what_it_is_a_variant_of():
    name = "fidelity[one-dynamo-op20-int8-entropy]"
    predicate, _ = selection_of(run(environment=environment(flags=["conformance", "--precision", "int8"]))[0])
    assert predicate is not None
    assert predicate(record(name))
    assert not predicate(record())


@pytest.mark.parametrize(
    "flags",
    [
        ["-k", "asinh", "conformance"], ["-kasinh", "conformance"], ["conformance/test_suite.py"],
        ["--shard=1/2", "conformance"], ["--random", "conformance/test_suite.py"],
        ["--pyargs", "conformance.test_suite"],
        ["conformance/test_suite.py::test_export[one-dynamo-op20]"], ["-x", "tests"],
    ],
)  # fmt: skip
def test_a_selection_that_records_do_not_show_says_that_nothing_vanishes(flags):
    predicate, note = selection_of(run(environment=environment(flags=flags))[0])
    assert predicate is not None
    assert not predicate(record())
    assert note is not None
    assert any(word[:2] in note for word in flags if word != "conformance")


# ---- the file ------------------------------------------------------------------------------------------


def written(folder: Path, *records: dict[str, Any]) -> Path:
    file = folder / "reports" / "baseline.jsonl"
    write_baseline(file, HEADER, records)
    return file


def cells(count: int = 4) -> list[dict[str, Any]]:
    """Two cells of each case, in an order that is not that of their ids."""
    names = [f"{check}[case{n}-dynamo-op20{of}]" for n in range(count) for check, of in
             (("export", ""), ("accuracy", "-onnxruntime-fp32"))]  # fmt: skip
    return [record(name, graph=GRAPH) for name in reversed(names)]


def test_a_baseline_is_small_and_ordered(tmp_path):
    file = written(tmp_path, *cells())
    text = file.read_text()
    first, *rest = [json.loads(line) for line in text.splitlines() if line]
    assert first["environment"] == {k: v for k, v in HEADER["environment"].items() if k != "flags"}
    assert [line["id"] for line in rest] == sorted(one["id"] for one in cells())
    assert rest[0] == {
        "id": "accuracy[case0-dynamo-op20-onnxruntime-fp32]",
        "file": "cases/case0.yaml",
        "examples": 48,
        "ratio": 0.2,
    }
    assert rest[4]["graph"] == GRAPH
    assert text.count("\n\n") == 8, "neighbouring lines are of one case"


def test_a_baseline_holds_two_digits_of_what_differs_from_run_to_run(tmp_path):
    texts = set()
    for count, ratio in enumerate((0.12345, 0.12399)):
        file = written(tmp_path / str(count), record(**worst(ratio), seconds={"run": ratio}, details=[str(ratio)]))
        texts.add(file.read_text())
    assert len(texts) == 1
    assert '"ratio":0.12}' in texts.pop()


def test_what_is_read_is_what_was_written(tmp_path):
    records = [
        record("accuracy[a-dynamo-op20-onnxruntime-fp32]", **worst("inf")),
        record("accuracy[b-dynamo-op20-onnxruntime-fp16]", **XFAILED),
        record("fidelity[c-torchscript-op17-int8-entropy]", fidelity={"sqnr": "inf"}, graph=GRAPH),
        record("accuracy[d-dynamo-op20-tensorrt-fp32]", **latency(1.23456e-3, 1.2e-3, 1.3e-3)),
    ]
    file = written(tmp_path, *records)
    header, found = read_baseline(file)
    assert [one["id"] for one in found] == sorted(one["id"] for one in records)
    for one in found:
        (original,) = (other for other in records if other["id"] == one["id"])
        for name in ("case", "exporter", "opset", "runtime", "precision", "check", *FAMILIES["status"]):
            assert one[name] == original[name], name
    assert compare_runs((header, found), run(*records)) == []
    again = tmp_path / "again.jsonl"
    write_baseline(again, header, found)
    assert again.read_text() == file.read_text()


def test_an_id_that_is_unlike_others_keeps_its_fields(tmp_path):
    odd = {**record(), "id": "something else"}
    _, (found,) = read_baseline(written(tmp_path, odd))
    assert (found["case"], found["opset"], found["precision"]) == ("one", 20, "fp32")


def test_a_baseline_and_every_form_of_a_run_can_be_loaded(tmp_path):
    records = cells(2)
    folder = put(tmp_path / "run", records)
    for place in (written(tmp_path, *records), folder, folder / "run.json", folder / "records.jsonl"):
        loaded = load(place)
        assert compare_runs(loaded, run(*records)) == compare_runs(run(*records), loaded) == []


def test_a_baseline_is_known_by_what_it_says_and_not_by_its_name(tmp_path):
    file = written(tmp_path, record()).rename(tmp_path / "baseline.json")
    assert compare_runs(load(file), run(record())) == []
    (tmp_path / "later.jsonl").write_text('{"schema": 2}\n')
    with pytest.raises(ValueError, match="is not a run of schema 1"):
        load(tmp_path / "later.jsonl")


def test_a_place_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no run"):
        load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="there is no baseline"):
        read_baseline(tmp_path / "nothing.jsonl")


LINE = '{"id":"export[one-dynamo-op20]","file":"cases/one.yaml"}'


@pytest.mark.parametrize(
    ("replace", "where", "said"),
    [
        (("", "<<<<<<< HEAD\n"), 1, "conflict marker of git (<<<<<<<)"),
        ((LINE, f"<<<<<<< HEAD\n{LINE}\n=======\n{LINE}\n>>>>>>> other"), 3, "keep one line of each cell"),
        ((LINE, f"{LINE}\n{LINE}"), 4, "is also in line 3"),
        ((LINE, LINE[:-9]), 3, "not a whole line of JSON"),
        ((LINE, "[]"), 3, "no JSON object"),
        ((LINE, LINE.replace('"id"', '"di"')), 3, "has no 'id'"),
        ((LINE, LINE.replace("}", ',"statsu":"failed"}')), 3, "unknown field 'statsu'; did you mean 'status'?"),
        ((LINE, LINE.replace("}", ',"status":"fialed"}')), 3, "no status 'fialed'; did you mean 'failed'?"),
        ((LINE, LINE.replace("}", ',"ratio":"much"}')), 3, "'ratio' is 'much', which is no number"),
        ((LINE, LINE.replace("}", ',"examples":"many"}')), 3, "'examples' is \"many\""),
        ((LINE, LINE.replace("}", ',"accepted":[{"kind":"slower"}]}')), 3, "objects with kind, because and was"),
        (
            (LINE, LINE.replace("}", ',"accepted":[{"kind":"slower","because":" ","was":{}}]}')), 3,
            "accepted without a 'because'",
        ),
        (
            (LINE, LINE.replace("}", ',"accepted":[{"kind":"slower","because":"x","was":{"ratio":"much"}}]}')), 3,
            "'was' of 'slower': 'ratio' is 'much'",
        ),
        ((LINE, LINE.replace("}", ',"graph":{}}')), 3, "'graph' is an object with opset, sha, and nodes"),
        (
            (LINE, LINE.replace("}", ',"graph":{"opset":17,"sha":"a","nodes":{"Add":"two"}}}')), 3,
            "nodes, which counts operators",
        ),
        ((LINE, LINE.replace("}", ',"latency":{"own":{"median":"1 ms"}}}')), 3, "'latency' has no median"),
        ((LINE, LINE.replace("}", ',"latency":{"own":{"median":1,"interval":[1]}}}')), 3, "'latency' has no median"),
        ((LINE, LINE.replace("export[", "export{")), 3, "is not the id of a cell"),
        (('{"baseline":1', '{"baseline":2'), 1, "format 2, this version knows format 1"),
        (('{"baseline":1', '{"base":1'), 1, "does not say that this is a baseline"),
        (('"environment"', '"surroundings"'), 1, "has no environment"),
    ],
)  # fmt: skip
def test_a_broken_baseline_is_refused_with_its_line(tmp_path, replace, where, said):
    file = written(tmp_path, record("export[one-dynamo-op20]", examples=0, worst=None))
    text = file.read_text()
    assert LINE in text
    file.write_text(text.replace(*replace, 1) if replace[0] else replace[1] + text)
    for read in (read_baseline, load):
        with pytest.raises(ValueError) as error:
            read(file)
        assert f"{file.name}:{where}: " in str(error.value)
        assert said in str(error.value)


def test_a_baseline_is_no_run_for_what_needs_a_run(tmp_path):
    with pytest.raises(ValueError, match="is not a run"):
        read_run(written(tmp_path, record()))


def test_a_cell_twice_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="is there twice"):
        written(tmp_path, record(), record())
    assert not list(tmp_path.rglob("*.jsonl*"))


# ---- accepting -----------------------------------------------------------------------------------------


def test_what_is_accepted_stays_told_and_no_longer_counts(tmp_path):
    file = written(tmp_path, *cells())
    name = "accuracy[case1-dynamo-op20-onnxruntime-fp32]"
    after = run(*(one if one["id"] != name else {**one, **FAILED} for one in cells()))
    assert gate(compare_runs(load(file), after)) == 1
    (accepted,) = accept(file, after, [name], because="the vendor knows; fixed in\n 1.32")
    assert accepted.kind == "newly failing"
    (change,) = compare_runs(load(file), after)
    assert (change.accepted, change.regression, change.before, change.after) == (True, True, "passed", "failed")
    assert change.text.endswith("accepted: the vendor knows; fixed in 1.32")
    assert gate([change]) == 0


def test_nothing_else_in_the_file_changes(tmp_path):
    file = written(tmp_path, *cells())
    before = file.read_bytes().split(b"\n")
    name = "accuracy[case1-dynamo-op20-onnxruntime-fp32]"
    accept(file, run(*({**one, **FAILED} for one in cells())), [name], because="x")
    after = file.read_bytes().split(b"\n")
    (changed,) = (number for number, (one, two) in enumerate(zip(before, after, strict=True)) if one != two)
    assert json.loads(after[changed])["accepted"] == [{"kind": "newly failing", "because": "x", "was": {}}]


def test_brackets_of_an_id_mean_themselves_and_stars_mean_anything(tmp_path):
    file = written(tmp_path, *cells())
    after = run(*({**one, **FAILED} for one in cells()))
    found = accept(file, after, ["accuracy[[]*", "export[case?-*]"][1:], because="x")
    assert [change.id for change in found] == [f"export[case{n}-dynamo-op20]" for n in range(4)]
    found = accept(file, after, ["accuracy[case[12]*", "*case3*"][1:], because="x")
    assert [change.id for change in found] == ["accuracy[case3-dynamo-op20-onnxruntime-fp32]"]


@pytest.mark.parametrize(
    ("patterns", "more", "said"),
    [
        (["accuracy[case1-dynamo-op19-onnxruntime-fp32]"], {}, "near it:\n  accuracy[case1-dynamo-op20-onnxruntime"),
        (["*zzz*"], {}, "matches no change; what changed:\n  accuracy[case1"),
        (["export[case1-*"], {}, "matches no change; near it"),
        (["*case1*"], {"kinds": ["slower"]}, "has no change of kind slower, but: newly failing"),
        (["*case1*"], {"kinds": ["slow"]}, "there is no kind 'slow'; did you mean 'slower'?"),
        (["*case1*"], {"because": "  "}, "say because of what a regression is accepted"),
        ([], {}, "name what to accept"),
    ],
)
def test_a_name_that_accepts_nothing_is_an_error(tmp_path, patterns, more, said):
    file = written(tmp_path, *cells())
    before = file.read_bytes()
    after = run(*({**one, **FAILED} if "accuracy[case1" in one["id"] else one for one in cells()))
    with pytest.raises(ValueError) as error:
        accept(file, after, patterns, **{"because": "x", **more})
    assert said in str(error.value)
    assert file.read_bytes() == before


def test_what_is_accepted_cannot_be_accepted_again(tmp_path):
    file = written(tmp_path, record())
    accept(file, run(record(**FAILED)), ["*"], because="x")
    with pytest.raises(ValueError, match="is accepted already"):
        accept(file, run(record(**FAILED)), ["*"], because="x")


def test_what_is_no_regression_needs_no_reason_and_keeps_none(tmp_path):
    file = written(tmp_path, record(**FAILED))
    accept(file, run(record()), ["*"])
    assert "accepted" not in file.read_text()
    assert compare_runs(load(file), run(record())) == []


def test_kinds_accept_a_part_of_what_changed_in_a_cell(tmp_path):
    after = run(record(**worst(0.9), examples=1))
    file = written(tmp_path, record())
    accept(file, after, ["*"], ["examples fewer"], because="x")
    found = {change.kind: change.accepted for change in compare_runs(load(file), after)}
    assert found == {"accuracy worse": False, "examples fewer": True}
    accept(file, after, ["*"], because="y")
    found = {
        change.kind: change.text.rpartition(": ")[2] for change in compare_runs(load(file), after) if change.accepted
    }
    assert found == {"accuracy worse": "y", "examples fewer": "x"}


@pytest.mark.parametrize(
    "worse",
    [FAILED, SKIPPED, XPASSED, XFAILED, worst(0.9), {"examples": 2}, latency(5e-3, 4.9e-3, 5.1e-3)],
    ids=["failing", "skipped", "xpassed", "xfailed", "accuracy", "examples", "slower"],
)
def test_an_acceptance_that_has_become_pointless_is_told(tmp_path, worse):
    fine = latency(1e-3, 0.9e-3, 1.1e-3)
    file = written(tmp_path, record(**fine))
    accept(file, run(record(**{**fine, **worse})), ["*"], because="for now")
    assert "for now" in file.read_text()
    (change,) = compare_runs(load(file), run(record(**fine)))
    assert (change.kind, change.regression, change.accepted) == ("acceptance pointless", False, False)
    assert "for now" in change.text
    accept(file, run(record(**fine)), ["*"])
    assert "for now" not in file.read_text()
    assert file.read_text() == written(tmp_path / "new", record(**fine)).read_text()


def test_a_cell_that_is_accepted_as_gone_and_comes_back_is_told(tmp_path):
    file = written(tmp_path, record(), record("export[two-dynamo-op20]"))
    less = run(record("export[two-dynamo-op20]"))
    accept(file, less, [record()["id"]], because="removed")
    (change,) = compare_runs(load(file), less)
    assert (change.kind, change.accepted) == ("vanished", True)
    (change,) = compare_runs(load(file), run(*less[1], record()))
    assert (change.kind, change.text) == (
        "acceptance pointless",
        "was accepted as vanished (removed), but is there again",
    )
    found = compare_runs(load(file), run(*less[1], record(**FAILED)))
    assert [one.kind for one in found] == ["newly failing", "acceptance pointless"]
    assert gate(found) == 1


def test_more_than_what_was_accepted_is_a_regression_again(tmp_path):
    file = written(tmp_path, record(**worst(0.1)))
    accept(file, run(record(**worst(0.3))), ["*"], because="x")
    (change,) = compare_runs(load(file), run(record(**worst(0.9))))
    assert (change.kind, change.accepted) == ("accuracy worse", False)
    accept(file, run(record(**worst(0.9))), ["*"], because="y")
    (change,) = compare_runs(load(file), run(record(**worst(0.5))))
    assert change.accepted, "still worse than before all that was accepted"
    (change,) = compare_runs(load(file), run(record(**worst(0.12))))
    assert change.kind == "acceptance pointless"


def test_another_failure_than_the_accepted_one_is_a_regression(tmp_path):
    file = written(tmp_path, record())
    accept(file, run(record(**FAILED)), ["*"], because="x")
    found = compare_runs(load(file), run(record(**CRASHED)))
    assert [(one.kind, one.accepted, one.regression) for one in found] == [
        ("failing otherwise", False, True),
        ("newly failing", True, True),
    ]
    accept(file, run(record(**CRASHED)), ["*"], because="y")
    assert gate(compare_runs(load(file), run(record(**CRASHED)))) == 0


def test_a_failure_that_is_declared_after_it_was_accepted_is_not_pointless(tmp_path):
    file = written(tmp_path, record())
    accept(file, run(record(**FAILED)), ["*"], because="x")
    assert kinds(load(file), run(record(**XFAILED))) == ["expected failure changed"]


def test_the_first_baseline_is_made_by_accepting_a_run(tmp_path):
    file = tmp_path / "new" / "baseline.jsonl"
    after = run(record(), record("export[two-dynamo-op20]", **FAILED))
    with pytest.raises(ValueError, match=r"newly failing.*say because"):
        accept(file, after, ["*"])
    assert not file.exists()
    accept(file, after, ["*"], because="known since 1.0")
    (change,) = compare_runs(load(file), after)
    assert (change.kind, change.accepted) == ("newly failing", True)
    assert environment_changes(load(file), after) == []
    (change,) = compare_runs(load(file), run(record(), record("export[two-dynamo-op20]")))
    assert change.kind == "acceptance pointless"


def test_a_run_that_did_not_finish_makes_no_baseline_and_no_cell_vanish(tmp_path):
    header, records = run(record())
    killed = ({name: value for name, value in header.items() if name != "seconds"}, records)
    partial = ({**header, "unfinished": ["shard 2/2"]}, records)
    for after in (killed, partial):
        with pytest.raises(ValueError, match="did not finish: a baseline made from it"):
            accept(tmp_path / "new.jsonl", after, ["*"])
    assert not (tmp_path / "new.jsonl").exists()
    file = written(tmp_path, record(**worst(0.9)), record("export[two-dynamo-op20]"))
    with pytest.raises(ValueError, match=r"export\[two-dynamo-op20\]: the run did not finish"):
        accept(file, killed, ["*"], because="x")
    (change,) = accept(file, killed, [record()["id"]])
    assert change.kind == "accuracy better"


def test_a_new_cell_of_another_processor_brings_no_latency(tmp_path):
    file = written(tmp_path, record("export[two-dynamo-op20]"))
    timed = [record("export[two-dynamo-op20]"), record(**latency(1e-3, 0.9e-3, 1.1e-3))]
    accept(file, run(*timed, environment=environment(cpu={"name": "B", "instructions": []})), ["*"])
    assert load(file)[1][0]["latency"] is None
    file = written(tmp_path / "same", record("export[two-dynamo-op20]"))
    accept(file, run(*timed), ["*"])
    assert load(file)[1][0]["latency"] == {"own": {"median": 1e-3, "interval": [0.9e-3, 1.1e-3]}}


def test_the_environment_is_taken_over_on_demand(tmp_path):
    fine, slow = latency(1e-3, 0.9e-3, 1.1e-3), latency(5e-3, 4.9e-3, 5.1e-3)
    file = written(tmp_path, record(**fine), record("export[two-dynamo-op20]"))
    there = environment(cpu={"name": "B", "instructions": []})
    after = run(record(**slow), record("export[two-dynamo-op20]", **FAILED), environment=there)
    accept(file, after, ["*"], because="x")
    assert "cpu A -> B" in environment_changes(load(file), after)
    assert load(file)[1][0]["latency"]["own"]["median"] == 1e-3
    after = run(record(**slow), record("export[two-dynamo-op20]", **CRASHED), environment=there)
    accept(file, after, ["*"], because="x", environment=True)
    assert environment_changes(load(file), after) == []
    assert load(file)[1][0]["latency"]["own"]["median"] == 5e-3


# ---- merging baselines in git --------------------------------------------------------------------------


def merged_by_git(folder: Path, base: bytes, ours: bytes, theirs: bytes, *how: str) -> tuple[int, Path]:
    files = []
    for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
        files.append(folder / f"{name}.jsonl")
        files[-1].write_bytes(content)
    done = subprocess.run(["git", "merge-file", *how, *map(str, files)], check=False)
    return done.returncode, files[0]


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (0, 3), (2, 1)])
def test_branches_that_accept_different_cases_merge(tmp_path, pair):
    file = written(tmp_path, *cells())
    base, results = file.read_bytes(), []
    after = run(*({**one, **FAILED} for one in cells()))
    for case in pair:
        file.write_bytes(base)
        accept(file, after, [f"*[case{case}-*"], because=f"of branch {case}")
        results.append(file.read_bytes())
    code, merged = merged_by_git(tmp_path, base, *results)
    assert code == 0
    accepted = [one["id"] for one in read_baseline(merged)[1] if one["accepted"]]
    assert {case_of(name) for name in accepted} == {f"case{case}" for case in pair}
    assert len(accepted) == 4


def test_new_cases_side_by_side_merge_as_a_union_and_a_cell_that_both_changed_is_refused(tmp_path):
    """What the guide says of merge=union."""
    file = written(tmp_path, *cells())
    base, results = file.read_bytes(), []
    for name in ("export[case2a-dynamo-op20]", "export[case2b-dynamo-op20]"):
        file.write_bytes(base)
        accept(file, run(*cells(), record(name)), [name])
        results.append(file.read_bytes())
    assert merged_by_git(tmp_path, base, *results)[0] == 1
    code, merged = merged_by_git(tmp_path, base, *results, "--union")
    assert code == 0
    assert {"case2a", "case2b"} <= {one["case"] for one in read_baseline(merged)[1]}
    changed = []
    for how in (FAILED, CRASHED):
        file.write_bytes(base)
        accept(file, run(*({**one, **how} for one in cells())), ["export[case1-*"], because="x")
        changed.append(file.read_bytes())
    _, merged = merged_by_git(tmp_path, base, *changed, "--union")
    with pytest.raises(ValueError, match=r"export\[case1-dynamo-op20\] is also in line"):
        read_baseline(merged)


def test_a_conflict_in_one_cell_is_refused_until_it_is_resolved(tmp_path):
    file = written(tmp_path, *cells())
    base, results = file.read_bytes(), []
    name = "export[case2-dynamo-op20]"
    for why in ("ours", "theirs"):
        file.write_bytes(base)
        accept(file, run(*({**one, **FAILED} for one in cells())), [name], because=why)
        results.append(file.read_bytes())
    code, merged = merged_by_git(tmp_path, base, *results)
    assert code == 1
    with pytest.raises(ValueError, match="conflict marker of git"):
        read_baseline(merged)
    kept = [line for line in merged.read_text().split("\n") if not line.startswith(("<<<<", "====", ">>>>"))]
    merged.write_text("\n".join(kept))
    with pytest.raises(ValueError, match="is also in line"):
        read_baseline(merged)
    merged.write_text("\n".join(line for line in kept if "theirs" not in line))
    assert len(read_baseline(merged)[1]) == 8


# ---- merging runs --------------------------------------------------------------------------------------


def put(folder: Path, records: Any, finished: bool = True, **header: Any) -> Path:
    head = {key: value for key, value in {**HEADER, **header}.items() if key not in ("schema", "seconds")}
    writer = RunWriter(folder, head)
    for one in records:
        writer.add(one)
    if finished:
        writer.close(3.0)
    return folder


def flags(*more: str) -> dict[str, Any]:
    return {"environment": environment(flags=["conformance", *more])}


def sharded(folder: Path, count: int = 3) -> list[Path]:
    all_cells = cells()
    ids = [one["id"] for one in all_cells]
    return [
        put(
            folder / f"shard-{index}",
            [one for one in all_cells if one["id"] in shard(ids, index, count)],
            **flags("--shard", f"{index}/{count}", "--report", f"shard-{index}"),
        )
        for index in range(1, count + 1)
    ]


def test_the_shards_of_a_run_merge_to_the_run(tmp_path):
    header, records = merge(sharded(tmp_path), tmp_path / "out")
    assert sorted(records, key=lambda one: one["id"]) == sorted(cells(), key=lambda one: one["id"])
    assert (header["seconds"], header["environment"]) == (3.0, HEADER["environment"])
    assert (header, records) == read_run(tmp_path / "out")
    assert compare_runs(run(*cells()), (header, records)) == []
    assert selection_of(header) == (None, None)
    assert environment_changes(run(*cells()), (header, records)) == []


def test_a_shard_may_be_given_by_any_of_its_files(tmp_path):
    one, *rest = sharded(tmp_path)
    _, records = merge([one / "run.json", *rest], tmp_path / "out")
    assert len(records) == len(cells())


def test_a_cell_of_two_shards_is_kept_once_where_they_agree(tmp_path):
    places = [put(tmp_path / name, [record(seconds={"run": n})]) for n, name in enumerate("ab")]
    _, records = merge(places, tmp_path / "out")
    assert len(records) == 1


def test_what_was_compared_there_before_is_gone(tmp_path):
    places = [put(tmp_path / name, [record()]) for name in "ab"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "changes.json").write_text("[]")
    merge(places, tmp_path / "out")
    assert not (tmp_path / "out" / "changes.json").exists()


def test_shards_that_disagree_are_refused(tmp_path):
    places = [put(tmp_path / "a", [record()]), put(tmp_path / "b", [record(**FAILED)])]
    with pytest.raises(ValueError) as error:
        merge(places, tmp_path / "out")
    said = str(error.value)
    assert f"passed in {places[0]}" in said
    assert f"failed compare WrongValue runtime in {places[1]}" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_one_host_skips_and_another_runs_has_run(tmp_path, order):
    places = [put(tmp_path / "a", [record(**SKIPPED)]), put(tmp_path / "b", [record(**FAILED)])]
    _, (found,) = merge([places[index] for index in order], tmp_path / "out")
    assert found["status"] == "failed"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_was_measured_and_not_decided_says_more_than_what_was_not_measured(tmp_path, order):
    undecided = {**SKIPPED, "latency": {"budgets": [{"verdict": "inconclusive"}]}}
    places = [put(tmp_path / "a", [record(**SKIPPED)]), put(tmp_path / "b", [record(**undecided)])]
    _, (found,) = merge([places[index] for index in order], tmp_path / "out")
    assert found["latency"] == undecided["latency"]


def test_other_versions_are_refused_or_told(tmp_path):
    newer = environment(versions={"torch": "2.16.0", "onnx": "1.23.2", "tensorrt": None})
    places = [put(tmp_path / "a", [record()]), put(tmp_path / "b", [], environment=newer)]
    with pytest.raises(ValueError, match=r"torch is 2\.15\.0 in .*a and 2\.16\.0 in .*b"):
        merge(places, tmp_path / "out")
    header, _ = merge(places, tmp_path / "out", allow_mixed=True)
    assert header["environment"]["versions"]["torch"] == "2.15.0 and 2.16.0"
    assert "torch 2.15.0 -> 2.15.0 and 2.16.0" in environment_changes(run(), (header, []))


def test_a_package_that_only_one_host_has_is_no_other_version(tmp_path):
    with_gpu = environment(versions={**HEADER["environment"]["versions"], "tensorrt": "8.6.0"}, gpu={"name": "H200"})
    places = [put(tmp_path / "a", [record()]), put(tmp_path / "b", [], environment=with_gpu)]
    header, _ = merge(places, tmp_path / "out")
    assert header["environment"]["versions"]["tensorrt"] == "8.6.0"
    assert header["environment"]["gpu"] == {"name": "H200"}


def test_latencies_of_several_processors_are_never_compared(tmp_path):
    other = environment(cpu={"name": "B", "instructions": ["avx2"]})
    places = [
        put(tmp_path / "a", [record(**latency(1e-3, 0.9e-3, 1.1e-3))]),
        put(tmp_path / "b", [], environment=other),
    ]
    header, records = merge(places, tmp_path / "out")
    assert header["environment"]["cpu"] == {"name": "A and B", "instructions": ["avx2"], "mixed": True}
    slow = (header, [{**records[0], **latency(9e-3, 8e-3, 9.5e-3)}])
    assert compare_runs((header, records), slow) == []
    assert "latencies are not comparable: other processor" in environment_changes((header, records), slow)


def test_a_shard_that_did_not_finish_is_named(tmp_path):
    places = [*sharded(tmp_path)[:2], put(tmp_path / "cut", [record()], finished=False)]
    with pytest.raises(ValueError, match=r"cut: the run did not finish"):
        merge(places, tmp_path / "out")
    header, _ = merge(places, tmp_path / "out", partial=True)
    assert header["unfinished"] == [str(places[2]), "shard 3/3"]
    told = environment_changes(run(), (header, []))
    assert any("without a part of shard 3/3" in line for line in told)


def test_a_shard_that_is_missing_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"shard 2/3 is missing"):
        merge([sharded(tmp_path)[index] for index in (0, 2)], tmp_path / "out")


def test_a_merge_does_not_overwrite_what_it_reads(tmp_path):
    places = [put(tmp_path / name, [record()]) for name in "ab"]
    with pytest.raises(ValueError, match="would be overwritten"):
        merge(places, places[0])
    with pytest.raises(ValueError, match="given twice"):
        merge([*places, places[0] / "run.json"], tmp_path / "out")
    with pytest.raises(ValueError, match="no run to merge"):
        merge([], tmp_path / "out")
    assert read_run(places[0])[1] == [record()]


def test_a_merged_run_was_to_run_what_its_parts_were(tmp_path):
    places = [
        put(tmp_path / "a", [record()], **flags("--opset", "17")),
        put(tmp_path / "b", [], **flags("--opset=20")),
    ]
    predicate, note = selection_of(merge(places, tmp_path / "out")[0])
    assert note is None
    assert predicate is not None
    assert [predicate({"opset": opset}) for opset in (17, 18, 20)] == [True, False, True]


# ---- sharding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "wanted"), [("1/1", (1, 1)), ("2/4", (2, 4)), (" 4/4 ", (4, 4))])
def test_a_shard_is_one_of_several(text, wanted):
    assert parse_shard(text) == wanted


@pytest.mark.parametrize("text", ["0/4", "5/4", "2", "2/", "a/b", "-1/2", "1/0", "", "1/4/2"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ValueError, match="not which of how many"):
        parse_shard(text)


def test_a_new_case_moves_no_other():
    ids = [f"export[case{n}-dynamo-op20]" for n in range(50)]
    before = shard(ids, 2, 4)
    assert shard([*ids, "export[new-dynamo-op20]"], 2, 4) - {"export[new-dynamo-op20]"} == before
    assert 2 <= len(before) <= 30


def test_seconds_balance_the_shards():
    ids = [f"export[case{n}-dynamo-op20]" for n in range(20)]
    seconds = {name: float(2 ** min(n, 6)) for n, name in enumerate(ids)}
    loads = [sum(seconds[name] for name in shard(ids, index, 3, seconds)) for index in (1, 2, 3)]
    assert max(loads) - min(loads) <= max(seconds.values())


def test_seconds_of_an_earlier_run_may_have_more_or_fewer_cases():
    ids = [f"export[case{n}-dynamo-op20]" for n in range(9)]
    seconds = {**dict.fromkeys(ids[:6], 2.0), "export[gone-dynamo-op20]": 500.0}
    parts = [shard(ids, index, 3, seconds) for index in (1, 2, 3)]
    assert [len(part) for part in parts] == [3, 3, 3]
    assert set().union(*parts) == set(ids)


def test_seconds_are_those_of_all_stages():
    assert seconds_of([record()]) == {record()["id"]: 0.5}


def test_a_shard_of_what_is_no_cell_is_refused():
    with pytest.raises(ValueError, match="is not the id of a cell"):
        shard(["something"], 1, 2)


# ---- text ----------------------------------------------------------------------------------------------


def many() -> list[Any]:
    before = [record(f"accuracy[case{n:02}-dynamo-op20-onnxruntime-fp32]") for n in range(30)]
    long = {**FAILED, "reason": "output 0: 5 of 5 values are NaN or infinite on one side only " * 4}
    after = [{**one, **long} for one in before[:25]] + [{**before[25], "examples": 1}, {**before[26], **XFAILED}]
    return compare_runs(run(*before[:25], before[25], {**before[26], **FAILED}, before[27]), run(*after))


@pytest.mark.parametrize("width", [80, 160])
def test_lines_fit_the_terminal_and_begin_with_regressions(width):
    found = list(lines(many(), width))
    assert all(len(line) <= width for line in found)
    heads = [line for line in found if not line.startswith(" ")]
    assert heads == [
        "newly failing: 25",
        "vanished: in the earlier run only: 1",
        "fewer examples verified: 1",
        "another expected failure than before: 1",
        "27 regressions, 1 other change",
    ]
    assert "  and 5 more" in found
    assert sum("dynamo-op20" in line for line in found) == 23


def test_short_texts_stand_beside_their_ids_where_there_is_room():
    changes = compare_runs(run(record()), run(record(examples=1)))
    assert list(lines(changes, 120))[1] == f"  {record()['id']}  1 examples verified, were 48"
    assert list(lines(changes, 60))[1:3] == [f"  {record()['id']}", "    1 examples verified, were 48"]


def test_what_is_accepted_comes_last(tmp_path):
    file = written(tmp_path, *cells(2))
    after = run(*({**one, **FAILED} for one in cells(2)))
    accept(file, after, ["export*"], because="known")
    found = list(lines(compare_runs(load(file), after), 100))
    assert [line for line in found if not line.startswith(" ")] == [
        "newly failing: 2",
        "accepted: 2",
        "2 regressions, 2 accepted",
    ]
    assert "accepted: known" in " ".join(found)


def test_no_change_says_so():
    assert list(lines([], 80)) == ["no change"]


# ---- properties ----------------------------------------------------------------------------------------

NAMES = [
    *(f"export[{case}-dynamo-op20]" for case in "abc"),
    *(f"accuracy[{case}-torchscript-op17-onnx-reference-fp32]" for case in "abc"),
    *(f"fidelity[{case}-torchscript-op17-int8-entropy]" for case in "ab"),
]
RATIOS = st.one_of(st.sampled_from([0.0, 0.05, 0.1, 0.999, "inf", "nan"]), st.floats(0, 1, exclude_max=True))


@st.composite
def records_of(draw: st.DrawFn, name: str) -> dict[str, Any]:
    how = draw(st.sampled_from([{}, {}, {}, FAILED, CRASHED, XFAILED, XPASSED, SKIPPED]))
    sqnr = draw(st.one_of(st.none(), st.sampled_from(["inf", 20.0, 40.0]), st.floats(0, 120)))
    middle = draw(st.floats(1e-6, 10))
    spread = draw(st.floats(1, 2))
    graph = {
        "opset": draw(st.sampled_from([17, 18])),
        "nodes": draw(st.dictionaries(st.sampled_from(["Add", "Constant", "Mul"]), st.integers(1, 9))),
        "sha": draw(st.sampled_from(["aa", "bb"])),
    }
    return record(
        name,
        examples=draw(st.integers(0, 99)),
        worst=draw(st.one_of(st.none(), RATIOS.map(lambda ratio: {"ratio": ratio}))),
        fidelity=None if sqnr is None or not name.startswith("fidelity") else {"sqnr": sqnr},
        graph=draw(st.one_of(st.none(), st.just(graph))),
        **draw(st.sampled_from([{}, latency(middle, middle / spread, middle * spread), beside(middle, spread)])),
        **how,
    )


@st.composite
def runs(draw: st.DrawFn) -> Any:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    other = draw(st.sampled_from([{}, {}, {"environment": environment(cpu={"name": "B"})}]))
    return run(*[draw(records_of(name)) for name in names], **other)


@given(runs())
def test_a_run_does_not_differ_from_itself(one):
    assert compare_runs(one, copy.deepcopy(one)) == []


@given(runs(), runs(), st.randoms())
def test_the_order_of_records_means_nothing(before, after, random):
    shuffled = [(header, random.sample(records, len(records))) for header, records in (before, after)]
    assert compare_runs(*shuffled) == compare_runs(before, after)


@given(runs(), runs())
def test_changes_are_of_known_kinds_and_plain_data(before, after):
    for change in compare_runs(before, after):
        assert change.kind in KINDS
        assert json.loads(json.dumps(change.as_dict(), allow_nan=False)) == change.as_dict()
        assert change.text
        assert "\n" not in change.text


@given(runs())
@settings(deadline=None, max_examples=40)
def test_a_baseline_stands_for_the_run_it_was_made_from(tmp_path_factory, one):
    file = tmp_path_factory.mktemp("run") / "baseline.jsonl"
    write_baseline(file, *one)
    baseline = read_baseline(file)
    assert compare_runs(baseline, one) == []
    assert environment_changes(baseline, one) == []
    again = file.with_name("again.jsonl")
    write_baseline(again, *baseline)
    assert again.read_bytes() == file.read_bytes()


@given(runs(), runs(), runs())
@settings(deadline=None, max_examples=40)
def test_after_accepting_everything_nothing_is_left(tmp_path_factory, first, second, third):
    """Twice, so that what was accepted before is changed, kept or dropped."""
    file = tmp_path_factory.mktemp("run") / "baseline.jsonl"
    write_baseline(file, *first)
    for after in (second, third):
        found = [change for change in compare_runs(load(file), after) if not change.accepted]
        if found:
            assert accept(file, after, ["*"], because="it is so") == found
        left = compare_runs(load(file), after)
        assert [change for change in left if not change.accepted] == []
        assert gate(left) == 0


@given(runs(), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_merging_the_shards_of_a_run_gives_the_run(tmp_path_factory, one, count):
    folder, (header, records) = tmp_path_factory.mktemp("run"), one
    ids = [each["id"] for each in records]
    places = [
        put(folder / str(n), [each for each in records if each["id"] in shard(ids, n, count)],
            environment=header["environment"])
        for n in range(1, count + 1)
    ]  # fmt: skip
    merged = merge(places, folder / "out")
    assert compare_runs(one, merged) == compare_runs(merged, one) == []
    assert environment_changes(one, merged) == []
    assert len(merged[1]) == len(records)


SMALL = [f"{check}[case{n}-dynamo-op{opset}]" for check in ("export", "more") for n in range(9) for opset in (1, 2)]


@given(
    st.sets(st.sampled_from(SMALL)),
    st.integers(1, 5),
    st.randoms(),
    st.booleans(),
)
def test_shards_have_each_cell_once_and_cases_whole(ids, count, random, balanced):
    seconds = {name: random.random() for name in random.sample(sorted(ids), len(ids) // 2)} if balanced else None
    parts = [shard(random.sample(sorted(ids), len(ids)), index, count, seconds) for index in range(1, count + 1)]
    assert sorted(name for part in parts for name in part) == sorted(ids)
    for part in parts:
        assert {name for name in ids if case_of(name) in {case_of(one) for one in part}} == part


@given(runs(), runs(), st.integers(40, 200))
def test_every_change_is_in_the_lines_or_counted(before, after, width):
    changes = compare_runs(before, after)
    found = list(lines(changes, width))
    assert all(any(change.id in line for line in found) for change in changes)
    assert [line for line in found if len(line) > width and "[" not in line] == []


def test_limits_are_documented_where_they_stand():
    assert Limits() == Limits(2.0, 0.1, 3.0, 1.25, 0.5)
