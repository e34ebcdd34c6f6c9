"""Find the calls that a failing function needs, and the smallest sizes and simplest values at which it fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from conformance.case.draw.simplest import simpler, smaller
from conformance.diagnose.operators.captured_program import Operator
from conformance.diagnose.search import OutOfTime
from conformance.diagnose.smallest.extracted_function import Function, Place, Unwritten, rewritten
from conformance.diagnose.smallest.function_trial import STOPS, FunctionTrials
from conformance.diagnose.smallest.lines import without
from conformance.process.arrays import equal

MOST_SIZES = 6
"""Of how many different sizes of axes smaller ones are tried."""


def fewest(place: Place, trials: FunctionTrials, own: Collection[str]) -> Function | None:
    """The function of as few calls as fail alike; None where none does. Raises OutOfTime, and
    Unwritten where the call itself cannot be written."""
    for chosen in place.choices():
        for way in _ways(place, chosen, trials.kind):
            try:
                function = _in_a_way(place, chosen, way, own)
            except Unwritten:
                if len(chosen) == 1:
                    raise
                continue
            right = trials.right
            if function is not None and trials.fails(function):
                trials.settle()
                return _without_calls(place, function, chosen, way, trials)
            if len(chosen) == 1 and trials.right > right:
                trials.alone = True
                trials.as_exported |= way is _AS_EXPORTED
    return None


_Way = bool | None
_AS_EXPORTED: _Way = None
"""To export a function at the sizes at which the module is exported, and to run it at those at which it fails."""


def _ways(place: Place, chosen: list[Operator], kind: str) -> tuple[_Way, ...]:
    """Return whether sizes are open (True) or fixed, in the order in which it is tried; and at last as the module is,
    if the function may not stop for the sizes alone."""
    first = place.counted(chosen)
    return (first, not first, *([_AS_EXPORTED] if place.traced and kind != STOPS else []))


def _in_a_way(place: Place, chosen: list[Operator], way: _Way, own: Collection[str]) -> Function | None:
    function = place.function(chosen, dynamic=way is not False, own=own)
    return place.as_exported(function) if way is _AS_EXPORTED else function


def _without_calls(
    place: Place, function: Function, chosen: list[Operator], way: _Way, trials: FunctionTrials
) -> Function:
    """The function without those of the calls that may as well be given as values."""
    try:
        for one in [one for one in chosen if one is not place.operator][::-1]:
            fewer = [other for other in chosen if other is not one]
            try:
                candidate = _in_a_way(place, fewer, way, function.own)
            except Unwritten:
                continue
            if trials.fails(candidate):
                assert candidate is not None
                function, chosen = candidate, fewer
    except OutOfTime:
        pass
    return function


def simplified(function: Function, trials: FunctionTrials) -> tuple[Function, bool]:
    """The function without code of the case that it does not need, with smaller sizes and simpler values; whether
    there was time for all of it."""
    best = [function]

    def better(candidate: Function) -> bool:
        if trials.fails(candidate):
            best[0] = candidate
            return True
        return False

    try:
        for operator in function.own:
            better(without(best[0], operator))
        if best[0].dynamic and not best[0].traced:
            better(dataclasses.replace(best[0], dynamic=False))
        arrays = (*function.inputs.values(), *function.constants.values())
        sizes = {size for array in arrays for size in array.shape if size > 1 and not function.traced}
        for size in sorted(sizes, reverse=True)[:MOST_SIZES]:
            any(map(better, _with_size(best[0], size)))
        for name in (*function.inputs, *function.constants):
            any(map(better, _with_values(best[0], name)))
    except OutOfTime:
        return best[0], False
    return best[0], True


def _with_size(function: Function, size: int) -> Iterator[Function]:
    """The function with smaller ones in place of a size, in all axes of that size; then also among the numbers that
    calls are given."""
    for count, sliced in smaller({**function.inputs, **function.constants}, size):
        fewer = function.with_arrays(sliced)
        yield fewer
        told = rewritten(fewer, partial(_instead, size, count))
        if told.steps != fewer.steps:
            yield told


def _instead(size: int, smaller: int, number: Any) -> Any:
    return smaller if number == size else number


def _with_values(function: Function, name: str) -> Iterator[Function]:
    array = {**function.inputs, **function.constants}[name]
    for candidate in simpler(array):
        if not equal(candidate, array):
            yield function.with_arrays({name: candidate})
