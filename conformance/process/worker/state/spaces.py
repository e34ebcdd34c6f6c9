"""Dictionaries that are compared with what they held: the names of modules and classes, and tables of registries.

There are thousands, and they are compared after every cell. CPython 3.10 to 3.13 gives a dictionary another number
whenever an entry of it is set or deleted, and NumPy gathers all these numbers at once; where there are none, the
values are compared by identity, which takes a hundred times as long.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.process.errors import or_else

MISSING = object()
_VERSION = 24
"""Where a dictionary keeps that number: behind its reference count, its type and its length."""
_WORD = 8
"""Bytes of such a number; a dictionary begins at a multiple of them."""


def _number(space: dict[Any, Any]) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(id(space) + _VERSION)


def _has_numbers() -> bool:
    trial: dict[str, int] = {}
    seen = {_number(trial).value}
    for value in range(3):
        trial["a"] = value + 1000
        seen.add(_number(trial).value)
    still = _number(trial).value
    return len(seen) == 4 and trial.get("a") == 1002 and _number(trial).value == still


_NUMBERS = _has_numbers()


class _DictNumbers:
    """The numbers of dictionaries, which somebody else keeps alive, as they were taken."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._then: list[int] = []
        self._arrays: tuple[Any, Any, Any] | None = None
        """All memory from the lowest number on, where in it the numbers are, and what they were."""

    def add(self, space: dict[Any, Any]) -> None:
        self._places.append(id(space) + _VERSION)
        self._then.append(_number(space).value)
        self._arrays = None

    def take(self, index: int, space: dict[Any, Any]) -> None:
        self._then[index] = _number(space).value
        self._arrays = None

    def touched(self) -> list[int]:
        """Return the indices of those that have another number now."""
        if not self._places:
            return []
        np: Any = sys.modules.get("numpy")
        if np is None:  # as in a worker that runs no cells, for which it is not imported
            now = [ctypes.c_uint64.from_address(place).value for place in self._places]
            return [index for index, number in enumerate(now) if number != self._then[index]]
        if self._arrays is None:
            places = np.array(self._places, np.int64)
            start = int(places.min())
            size = (int(places.max()) - start) // _WORD + 1
            memory = np.ctypeslib.as_array((ctypes.c_uint64 * size).from_address(start))  # read at the places alone
            self._arrays = memory, (places - start) // _WORD, np.array(self._then, np.uint64)
        memory, offsets, then = self._arrays
        return [int(index) for index in (memory[offsets] != then).nonzero()[0]]


class Spaces:
    """Dictionaries by name, and what each held when it was taken."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.held: list[dict[Any, Any]] = []
        self._known: dict[int, int] = {}
        self._spaces: list[dict[Any, Any]] = []
        self._then: list[Any] = []
        self._numbers = _DictNumbers()

    def __len__(self) -> int:
        return len(self._spaces)

    def add(self, name: str, space: Mapping[Any, Any]) -> None:
        """Take a dictionary, or that of a class, unless it is known."""
        inside = gc.get_referents(space)[0] if isinstance(space, MappingProxyType) else space
        if id(inside) in self._known or not isinstance(inside, dict):
            return
        self._known[id(inside)] = len(self._spaces)
        self.names.append(name)
        self._spaces.append(inside)
        self.held.append(dict(inside))
        if _NUMBERS:
            self._numbers.add(inside)
        else:
            self._then.append([*inside.values()])

    def touched(self) -> list[int]:
        """Return which dictionaries had an entry set or deleted since they were taken."""
        if _NUMBERS:
            return self._numbers.touched()
        now = [[*space.values()] for space in self._spaces]
        if self._same(now):
            return []
        return [index for index, value in enumerate(now) if not equal(value, self._then[index])]

    def _same(self, now: list[Any]) -> bool:
        return or_else(False, lambda: now == self._then)  # a value that is another one now may not be comparable

    def changes(self, index: int) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the names whose values differ from what was taken, with both; MISSING stands for none."""
        held, now = self.held[index], self._spaces[index]
        for name in [*held, *(name for name in [*now] if name not in held)]:
            before, after = held.get(name, MISSING), now.get(name, MISSING)
            if before is not after:
                yield name, before, after

    def take(self, index: int) -> None:
        """Take what a dictionary holds now."""
        space = self._spaces[index]
        self.held[index] = dict(space)
        if _NUMBERS:
            self._numbers.take(index, space)
        else:
            self._then[index] = [*space.values()]


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal, as far as comparing them says."""
    return or_else(False, lambda: bool(one == other))
