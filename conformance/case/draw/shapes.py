"""Choose the examples of a cell: boundary shapes, then shapes that are drawn.

Hypothesis draws them, and there are several value draws of each.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from conformance.case.files.dims import Dims, Expression, Range, Sizes

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
        found = _search(dims, telling) if _can_differ(dims, varying) else None
        sizes = found or sizes or _search(dims, lambda candidate: True)
    if sizes is None:
        raise ValueError("no sizes satisfy the ranges and conditions of dims and where")
    return sizes


def _can_differ(dims: Dims, names: Sequence[str]) -> bool:
    """Return False where dims have fewer sizes above 1 together than there are dims, so that two are equal."""
    known: set[int] = set()
    for name in names:
        if dims.ranges[name].names or len(known) >= len(names):
            return True
        known.update(itertools.islice((size for size in dims.ranges[name].values({}) if size > 1), len(names)))
    return len(known) >= len(names)


def _search(dims: Dims, accept: Callable[[Sizes], bool]) -> dict[str, int] | None:
    """The simplest sizes that Hypothesis finds to satisfy everything; None where it finds none."""
    from hypothesis import HealthCheck, find, settings
    from hypothesis.errors import NoSuchExample, Unsatisfiable

    quiet = settings(database=None, max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
    try:
        return find(sizes_strategy(dims), accept, settings=quiet, random=random.Random(0))
    except (NoSuchExample, Unsatisfiable):
        return None


ALONE = 10
"""The dims that vary up to which each is at its ends in shapes of its own, with all others as traced."""
TOGETHER = 4
"""The rounds of shapes, five each, in which more dims are at their ends together. In a round each dim has each of its
sizes once; that any two dims have the same size throughout comes only where there are more than 5**4 of them."""
PARTS = 32
"""The shapes that are tried at most in place of those that conditions between dims forbid."""


def boundary_sizes(dims: Dims, traced: Sizes) -> list[dict[str, int]]:
    """The shapes that always run: the traced one, all dims at their ends, each dim at its ends, at 1 and
    beyond the traced size. In order of importance, without repetition; no more for hundreds of dims than for ten."""
    low = dict.fromkeys(dims.ranges, 0)
    high = dict.fromkeys(dims.ranges, 2**31)
    varying = [name for name, r in dims.ranges.items() if not r.fixed]
    wishes: list[dict[str, int]] = [
        dict(traced),
        low,
        high,
        {name: size + 1 for name, size in traced.items()},
    ]
    if len(varying) <= ALONE:
        for name in dims.ranges:
            wishes += [{**traced, name: low[name]}, {**traced, name: high[name]}]
        for name, size in traced.items():
            wishes += [{**traced, name: 1}, {**traced, name: 2 * size + 1}]
        found: Iterable[dict[str, int] | None] = map(dims.fit, wishes)
    else:
        found = itertools.chain(map(dims.fit, wishes), _together(dims, traced, varying))
    shapes: list[dict[str, int]] = []
    for sizes in found:
        if sizes is not None and sizes not in shapes:
            shapes.append(sizes)
    return shapes


FEW = 64
"""The sizes of a dim up to which it is brought to each."""


def other_sizes(dims: Dims, traced: Sizes, met: Iterable[Sizes]) -> list[dict[str, int]]:
    """The shapes that bring each dim of few sizes to those that it has in none of the shapes ``met``: several dims at
    once, or where conditions between them forbid that, one after another."""
    met = [*met]
    ranges = {name: r.values({}) for name, r in dims.ranges.items() if not (r.fixed or r.names)}
    left = {
        name: [size for size in sizes if size not in {shape[name] for shape in met}]
        for name, sizes in ranges.items()
        if len(sizes) <= FEW
    }
    shapes: list[dict[str, int]] = []
    for step in range(max(map(len, left.values()), default=0)):
        wish = {name: sizes[step] for name, sizes in left.items() if step < len(sizes)}
        together = dims.fit({**traced, **wish})
        found = [together]
        if together is None or not together.items() >= wish.items():
            found = [dims.fit({**traced, name: size}) for name, size in wish.items()]
        shapes += (sizes for sizes in found if sizes is not None and sizes not in shapes)
    return shapes


def _together(dims: Dims, traced: Sizes, names: Sequence[str]) -> Iterator[dict[str, int] | None]:
    """Yield shapes in which each dim is at each of its ends, at 1, beyond the traced size and as traced, beside other
    sizes of any other dim. Where a condition between dims forbids one, half of the dims stay as traced."""
    codes = {
        name: number * 386 % 5**TOGETHER for number, name in enumerate(names)
    }  # 386: neighbours differ in all digits
    parts = PARTS
    for turn in range(5 * TOGETHER):
        place, step = divmod(turn, 5)
        choices = {name: (code // 5**place + step) % 5 for name, code in codes.items()}
        wish = {name: (0, 2**31, 1, 2 * traced[name] + 1, traced[name])[choice] for name, choice in choices.items()}
        tried = [list(names)]
        while tried:
            some = tried.pop()
            sizes = dims.fit({**traced, **{name: wish[name] for name in some}})
            yield sizes
            if sizes is None and len(some) > 1 and parts > 0:
                parts -= 2
                tried += [some[len(some) // 2 :], some[: len(some) // 2]]


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


BITS = 256
"""The bits of a drawn shape that Hypothesis draws one by one; of a thousand dims, which it would not end with, the
others follow from 32 more."""


def sizes_strategy(dims: Dims) -> SearchStrategy[dict[str, int]]:
    """Hypothesis' strategy for the sizes of all dims; shrinks towards the lowest."""
    from hypothesis import assume, strategies

    # Hypothesis draws some of its integers from the numbers that it finds in the sources of all modules loaded
    # so far, which takes long and makes a cell's shapes depend on which cells ran before it. Its booleans do not.
    bit = strategies.booleans()

    @strategies.composite
    def sizes(draw: Callable[[SearchStrategy[bool]], bool]) -> dict[str, int]:
        def number_of(bits: int) -> int:
            return sum(draw(bit) << place for place in reversed(range(bits)))

        drawn: dict[str, int] = {}
        left, others = BITS, None
        for name, r in dims.ranges.items():
            options = r.values(drawn)
            assume(options)
            bits = (len(options) - 1).bit_length()
            left -= bits
            if left < 0:
                others = others or random.Random(number_of(32))
            number = number_of(bits) if others is None else others.getrandbits(bits)
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

    def lower(names: Sequence[str]) -> None:
        """Make dims as small as they get: all of them, or each half by itself."""
        trial = dims.fit({**best, **dict.fromkeys(names, 0)})
        if trial is None or trial == best or any(trial[name] > best[name] for name in names) or not fails(trial):
            if len(names) > 1:
                lower(names[: len(names) // 2])
                lower(names[len(names) // 2 :])
        else:
            best.update(trial)

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

    names = [name for name, r in dims.ranges.items() if not r.fixed]
    if len(names) > ALONE:  # of which most have no part in it
        lower(names)
    while any(descend(name) for name in dims.ranges):
        pass
    return best
