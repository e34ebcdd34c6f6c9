"""Values that tell repairs apart which agree on draws: equal ones, zeros, halves, very small and large ones, NaN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.process.arrays import Array

ROUNDS = 6
"""How many arrays of a kind are made at most; as many as it takes for each value to be met beside others."""
_HALVES = np.arange(-16, 17) / 2
_FEW = np.arange(-3, 4) / 2
"""So few values that two tensors often have the same at the same index."""


@dataclass(frozen=True)
class Probe:
    """Values for some tensors."""

    kind: str
    """What is said where a repair is wrong for them; empty for values that every repair has to be right for."""
    values: dict[str, Array]
    exact: bool
    """Whether no step of a computation lies so close to one of these that rounding alone decides on its side."""


def probes(like: Mapping[str, Array], numbers: Sequence[float], *, special: bool) -> Iterator[Probe]:
    """Values for tensors of these shapes and dtypes, those that every repair has to be right for first.

    ``numbers`` are what the operator is called with, at which it may change what it does. NaN and infinities are
    among the values where ``special``.
    """
    ties = np.array([0.0, 1.0, -1.0, *numbers, *(-one for one in numbers)])
    beside = np.concatenate([ties * (1 - 2.0**-10), ties * (1 + 2.0**-10)])
    halves = all(2 * one == int(2 * one) for one in numbers)
    rng = np.random.default_rng(0)
    kinds = [
        ("", rng.normal(0, 2, 32), False), ("", ties, True), ("", beside, True), ("", _HALVES, halves),
        ("", _FEW, halves), ("", np.zeros(1), True),
        ("", 2.0**-10 * _HALVES, halves), ("", 2.0**-17 * _HALVES, halves),
        ("values near zero", 2.0**-47 * _HALVES, False), ("large values", 2.0**13 * _HALVES, False),
        ("large values", 2.0**40 * _HALVES, False),
    ]  # fmt: skip
    if special:
        kinds += [
            ("NaN", np.array([*_FEW, np.nan, np.nan]), halves),
            ("infinity", np.array([*_FEW, np.inf, -np.inf]), halves),
        ]
    smallest = min((one.size for one in like.values()), default=0)
    for kind, pool, exact in kinds if smallest else ():
        for _ in range(min(-(-pool.size * len(like) // smallest), ROUNDS)):
            yield Probe(kind, {name: _filled(one, pool, rng) for name, one in like.items()}, exact)


def _filled(like: Array, pool: Array, rng: np.random.Generator) -> Array:
    """An array of that shape and dtype: floats from the pool, as many different ones as there is room for."""
    if like.dtype.kind == "b":
        return rng.integers(0, 2, like.shape).astype(bool)
    if like.dtype.kind in "iu":  # no zeros, by which a changed graph may divide
        low = np.arange(1, 8)
        return rng.choice(low if like.dtype.kind == "u" else np.array([*low, *-low]), like.shape).astype(like.dtype)
    values = np.concatenate([rng.permutation(pool) for _ in range(-(-like.size // pool.size))])
    with np.errstate(over="ignore"):
        return values[: like.size].reshape(like.shape).astype(like.dtype)
