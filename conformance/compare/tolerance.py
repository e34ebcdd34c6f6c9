"""Comparing what a runtime gave with what PyTorch gave, for one draw; ``vacuity`` judges draws together.

Everything here is NumPy on lists of arrays in output order. Values are compared in float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, SupportsInt

import numpy as np

from conformance.compare.excuses import UNMOVED, by_other_sums, by_rounding, is_even, is_ordinary, slacks
from conformance.compare.matched_rows import matched_rows, row_order
from conformance.process.arrays import Array, dtype_name, same_dtype


@dataclass(frozen=True)
class Tolerance:
    """``abs(got - wanted) <= atol + rtol * abs(wanted)``.

    A default ``atol`` is meant for outputs around 1 and shrinks with outputs that are smaller (see
    ``allowed``); one that a case declares is ``absolute``.
    """

    rtol: float
    atol: float
    absolute: bool = False
    spread: float | None = None
    """Of values that are random on purpose: how far apart those of several calls on the same inputs were. Only their
    range is compared."""

    def refuses(self, wrong: Array, right: Array) -> bool:
        """Return whether ``wrong``, of the same shape, would have failed as an output."""
        if right.dtype.kind != "f":
            return not np.array_equal(wrong, right)
        finite = np.isfinite(right)
        if not np.array_equal(wrong[~finite], right[~finite], equal_nan=True) or not np.isfinite(wrong[finite]).all():
            return True
        right = np.where(finite, right, 0).astype(np.float64)
        wrong = np.where(finite, wrong, 0).astype(np.float64)
        return bool((np.abs(wrong - right) > allowed(right, self)).any())


DEFAULTS = {
    "float64": Tolerance(rtol=1e-9, atol=1e-12),
    "float32": Tolerance(rtol=1e-5, atol=1e-6),
    "float16": Tolerance(rtol=1e-3, atol=1e-4),
    "bfloat16": Tolerance(rtol=8e-3, atol=8e-4),
}
"""By dtype of the output, or of what it is computed in; integers and bools are exact.
``docs/evidence/comparison.md`` has the evidence."""

MOST_EXCUSED = 0.5
"""The share of an output's values that may be excused; an output with more verified nothing."""

Compared = Literal["verified", "ill-conditioned", "nothing", "failed"]


@dataclass(frozen=True)
class Subject:
    """An output as sentences call it: by the name that the case gives it, or else by its number."""

    number: int
    name: str | None = None
    looked_up_in: str | None = None
    """What its indices were looked up in, where the sentence is about what stands there."""

    def __str__(self) -> str:
        place = "" if self.looked_up_in is None else f", looked up in {self.looked_up_in}"
        return f"output {self.number if self.name is None else self.name}{place}"


@cache
def subjects(count: int, names: tuple[str, ...] = ()) -> tuple[Subject, ...]:
    """The first ``count`` outputs; those beyond ``names`` have none."""
    return tuple(Subject(number, names[number] if number < len(names) else None) for number in range(count))


