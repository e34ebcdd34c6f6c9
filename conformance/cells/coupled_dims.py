"""Dims that a file leaves open and that do not vary one by one: what they have to fit, and which run at one size
alone."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.case.files.dims import Dims, Range
from conformance.process.errors import attempt
from conformance.runtimes.unsupported import sentence

STEPS = (1, 2, 4, 8, 16, 32)
"""Steps by which larger dims are tried, besides twice as large: an image may have to be a multiple of 32."""
SIZES = (1, 2, 3, 4, 8)
"""The sizes that a dim is tried at which runs at one alone, besides those beside it, its half and its double."""
POWERS = (1, 2, 4, 8, 16, 32, 64)
GRIDS: tuple[tuple[int, ...], ...] = ((), (), POWERS, POWERS[:3])
"""By how many dims do not vary alone, the sizes that are tried in all combinations, as a number of tokens may be the
product of the sides of an image. Of more dims that would be too many."""


class SizeTrials:
    """Run a model at sizes, each once, until there is no time left."""

    def __init__(self, dims: Dims, run: Callable[[dict[str, int]], object], deadline: float) -> None:
        """``dims`` says how the dims that the user declares follow from the others."""
        self._dims, self._run, self._deadline = dims, run, deadline
        self._seen: dict[tuple[tuple[str, int], ...], str | None] = {}
        self.last = ""
        """The text of the latest failure."""

    def __call__(self, wish: Mapping[str, int]) -> bool:
        """Return whether the model runs."""
        sizes = self._dims.fit(wish)
        if sizes is None:
            return False
        key = tuple(sizes.items())
        if key not in self._seen:
            outputs = attempt(lambda: self._run(sizes))
            self._seen[key] = sentence(outputs) if isinstance(outputs, Exception) else None
            self.last = self._seen[key] or self.last
        return self._seen[key] is None

    @property
    def ended(self) -> bool:
        return time.monotonic() > self._deadline

    def why_not(self, wish: Mapping[str, int]) -> str | None:
        """Return what was said when the model was run at these sizes; None where it ran, or was not tried."""
        sizes = self._dims.fit(wish)
        return None if sizes is None else self._seen.get(tuple(sizes.items()))


def widened(
    stuck: Sequence[str],
    axes: Mapping[str, int],
    found: Mapping[str, str],
    runs: SizeTrials,
    middle: Mapping[str, int],
) -> dict[str, str]:
    """Return the ranges ``found`` with others for dims that are ``stuck``, where steps are larger than 1, or where
    several dims only move together, as those of one batch that have a name in each input. ``axes`` are those at which
    dims stand."""
    wider, left = dict(found), list(stuck)
    for group in _groups(left, axes):
        text = _reach(group, runs, middle) if group and {*group} <= {*left} else None
        if text is not None:
            first, *others = group
            wider[first] = text
            wider |= {name: _beside(first, middle[name] - middle[first]) for name in others}
            left[:] = (name for name in left if name not in group)
    dims = Dims.build({name: Range.parse(text) for name, text in wider.items()})
    ends = (dims.fit(dict.fromkeys(wider, end)) for end in (0, 2**31))
    return wider if all(sizes is not None and runs(sizes) for sizes in ends) else dict(found)


def _groups(left: list[str], axes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield dims to move together: each by itself, all that are stuck, those at one axis, and each pair of a few."""
    yield from ([name] for name in list(left))
    yield list(left)
    for axis in sorted({axes.get(name, 0) for name in left}):
        yield [name for name in left if axes.get(name, 0) == axis]
    if len(left) <= len(SIZES):
        yield from map(list, itertools.combinations(left, 2))


