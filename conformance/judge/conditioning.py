"""Measure how far rounding alone moves the outputs of a module for an example, and find the values on which PyTorch
itself decides nothing: its own kernels part there, or what they compute is not defined."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from conformance.case.draw.example import Effort
from conformance.compare.close import Limit, differs, distances
from conformance.compare.compared_values import Reading
from conformance.compare.nudge import by_units, movement
from conformance.models.otherwise.rounding import MOST_UNITS, Rounding, Sums, bits_of
from conformance.models.otherwise.undefined import Undefining
from conformance.models.reference.dispatch import Way
from conformance.process.arrays import PART, Array, Inputs

ROUNDINGS: Mapping[Effort, tuple[int, int]] = {"few": (1, 0), "some": (2, 1), "all": (8, 2)}
"""How many other roundings are tried, each in both directions, to see how far rounding alone can move the outputs: a
result that is rounded up already moves by half a unit one way, and by one and a half the other. With eight, what
rounding moves hardly ever stays where it is in all of them by chance. The second number is how many of them are tried
by a step a thousand times smaller as well, to see which values jump; where none is, jumps count as moves. Of a graph
that is continuous none is tried: nothing of it jumps."""

FINER = 10
"""By how many bits that step is smaller."""

INSIDE = 4
"""How many roundings of what a module computes are tried, each in both directions, to see what they decide: a tie
goes the other way in one of the two."""

AROUND = 3
"""How many of its inputs and weights as well, to see where a unit in their last place makes NaN and infinities finite
or numbers of them."""

JUMP = 64.0
"""How many times as far as its roundings a value has to move for a jump. Where results that are nearly equal are made
equal, it may be one that no rounding shows: no two are equal by chance where each is off by units of its own."""

SURE: Mapping[Effort, float] = {"few": 1.0, "some": 0.5, "all": 1.0}
"""What part of a move counts: half of what few roundings show, so that all of them would hardly show less."""

UNITS = float(np.sqrt(np.mean(np.square(np.arange(1, MOST_UNITS + 1)))))
"""How many units an uneven rounding is off, as a root mean square."""

ROWS = 3
"""How many are tried, each in both directions, to see whether rows of boxes are others."""

PEAK = 4.0
"""How many times the root mean square of its moves a value may move: what the largest of thousands does."""


class InFloat64(Protocol):
    """The part of ``models.reference.reference.Reference`` that is needed here."""

    half: str | None
    who: str

    @property
    def continuous(self) -> bool: ...

    def oracle(self, inputs: Inputs, rounding: Rounding | None = None) -> list[Array] | None: ...


class Roundings:
    """The movement of each value of the ``exact`` outputs, those of float64, when every float input, weight, constant
    and result of an operator moves by one unit in its last place.

    No computation in float32 can be expected to be closer. How far PyTorch's float32 is off does not always tell: it
    may be exact by luck, as in normalising equal values, where whatever rounding leaves of the mean is divided by
    almost nothing. An output that jumps, as a rounding at a tie does, moves as far for a step a thousand times
    smaller; that is no question of precision and excuses nothing.

    A value is taken to move by ``PEAK`` times the root mean square of what was seen of it, as it may have moved
    little by chance, and by no more than any value of its output was seen to.

    All roundings also tell what is open, as rounding decides on it: a jump where what the module computes is rounded,
    and not only what it is given; another integer or another number of values there; and NaN or an infinity that a
    unit in the last place makes finite. Such values move infinitely far, and ``rules`` has the names of why.
    """

    def __init__(self, reference: InFloat64, inputs: Inputs, exact: Sequence[Array]) -> None:
        self._reference, self._inputs, self._exact = reference, inputs, exact
        self._seen = _Seen(exact)
        self._finer = _Seen(exact)
        self._inside, self._around, self._merged = _Seen(exact), _Seen(exact), _Seen(exact)
        self._sums = Sums()
        self.rules: set[str] = set()

    def moves(self, effort: Effort) -> list[Array]:
        """Return the moves, by as many other roundings as ``effort`` asks; those seen before are not tried again."""
        count, finer = ROUNDINGS[effort]
        self._see(self._seen, count, 0)
        jumps = not self._reference.continuous
        self._see(self._finer, finer if jumps else 0, FINER)
        decides = effort == "all" and self._seen.may_decide(self._finer)
        if decides:
            self._see(self._inside, INSIDE, 0, given=True)
            self._see(self._around, AROUND, 0, whole=False)
        if decides or (effort == "all" and jumps and self._seen.leaps(self._finer)):
            self._see(self._merged, 1, 0, given=True, merged=True)
        found: list[Array] = []
        smooths = self._seen.smooth(self._finer)
        for total, step, smooth in zip(self._seen.squares, self._seen.largest, smooths, strict=True):
            move = np.where(smooth, PEAK * np.sqrt(total / (2 * self._seen.count)), 0.0)
            move = np.minimum(move, step.max(initial=0.0, where=smooth)) * SURE[effort]
            found.append(self._opened(len(found), move, smooth) if effort == "all" else move)
        return found

    def _opened(self, output: int, move: Array, smooth: Array) -> Array:
        """The moves of an output, infinite where it is open."""
        inside, around, merged = self._inside, self._around, self._merged
        if inside.reshaped[output] or merged.reshaped[output]:
            self.rules.add("rounding")
            return np.array(np.inf)
        jump = np.where(smooth, JUMP * move, self._finer.largest[output] / 16)
        decided = (~smooth & (inside.largest[output] > jump)) | (merged.largest[output] > jump)
        unstable = around.flipped[output] | inside.flipped[output]
        if self._exact[output].dtype.kind != "f":
            decided, unstable = inside.flipped[output] | merged.flipped[output], np.zeros_like(smooth)
        self.rules |= {"rounding"} if decided.any() else set()
        self.rules |= {"unstable"} if unstable.any() else set()
        return np.where(decided | unstable, np.inf, move)

    def _see(self, seen: _Seen, count: int, finer: int, **how: bool) -> None:
        """Note what ``count`` roundings in all do to each value; ``how`` as ``_otherwise`` takes it."""
        for seed in range(seen.count, count):
            for moved in _otherwise(self._reference, self._inputs, finer, seed, self._sums, uneven=True, **how):
                seen.add(self._exact, moved)
            seen.count += 1


class _Seen:
    """The effect of some roundings on each value, in units."""

    def __init__(self, exact: Sequence[Array]) -> None:
        self.count = 0
        self.squares = [np.zeros(right.shape) for right in exact]
        self.largest = [np.zeros(right.shape) for right in exact]
        self.flipped = [np.zeros(right.shape, dtype=bool) for right in exact]
        """Where there was another integer, or NaN or an infinity in place of something else."""
        self.reshaped = [False for _ in exact]

    def smooth(self, finer: _Seen) -> list[Array]:
        """Return where a value moves less by ``finer`` roundings, as it does but for a jump."""
        return [jump <= step / 16 for step, jump in zip(self.largest, finer.largest, strict=True)]

    def may_decide(self, finer: _Seen) -> bool:
        """Return whether rounding decided on anything: these move whatever may move, and what is given too."""
        smooth = all(bool(each.all()) for each in self.smooth(finer))
        return not smooth or any(self.reshaped) or any(bool(each.any()) for each in self.flipped)

    def leaps(self, finer: _Seen) -> bool:
        """Return whether a value moved much further than ``finer`` roundings a thousand times smaller explain: they
        do not reach what it depends on, such as which of two nearly equal scores is larger."""
        pairs = zip(self.largest, finer.largest, strict=True)
        return any(bool((step > JUMP * 2.0**FINER * small).any()) for step, small in pairs)

    def add(self, exact: Sequence[Array], moved: Sequence[Array]) -> None:
        for output, (right, there) in enumerate(zip(exact, moved, strict=False)):
            if right.shape != there.shape:
                self.reshaped[output] = True
                continue
            with np.errstate(over="ignore"):  # beyond float32, float64 has numbers where float32 has infinities
                self.flipped[output] |= _flips(*map(_narrow, (right, there)))
            if right.dtype.kind == "f":
                step = movement(there, right)
                step /= UNITS
                np.maximum(self.largest[output], step, out=self.largest[output])
                self.squares[output] += np.square(step, out=step)


def _flips(right: Array, there: Array) -> Array:
    """Return where two answers have different integers, or NaN or an infinity in place of something else."""
    if right.dtype.kind == "f":
        odd: Array = ~(np.isfinite(right) & np.isfinite(there))
        if not odd.any():  # as nearly always, and ``distances`` takes ten times as long
            return odd
    return np.isinf(distances(right, there))


def _narrow(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def unsettled_rows(
    reference: InFloat64, reading: Reading, inputs: Inputs, wanted: Sequence[Array], exact: Sequence[Array]
) -> set[int]:
    """The outputs of boxes that have other rows in float64 (``exact``) than in float32 (``wanted``, which may be
    empty), or in float64 when everything moves by one unit in its last place.

    Which rows there are is a jump by its nature. Results that are exact move as well, so that ties are broken: which
    of equal scores are the best, PyTorch leaves open.
    """
    if not reading.detections:
        return set()
    found, sums = set(reading.unsettled(wanted, exact)), Sums()
    for seed in range(ROWS):
        for other in _otherwise(reference, inputs, 0, seed, sums, ties=True):
            found.update(reading.unsettled(exact, other))
    return found


def _otherwise(
    reference: InFloat64, inputs: Inputs, finer: int, seed: int, sums: Sums, *, ties: bool = False,
    uneven: bool = False, given: bool = False, whole: bool = True, merged: bool = False,
) -> Iterator[list[Array]]:  # fmt: skip
    """The outputs in float64 by another rounding, in both directions; empty where there are none. Inputs and weights
    that are ``given`` stay as they are, and without ``whole`` so do whole numbers among the inputs. Results that are
    ``merged`` are equal where they were nearly so."""
    bits = bits_of([str(array.dtype) for array in inputs.values()], reference.half)
    rng = np.random.default_rng(seed)
    signs = {name: _drawn(array.shape, lambda count: rng.choice([-1, 1], count)) for name, array in inputs.items()}
    for each in signs.values() if uneven else ():
        each *= _drawn(each.shape, lambda count: rng.integers(1, MOST_UNITS, count, endpoint=True))
    for mirrored in (False, True):
        rounding = None if bits is None else Rounding(bits, seed, finer, mirrored, ties, uneven, given, merged, sums)
        units = 0.0 if given else (-1.0 if mirrored else 1.0) * 2.0**-finer
        nudged = {name: by_units(array, signs[name], units, whole=whole) for name, array in inputs.items()}
        yield reference.oracle(nudged, rounding) or []


def _drawn(shape: tuple[int, ...], draw: Callable[[int], Array]) -> Array:
    """Return whole numbers, of a byte each, of which ``draw`` gives so many."""
    drawn = np.empty(math.prod(shape), np.int8)
    for begin in range(0, drawn.size, PART):
        part = drawn[begin : begin + PART]
        part[:] = draw(part.size)
    return drawn.reshape(shape)


DRAWS = 6
"""How many times what is not defined is given other values, and ties are broken: three times in either direction."""
MOST_DRAWS = 32
"""The most runs in which equal values take each other's places; as many as there are equal ones show all."""
_NEAR = Limit(share=1e-4, floor=1e-2)
"""How far a value that a module computes may be from one that it is known by."""


