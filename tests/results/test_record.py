"""Records as data, and run files that survive the run."""

import json
import math

import pytest

from conformance.cells.alone import believed, fail_replaced
from conformance.process.errors import Details, Stopped
from conformance.process.worker.isolation import Death
from conformance.results.records import text
from conformance.results.records.death import note_death
from conformance.results.records.explanation import fail
from conformance.results.records.record import Record, Witness
from conformance.results.records.run_file import RunWriter, read_lines, validated

pytestmark = pytest.mark.smoke


def record(**more):
    return Record(
        id="accuracy[one-dynamo-op20-onnxruntime-fp32]", case="one", exporter="dynamo", opset=20,
        runtime="onnxruntime",
        precision="fp32", check="accuracy", source={"file": "cases/one.yaml", "line": 3}, **more,
    )  # fmt: skip


FIELDS = {
    "id", "case", "exporter", "opset", "runtime", "precision", "check", "source", "status", "stage", "reason",
    "examples", "worst", "draw", "signal", "graph", "arithmetic", "seconds", "fault", "latency", "command",
    "fingerprint",
}  # fmt: skip


def test_a_record_with_every_documented_field_goes_to_json_and_back():
    """Keys of a later version are left out."""
    one = record(status="failed", stage="compare", worst={"ratio": 2.5, "index": [0, 1]}, output=["a", "b"])
    plain = json.loads(json.dumps(one.as_dict()))
    assert plain.keys() >= FIELDS and Record.from_dict({**plain, "of_the_future": 1}) == one


WHY = {
    "witnesses": [{"runtime": "openvino", "answer": "agrees"}], "conclusion": "optimizer",
    "parts_at": {"operator": "Pad", "how": "parts"}, "own_code": ["f for aten::add"], "hints": ["vacuous"],
    "optimizer": {"of": "onnxruntime", "passes": ["Pad_Fusion"]}, "operator": {"operator": "aten.pad"},
    "smallest": {"nodes": 1, "of": 2, "bundle": "b"}, "loss": {"export": 12.5},
    "remedy": {"kind": "excuse", "yaml": "vacuous: x"}, "beyond": [{"regime": "large"}],
}  # fmt: skip
"""Why a cell failed, by field, each of which the text says something of."""


@pytest.mark.parametrize("why", WHY)
def test_a_failure_that_is_another_one_says_nothing_of_why_the_first_one_was(why):
    first = record(status="failed", stage="compare", error="WrongValue", reason="planted", fault="runtime")
    plain = text.failure(first)
    setattr(first, why, WHY[why])
    assert text.failure(first) != plain
    after = {"cells": 1, "cases": ["one"], "others": 0, "changed": {}}
    only_after = believed(first, record(status="passed"), after)
    assert getattr(only_after, why) == getattr(record(), why)
    setattr(first, why, WHY[why])
    assert fail_replaced(first, ["numpy.abs"]) and getattr(first, why) == getattr(record(), why)


@pytest.mark.parametrize("doubted, error", [
    ("WrongValue", "WrongValue"), ("WrongNaN", "OnlyAfter"), (None, "OnlyAfter"),
])  # fmt: skip
def test_a_cell_that_alone_differs_in_the_same_way_does_not_fail_only_after_others(doubted, error):
    first = record(status="failed", stage="compare", error="WrongValue", reason="planted")
    alone = record(status="skipped", undecided=True, doubted=doubted, reason="planted (WrongValue)")
    after = {"cells": 1, "cases": ["one"], "others": 0, "changed": {}}
    found = believed(first, alone, after)
    assert (found.status, found.error) == ("failed", error)


def test_nan_and_infinities_become_text_that_any_json_reader_takes():
    plain = record(worst={"got": math.nan, "wanted": -math.inf, "ratio": math.inf}).as_dict()
    written = json.dumps(plain, allow_nan=False)
    assert json.loads(written)["worst"] == {"got": "nan", "wanted": "-inf", "ratio": "inf"}


def test_every_line_is_on_disk_as_soon_as_it_is_written(tmp_path):
    writer = RunWriter(tmp_path / "run", {"started": "now"})
    file = tmp_path / "run/records.jsonl"
    for count in range(3):
        assert len(read_lines(file)[1]) == count
        writer.add(record(examples=count).as_dict())
    assert [one.examples for one in read_lines(file)[1]] == [0, 1, 2]
    assert not (tmp_path / "run/run.json").exists()
    writer.close(1.25)
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert (run["schema"], run["started"], run["seconds"], len(run["records"])) == (1, "now", 1.25, 3)


def test_a_new_run_replaces_the_one_before(tmp_path):
    for count in range(2):
        writer = RunWriter(tmp_path, {"started": str(count)})
        writer.add(record().as_dict())
        if not count:
            writer.close(1)
    assert not (tmp_path / "run.json").exists(), "of a run that was killed nothing old may be left"
    assert read_lines(tmp_path / "records.jsonl")[0]["started"] == "1"
    writer.close(1)


def test_a_last_line_that_was_cut_off_costs_only_itself(tmp_path):
    with pytest.raises(ValueError, match=r"records\.jsonl:2: is damaged"):
        read_lines(written(tmp_path, 3, damaged=1))
    header, records = read_lines(written(tmp_path, 3, damaged=3))
    assert header["started"] == "now"
    assert [one.examples for one in records] == [0, 1]


