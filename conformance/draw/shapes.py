"""Choose the examples of a cell: boundary shapes, then shapes that are drawn.

Hypothesis draws them, and there are several value draws of each.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from conformance.case.dims import Dims, Expression, Range, Sizes

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def trace_sizes(dims: Dims, declared: Sizes, *, odd: bool = False) -> dict[str, int]:
    """Sizes to export at, within the ranges: not 0 or 1, and no two dims that vary are equal.

    Where torch.onnx bakes a size in, a 1 would hide as a broadcast, and two equal sizes as each other.
    ``odd`` gives a second point that differs from the first in every dim that can. Raises ValueError where the
    ranges and conditions leave nothing.
    """
    first = trace_sizes(dims, declared) if odd else {}
    wish: dict[str, int] = {}
    for name, r in dims.ranges.items():
        if r.fixed:
            continue
        values_ = r.values(wish) if r.names <= wish.keys() else range(2, 12)
        # A little above the lowest: cheap, and the boundary shapes go beyond it in both directions.
        taken = {0, 1, *wish.values(), *first.values()}
        candidates = [v for v in values_[: 64 + len(taken)] if v not in taken]
        candidates = candidates or [v for v in values_[:2] if v != first.get(name)][:1]
        if candidates:
            wish[name] = candidates[min(1, len(candidates) - 1)]
    sizes = dims.fit({**wish, **({} if odd else declared)})
    varying = [name for name, r in dims.ranges.items() if not r.fixed]

    def telling(candidate: Sizes) -> bool:
        values_ = [candidate[name] for name in varying]
        return min(values_, default=2) > 1 and len(set(values_)) == len(values_)

    if sizes is None or not (declared or telling(sizes)):
        sizes = _search(dims, telling) or sizes or _search(dims, lambda candidate: True)
    if sizes is None:
        raise ValueError("no sizes satisfy the ranges and conditions of dims and where")
    return sizes


def _search(dims: Dims, accept: Callable[[Sizes], bool]) -> dict[str, int] | None:
    """The simplest sizes that Hypothesis finds to satisfy everything; None where it finds none."""
    from hypothesis import HealthCheck, find, settings
    from hypothesis.errors import NoSuchExample, Unsatisfiable

    quiet = settings(database=None, max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
    try:
        return find(sizes_strategy(dims), accept, settings=quiet, random=random.Random(0))
    except (NoSuchExample, Unsatisfiable):
        return None


def boundary_sizes(dims: Dims, traced: Sizes) -> list[dict[str, int]]:
    """The shapes that always run: the traced one, all dims at their ends, each dim at its ends, at 1 and
    beyond the traced size. In order of importance, without repetition."""
    low = dict.fromkeys(dims.ranges, 0)
    high = dict.fromkeys(dims.ranges, 2**31)
    wishes: list[dict[str, int]] = [
        dict(traced),
        low,
        high,
        {name: size + 1 for name, size in traced.items()},
    ]
    for name in dims.ranges:
        wishes += [{**traced, name: low[name]}, {**traced, name: high[name]}]
    for name, size in traced.items():
        wishes += [{**traced, name: 1}, {**traced, name: 2 * size + 1}]
    shapes: list[dict[str, int]] = []
    for wish in wishes:
        sizes = dims.fit(wish)
        if sizes is not None and sizes not in shapes:
            shapes.append(sizes)
    return shapes


def related_sizes(dims: Dims, related: Mapping[str, Range], near: Sequence[Sizes]) -> list[dict[str, int]]:
    """Sizes at which some dims lie in ranges that other dims bound, as in ``k: n``: the closest to each of ``near``,
    or where the dims allow none so close, sizes that Hypothesis finds."""
    ends = [(f"({r.low}) <= {name}", f"{name} <= ({r.high})") for name, r in related.items()]
    narrow = Dims(dims.ranges, (*dims.where, *(Expression.parse(text) for pair in ends for text in pair)))
    shapes: list[dict[str, int]] = []
    for sizes in near:
        nearest = narrow.fit({**sizes, **{name: r.low(sizes) for name, r in related.items()}})
        if nearest is not None and nearest not in shapes:
            shapes.append(nearest)
    if not shapes:
        with contextlib.suppress(ValueError):
            shapes.append(trace_sizes(narrow, {}))
    return shapes


def sizes_strategy(dims: Dims) -> SearchStrategy[dict[str, int]]:
    """Hypothesis' strategy for the sizes of all dims; shrinks towards the lowest."""
    from hypothesis import assume, strategies

    # Hypothesis draws some of its integers from the numbers that it finds in the sources of all modules loaded
    # so far, which takes long and makes a cell's shapes depend on which cells ran before it. Its booleans do not.
    bit = strategies.booleans()

    @strategies.composite
    def sizes(draw: Callable[[SearchStrategy[bool]], bool]) -> dict[str, int]:
        drawn: dict[str, int] = {}
        for name, r in dims.ranges.items():
            options = r.values(drawn)
            assume(options)
            bits = (len(options) - 1).bit_length()
            number = sum(draw(bit) << place for place in reversed(range(bits)))
            drawn[name] = options[number * len(options) >> bits]
        assume(all(condition(drawn) for condition in dims.where))
        return drawn

    return sizes()


def drawn_shapes(dims: Dims, count: int, seed: int) -> list[tuple[dict[str, int], int]]:
    """``count`` drawn sizes, each with a seed for values; the same for the same ``seed``, whatever profile Hypothesis
    has loaded.

    Sizes come again, with other seeds, where there are fewer than ``count``; none come where Hypothesis finds none.
    """
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable

    shapes: list[dict[str, int]] = []
    if count < 1:
        return []

    @hypothesis.seed(seed)
    @settings(
        database=None,
        deadline=None,
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(sizes_strategy(dims))
    def keep(sizes: dict[str, int]) -> None:
        shapes.append(sizes)

    with contextlib.suppress(Unsatisfiable):
        keep()
    seeds = random.Random(seed)
    return [(sizes, seeds.getrandbits(32)) for sizes in itertools.islice(itertools.cycle(shapes), count)]


def shrink(dims: Dims, sizes: Sizes, fails: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """The smallest sizes found for which ``fails`` still holds: each dim in turn, by bisection, until none
    gets smaller.

    Hypothesis shrinks only what it drew itself, and most failures are found at boundary shapes.
    """
    best = dict(sizes)

    def smaller(name: str, size: int) -> dict[str, int] | None:
        """The sizes with one dim made smaller, where the ranges and conditions allow it."""
        trial = dims.fit({**best, name: size})
        return trial if trial is not None and trial[name] < best[name] else None

    def descend(name: str) -> bool:
        values = dims.ranges[name].values(best)
        values = range(values.start, min(values.stop, best[name]), values.step)
        start, end = 0, len(values)  # values from ``end`` on are known to fail, or are ``best``
        while start < end:
            middle = 0 if end == len(values) and start == 0 else (start + end) // 2
            trial = smaller(name, values[middle])
            if trial is not None and fails(trial):
                best.update(trial)
                end = middle
            else:
                start = middle + 1
        return end < len(values)

    while any(descend(name) for name in dims.ranges):
        pass
    return best
