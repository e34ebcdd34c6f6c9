"""The functions on which a verdict rests: those of this package, of Python, NumPy, ONNX and ONNX Runtime.

One rule for all: what such a module or class held before the code of a case ran, it holds afterwards. Not counted are
names that a module gets late, and hooks that Python offers to be replaced.
"""

from __future__ import annotations

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from pathlib import PurePath
from types import FunctionType, ModuleType
from typing import Any

from conformance.process.worker.state.spaces import MISSING, Spaces, equal

OWN = "conformance"
PACKAGES = sys.stdlib_module_names | {OWN, "numpy", "onnx", "onnxruntime", "google", "ml_dtypes"}
"""What runs models, computes what is right and compares; the last two are what ONNX and NumPy's types rest on."""
_HOOKS = frozenset({"warnings.showwarning", "warnings.formatwarning", "warnings._showwarnmsg_impl"})
"""Offered to be replaced, beside all that is called a hook; the last is replaced while warnings are recorded."""
_HEAP = 1 << 9
"""The flag of a class whose attributes can be set."""


class Watched(ABC):
    """Modules, classes and tables of functions of some packages, and what they held when they were looked at last."""

    def __init__(self, packages: Collection[str], counts: Callable[[str, object, Any, object, object], bool]) -> None:
        """``counts`` gets a name, its owner, a key, what stood there and what does now, and says whether a function
        was replaced."""
        self._counts = counts
        self._spaces = Spaces()
        self._bodies = Bodies(packages)
        self._owners: list[object] = []
        self.added = False
        """Whether anything was added, which is in the place of nothing and may be read by whoever knows of it."""

    @abstractmethod
    def extend(self) -> None:
        """Take what was imported since."""

    def accept(self) -> None:
        """Take everything as it is now."""
        for index in self._spaces.touched():
            self._spaces.take(index)
        self.added = False
        self.extend()
        self._bodies.take()

    def changes(self, *, put_back: bool) -> list[str]:
        """Return the full names of the functions that were replaced since the last look."""
        changed = []
        for index in self._spaces.touched():
            name, owner = self._spaces.names[index], self._owners[index]
            for key, before, now in self._spaces.changes(index):
                if self._counts(name, owner, key, before, now):
                    changed.append(f"{name}.{key}")
                    if put_back:
                        _put_back(owner, key, before)
                elif before is MISSING and not _is_message(owner) and not came_late(name, key, now):
                    self.added = True
            self._spaces.take(index)
        return changed + self._bodies.changes(put_back=put_back)

    def _add(self, name: str, owner: object) -> None:
        count = len(self._spaces)
        self._spaces.add(name, owner if isinstance(owner, dict) else vars(owner))
        if len(self._spaces) > count:
            self._owners.append(owner)


class Judging(Watched):
    """The modules and classes of ``PACKAGES`` that are loaded, and what they held."""

    def __init__(self) -> None:
        super().__init__(PACKAGES, _counts)
        self._modules: dict[str, ModuleType] = {}
        self.extend()
        self._bodies.take()

    def extend(self) -> None:
        if len(self._modules) == len(sys.modules):
            return
        for name, module in [*sys.modules.items()]:
            if name not in self._modules:
                self._modules[name] = module
                if name.partition(".")[0] in PACKAGES and isinstance(module, ModuleType):
                    for place, owner in _owners(name, module):
                        self._add(place, owner)


