"""Which examples a cell runs: earlier failures, boundary shapes, drawn shapes, and those of a declared failure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from conformance.case.dims import Dims
from conformance.case.must_hold import When
from conformance.case.words import REGIMES, SPECIALS
from conformance.checks.prepared import Prepared
from conformance.draw.draw import Draw, about, regimes_of, seed_of
from conformance.draw.shapes import boundary_sizes, related_sizes
from conformance.plan.cell import Cell
from conformance.plan.settings import DRAWN_SHAPES, Settings


class Draws:
    """The draws of one cell, numbered in the order in which they are asked for.

    ``Settings.random`` gives other examples. It leaves alone what decides on something else than a right answer: the
    draw that shows whether the module is deterministic, and those that have to show a declared failure.
    """

    def __init__(
        self, cell: Cell, settings: Settings, prepared: Prepared, dims: Dims, traced: dict[str, int]
    ) -> None:
        """``dims`` are those that the model was exported for, ``traced`` the sizes it was exported at."""
        self._cell, self._settings, self._prepared = cell, settings, prepared
        self._dims, self._traced = dims, traced
        self._failures = _Failures(settings, cell)
        self._count = 0

    def first(self) -> Draw:
        """A draw at the traced sizes."""
        return self._draw(self._traced, self._regimes(0)[0], seed_of(self._cell.id, "first"))

    def __iter__(self) -> Iterator[Draw]:
        """Earlier failures, then every boundary shape, then drawn shapes; several draws of values for each shape."""
        yield from self._failures.replayed()
        for index, (sizes, seed) in enumerate(self._shapes):
            for k, regime in enumerate(self._regimes(index)):
                yield self._draw(sizes, regime, seed_of(self._cell.id, seed, k))

    @cached_property
    def _shapes(self) -> list[tuple[dict[str, int], int]]:
        """Sizes, each with a seed: the boundary ones, then those that Hypothesis draws."""
        says = self._cell.case.says.examples
        boundary = boundary_sizes(self._dims, self._traced)[: says.boundary]
        anew = [] if self._settings.random is None else [self._settings.random]
        shapes = [(sizes, seed_of(self._cell.id, *anew, *sizes.items())) for sizes in boundary]
        count = says.shapes if self._settings.examples is None else self._settings.examples
        count = DRAWN_SHAPES if count is None else count
        return shapes + self._prepared.drawn_shapes(self._dims, count, anew)

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
        own = SPECIALS if self._cell.check == "specials" else REGIMES
        # Several draws of each regime: the places that special values fall on decide whether a failure shows.
        regimes = [regime for regime in when.values if regime in own] * 4 or self._regimes(0)
        for sizes in shapes:
            for k, regime in enumerate(regimes):
                draw = self._draw(sizes, regime, seed_of(self._cell.id, "declared", k, *sizes.items()))
                if self._dims.allow(sizes) and about(when, draw):
                    yield draw

    def keep(self, draw: Draw) -> None:
        """Notes a draw that failed, to be replayed first next time."""
        self._failures.keep(draw)

    def _regimes(self, shape: int) -> list[str]:
        """The value regimes of the shape with this index."""
        return regimes_of(self._cell.check, self._cell.case.says.examples.values, shape)

    def _draw(self, sizes: dict[str, int], regime: str, seed: int) -> Draw:
        self._count += 1
        return Draw(sizes, regime, seed, self._count - 1)


class _Failures:
    """Draws that failed in earlier runs, kept in a Hypothesis example database."""

    def __init__(self, settings: Settings, cell: Cell) -> None:
        self._key = cell.id.encode()
        self._cell = cell
        self._database: Any = None
        if settings.failures is not None:
            from hypothesis.database import DirectoryBasedExampleDatabase

            self._database = DirectoryBasedExampleDatabase(str(settings.failures))

    def replayed(self) -> Iterator[Draw]:
        """The kept draws that the case still allows. Each is taken out; ``keep`` puts it back if it fails again."""
        for data in list(self._database.fetch(self._key)) if self._database else ():
            self._database.delete(self._key, data)
            try:
                draw = Draw(**json.loads(data))
                allowed = self._cell.case.dims.allow(draw.dims)
            except (ValueError, TypeError, KeyError):
                continue
            if allowed:
                yield dataclasses.replace(draw, index=-1)

    def keep(self, draw: Draw) -> None:
        if self._database is not None:
            self._database.save(self._key, json.dumps(draw.as_dict(), sort_keys=True).encode())
