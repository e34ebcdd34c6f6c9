"""Which calls a function that fails needs, and the smallest sizes and simplest values at which it fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import numpy as np

from conformance.align.operators.program import Operator
from conformance.checks.functions.lines import without
from conformance.checks.functions.program import Function, Place, Unwritten, rewritten
from conformance.checks.functions.trial import Trials
from conformance.checks.reduce.trial import OutOfTime
from conformance.draw.simplest import simpler

MOST_SIZES = 6
"""Of how many different sizes of axes smaller ones are tried."""


def fewest(place: Place, trials: Trials, own: Collection[str]) -> Function | None:
    """The function of as few calls as fail alike; None where none does. Raises OutOfTime, and
    Unwritten where the call itself cannot be written."""
    for chosen in place.choices():
        for dynamic in (True, False) if place.counted(chosen) else (False, True):
            try:
                function = place.function(chosen, dynamic=dynamic, own=own)
            except Unwritten:
                if len(chosen) == 1:
                    raise
                continue
            if trials.fails(function):
                assert function is not None
                trials.settle()
                return _without_calls(place, function, chosen, trials)
        trials.alone |= len(chosen) == 1 and trials.right > 0
    return None


def _without_calls(place: Place, function: Function, chosen: list[Operator], trials: Trials) -> Function:
    """The function without those of the calls that may as well be given as values."""
    try:
        for one in [one for one in chosen if one is not place.operator][::-1]:
            fewer = [other for other in chosen if other is not one]
            try:
                candidate = place.function(fewer, dynamic=function.dynamic, own=function.own)
            except Unwritten:
                continue
            if trials.fails(candidate):
                assert candidate is not None
                function, chosen = candidate, fewer
    except OutOfTime:
        pass
    return function


def simplified(function: Function, trials: Trials) -> tuple[Function, bool]:
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
        if best[0].dynamic:
            better(dataclasses.replace(best[0], dynamic=False))
        arrays = (*function.inputs.values(), *function.constants.values())
        sizes = {size for array in arrays for size in array.shape if size > 1}
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
    for smaller in [count for count in dict.fromkeys((1, 2, size // 2)) if 0 < count < size]:
        sliced = {
            name: array[tuple(slice(smaller if axis == size else None) for axis in array.shape)]
            for name, array in {**function.inputs, **function.constants}.items()
        }
        fewer = function.with_arrays(sliced)
        yield fewer
        told = rewritten(fewer, partial(_instead, size, smaller))
        if told.steps != fewer.steps:
            yield told


def _instead(size: int, smaller: int, number: Any) -> Any:
    return smaller if number == size else number


def _with_values(function: Function, name: str) -> Iterator[Function]:
    array = {**function.inputs, **function.constants}[name]
    for candidate in simpler(array):
        if not np.array_equal(candidate, array, equal_nan=candidate.dtype.kind == "f"):
            yield function.with_arrays({name: candidate})
