"""Dictionaries that are compared with what they held: the names of modules and classes, and tables of registries.

There are thousands, so that they are compared once a cell and after each export: 3 ms for those of all modules on
which a verdict rests.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.process.errors import or_else

MISSING = object()


class Spaces:
    """Dictionaries by name, and what each held when it was taken."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._known: set[int] = set()
        self._spaces: list[dict[Any, object]] = []
        self._held: list[dict[Any, object]] = []
        self._values: list[list[object]] = []
        """The values of ``_held``, since comparing lists takes half as long."""

    def __len__(self) -> int:
        return len(self._spaces)

    def add(self, name: str, space: Mapping[Any, object]) -> None:
        """Take a dictionary, or that of a class, unless it is known."""
        inside = gc.get_referents(space)[0] if isinstance(space, MappingProxyType) else space
        if id(inside) in self._known or not isinstance(inside, dict):
            return
        self._known.add(id(inside))
        self.names.append(name)
        self._spaces.append(inside)
        self._held.append(dict(inside))
        self._values.append([*inside.values()])

    def touched(self) -> list[int]:
        """Return which dictionaries hold other values than when they were taken."""
        now = [[*space.values()] for space in self._spaces]
        if or_else(False, lambda: now == self._values):  # values that are others now may not be comparable
            return []
        return [index for index, values in enumerate(now) if not equal(values, self._values[index])]

    def changes(self, index: int) -> Iterator[tuple[Any, object, object]]:
        """Yield the names whose values differ from what was taken, with both; MISSING stands for none."""
        held, now = self._held[index], self._spaces[index]
        for name in [*held, *(name for name in [*now] if name not in held)]:
            before, after = held.get(name, MISSING), now.get(name, MISSING)
            if before is not after:
                yield name, before, after

    def take(self, index: int) -> None:
        """Take what a dictionary holds now."""
        self._held[index] = dict(self._spaces[index])
        self._values[index] = [*self._spaces[index].values()]


def equal(one: object, other: object) -> bool:
    """Return whether two values are equal, as far as comparing them says."""
    return or_else(False, lambda: bool(one == other))