def written(folder, cells, damaged):
    """The lines of a run with one cut in half: 0 is the header."""
    writer = RunWriter(folder, {"started": "now"})
    for count in range(cells):
        writer.add(record(examples=count).as_dict())
    writer.close(None)
    file = folder / "records.jsonl"
    lines = file.read_text().splitlines()
    lines[damaged] = lines[damaged][: len(lines[damaged]) // 2]
    file.write_text("\n".join(lines))
    return file


EXPLAINED = {
    "declared otherwise: a.yaml:3 declares that it fails at stage run": record(
        declared=[{"outcome": "otherwise", "place": "a.yaml:3", "stage": "run", "error": None}]
    ),
    "found: a difference": record(observed="a difference"),
    "fails as declared at n=1: a reason": record(
        declared=[{"outcome": "confirmed", "at": "n=1", "because": "a reason"}]
    ),
    "the graph has 2 Add, 1 Mul": record(findings=["one"], graph={"nodes": {"Add": 2, "Mul": 1}}),
    "the ONNX specification's evaluator: stops with Fail": record(
        witnesses=[Witness("onnx-reference", "stops", "Fail").as_dict()]
    ),
    "a runtime of another version: agrees with PyTorch": record(
        witnesses=[{"runtime": "a runtime of another version", "answer": "agrees"}]
    ),
    "so the model is right, and ONNX Runtime's graph optimizer breaks it": record(conclusion="optimizer"),
    "passes A and B of ONNX Runtime's optimizer, from level basic on: the model runs without these, and "
    "wrong with any one of them": record(optimizer={"of": "onnxruntime", "level": "basic", "passes": ["A", "B"]}),
    "pass A of ONNX Runtime's optimizer: the model runs without it; by itself it breaks nothing": record(
        optimizer={"of": "onnxruntime", "passes": ["A"], "alone": False}
    ),
    "  export       no loss   the exported fp32 model against PyTorch": record(loss={"export": math.inf}),
    "ONNX Runtime with key=1: is wrong too": record(
        witnesses=[Witness("onnxruntime", "wrong", config={"key": "1"}).as_dict()]
    ),
    "the export used the case's own f for aten::add: look there first": record(own_code=["f for aten::add"]),
    "x = float32 [1.0]": record(inputs={"x": "float32 [1.0]"}),
    "no bundle could be left: OSError: full": record(no_bundle="OSError: full"),
    "too slow? say examples: or smaller dims, or leave the runtime out with runtimes:": record(hints=["slow"]),
}


@pytest.mark.parametrize("line", EXPLAINED)
def test_lines_are_made_of_a_record_alone_also_of_one_that_was_read(line):
    made = EXPLAINED[line]
    read = Record.from_dict(json.loads(json.dumps(made.as_dict())))
    assert line in text.details(made) and text.details(read) == text.details(made)


def test_a_run_of_an_earlier_version_has_the_lines_themselves():
    old = {name: record().as_dict()[name] for name in FIELDS}
    old |= {"details": ["found: a", "b"], "loss": {"export": 1.0}}
    assert text.details(validated(old)) == ["found: a", "b"]
    row = validated(old | {"status": "failed", "stage": "run", "reason": "c", "details": None})
    assert text.details(row) == ["loss by stage, as SQNR (higher is better):", *text.details(row)[1:]]


@pytest.mark.parametrize("stage, fault", [("run", "runtime"), ("declare", "case"), ("compare", "harness")])
def test_the_fault_of_a_death_is_that_of_its_stage(stage, fault):
    ended = record()
    note_death(ended, Death("SIGSEGV", {"stage": stage, "draw": None, "examples": 3}, "said so\nFile a.py, line 1\n"))
    assert (ended.status, ended.stage, ended.error, ended.fault) == ("failed", stage, "SIGSEGV", fault)
    assert (ended.examples, ended.output) == (3, ["said so", "File a.py, line 1"])


def test_what_ends_an_explanation_is_not_what_failed():
    ended = record()
    draw = {"dims": {"n": 3}, "regime": "plain", "seed": 1, "index": 0}
    failed = {"stage": "compare", "error": "WrongValue", "reason": "output: 1 of 3", "fault": "runtime", "draw": draw}
    note_death(
        ended, Death("SIGSEGV", {"stage": "run", "draw": None, "examples": 3, "failed": failed}, "File a.py\n")
    )
    assert (ended.stage, ended.error, ended.fault, ended.draw) == ("compare", "WrongValue", "runtime", draw)
    assert ended.signal is None and ended.output[0].endswith("ended before it was done: SIGSEGV")


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("stage", ["declare", "run"])
def test_who_ended_a_process_from_outside_is_not_known(signal, stage):
    ended = record()
    note_death(ended, Death(signal, {"stage": stage, "draw": None, "examples": 3}, ""))
    assert (ended.error, ended.fault) == (signal, None)


def test_what_a_failure_says_are_fields_of_its_record():
    assert Details.__annotations__.keys() <= Record.__dataclass_fields__.keys()


@pytest.mark.parametrize("error, own", [
    (MemoryError(), True), (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), True),
    (RuntimeError("std::bad_alloc"), True), (RuntimeError("memory format is not supported"), False),
])  # fmt: skip
def test_an_allocation_that_fails_is_nobodys_fault(error, own):
    stopped = record()
    try:
        raise Stopped("run", type(error).__name__, str(error), "runtime") from error
    except Stopped as stop:
        fail(stopped, stop)
    assert (stopped.error, stopped.fault) == (("OutOfMemory", None) if own else ("RuntimeError", "runtime"))
