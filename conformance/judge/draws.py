"""Choose the examples of a cell: earlier failures, boundary shapes, drawn shapes, and those of a declared failure;
and draws on which questions about a case are asked, whichever of its cells asks."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from conformance.case.draw.draw import Draw, about, regimes_of, seed_of
from conformance.case.draw.shapes import boundary_sizes, drawn_shapes, other_sizes, related_sizes
from conformance.case.files.declaration import Case
from conformance.case.files.dims import Dims
from conformance.case.files.must_hold import When
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import DRAWN_SHAPES, Settings
from conformance.models.coverage.measure_coverage import spread
from conformance.models.kept.inventory import said
from conformance.models.prepared import Prepared
from conformance.process.disk.foreign_files import parse_json, read_text
from conformance.results.records.words import HUGE, REGIMES, SPECIALS

HUGE_DRAWS = 2
"""The number of draws that have huge values."""
EQUAL = 8
"""How many draws of equal values a mask is tried with."""


class Draws:
    """The draws of one cell, numbered in the order in which they are asked for.

    ``Settings.random`` gives other examples. It leaves alone what decides on something else than a right answer: the
    draw that shows whether the module is deterministic, and those that have to show a declared failure.
    """

    def __init__(
        self, cell: Cell, settings: Settings, prepared: Prepared, dims: Dims, traced: dict[str, int],
        fitted: Callable[[dict[str, int]], dict[str, int] | None] | None = None,
    ) -> None:  # fmt: skip
        """``dims`` are those that the model was exported for, ``traced`` the sizes it was exported at; ``fitted``
        gives other sizes in place of some, and None for those that are left out."""
        self._cell, self._settings, self._prepared = cell, settings, prepared
        self._dims, self._traced = dims, traced
        self._failures = _Failures(settings, cell)
        self._fitted = fitted
        self._count = 0

    @property
    def unreadable(self) -> int:
        """Return how many draws were kept of earlier failures and could not be read; they are dropped."""
        return self._failures.taken[1]

    def first(self) -> Draw:
        """A draw at the traced sizes: that of the first example, unless ``Settings.random`` gives other examples or
        the case has none at these sizes."""
        sizes = self._traced
        return Draw(sizes, self._regimes(0)[0], seed_of(self._cell.id, seed_of(self._cell.id, *sizes.items()), 0))

    def __iter__(self) -> Iterator[Draw]:
        """Earlier failures, then every boundary shape, then drawn shapes; several draws of values for each shape."""
        if self._settings.only is not None:
            yield from self._fitting([Draw(**self._settings.only)])
            return
        yield from self._fitting(self._failures.taken[0])
        for index, (sizes, seed) in enumerate(self._shapes):
            for k, regime in enumerate(self._regimes(index)):
                yield self._draw(sizes, regime, seed_of(self._cell.id, seed, k))

    def _fitting(self, draws: Iterable[Draw]) -> Iterator[Draw]:
        for draw in draws:
            sizes = draw.dims if self._fitted is None else self._fitted(dict(draw.dims))
            if sizes is not None:
                yield dataclasses.replace(draw, dims=sizes)

    def more(self) -> Iterator[Draw]:
        """Draws for where time is left: a plain one at each size that a dim of few sizes was not at, and huge values,
        which few modules are precise enough for (``Verifier.doubted``)."""
        says = self._cell.case.says
        fewest = 0 in (says.examples.shapes, self._settings.examples)
        if self._cell.check != "accuracy" or self._cell.converted or self._settings.only is not None or fewest:
            return
        anew = [] if self._settings.random is None else [self._settings.random]
        for sizes in other_sizes(self._dims, self._traced, self.sizes()):
            yield self._draw(sizes, REGIMES[0], seed_of(self._cell.id, "more", *anew, *sizes.items()))
        if self._prepared.maker.has_huge():
            for k in range(HUGE_DRAWS):
                yield self._draw(self._traced, HUGE, seed_of(self._cell.id, HUGE, k, *anew))

    @cached_property
    def _shapes(self) -> list[tuple[dict[str, int], int]]:
        """Sizes, each with a seed: the boundary ones, then those that Hypothesis draws."""
        says = self._cell.case.says.examples
        boundary = boundary_sizes(self._dims, self._traced)[: says.boundary]
        anew = [] if self._settings.random is None else [self._settings.random]
        shapes = [(sizes, seed_of(self._cell.id, *anew, *sizes.items())) for sizes in boundary]
        count = says.shapes if self._settings.examples is None else self._settings.examples
        count = DRAWN_SHAPES if count is None else count
        shapes += self._prepared.drawn_shapes(self._dims, count, anew)
        if self._fitted is None:
            return shapes
        fit = ((self._fitted(sizes), seed) for sizes, seed in shapes)
        return [*{(*sizes.items(),): (sizes, seed) for sizes, seed in fit if sizes is not None}.values()]

    def of_every_regime(self) -> Iterator[Draw]:
        """A draw of each regime but the plain one at the traced sizes, and of the largest values at the largest sizes
        too, where sums are largest. Where an input is a mask, each regime with nothing and with everything masked.
        ``Settings.random`` gives other values."""
        largest = boundary_sizes(self._dims, self._traced)[2:3]
        for sizes, regimes in ((self._traced, REGIMES[1:]), *((sizes, ("large", "ends")) for sizes in largest)):
            for regime in regimes:
                yield self._for_finiteness(sizes, regime, None, 0)
        if any(declared.is_flag for declared in self._cell.case.says.inputs.values()):
            for flags in ("zero", "ends"):
                for regime in REGIMES:
                    # whether a masked row overflows hangs on the one value that is equal in all of it
                    for k in range(EQUAL if regime == "equal" else 1):
                        yield self._for_finiteness(self._traced, regime, flags, k)

    def _for_finiteness(self, sizes: dict[str, int], regime: str, flags: str | None, k: int) -> Draw:
        anew = [] if self._settings.random is None else [self._settings.random]
        seed = seed_of(self._cell.id, "finite", regime, flags, k, *anew, *sizes.items())
        return dataclasses.replace(self._draw(dict(sizes), regime, seed), flags=flags)

    def sizes(self) -> list[dict[str, int]]:
        """The sizes of all examples."""
        return [sizes for sizes, _ in self._shapes]

    def about(self, when: When) -> Iterator[Draw]:
        """Draws that a declared failure is about."""
        held = {name: r.values({})[0] for name, r in when.at.items() if not r.names}
        dims, near = self._dims.fixing(held), {**self._traced, **held}
        shapes = boundary_sizes(dims, near)
        related = {name: r for name, r in when.at.items() if r.names}
        if related:
            shapes = related_sizes(dims, related, shapes)
        own = SPECIALS if self._cell.check == "specials" else (*REGIMES, HUGE)
        # Several draws of each regime: the places that special values fall on decide whether a failure shows.
        regimes = [regime for regime in when.values if regime in own] * 4 or self._regimes(0)
        for sizes in shapes:
            for k, regime in enumerate(regimes):
                draw = self._draw(sizes, regime, seed_of(self._cell.id, "declared", k, *sizes.items()))
                if self._dims.allow(sizes) and about(when, draw):
                    yield draw

    def keep(self, draw: Draw) -> None:
        """Note a draw that failed, to be replayed first next time."""
        self._failures.keep(draw)

    def _regimes(self, shape: int) -> list[str]:
        """The value regimes of the shape with this index."""
        return regimes_of(self._cell.check, self._cell.case.says.examples.values, shape)

    def _draw(self, sizes: dict[str, int], regime: str, seed: int) -> Draw:
        self._count += 1
        return Draw(sizes, regime, seed, self._count - 1)


def kept_draws(settings: Settings, cell: Cell) -> list[Draw]:
    """Return the draws at which a cell failed when it ran last, that the case still allows; they stay kept."""
    return _Failures(settings, cell).kept()


class _Failures:
    """Draws that failed in earlier runs: a file each, in a folder for each cell."""

    def __init__(self, settings: Settings, cell: Cell) -> None:
        self._cell = cell
        # named as Hypothesis' database of examples does, which kept them in earlier versions
        self._folder = None if settings.failures is None else settings.failures / _name(cell.id.encode())

    @cached_property
    def taken(self) -> tuple[list[Draw], int]:
        """The kept draws that the case still allows, and how many files hold none. Each is taken out; ``keep`` puts
        it back if it fails again."""
        draws, unreadable = [], 0
        for file in self._files():
            draw = self._read(file)
            with contextlib.suppress(OSError):
                file.unlink()
            if draw is None:
                unreadable += 1
            elif self._allows(draw):
                draws.append(dataclasses.replace(draw, index=-1))
        return draws, unreadable

    def kept(self) -> list[Draw]:
        """The kept draws that the case still allows."""
        draws = map(self._read, self._files())
        return [dataclasses.replace(draw, index=-1) for draw in draws if draw is not None and self._allows(draw)]

    def _files(self) -> list[Path]:
        if self._folder is None:
            return []
        try:
            return sorted(file for file in self._folder.iterdir() if not file.is_dir())
        except OSError:
            return []

    def _read(self, file: Path) -> Draw | None:
        """The draw; None for what is none of this check."""
        try:
            draw = Draw(**parse_json(read_text(file)))
        except (ValueError, TypeError):
            return None
        regimes = SPECIALS if self._cell.check == "specials" else (*REGIMES, HUGE)
        sizes = isinstance(draw.dims, dict) and all(type(size) is int for size in draw.dims.values())
        return draw if sizes and draw.regime in regimes and type(draw.seed) is int and draw.seed >= 0 else None

    def _allows(self, draw: Draw) -> bool:
        try:
            return self._cell.case.dims.allow(draw.dims)
        except KeyError:  # the case has other dims now
            return False

    def keep(self, draw: Draw) -> None:
        """Keep a draw, unless it cannot be written."""
        if self._folder is None:
            return
        data = json.dumps(draw.as_dict(), sort_keys=True).encode()
        place = self._folder / _name(data)
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = place.with_name(f"{place.name}.{os.getpid()}")
            unfinished.write_bytes(data)
            unfinished.replace(place)


def _name(data: bytes) -> str:
    return hashlib.sha384(data).hexdigest()[:16]


DRAWS, PLAIN = 12, 3
"""How many draws, and how many of them after the first have plain values."""


def draws(prepared: Prepared) -> Iterator[Draw]:
    """A plain draw at the traced sizes, others with plain values, the smallest first, and draws of the sizes and
    regimes of an accuracy cell. They depend on the case alone, not on ``--examples`` or ``--random``."""
    case, traced = prepared.case, prepared.trace()
    says, seed = case.says.examples, seed_of(question_of(case))
    yield Draw(traced, "plain", seed)
    dims = case.dims.fixing({name: traced[name] for name in _static(case)})
    count = DRAWN_SHAPES if says.shapes is None else says.shapes
    boundary = boundary_sizes(dims, traced)
    shapes = [*boundary[: says.boundary], *(sizes for sizes, _ in drawn_shapes(dims, count, seed))]
    of_shapes = [
        Draw(sizes, regime, seed_of("coverage", seed, k, *sizes.items()))
        for k, sizes in enumerate(shapes)
        for regime in regimes_of("accuracy", says.values, k)
    ]
    plain = [draw for draw in of_shapes if draw.regime == "plain"][:PLAIN]
    plain += (
        Draw(sizes, "plain", seed_of("coverage", seed, "small", *sizes.items()))
        for sizes in boundary[says.boundary :]
        if 0 < 2 * _values(case, sizes) <= min((_values(case, draw.dims) for draw in plain), default=0)
    )
    yield from sorted(plain, key=lambda draw: _values(case, draw.dims) or math.inf)[:PLAIN]
    others = [draw for draw in of_shapes if draw.regime != "plain"]
    yield from spread(others, DRAWS - PLAIN - 1)


def _values(case: Case, sizes: Mapping[str, int]) -> int:
    """Return how many values the inputs have at these sizes; 0 where one of them has none."""
    numbers = [math.prod(entry.type.at(sizes)) for entry in case.says.inputs.values()]
    return sum(numbers) if all(numbers) else 0


def question_of(case: Case) -> str:
    """Return what a case says of its module and of the draws on which that is asked about. Cases that differ in other
    things alone, as in how the module is exported, ask the same."""
    says = {**said(case, "export"), "examples": case.says.examples.model_dump(), "static": sorted(_static(case))}
    return repr((says, sorted(case.arguments.items(), key=str)))


def _static(case: Case) -> set[str]:
    """The dims that are fixed in the models of one exporter or another."""
    return {name for target in case.says.export.exporters.values() for name in target.static}
