"""A cell whose time does not last runs the examples that tell most, and says how many it left out."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.case.draw.example import Draw
from conformance.judge import in_time
from conformance.judge.in_time import InTime, by_telling
from conformance.results.records import text
from tests.kit.cases import PASSED, QUICK, case_of, verdict
from tests.kit.runtimes import wrong_runtime

CASE = case_of("torch.sin(x)", QUICK, dims="batch: 1..9")
REGIMES = ("plain", "large", "zero", "ties")
DRAWS = [
    Draw({"batch": batch, "side": side}, regime, 0, index)
    for index, (batch, side, regime) in enumerate(itertools.product((4, 1, 8), (16, 8, 32), REGIMES))
]


def ticking(seconds: float) -> Iterator[float]:
    """A clock that goes on by so much each time that it is looked at."""
    return itertools.count(0.0, seconds)


def run(budget: float | None, seconds: float) -> tuple[list[Draw], InTime]:
    """The draws that are run where each takes so long, and what is left of them."""
    clock = ticking(seconds)
    draws = InTime(DRAWS, budget, lambda: next(clock))
    return list(draws), draws


# ---- which draws ---------------------------------------------------------------------------------------------


def test_where_time_lasts_all_draws_come_in_their_order():
    given, draws = run(None, 0.1)
    assert given == DRAWS and not draws.left and not draws.lacks_ends()


def test_where_it_does_not_the_ends_come_first_and_then_each_regime_and_size():
    given, draws = run(None, in_time.SECONDS / 8)
    assert 2 < len(given) < 12 and len(given) + len(draws.left) == len(DRAWS)
    assert not draws.lacks_ends()
    assert {draw.regime for draw in given} == {*REGIMES}
    for dim in ("batch", "side"):
        assert {draw.dims[dim] for draw in given} == {draw.dims[dim] for draw in DRAWS}


def test_without_a_budget_the_ends_are_run_however_long_they_take():
    given, draws = run(None, 10 * in_time.SECONDS)
    assert not draws.lacks_ends() and len(given) <= 5
    assert {1, 8} <= {draw.dims["batch"] for draw in given} and {8, 32} <= {draw.dims["side"] for draw in given}


def test_a_budget_that_is_asked_for_is_not_exceeded():
    given, draws = run(1.0, 10.0)
    assert len(given) == 1 and draws.lacks_ends()


@given(st.permutations(DRAWS), st.integers(0, len(DRAWS)))
def test_no_draw_is_lost_or_run_twice(draws, count):
    done, left = draws[:count], draws[count:]
    ordered = by_telling(left, done)
    assert sorted(draw.index for draw in ordered) == sorted(draw.index for draw in left)
    few = [*done, *ordered[:4]]  # all four ends are in two draws, or three where each has but one
    assert {draw.dims["batch"] for draw in few} >= {1, 8} and {draw.dims["side"] for draw in few} >= {8, 32}


def test_a_slow_first_draw_alone_changes_no_order():
    slow = 0.75 * in_time.SECONDS
    times = iter([0.0, *(slow + 0.01 * step for step in range(100))])
    assert list(InTime(DRAWS, None, lambda: next(times))) == DRAWS


# ---- what a cell makes of it ---------------------------------------------------------------------------------


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time for any example but the ends."""
    monkeypatch.setattr(in_time, "SECONDS", 1e-9)


def test_a_sound_cell_passes_with_fewer_examples_and_says_so(bench, over):
    record = bench.run(CASE)
    assert verdict(record) == PASSED
    assert record.left_out is not None and record.left_out["examples"] > record.examples >= 2
    (line,) = text.draws_not_run([record])
    assert line.startswith("1 cell left out") and "--budget" in line


@pytest.mark.parametrize("size", [1, 9])
def test_what_is_wrong_at_one_end_alone_is_found(bench, over, size):
    def wrong(inputs, outputs):
        return [output + 1 if len(output) == size else output for output in outputs]

    with wrong_runtime(wrong):
        record = bench.run(CASE)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.draw is not None and record.draw["dims"] == {"batch": size}


def test_a_declared_failure_is_looked_for_as_long_as_it_takes(bench, over):
    def wrong(inputs, outputs):
        return [output + 1 if len(output) == 4 else output for output in outputs]

    declared = "fails: [{stage: compare, error: WrongValue, because: it is wrong for four, fault: runtime}]"
    with wrong_runtime(wrong):
        record = bench.run(case_of("torch.sin(x)", QUICK, declared, dims="batch: 1..9"))
    assert record.status == "xfailed" and record.left_out is None


def test_a_budget_that_ends_before_the_ends_of_the_dims_gives_no_verdict(bench):
    record = bench.run(CASE, budget=1e-9)
    assert record.status == "skipped" and record.undecided
    assert "before each dim was at its smallest and largest size" in str(record.reason)


@pytest.mark.parametrize("check", ["accuracy", "specials"])
def test_one_example_for_which_there_was_time_accuses_no_case(bench, check):
    """It passes with what another draw gives, as there is none: that says nothing of the case."""
    special = QUICK.replace("specials: false", "specials: true")
    record = bench.run(case_of("torch.sin(x)", special, dims="batch: 3"), check=check, budget=1e-9)
    assert (record.status, record.error, record.examples) == ("skipped", None, 1) and record.undecided
    assert "give it more by --budget" in str(record.reason)


def test_time_that_lasts_leaves_nothing_out(bench):
    assert bench.run(CASE, budget=1e9).left_out is None


def test_a_wrong_value_goes_before_the_end_of_the_budget(bench):
    with wrong_runtime(lambda inputs, outputs: [output + 1 for output in outputs]):
        assert bench.run(CASE, budget=1e-9).status == "failed"