class InOtherWays(Protocol):
    """The part of ``models.reference.reference.Reference`` that is needed here."""

    def leaves_range(self, inputs: Inputs) -> bool: ...

    def otherwise(self, inputs: Inputs, way: AbstractContextManager[Any]) -> list[Array]: ...

    def other_ways(self, operators: Collection[str], *, special: bool) -> Sequence[Way]: ...

    def undefined(self, operators: Collection[str], seed: int | None) -> Undefining | None: ...

    def operators(
        self, inputs: Inputs, shapes: Collection[tuple[int, ...]] = ()
    ) -> tuple[frozenset[str], list[Array]]: ...


def _tried(reference: InOtherWays, inputs: Inputs, way: AbstractContextManager[Any]) -> list[Array] | None:
    try:
        return reference.otherwise(inputs, way)
    except (Exception, SystemExit):
        # such as an operator without such a kernel, or an undefined index beyond its axis: that way shows nothing
        return None


def computes(reference: InOtherWays, inputs: Inputs, values: Sequence[Array]) -> bool:
    """Return whether a module computes all these values on its way, each as the result of an operator."""
    arrays = [np.asarray(value) for value in values]
    _, results = reference.operators(inputs, {array.shape for array in arrays})
    return all(any(_is_near(array, result) for result in results) for array in arrays)


