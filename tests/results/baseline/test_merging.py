"""Merging the runs of shards to one run."""

import dataclasses
import json
from pathlib import Path

import pytest

from conformance.process.errors import UserError
from conformance.results.baseline.change_causes import environment_changes
from conformance.results.baseline.merging import merge
from conformance.results.baseline.run_comparison import compare_runs
from conformance.results.baseline.selection import selection_of
from conformance.results.baseline.shards import shard
from conformance.results.records.run_file import read_run
from tests.results.baseline.support import (
    FAILED,
    HEADER,
    SKIPPED,
    cells,
    environment,
    flags,
    latency,
    put,
    record,
    run,
)


def sharded(folder: Path, count: int = 3) -> list[Path]:
    all_cells = cells()
    ids = [one.id for one in all_cells]
    return [
        put(
            folder / f"shard-{index}",
            [one for one in all_cells if one.id in shard(ids, index, count)],
            **flags("--shard", f"{index}/{count}", "--report", f"shard-{index}"),
        )
        for index in range(1, count + 1)
    ]


def test_the_shards_of_a_run_merge_to_the_run(tmp_path):
    """Given by any of their files; what was compared there before is gone."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "changes.json").write_text("[]")
    one, *rest = sharded(tmp_path)
    header, records = merge([one / "run.json", *rest], tmp_path / "out")
    assert sorted(records, key=lambda one: one.id) == sorted(cells(), key=lambda one: one.id)
    assert (header["seconds"], header["environment"]) == (3.0, HEADER["environment"])
    assert (header, records) == read_run(tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert [line for line in lines if "id" in line] == [one.as_dict() for one in records], (
        "fields that are 0 or null too"
    )
    assert compare_runs(run(*cells()), (header, records)) == [] and selection_of(header) == (None, None)
    assert environment_changes(run(*cells()), (header, records)) == []
    assert not (tmp_path / "out" / "changes.json").exists()


def test_shards_that_disagree_are_refused(tmp_path):
    places = [put(tmp_path / "a", [record()]), put(tmp_path / "b", [record(**FAILED)])]
    with pytest.raises(ValueError) as error:
        merge(places, tmp_path / "out")
    said = str(error.value)
    assert f"passed in {places[0]}" in said and f"failed compare WrongValue runtime in {places[1]}" in said
    assert not (tmp_path / "out").exists()


UNDECIDED = {**SKIPPED, "latency": {"budgets": [{"verdict": "inconclusive"}]}}


def used(digest: str) -> dict[str, object]:
    return {"depends": {"files": {"../helper.py": digest}}}


OTHER = "accuracy[two-dynamo-op20-onnxruntime-fp32]"


@pytest.mark.parametrize(("records", "headers", "said"), [
    ([record(), record(OTHER)], [{"environment": environment(code=name)} for name in ("1", "2")], "of conformance"),
    ([record(**used("1")), record(OTHER, **used("2"))], [{}, {}], "two states of helper.py"),
    ([record(), record(OTHER)],
     [{"shard": {"count": 2, "cells": 2, "cut": "x", "files": name}} for name in ("1", "2")], "of the case files"),
], ids=["own code", "a file of the user's", "case files"])  # fmt: skip
def test_shards_of_two_states_of_the_code_are_refused_and_of_one_merged(tmp_path, records, headers, said):
    places = [put(tmp_path / str(n), [records[n]], **headers[n]) for n in range(2)]
    with pytest.raises(UserError, match=said):
        merge(places, tmp_path / "out")
    merge(
        [put(tmp_path / f"alike {n}", [records[0 if n else n]], **headers[0]) for n in range(2)], tmp_path / "alike"
    )


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("less", "more"), [
    (SKIPPED, FAILED), (SKIPPED, UNDECIDED), ({"seconds": {"run": 0}}, {"seconds": {"run": 1}}),
], ids=["skipped here and run there", "measured and not decided", "alike"])  # fmt: skip
def test_a_cell_of_two_shards_is_kept_once_as_the_one_that_says_more(tmp_path, order, less, more):
    places = [put(tmp_path / "a", [record(**less)]), put(tmp_path / "b", [record(**more)])]
    _, (found,) = merge([places[index] for index in order], tmp_path / "out")
    assert (found.status, found.latency) == (record(**more).status, more.get("latency"))


def test_other_versions_are_refused_or_told(tmp_path):
    newer = environment(versions={"torch": "2.16.0", "onnx": "1.23.2", "tensorrt": None})
    places = [put(tmp_path / "a", [record()]), put(tmp_path / "b", [], environment=newer)]
    with pytest.raises(ValueError, match=r"torch is 2\.15\.0 in .*a and 2\.16\.0 in .*b"):
        merge(places, tmp_path / "out")
    header, _ = merge(places, tmp_path / "out", allow_mixed=True)
    assert header["environment"]["versions"]["torch"] == "2.15.0 and 2.16.0"
    assert "torch 2.15.0 -> 2.15.0 and 2.16.0" in environment_changes(run(), (header, []))


def test_latencies_of_several_processors_are_never_compared(tmp_path):
    other = environment(cpu={"name": "B", "instructions": ["avx2"]})
    timed = record(**latency(1e-3, 0.9e-3, 1.1e-3))
    places = [put(tmp_path / "a", [timed]), put(tmp_path / "b", [], environment=other)]
    header, records = merge(places, tmp_path / "out")
    assert header["environment"]["cpu"] == {"name": "A and B", "instructions": ["avx2"], "mixed": True}
    slow = (header, [dataclasses.replace(records[0], **latency(9e-3, 8e-3, 9.5e-3))])
    assert compare_runs((header, records), slow) == []
    assert "latencies are not comparable: other processor" in environment_changes((header, records), slow)


def part_of_two(folder, index, cut):
    return put(folder / f"{index}", [record(case=f"case{index}")], shard=cut, **flags("--shard", f"{index}/2"))


def test_shards_that_were_cut_otherwise_are_refused(tmp_path):
    cut = {"count": 2, "cells": 4, "cut": "a"}
    others = {"in different ways": {"cut": "b"}, "of 4 and of 5 cells": {"cut": "b", "cells": 5}}
    one, same = part_of_two(tmp_path, 1, cut), part_of_two(tmp_path, 2, cut)
    assert len(merge([one, same], tmp_path / "out")[0]["shards"]) == 2
    for told, other in others.items():
        with pytest.raises(UserError, match=told):
            merge([one, part_of_two(tmp_path / told, 2, {**cut, **other})], tmp_path / told / "out")


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
    assert predicate is not None and [
        predicate(record(f"export[one-dynamo-op{opset}]")) for opset in (17, 18, 20)
    ] == [True, False, True]
