"""What holds for any two runs, with records that Hypothesis draws."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.baseline import accept, compare_runs, environment_changes, gate, load, read_baseline, write_baseline
from tests.baseline.support import (
    CRASHED,
    FAILED,
    SKIPPED,
    XFAILED,
    XPASSED,
    beside,
    environment,
    latency,
    record,
    run,
)

NAMES = [
    *(f"export[{case}-dynamo-op20]" for case in "abc"),
    *(f"accuracy[{case}-torchscript-op17-onnx-reference-fp32]" for case in "abc"),
    *(f"fidelity[{case}-torchscript-op17-int8-entropy]" for case in "ab"),
]
FEW = settings(max_examples=25)
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


@FEW
@given(runs())
def test_a_run_does_not_differ_from_itself(one):
    assert compare_runs(one, copy.deepcopy(one)) == []


@FEW
@given(runs())
def test_a_baseline_stands_for_the_run_it_was_made_from(tmp_path_factory, one):
    file = tmp_path_factory.mktemp("run") / "baseline.jsonl"
    write_baseline(file, *one)
    baseline = read_baseline(file)
    assert compare_runs(baseline, one) == []
    assert environment_changes(baseline, one) == []
    again = file.with_name("again.jsonl")
    write_baseline(again, *baseline)
    assert again.read_bytes() == file.read_bytes()


@FEW
@given(runs(), runs(), runs())
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
