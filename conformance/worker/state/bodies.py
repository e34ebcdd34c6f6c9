"""Functions that are others although they are the same objects: their code or their defaults were replaced in them.

No dictionary of a module shows that. Each function is compared after every cell, so only those count that
``conformance`` itself judges with.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from types import FunctionType
from typing import Any

_CODE, _DEFAULTS, _KEYWORDS = map(attrgetter, ("__code__", "__defaults__", "__kwdefaults__"))
_CACHED = type(functools.cache(len))


class Bodies:
    """Functions by name, and what each was made of when it was taken."""

    def __init__(self, packages: Collection[str]) -> None:
        """``packages``: functions that were imported from elsewhere do not count."""
        self._packages = packages
        self._known: set[int] = set()
        self._all: list[FunctionType] = []
        self._with_defaults: list[FunctionType] = []  # calls that give every argument ask for no others
        self._with_keywords: list[FunctionType] = []
        self._then = self._read()

    def add(self, values: Mapping[Any, Any]) -> None:
        """Add the functions among the values of a module or class."""
        for value in [*values.values()]:
            for function in _functions_of(value):
                package = str(function.__module__).partition(".")[0]
                if id(function) not in self._known and package in self._packages:
                    self._known.add(id(function))
                    self._all.append(function)
                    self._with_defaults += [function] if function.__defaults__ else []
                    self._with_keywords += [function] if function.__kwdefaults__ else []

    def take(self) -> None:
        """Take all of them as they are now."""
        codes, defaults, keywords = self._read()
        self._then = codes, defaults, [dict(known or ()) for known in keywords]

    def changes(self, *, put_back: bool) -> list[str]:
        """Return the full names of the functions that are others since they were taken."""
        changed: dict[str, None] = {}
        for functions, attribute, then, now in zip(
            (self._all, self._with_defaults, self._with_keywords),
            ("__code__", "__defaults__", "__kwdefaults__"), self._then, self._read(), strict=True,
        ):  # fmt: skip
            if _equal(then, now):
                continue
            for function, before, after in zip(functions, then, now, strict=True):
                if before is not after and not _equal(before, after):
                    changed[f"{function.__module__}.{function.__qualname__}"] = None
                    if put_back:
                        setattr(function, attribute, before)
        if changed:
            self.take()
        return [*changed]

    def _read(self) -> tuple[list[Any], list[Any], list[Any]]:
        return (
            [*map(_CODE, self._all)], [*map(_DEFAULTS, self._with_defaults)], [*map(_KEYWORDS, self._with_keywords)],
        )  # fmt: skip


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """Yield the functions that a value is made of: those inside a method, a property or a decorated function."""
    while value is not None:
        if isinstance(value, FunctionType):
            yield value
            value = vars(value).get("__wrapped__")
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property):
            value = value.func
        else:
            value = value.__wrapped__ if isinstance(value, _CACHED) else None


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # whatever a value of the user's raises where it is compared: then it is another one
        return False