@dataclass(frozen=True)
class Worst:
    """The element of an output that is furthest off, relative to what is allowed there."""

    output: int
    index: tuple[int, ...]
    got: int | float | str | None
    wanted: int | float | str | None
    error: float
    ratio: float
    rounding: float | None = None
    """The error relative to what another order of the same sums can make of this output (``by_rounding``): up to 1 it
    is no more than rounding. None where the comparison was not element by element."""
    looked_up: dict[str, Any] | None = None
    """Of an output of indices, which ``got`` and ``wanted`` are then: what stands at them, under the same keys, and
    ``in``, what they index. ``error`` and ``ratio`` are about these."""
    called: str | None = None
    """The output's name in sentences, where its number says nothing, as for a tensor of a list: ``parts[3]``."""
    together: tuple[int, ...] = ()
    """The outputs whose rows belong to those of this one."""
    differ: tuple[int, int] | None = None
    """How many of how many values of the output are wrong; None where that was not counted."""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one draw.

    ``error`` is the name of what is wrong (WrongLength, WrongCount, WrongDtype, WrongShape, WrongNaN, WrongInf,
    WrongValue, IllConditioned) or None; ``text`` says it in one line.
    """

    verdict: Compared
    worst: Worst | None = None
    error: str | None = None
    text: str | None = None
    rows: Mapping[str, int] | None = None
    """How many rows of boxes were ``matched`` and ``unmatched``."""
    excused: int = 0
    """How many values are off by more than is allowed, and excused as float32 itself or a conversion is so far off
    there."""
    excuse: Worst | None = None
    """The excused value that is furthest off, relative to what is allowed without an excuse."""
    left_open: int = 0
    """How many of these nobody can be right or wrong on, whatever a runtime gives: they move infinitely far."""
    doubtful: bool = False
    """Whether the answer rests on the largest error of float32 in a whole output: how far rounding moves each value
    (``conditioning``) decides."""


def compare(
    got: Sequence[Array],
    wanted: Sequence[Array],
    oracle: Sequence[Array] | None,
    tolerances: Sequence[Tolerance | None],
    any_order: Sequence[bool],
    conditioning: Sequence[Array] | None = None,
    called: Sequence[Subject] | None = None,
    special: Callable[[], float] = lambda: 0.0,
) -> Comparison:
    """Compare all outputs of one draw.

    ``oracle`` holds the same outputs computed in float64, or None where the module has no float64 form.
    ``conditioning`` says, for each value of the exact outputs, how far rounding alone can move it, infinitely where
    it is open; an array without dims is about all values of an output, and their number. Without it the answer may
    be ``doubtful``.
    ``tolerances`` and ``any_order`` have one entry for each wanted output; a tolerance of None is exact. ``called``
    is what texts call the outputs; None numbers them. ``special`` gives the share of NaN and infinities in the
    inputs; an output with no more of them shows something.
    """
    called = subjects(len(wanted)) if called is None else called
    if len(got) != len(wanted):
        return failed("WrongCount", f"{len(got)} outputs instead of {len(wanted)}")
    verdicts: list[Comparison] = []
    for output, (given, right) in enumerate(zip(got, wanted, strict=True)):
        exact = None if oracle is None else oracle[output]
        moved = conditioning[output] if conditioning else UNMOVED
        with np.errstate(all="ignore"):  # NaN and infinities are compared on purpose
            if any_order[output] and given.shape == right.shape and right.ndim:
                given = matched_rows(given, right)
                if exact is not None and exact.shape == right.shape:
                    order = row_order(exact, right)
                    exact, moved = exact[order], moved[order] if moved.shape == right.shape else moved
            verdict = _compare_output(called[output], given, right, exact, tolerances[output], moved, special)
            if verdict.doubtful and conditioning is not None:
                verdict = dataclasses.replace(verdict, doubtful=False)
        if verdict.verdict == "failed":
            return verdict
        verdicts.append(verdict)
    return summary(verdicts)


def summary(comparisons: list[Comparison]) -> Comparison:
    """The draw's verdict from its outputs': any weakness counts; nothing was verified only if no output was."""
    if len(comparisons) == 1:
        return comparisons[0]
    excuses = [comparison.excuse for comparison in comparisons if comparison.excuse is not None]
    for verdict in ("ill-conditioned", "verified"):
        alike = [comparison for comparison in comparisons if comparison.verdict == verdict]
        if alike:
            return dataclasses.replace(
                max(alike, key=lambda comparison: comparison.worst.ratio if comparison.worst else 0.0),
                excused=sum(comparison.excused for comparison in comparisons),
                left_open=sum(comparison.left_open for comparison in comparisons),
                excuse=max(excuses, key=lambda worst: worst.ratio, default=None),
                doubtful=any(comparison.doubtful for comparison in comparisons),
            )
    return comparisons[0] if comparisons else Comparison("nothing")


def failed(error: str, text: str, worst: Worst | None = None, wrong: Array | None = None) -> Comparison:
    """A comparison that found something wrong: these of the values, where they were counted."""
    if worst is not None and wrong is not None:
        worst = dataclasses.replace(worst, differ=(int(wrong.sum()), wrong.size))
    return Comparison("failed", worst, error, text)


def odd_shape(output: Subject, got: Array, wanted: Array) -> Comparison | None:
    """Another dtype or shape than is wanted, which are exact."""
    if not same_dtype(got.dtype, wanted.dtype):
        return failed("WrongDtype", f"{output} is {dtype_name(got)} instead of {dtype_name(wanted)}")
    if got.shape != wanted.shape:
        return failed("WrongShape", f"{output} has shape {got.shape} instead of {wanted.shape}")
    return None


def _compare_output(
    output: Subject,
    got: Array,
    wanted: Array,
    oracle: Array | None,
    tolerance: Tolerance | None,
    moved: Array,
    special: Callable[[], float],
) -> Comparison:
    odd = odd_shape(output, got, wanted)
    if odd is not None:
        if odd.error == "WrongShape" and not moved.ndim and np.isinf(moved):
            text = f"{output}: how many values there are is left open"
            count = max(wanted.size, 1)
            return Comparison("ill-conditioned", text=text, excused=count, left_open=count)
        return odd
    if tolerance is not None and tolerance.spread is not None:
        return _compare_range(output, got, wanted, tolerance.spread)
    is_open = _CLOSED
    if moved is not UNMOVED and moved.shape in ((), wanted.shape):
        is_open = np.broadcast_to(np.isinf(moved), wanted.shape)
    if tolerance is None or wanted.dtype.kind not in "f":
        return _compare_exactly(output, got, wanted, oracle, is_open)
    if not wanted.size:
        return Comparison("verified")
    right = wanted.astype(np.float64)
    error = np.abs(got.astype(np.float64) - right)
    finite = np.isfinite(error)
    excused: Array | None = None
    if not finite.all():
        mismatch = _compare_nonfinite(output, got, wanted, oracle, is_open)
        if isinstance(mismatch, Comparison):
            return mismatch
        excused = mismatch if mismatch.any() else None
        spread = np.isnan(wanted).mean() > 0.5 or not finite.any()
        if spread and mismatch.mean() <= MOST_EXCUSED and (~np.isfinite(wanted)).mean() > special():
            return Comparison("nothing")
        error = np.where(finite, error, 0.0)
        right = np.where(finite, right, 0.0)
    size = np.abs(right)
    largest = float(size.max())
    limit = _allowed(size, largest, tolerance)
    ratios = error / np.maximum(limit, _TINY)
    index = np.unravel_index(int(ratios.argmax()), ratios.shape)
    ratio = float(ratios[index])
    rounding = by_rounding(float(error[index]), largest, wanted, oracle)
    worst = worst_at(output.number, index, got, wanted, float(error[index]), ratio, rounding)
    if ratio <= 1 and excused is None:
        return Comparison("verified", worst)
    slack: Array = np.zeros(wanted.shape) if ratio <= 1 else slacks(wanted, oracle, moved)
    full = np.maximum(limit, slack)
    over = error > full
    if over.any():
        if slack.any():  # the worst element is judged by what is allowed there in the end
            ratios = np.where(over, error / full, 0.0)
            index = np.unravel_index(int(ratios.argmax()), ratios.shape)
            worst = worst_at(output.number, index, got, wanted, float(error[index]), float(ratios[index]))
        count = int(over.sum())
        text = f"{output}: {count} of {wanted.size} values differ by more than allowed"
        return failed("WrongValue", text, worst, over)
    needed = error > limit
    within = needed & ~by_other_sums(needed, slack, size)
    ill = within if excused is None else within | excused
    # what is right by another order of the same sums is measured against that
    held = np.where(ill, -1.0, error / np.maximum(np.where(needed, full, limit), _TINY))
    index = np.unravel_index(int(held.argmax()), held.shape)
    best = None
    if held[index] >= 0:
        rounding = by_rounding(float(error[index]), largest, wanted, oracle)
        best = worst_at(output.number, index, got, wanted, float(error[index]), float(held[index]), rounding)
    ordinary = is_ordinary(error[needed], size) or is_even(np.where(needed, error, 0.0), wanted, oracle)
    doubtful = not moved.ndim and wanted.ndim > 0 and (bool(within.any()) or not ordinary)
    return dataclasses.replace(_weighed(output, got, wanted, ill, best, error, ratios, is_open), doubtful=doubtful)


def _weighed(
    output: Subject, got: Array, wanted: Array, excused: Array, worst: Worst | None, error: Array, ratios: Array,
    is_open: Array,
) -> Comparison:  # fmt: skip
    """The verdict on an output that holds but for its ``excused`` values; ``worst`` is among the others."""
    count = int(excused.sum())
    if not count:
        return Comparison("verified", worst)
    numbers = got.dtype.kind != "U"
    infinite = excused & ~(np.isfinite(got) & np.isfinite(wanted)) if numbers else excused
    off, far = np.where(infinite, np.inf, error), np.where(infinite, np.inf, ratios)
    index = np.unravel_index(int(np.where(excused, far, -1.0).argmax()), far.shape)
    excuse = worst_at(output.number, index, got, wanted, float(off[index]), float(far[index]))
    left_open = int((excused & is_open).sum())
    if count > MOST_EXCUSED * wanted.size:
        return Comparison("ill-conditioned", excuse, excused=count, excuse=excuse, left_open=left_open)
    return Comparison("verified", worst, excused=count, excuse=excuse, left_open=left_open)


def allowed(wanted: Array, tolerance: Tolerance) -> Array:
    """Return how far each value may be off; ``wanted`` is float64 and finite.

    An absolute tolerance for values around 1 would accept anything as an output of size 1e-9, so it
    shrinks with the largest value of the output. Outputs that are all zero keep it.
    """
    size = np.abs(wanted)
    return _allowed(size, float(size.max(initial=0.0)), tolerance)


def _allowed(size: Array, largest: float, tolerance: Tolerance) -> Array:
    scale = min(1.0, largest) if largest > 0 and not tolerance.absolute else 1.0
    limit: Array = tolerance.atol * scale + tolerance.rtol * size
    return limit


_TINY = float(np.finfo(np.float64).tiny)
_CLOSED: Array = UNMOVED > 0  # no value is open


def _compare_nonfinite(
    output: Subject, got: Array, wanted: Array, oracle: Array | None, is_open: Array
) -> Comparison | Array:
    """NaN must meet NaN and an infinity the same infinity.

    Where that does not hold, the failure; or where all of these are excused, which they are: they are open, or eager
    float32 over- or underflows on the way there where float64 does not, which is its own limit.
    """
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    odd: Array = ~same & ~(np.isfinite(got) & np.isfinite(wanted))
    wrong = odd
    if odd.any() and oracle is not None and oracle.shape == wanted.shape:
        exact = oracle.astype(wanted.dtype)
        has_a_value = np.isfinite(exact) & np.isfinite(wanted)  # however float32 rounds it
        wrong = odd & (has_a_value | (exact == wanted) | (np.isnan(exact) & np.isnan(wanted)))
    wrong = wrong & ~is_open
    if not wrong.any():
        return odd
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    name = "WrongNaN" if np.isnan(got[first]) or np.isnan(wanted[first]) else "WrongInf"
    text = f"{output}: {int(odd.sum())} of {wanted.size} values are NaN or infinite on one side only"
    return failed(name, text, worst_at(output.number, first, got, wanted, np.inf, np.inf), odd)


def _compare_range(output: Subject, got: Array, wanted: Array, spread: float) -> Comparison:
    """Random values have to lie where those of PyTorch lie, or beyond by as much as these are apart; NaN where
    PyTorch has NaN or infinities."""
    given, right = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(right)
    low, high = (float(end) for end in (right[finite].min(initial=np.inf), right[finite].max(initial=-np.inf)))
    room = max(high - low, spread, 0.0)
    outside = ~((given >= low - room) & (given <= high + room))
    if not finite.all():
        outside &= np.isfinite(given)
    if not outside.any():
        return Comparison("verified")
    first = tuple(int(i) for i in np.argwhere(outside)[0])
    text = (
        f"{output}: {int(outside.sum())} of {wanted.size} values, which are random, lie beyond "
        f"{low - room:.4g} to {high + room:.4g}, where the right ones lie"
    )
    return failed("WrongValue", text, worst_at(output.number, first, got, wanted, np.inf, np.inf), outside)


def _compare_exactly(output: Subject, got: Array, wanted: Array, oracle: Array | None, is_open: Array) -> Comparison:
    wrong = got != wanted
    if not wrong.any():
        return Comparison("verified")
    closed = wrong & ~is_open
    known = oracle is not None and oracle.shape == wanted.shape
    if not (closed & (oracle == wanted) if known else closed).any():  # float32 itself decides otherwise than float64
        infinite = np.where(wrong, np.inf, 0.0)
        return _weighed(output, got, wanted, wrong, None, infinite, infinite, is_open)
    wrong = closed
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    is_text = wanted.dtype.kind == "U"
    error = np.inf if is_text else abs(float(got[first]) - float(wanted[first]))
    exact = "texts are" if is_text else f"{wanted.dtype} is"
    text = f"{output}: {int(wrong.sum())} of {wanted.size} values differ ({exact} exact)"
    return failed("WrongValue", text, worst_at(output.number, first, got, wanted, error, np.inf), wrong)


def worst_at(
    output: int, index: Iterable[SupportsInt], got: Array, wanted: Array, error: float, ratio: float,
    rounding: float | None = None,
) -> Worst:  # fmt: skip
    """The element at ``index`` as the worst one."""
    where = tuple(int(i) for i in index)
    return Worst(output, where, _shown(got[where]), _shown(wanted[where]), error, ratio, rounding)


def _shown(value: np.generic) -> float | str:
    """Return a number, or a text in quotes, which show where it begins and ends."""
    return repr(str(value))[:_SHOWN] if isinstance(value, np.str_) else value.item()


_SHOWN = 80
"""Characters of a text that are shown."""
