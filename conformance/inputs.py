"""Which examples a cell runs: boundary shapes first, then shapes that Hypothesis draws, several value draws each."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance import values
from conformance.case import Case
from conformance.compare import Array
from conformance.dims import Dims, Sizes
from conformance.schema.holds import When
from conformance.schema.words import REGIMES, SPECIALS
from conformance.source import call

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Inputs = dict[str, Array]


@dataclass(frozen=True)
class Draw:
    """One example: enough to make its arrays again."""

    dims: Mapping[str, int]
    regime: str
    seed: int
    index: int = 0
    """The how-many-th example of the cell this was."""

    def as_dict(self) -> dict[str, Any]:
        # dataclasses.asdict copies deeply, which costs more here than all the rest of an example's upkeep
        return {"dims": dict(self.dims), "regime": self.regime, "seed": self.seed, "index": self.index}


def about(when: When, draw: Draw) -> bool:
    """Whether a condition of a ``fails`` entry is about this draw."""
    return all(draw.dims.get(name, -1) in r.values(draw.dims) for name, r in when.at.items()) and (
        not when.values or draw.regime in when.values
    )


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
        candidates = [v for v in values_[:64] if v not in taken] or [v for v in values_ if v != first.get(name)][:1]
        if candidates:
            wish[name] = candidates[min(1, len(candidates) - 1)]
    sizes = dims.fit({**wish, **({} if odd else declared)})
    varying = [name for name, r in dims.ranges.items() if not r.fixed]

    def telling(found: Sizes) -> bool:
        values_ = [found[name] for name in varying]
        return min(values_, default=2) > 1 and len(set(values_)) == len(values_)

    if sizes is None or not (declared or telling(sizes)):
        sizes = _search(dims, telling) or sizes or _search(dims, lambda found: True)
    if sizes is None:
        raise ValueError("no sizes satisfy the ranges and conditions of dims and where")
    return sizes


def _search(dims: Dims, accept: Callable[[Sizes], bool]) -> dict[str, int] | None:
    """Some sizes that satisfy everything, found by Hypothesis, simplest first; None where it finds none."""
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
    found: list[dict[str, int]] = []
    for wish in wishes:
        sizes = dims.fit(wish)
        if sizes is not None and sizes not in found:
            found.append(sizes)
    return found


def sizes_strategy(dims: Dims) -> SearchStrategy[dict[str, int]]:
    """Hypothesis' strategy for the sizes of all dims; shrinks towards the lowest."""
    from hypothesis import assume, strategies

    # Hypothesis draws some of its integers from the numbers that it finds in the sources of all modules loaded
    # so far, which takes long and makes a cell's shapes depend on which cells ran before it. Its booleans do not.
    bit = strategies.booleans()

    @strategies.composite
    def sizes(draw: Callable[[SearchStrategy[bool]], bool]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, r in dims.ranges.items():
            options = r.values(found)
            assume(options)
            bits = (len(options) - 1).bit_length()
            number = sum(draw(bit) << place for place in reversed(range(bits)))
            found[name] = options[number * len(options) >> bits]
        assume(all(condition(found) for condition in dims.where))
        return found

    return sizes()


def drawn_shapes(dims: Dims, count: int, seed: int | None) -> list[tuple[dict[str, int], int]]:
    """``count`` drawn sizes, each with a seed for values; a ``seed`` of None draws anew each time.

    Sizes come again, with other seeds, where there are fewer than ``count``.
    """
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings

    found: list[dict[str, int]] = []
    if count < 1:
        return []

    @settings(
        database=None,
        deadline=None,
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(sizes_strategy(dims))
    def one(sizes: dict[str, int]) -> None:
        found.append(sizes)

    (one if seed is None else hypothesis.seed(seed)(one))()
    seeds = random.Random(seed)
    return [(sizes, seeds.getrandbits(32)) for sizes in itertools.islice(itertools.cycle(found), count)]


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
        values = [v for v in dims.ranges[name].values(best) if v < best[name]]
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


def seed_of(text: str, *more: object) -> int:
    """A 32-bit seed from a cell's id, so that editing the harness does not change what is drawn."""
    digest = hashlib.blake2b(repr((text, *more)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def regimes_of(check: str, count: int, shape: int) -> list[str]:
    """``count`` regimes for the how-many-th shape of a cell: plain values first, then the others in turn.

    What a precision costs (``fidelity``) is a question of the values that the case declares.
    """
    if check == "fidelity":
        return [REGIMES[0]] * count
    if check == "specials":
        return [SPECIALS[(shape * count + k) % len(SPECIALS)] for k in range(count)]
    others = REGIMES[1:]
    return [REGIMES[0], *(others[(shape * (count - 1) + k) % len(others)] for k in range(count - 1))]


class Maker:
    """Makes the arrays of a case's draws."""

    def __init__(self, case: Case, resolve: Callable[[str], Callable[..., Any]]) -> None:
        """``resolve`` finds the Python functions that the case names."""
        self._case = case
        self._joint = resolve(case.says.draw) if case.says.draw else None
        self._hooks = {
            name: resolve(one.values.python)
            for name, one in case.says.inputs.items()
            if one.values is not None and one.values.python
        }

    def _regime(self, name: str, draw: Draw) -> str:
        excused = draw.regime in SPECIALS and not self._case.says.takes_specials(name)
        return REGIMES[0] if excused else draw.regime

    def __call__(self, draw: Draw) -> Inputs:
        """Arrays by input name; raises ValueError where the case's own Python gives something else."""
        rng = np.random.Generator(np.random.SFC64(draw.seed))
        arrays = {
            name: values.make(one, draw.dims, self._regime(name, draw), rng, self._hooks.get(name))
            for name, one in self._case.says.inputs.items()
        }
        if self._joint is not None:
            given = call(f"{self._case.says.draw}", self._joint, dict(draw.dims), rng)
            if not isinstance(given, Mapping) or not given.keys() <= arrays.keys():
                raise ValueError(f"{self._case.says.draw} has to return a mapping from input names to arrays")
            for name, array in given.items():
                one = self._case.says.inputs[name].type
                found = values.check(array, one.at(draw.dims), np.dtype(one.dtype), f"{self._case.says.draw}: {name}")
                arrays[name] = values.with_specials(found, self._regime(name, draw), rng)
        return arrays
