"""Find the calls that a failing function needs, and the smallest sizes and simplest values at which it fails."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from conformance.diagnose.operators.captured_program import Operator
from conformance.diagnose.search import Shrinker, Step
from conformance.diagnose.smallest.extracted_function import Function, Place, Unwritten
from conformance.diagnose.smallest.function_trial import STOPS, FunctionTrials
from conformance.diagnose.smallest.simpler_arrays import simpler_values, smaller_sizes


def fewest(place: Place, trials: FunctionTrials, own: Collection[str]) -> Function | None:
    """The function of as few calls as fail alike; None where none does. Raises OutOfTime, and
    Unwritten where the call itself cannot be written."""
    for chosen in place.choices():
        for way in _ways(place, chosen, trials.kind):
            made = partial(_in_a_way, place, way, own)
            try:
                function = made(chosen)
            except Unwritten:
                if len(chosen) == 1:
                    raise
                continue
            right = trials.right
            if trials.fails(function):
                trials.settle()
                return made(_fewer(place, chosen, made, trials))
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


def _in_a_way(place: Place, way: _Way, own: Collection[str], chosen: Sequence[Operator]) -> Function | None:
    function = place.function(chosen, dynamic=way is not False, own=own)
    return place.as_exported(function) if way is _AS_EXPORTED else function


def _fewer(
    place: Place, chosen: list[Operator], made: Callable[[list[Operator]], Function | None], trials: FunctionTrials
) -> list[Operator]:
    """The calls without those that may as well be given as values."""

    def fails(calls: list[Operator]) -> bool:
        with contextlib.suppress(Unwritten):
            return trials.fails(made(calls))
        return False

    def steps(calls: list[Operator]) -> Iterator[Step[list[Operator]]]:
        yield from (partial(_without_call, one) for one in calls[::-1] if one is not place.operator)

    return Shrinker(fails).smallest(chosen, steps)[0]


def _without_call(call: Operator, calls: list[Operator]) -> list[list[Operator]]:
    return [[other for other in calls if other is not call]]


def simplified(function: Function, trials: FunctionTrials) -> tuple[Function, bool]:
    """The function without code of the case that it does not need, with smaller sizes and simpler values; whether
    there was time for all of it."""
    return trials.smallest(function, _less, smaller_sizes, simpler_values)


def _less(function: Function) -> Iterator[Step[Function]]:
    """Yield a step for each operator with code of the case, and one to sizes that are fixed."""
    for operator in function.own:
        yield partial(_without_code, operator)
    if function.dynamic and not function.traced:
        yield lambda one: [dataclasses.replace(one, dynamic=False)]


def _without_code(operator: str, function: Function) -> list[Function]:
    return [dataclasses.replace(function, own=tuple(name for name in function.own if name != operator))]
