"""What is tried while something that fails is made smaller: candidates in phases, each once, in the time there is."""

import os
import time
from collections.abc import Iterator

import pytest

from conformance.diagnose.search import Asking, OutOfTime, Shrinker, Step, search_aside
from conformance.process.worker import aside


def halves(number: int) -> list[Step[int]]:
    """Steps that each divide by 2."""
    return [lambda one: [one // 2]] * 10


def steps_down(number: int) -> Iterator[Step[int]]:
    """As many steps as a phase begins with, each to one of the next smaller numbers."""
    for _ in range(number):
        yield lambda one: [None, one - 2, one - 1]


def test_each_phase_begins_with_what_the_one_before_has_left():
    tried: list[int] = []

    def fails(number: int) -> bool:
        tried.append(number)
        return number >= 13

    assert Shrinker(fails).smallest(64, halves, steps_down) == (13, True)
    assert tried[:3] == [32, 16, 8] and 14 in tried, "halves first, then what fails of one step takes its place"


def test_without_time_what_is_left_by_then_is_given_as_unfinished():
    assert Shrinker[int](lambda number: True, most=3).smallest(64, halves) == (8, False)
    late = Shrinker[int](lambda number: True, deadline=time.monotonic() - 1)
    assert late.smallest(64, halves) == (64, False) and late.count == 0


def test_the_cheapest_that_fails_is_kept_and_nothing_is_tried_twice():
    sets = Shrinker[tuple[int, ...]](lambda chosen: 3 in chosen, key=frozenset, cost=len, most=3)
    assert [sets.fails(one) for one in ((1, 2, 3), (3, 2), (2, 3), (1, 2), (2, 1))] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert (sets.best, sets.count) == ((3, 2), 3)
    with pytest.raises(OutOfTime):
        sets.fails((3,))


def test_a_search_that_a_candidate_takes_along_begins_again_with_each_in_another_process():
    def search(ask: Asking, deadline: float) -> list[str]:
        answers = []
        for question in (os.getpid, os.abort, os.getpid):
            try:
                answers.append("here" if ask(question, 20.0) == os.getpid() else "elsewhere")
            except aside.Lost as lost:  # the candidate that ends its process
                answers.append(str(lost))
        return answers

    assert search_aside(search, 20.0) == ["elsewhere", "SIGABRT", "elsewhere"]
    assert search_aside(lambda ask, deadline: ask(os.getpid, 20.0) != os.getpid(), 20.0) is False