def _owners(name: str, module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield a module, the classes that are defined in it, and its tables of functions."""
    yield name, module
    for key, value in [*vars(module).items()]:
        if isinstance(value, type):
            if value.__module__ == name and value.__flags__ & _HEAP:
                yield f"{name}.{key}", value
        elif type(value) is dict and name.startswith(OWN) and any(map(callable, value.values())):
            yield f"{name}.{key}", value


def _counts(name: str, owner: object, key: Any, before: object, now: object) -> bool:
    """Return whether another value under a name is a function that was replaced, and not one that came late."""
    if before is MISSING:
        if isinstance(owner, type):
            return is_function(now) and hasattr(super(owner, owner), key)
        hides = hasattr(_builtins, key) and owner is not _builtins
        return isinstance(owner, ModuleType) and is_function(now) and hides
    own_value = name.startswith(OWN) and isinstance(key, str) and key.isupper()
    if not own_value and not is_function(before) and not isinstance(before, ModuleType):
        return False
    full = f"{name}.{key}"
    if full in _HOOKS or full.endswith("hook"):
        return False
    return not by_the_compiler(before, now) and not _by_torch(key, now)


_builtins = sys.modules["builtins"]


def _is_message(owner: object) -> bool:
    """Return whether a class is a message of protobuf, which gets a name of an enumeration where it is first read."""
    return type(owner).__module__.partition(".")[0] == "google"


def came_late(name: str, key: str, value: object) -> bool:
    """Return whether a name of a module or class is one that its package gives it when it is needed."""
    if key.startswith("__") or isinstance(value, ModuleType):
        return True
    module = getattr(value, "__module__", None) or type(value).__module__
    return isinstance(module, str) and module.partition(".")[0] == name.partition(".")[0]


def _put_back(owner: object, key: Any, before: object) -> None:
    if isinstance(owner, dict):
        if before is MISSING:
            del owner[key]
        else:
            owner[key] = before
    elif before is MISSING:
        delattr(owner, key)
    else:
        setattr(owner, key, before)


def is_function(value: object) -> bool:
    """Return whether a value is what a function, a method or a class is kept as."""
    return (callable(value) or isinstance(value, (staticmethod, classmethod, property))) and not isinstance(
        value, ModuleType
    )


def by_the_compiler(before: object, now: object) -> bool:
    """Return whether PyTorch's compiler put the function there.

    It puts its own there, to watch modules change, or the same one, which it is to stay out of. What
    ``torch.compile`` makes of a function was put there by the case.
    """
    file = PurePath(getattr(getattr(now, "__code__", None), "co_filename", ""))
    if file.parts[-2:] == ("torch", "_compile.py"):
        return getattr(now, "__wrapped__", None) is before
    return file.parts[-3:-1] == ("torch", "_dynamo") and file.name != "eval_frame.py"


def _by_torch(key: object, now: object) -> bool:
    """Return whether PyTorch put its own form of a function there, as ``torch.package`` does with one of Python's."""
    module, name = getattr(now, "__module__", None), getattr(now, "__name__", "")
    return isinstance(module, str) and module.startswith("torch.") and str(key) in name and hasattr(now, "__code__")


# ---- those of this process -------------------------------------------------------------------------------

_taken: Judging | None = None
_with_code = False


def remember() -> Judging:
    """Return the modules of this process, taken at the first call: before it runs code of a case."""
    global _taken
    if _taken is None:
        _taken = Judging()
    return _taken


def note_code() -> None:
    """Code of a case runs in this process from now on, and may replace what it likes."""
    global _with_code
    _with_code = True


def look() -> tuple[str, ...]:
    """Return the functions that were replaced by code of a case, and whose replacement nothing has noted since."""
    return tuple(_taken.changes(put_back=False)) if _with_code and _taken is not None else ()


def is_of_the_judges(name: str) -> bool:
    """Return whether the comparison itself rests on a function.

    It does not on those of PyTorch: where a library replaces some, they are part of what is exported."""
    return name.split(".", 1)[0] in PACKAGES


_ATTRIBUTES = frozenset({"__code__", "__defaults__", "__kwdefaults__"})
_MOST = 10_000
"""Changes that are kept until somebody looks: a case that changes functions without an end changes many."""
_CACHED = type(functools.cache(len))
_watching: list[Bodies] = []


class Bodies:
    """The functions of some packages that were changed in place since they were looked at last: their code
    or their defaults were replaced. No dictionary of a module shows that; Python tells of it as it happens, by the
    audit event ``object.__setattr__``."""

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
