"""The file of a baseline: small, ordered, read as it was written, and refused with the line that is broken."""

import json

import pytest

from conformance.results.baseline.baseline_file import load, read_baseline
from conformance.results.baseline.run_comparison import compare_runs
from conformance.results.records.run_file import read_run
from tests.results.baseline.support import (
    GRAPH,
    HEADER,
    XFAILED,
    cells,
    latency,
    put,
    record,
    run,
    worst,
    write_baseline,
    written,
)

WHICH = ("case", "exporter", "opset", "runtime", "precision", "check")


def test_a_baseline_is_small_and_ordered(tmp_path):
    file = written(tmp_path, *cells())
    text = file.read_text()
    first, *rest = [json.loads(line) for line in text.splitlines() if line]
    assert first["environment"] == {k: v for k, v in HEADER["environment"].items() if k != "flags"}
    assert [line["id"] for line in rest] == sorted(one.id for one in cells())
    name = "accuracy[case0-dynamo-op20-onnxruntime-fp32]"
    assert rest[0] == {"id": name, "file": "cases/case0.yaml", "examples": 48, "ratio": 0.2}
    assert rest[4]["graph"] == GRAPH
    assert text.count("\n\n") == 8, "neighbouring lines are of one case"


def test_a_baseline_holds_two_digits_of_what_differs_from_run_to_run(tmp_path):
    texts = set()
    for count, ratio in enumerate((0.12345, 0.12399)):
        file = written(tmp_path / str(count), record(**worst(ratio), seconds={"run": ratio}, details=[str(ratio)]))
        texts.add(file.read_text())
    assert len(texts) == 1 and '"ratio":0.12}' in texts.pop()


def test_what_is_read_is_what_was_written(tmp_path):
    records = [
        record("accuracy[a-dynamo-op20-onnxruntime-fp32]", **worst("inf")),
        record("accuracy[b-dynamo-op20-onnxruntime-fp16]", **XFAILED),
        record("fidelity[c-torchscript-op17-int8-entropy]", fidelity={"sqnr": "inf"}, graph=GRAPH),
        record("accuracy[d-dynamo-op20-tensorrt-fp32]", **latency(1.23456e-3, 1.2e-3, 1.3e-3)),
    ]
    file = written(tmp_path, *records)
    header, found = read_baseline(file)
    assert [one.id for one in found] == sorted(one.id for one in records)
    for one in found:
        (original,) = (other for other in records if other.id == one.id)
        for name in (*WHICH, "status", "stage", "error", "fault"):
            assert getattr(one, name) == getattr(original, name), name
    assert compare_runs((header, found), run(*records)) == []
    again = tmp_path / "again.jsonl"
    write_baseline(again, header, found)
    assert again.read_text() == file.read_text()


def test_a_baseline_and_every_form_of_a_run_can_be_loaded(tmp_path):
    """A baseline is known by what it says and not by its name."""
    records = cells(2)
    folder, named = put(tmp_path / "run", records), written(tmp_path / "other", *records)
    places = [written(tmp_path, *records), named.rename(tmp_path / "baseline.json"), folder, folder / "run.json"]
    for place in (*places, folder / "records.jsonl"):
        loaded = load(place)
        assert compare_runs(loaded, run(*records)) == compare_runs(run(*records), loaded) == []


def test_a_place_without_a_run_is_refused(tmp_path):
    (tmp_path / "later.jsonl").write_text('{"schema": 2}\n')
    for read, place, said in (
        (load, "nothing", "there is no run"), (read_baseline, "nothing.jsonl", "there is no baseline"),
        (load, "later.jsonl", "is not a run of schema 1"), (read_run, written(tmp_path, record()), "is not a run"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            read(tmp_path / place)


LINE = '{"id":"export[one-dynamo-op20]","file":"cases/one.yaml"}'


@pytest.mark.parametrize("replace, where, said", [
    (("", "<<<<<<< HEAD\n"), 1, "conflict marker of git (<<<<<<<)"),
    ((LINE, f"<<<<<<< HEAD\n{LINE}\n=======\n{LINE}\n>>>>>>> other"), 3, "keep one line of each cell"),
    ((LINE, f"{LINE}\n{LINE}"), 4, "is also in line 3"), ((LINE, LINE[:-9]), 3, "not a whole line of JSON"),
    ((LINE, LINE.replace('"id"', '"di"')), 3, "has no 'id'"),
    ((LINE, LINE.replace("}", ',"statsu":"failed"}')), 3, "unknown field 'statsu'; did you mean 'status'?"),
    ((LINE, LINE.replace("}", ',"ratio":"much"}')), 3, "ratio is \"much\", not a number"),
    ((LINE, LINE.replace("}", ',"accepted":[{"kind":"slower"}]}')), 3, "accepted[0] lacks 'because'"),
    ((LINE, LINE.replace("}", ',"accepted":[{"kind":"slower","because":" ","was":{}}]}')), 3,
        "accepted without a 'because'"),
    ((LINE, LINE.replace("}", ',"graph":{}}')), 3, "graph lacks 'opset'"),
    ((LINE, LINE.replace("}", ',"latency":{"own":{"samples":[]}}}')), 3, "'latency' has no median"),
    ((LINE, LINE.replace("export[", "export{")), 3, "is not the id of a cell"),
    (('{"baseline":1', '{"baseline":2'), 1, "format 2, this version knows format 1"),
    (('"environment"', '"surroundings"'), 1, "has no environment"),
])  # fmt: skip
def test_a_broken_baseline_is_refused_with_its_line(tmp_path, replace, where, said):
    file = written(tmp_path, record("export[one-dynamo-op20]", examples=0, worst=None))
    text = file.read_text()
    assert LINE in text
    file.write_text(text.replace(*replace, 1) if replace[0] else replace[1] + text)
    for read in (read_baseline, load):
        with pytest.raises(ValueError) as error:
            read(file)
        assert f"{file.name}:{where}: " in str(error.value) and said in str(error.value)


def test_a_cell_twice_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="is there twice"):
        written(tmp_path, record(), record())
    assert not list(tmp_path.rglob("*.jsonl*"))
