"""The smallest part of a list that still shows something, by delta debugging.

A. Zeller and R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, IEEE Transactions on Software
Engineering 28(2), 2002: halves first, so that one item among n is met after about log n questions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def smallest(items: Sequence[_T], holds: Callable[[Sequence[_T]], bool]) -> list[_T] | None:
    """A part of ``items``, in their order, for which ``holds``, and for which it does not hold without any one of its
    items; None where it does not hold for all of them. Each part is asked about once."""
    known: dict[tuple[int, ...], bool] = {}

    def asked(numbers: Sequence[int]) -> bool:
        key = tuple(numbers)
        if key not in known:
            known[key] = holds([items[number] for number in key])
        return known[key]

    left = list(range(len(items)))
    if not asked(left):
        return None
    parts = 2
    while len(left) >= 2:
        cuts = [round(len(left) * cut / parts) for cut in range(parts + 1)]
        windows = list(itertools.pairwise(cuts))
        smaller = next((left[a:b] for a, b in windows if asked(left[a:b])), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        smaller = next((left[:a] + left[b:] for a, b in windows if parts > 2 and asked(left[:a] + left[b:])), None)
        if smaller is not None:
            left, parts = smaller, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(2 * parts, len(left))
    return [items[number] for number in left]