def _is_near(array: Array, result: Array) -> bool:
    return array.dtype.kind == "f" and differs(array, result, _NEAR, dtypes=False) is None


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def left_open(
    reference: InOtherWays, operators: Collection[str], inputs: Inputs, wanted: Sequence[Array]
) -> tuple[list[Array], set[str]]:
    """Return how far the reference parts from ``wanted``, its own outputs, in other ways, infinitely where that is no
    question of size; and the rules that leave it open. An array without dims is about all values and their number."""
    found = [np.zeros(right.shape) for right in wanted]
    rules = set[str]()
    if all(map(_is_finite, inputs.values())) and not all(map(_is_finite, wanted)) and reference.leaves_range(inputs):
        found = [np.where(np.isfinite(one), 0.0, np.inf) if one.dtype.kind == "f" else far
                 for one, far in zip(wanted, found, strict=True)]  # fmt: skip
        rules.add("unstable")
    if not operators:
        return found, rules

    def see(rule: str, before: Sequence[Array], after: Sequence[Array] | None) -> None:
        for output, right in enumerate(before):
            same = after is not None and len(after) == len(before)
            far = distances(right, after[output]) if same and after is not None else np.array(np.inf)
            # kernels also round in other ways; what is not defined is so however little it decides on
            if np.isinf(far).any() or (rule != "kernels" and far.any()):
                rules.add(rule)
            found[output] = np.maximum(found[output], far) if far.ndim == found[output].ndim else np.array(np.inf)

    special = not all(map(_is_finite, (*inputs.values(), *wanted)))
    for way in reference.other_ways(operators, special=special):
        other = _tried(reference, inputs, way())
        if other is not None:
            see("kernels", wanted, other)
    noted = reference.undefined(operators, None)
    if noted is None:
        return found, rules
    before = _tried(reference, inputs, noted)
    alike = before is not None and [one.shape for one in before] == [right.shape for right in wanted]
    draws = max(DRAWS, min(noted.most_equal, MOST_DRAWS)) if alike and noted.rules else 0
    for seed in range(draws):
        otherwise = reference.undefined(operators, seed)
        after = None if otherwise is None else _tried(reference, inputs, otherwise)
        for rule in noted.rules:
            see(rule, before or [], after)
    return found, rules


def merged(moved: Sequence[Array], found: Sequence[Array]) -> list[Array]:
    """Return how far values move, or part; where either is about a whole output, so is the larger of the two."""
    together = []
    for one, other in zip(moved, found, strict=True):
        if one.shape == other.shape:
            together.append(np.maximum(one, other))
        else:
            together.append(np.array(np.inf) if np.isinf(one).any() or np.isinf(other).any() else one)
    return together
