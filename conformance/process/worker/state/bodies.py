"""Functions that are others although they are the same objects: their code or their defaults were replaced in them.

No dictionary of a module shows that. Python tells of it as it happens, by the audit event ``object.__setattr__``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterator
from types import FunctionType

from conformance.process.worker.state.spaces import equal

_ATTRIBUTES = frozenset({"__code__", "__defaults__", "__kwdefaults__"})
_MOST = 10_000
"""Changes that are kept until somebody looks: a case that changes functions without an end changes many."""
_CACHED = type(functools.cache(len))
_watching: list[Bodies] = []


class Bodies:
    """The functions of some packages that were changed in place since they were looked at last."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages
        self._changed: dict[tuple[int, str], tuple[FunctionType, object]] = {}
        if not _watching:
            sys.addaudithook(_hook)
        _watching.append(self)

    def note(self, function: FunctionType, attribute: str, by: str) -> None:
        """Note that an attribute of a function is about to be set by code of a module; its own package may do so."""
        package = str(function.__module__).partition(".")[0]
        if package not in self._packages or package == by.partition(".")[0] or _is_loading(function.__module__):
            return
        if len(self._changed) < _MOST:
            self._changed.setdefault((id(function), attribute), (function, getattr(function, attribute)))

    def take(self) -> None:
        """Take all of them as they are now."""
        self._changed.clear()

    def changes(self, *, put_back: bool) -> list[str]:
        """Return the full names of the functions that are others since they were taken."""
        names: dict[str, None] = {}
        for (_, attribute), (function, before) in [*self._changed.items()]:
            if not equal(getattr(function, attribute), before) and _has_its_name(function):
                names[f"{function.__module__}.{function.__qualname__}"] = None
                if put_back:
                    setattr(function, attribute, before)
        self.take()
        return [*names]


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event == "object.__setattr__" and arguments[1] in _ATTRIBUTES and type(arguments[0]) is FunctionType:
        by = str(sys._getframe(1).f_globals.get("__name__"))
        for bodies in _watching:
            bodies.note(arguments[0], arguments[1], by)


def _is_loading(module: str) -> bool:
    """Return whether a module is being imported: a decorator may still make its functions what they are."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def _has_its_name(function: FunctionType) -> bool:
    """Return whether the function is what its module has under its name, and not one that was made just now."""
    owner: object = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        owner = getattr(owner, "__dict__", {}).get(name)
    return any(function is part for part in _functions_of(owner))


def _functions_of(value: object) -> Iterator[FunctionType]:
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
