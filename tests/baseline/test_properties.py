"""What holds for any two runs, with records that Hypothesis draws."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.baseline import (
    KINDS,
    accept,
    compare_runs,
    environment_changes,
    gate,
    lines,
    load,
    merge,
    read_baseline,
    shard,
    write_baseline,
)
from tests.baseline.support import (
    CRASHED,
    FAILED,
    SKIPPED,
    XFAILED,
    XPASSED,
    beside,
    environment,
    latency,
    put,
    record,
    run,
)

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


@given(runs(), runs(), st.integers(40, 200))
def test_every_change_is_in_the_lines_or_counted(before, after, width):
    changes = compare_runs(before, after)
    found = list(lines(changes, width))
    assert all(any(change.id in line for line in found) for change in changes)
    assert [line for line in found if len(line) > width and "[" not in line] == []
