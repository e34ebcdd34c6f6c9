"""Judges of the outputs of a cell, as data: they can be packed, and judge again where there is no PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from conformance.compare.compared_values import PLAIN, Read, Reading
from conformance.compare.matched_rows import matched_rows
from conformance.compare.noise import NoiseLimit, compare_outputs
from conformance.compare.tolerance import DEFAULTS, Comparison, Tolerance, Worst, compare, failed
from conformance.compare.vacuity import Vacuity
from conformance.compare.zeros import other_zeros
from conformance.process.arrays import Array, Inputs

T = TypeVar("T")


@dataclass(frozen=True)
class Right:
    """The right outputs of one draw. The meaning of ``wanted``, ``exact`` and ``conditioning`` depends on the
    judge."""

    wanted: Sequence[Array]
    exact: Sequence[Array] | None = None
    conditioning: Sequence[Array] | None = None
    """How far each value of the outputs moves with the rounding that every computation has; an array without dims is
    about all values of an output."""
    inputs: Inputs = field(default_factory=dict)

    def special(self) -> float:
        """The share of NaN and infinities in the input that has most of them, from 0 to 1."""
        floats = [array for array in self.inputs.values() if array.dtype.kind == "f" and array.size]
        return max((1 - float(np.isfinite(array).mean()) for array in floats), default=0.0)


class Judge(Protocol):
    """Decides on all outputs of one draw."""

    @property
    def reading(self) -> Reading:
        """Return how the outputs are read before they are compared."""
        ...

    def compare(self, got: Sequence[Array], right: Right) -> Comparison: ...

    def vacuity(self) -> Vacuity:
        """Collect whether the comparisons of this judge could have failed."""
        ...

    def as_dict(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class Tolerances:
    """``wanted`` is PyTorch's in float32, ``exact`` in float64 or None, ``conditioning`` how far rounding moves each
    value of the outputs. One entry for each output; a tolerance of None is exact. That of an output of indices is for
    the values that stand at them."""

    tolerances: tuple[Tolerance | None, ...]
    any_order: tuple[bool, ...]
    reading: Reading = PLAIN
    listed: int | None = None
    """The output that is a list whose length depends on the inputs; all of its tensors have its one entry."""
    signed: bool = False
    """True if zeros have a sign that counts."""

    def compare(self, got: Sequence[Array], right: Right) -> Comparison:
        if self.listed is not None:
            return compare_listed(self, self.listed, got, right)
        if self.reading.is_plain:
            comparison = compare(
                got, right.wanted, right.exact, self.tolerances, self.any_order, right.conditioning,
                self.reading.subjects(len(right.wanted)), right.special,
            )  # fmt: skip
            if comparison.verdict == "failed" or not self.signed or any(self.any_order):
                return comparison
            called = self.reading.subjects(len(right.wanted))
            return other_zeros(got, right.wanted, called, right.conditioning) or comparison
        read = self.reading.read(got, right.wanted, right.exact, right.inputs, self.any_order, right.conditioning)
        if isinstance(read, Comparison):
            return read
        comparison = compare(
            read.got, read.wanted, read.exact, self.tolerances, read.any_order, read.conditioning, read.called,
            right.special,
        )  # fmt: skip
        return read.told(comparison)

    def vacuity(self) -> Vacuity:
        return Vacuity(self.tolerances, self.reading, self.listed)

    def as_dict(self) -> dict[str, object]:
        tolerances = [tolerance and dataclasses.asdict(tolerance) for tolerance in self.tolerances]
        return {
            "kind": "tolerance", "tolerances": tolerances, "any_order": list(self.any_order),
            **self.reading.as_dict(), **({} if self.listed is None else {"listed": self.listed}),
            **({"signed": True} if self.signed else {}),
        }  # fmt: skip


def compare_listed(judge: Tolerances, at: int, got: Sequence[Array], right: Right) -> Comparison:
    """Compare outputs of which the one at ``at`` is a list: its length, and then its tensors one by one."""
    others = len(judge.tolerances) - 1
    length, due = len(got) - others, len(right.wanted) - others
    called = str(judge.reading.subjects(at + 1)[at])
    if right.exact is not None and len(right.exact) != len(right.wanted):
        text = f"{called}: rounding decides how many tensors there are"
        return Comparison("ill-conditioned", text=text)
    if length != due:
        return failed("WrongLength", f"{called} is a list of {max(length, 0)} tensors instead of {due}")

    def spread(values: Sequence[T]) -> tuple[T, ...]:
        return (*values[:at], *[values[at]] * due, *values[at + 1 :])

    names = judge.reading.names or tuple(map(str, range(others + 1)))
    parts = [f"{names[at]}[{number}]" for number in range(due)]
    reading = dataclasses.replace(judge.reading, names=(*names[:at], *parts, *names[at + 1 :]))
    each = Tolerances(spread(judge.tolerances), spread(judge.any_order), reading)
    comparison = each.compare(got, right)

    def placed(worst: Worst | None) -> Worst | None:
        return worst and dataclasses.replace(worst, called=reading.names[worst.output])

    return dataclasses.replace(comparison, worst=placed(comparison.worst), excuse=placed(comparison.excuse))


@dataclass(frozen=True)
class NoiseLimits:
    """``wanted`` is what the converted graph means, ``exact`` PyTorch's in float32, ``conditioning`` how far other
    roundings move each value. One limit for each output; that of an output of indices is for the values that
    stand at them."""

    limits: tuple[NoiseLimit, ...]
    any_order: tuple[bool, ...]
    reading: Reading = PLAIN

    def compare(self, got: Sequence[Array], right: Right) -> Comparison:
        read = self.read(got, right)
        if isinstance(read, Comparison):
            return read
        exact = read.wanted if read.exact is None else read.exact
        return read.told(compare_outputs(read.got, read.wanted, exact, self.limits, read.conditioning, read.called))

    def read(self, got: Sequence[Array], right: Right) -> Read | Comparison:
        """Return the arrays to compare, rows that may come in any order in the order of the right ones."""
        read = self.reading.read(got, right.wanted, right.exact, right.inputs, self.any_order, right.conditioning)
        if isinstance(read, Comparison):
            return read
        for arrays in (read.got, read.exact or []):
            for output, (array, wanted) in enumerate(zip(arrays, read.wanted, strict=False)):
                if read.any_order[output] and array.shape == wanted.shape and array.ndim:
                    arrays[output] = matched_rows(array, wanted)
        return read

    def vacuity(self) -> Vacuity:
        return Vacuity(self.limits, self.reading)

    def as_dict(self) -> dict[str, object]:
        limits = [dataclasses.asdict(limit) for limit in self.limits]
        return {"kind": "budget", "budgets": limits, "any_order": list(self.any_order), **self.reading.as_dict()}


def defaults_for(outputs: Sequence[Array]) -> Tolerances:
    """Return the tolerances by dtype alone."""
    return Tolerances(tuple(DEFAULTS.get(str(array.dtype)) for array in outputs), (False,) * len(outputs))


def judge_from(values: Mapping[str, Any]) -> Judge:
    """The inverse of ``as_dict``; raises KeyError or TypeError where the values are not of a judge."""
    any_order, reading = tuple(map(bool, values["any_order"])), Reading.from_dict(values)
    if values["kind"] == "budget":
        return NoiseLimits(tuple(NoiseLimit(**limit) for limit in values["budgets"]), any_order, reading)
    tolerances = (given if given is None else Tolerance(**given) for given in values["tolerances"])
    return Tolerances(tuple(tolerances), any_order, reading, values.get("listed"), values.get("signed", False))