def _reach(group: Sequence[str], runs: SizeTrials, middle: Mapping[str, int]) -> str | None:
    """Return the range of the first of dims that move together; None where they do not."""
    base, least = middle[group[0]], min(middle[name] for name in group)

    def at(move: int) -> bool:
        sizes = {name: middle[name] + move for name in group}
        return least + move > 0 and not runs.ended and runs({**middle, **sizes})

    step = next((step for step in (*STEPS, least) if at(step)), None)
    if step is None:  # it may be that no more than this is taken
        return f"{base - 1}..{base}" if len(group) == 1 and at(-1) else None
    smaller = (1, 2, 3, base // 2) if step == 1 else (base - step,)
    low = next((size for size in smaller if size < base and at(size - base)), base)
    high = base + 4 if step == 1 and at(4) else base + step
    return f"{low}..{high}{f' step {step}' if step > 1 else ''}"


def _beside(name: str, more: int) -> str:
    return name if not more else f"{name} {'+' if more > 0 else '-'} {abs(more)}"


@dataclass(frozen=True)
class Narrow:
    """A dim that a file leaves open, and that runs at no size above one."""

    name: str
    ran: tuple[int, ...]
    stopped: tuple[int, ...]
    """The sizes at which the model stops, all else being the same."""
    reason: str
    """The text of the error at one of them: of ONNX's evaluator where it was asked, else of ONNX Runtime."""
    proven: bool
    """True where ONNX's evaluator stops too, and no other dim and no value of an input can be the reason."""

    def as_dict(self) -> dict[str, object]:
        return {**dataclasses.asdict(self), "text": str(self)}

    def __str__(self) -> str:
        ran, stopped = (" and ".join(filter(None, (", ".join(map(str, sizes[:-1])), str(sizes[-1]))))
                        for sizes in (self.ran, self.stopped))  # fmt: skip
        where = " in ONNX Runtime and in ONNX's evaluator" if self.proven else ""
        said = f"{self.name} is open in the file, which runs at {ran} alone; at {stopped} it stops{where}"
        if self.proven:
            advice = (
                f"Export it again with {self.name} dynamic (often a Reshape or Expand has the size written down), or "
                f"declare it as {ran}; --dim {self.name}={ran} says that this is enough"
            )
        else:
            advice = (
                "Other sizes are not checked. If it has to fit another dim, say how, as in --dim 'total=past + seq'; "
                f"if not, the file leaves open what it does not take, and --dim {self.name}=RANGE says what is enough"
            )
        return f"{said}: {self.reason.rstrip('.')}. {advice}"


def narrow(
    stuck: Sequence[str], found: Mapping[str, str], runs: SizeTrials, middle: Mapping[str, int],
    evaluator: Callable[[], SizeTrials | None],
) -> list[Narrow]:  # fmt: skip
    """Return the dims that run at no size above that of ``middle``, of those that are ``stuck`` and of which no range
    was ``found``; ``evaluator`` runs the model as ONNX defines it."""
    names = [name for name in stuck if found[name].isdigit() or found[name].endswith(f"..{middle[name]}")]
    seen: dict[str, set[int]] = {name: {middle[name]} for name in names}
    if names and len(stuck) < len(GRIDS):
        grids = [sorted({middle[name], middle[name] + 1, *GRIDS[len(stuck)]}) for name in stuck]
        for combination in itertools.product(*grids):
            at = dict(zip(stuck, combination, strict=True))
            if not runs.ended and runs({**middle, **at}):
                for name in names:
                    seen[name].add(at[name])
    told, evaluated = [], evaluator() if names else None
    for name in names:
        base = middle[name]
        sizes = sorted({*SIZES, base // 2, base - 1, base, base + 1, 2 * base} - {0})
        results = {size: runs({**middle, name: size}) for size in sizes if size == base or not runs.ended}
        ran = tuple(size for size, came in results.items() if came)
        stopped = tuple(size for size, came in results.items() if not came)
        alone = len(stuck) < len(GRIDS) and seen[name] == {base} == {*ran}
        proven = alone and not runs.ended and evaluated is not None and _at_one(evaluated, middle, name, stopped)
        beyond = {**middle, name: base + 1}
        if reason := (proven and evaluated is not None and evaluated.why_not(beyond)) or runs.why_not(beyond):
            told.append(Narrow(name, ran, stopped, reason, proven))
    return told


def _at_one(runs: SizeTrials, middle: Mapping[str, int], name: str, others: Sequence[int]) -> bool:
    """Return whether a model runs as it is and at none of these other sizes of a dim."""
    return runs(middle) and all(not runs({**middle, name: size}) and not runs.ended for size in others)
