"""Python classes that offer exactly what a recording of bindings.py says, with the working parts put in.

An implementation is a plain class with the recorded name. What it leaves out exists all the same, and raises
NotImplementedError when it is used; what the recording lacks does not exist. Calls are bound to the recorded
parameters and their types, and refused with pybind11's words.
"""

import json
import operator
import re
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def load(file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / file).read_text(encoding="utf-8"))
    return found


def install(
    modules: list[types.ModuleType], recording: dict[str, Any], others: list[dict[str, Any]]
) -> dict[str, Any]:
    """The recorded names, with what the modules define put in; all of them see one another in every module.

    AttributeError for a public name that no recording has.
    """
    own = {name: one for module in modules for name, one in vars(module).items()
           if not name.startswith("_") and getattr(one, "__module__", "") == module.__name__}  # fmt: skip
    space = build(recording, own, others)
    for module in modules:  # without constants such as tensorrt.bool, which would hide Python's
        vars(module).update({name: one for name, one in space.items() if name not in recording["constants"]})
    return space


class Meta(type):
    """Notices a Python subclass that does not call the ``__init__`` that it extends, as pybind11 does."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        if not isinstance(made, Enum) and "_constructed" not in vars(made):
            base = next(one for one in cls.__mro__ if "_recorded" in vars(one))
            raise TypeError(f"{base._recorded}.__init__() must be called when overriding __init__")
        return made


class Base(metaclass=Meta):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(f"{self._recorded}: No constructor defined!")

    def __setattr__(self, name: str, value: Any) -> None:
        """Only what is recorded can be set, but for the double's own state and on Python subclasses."""
        if "_recorded" in vars(type(self)) and not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(f"'{self._recorded}' object has no attribute '{name}'")
        object.__setattr__(self, name, value)

    @classmethod
    def make(cls, *args: Any, **state: Any) -> Any:
        """An object that only the package itself creates."""
        made = cls.__new__(cls, *args)
        vars(made).update(state, _constructed=True)
        return made


class Enum(Base):
    """What pybind11 makes of a C++ enum: no iteration, not equal to a number, ordered only where recorded so."""

    def __init__(self, value: int) -> None:
        vars(self)["_value"] = operator.index(value)

    @property
    def name(self) -> str:
        return next((name for name, one in self.__members__.items() if one == self), "???")

    @property
    def value(self) -> int:
        return self._value

    def __int__(self) -> int:
        return self._value

    __index__ = __hash__ = __int__

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and int(other) == int(self)

    def __repr__(self) -> str:
        return f"<{self}: {self._value}>"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


def _compare(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    return lambda one, other: test(int(one), int(other)) if type(one) is type(other) else NotImplemented


def build(recording: dict[str, Any], implementations: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """The names of a module. ``others`` are recordings of further versions, whose names may be implemented too.

    AttributeError for an implementation of something that no recording has, TypeError for one that does not take
    the recorded parameters.
    """
    module = recording["module"]
    _guard(implementations, [recording, *others])
    space: dict[str, Any] = {}
    ordered = sorted(recording["classes"].items(), key=lambda item: _depth(recording, item[0]))
    for path, says in ordered:
        own = implementations.get(path)
        if own is not None and issubclass(own, BaseException):
            space[path] = own
            continue
        cls = space[path] = _build_class(space, module, path, says, own)
        for name, value in says.get("members", {}).items():
            setattr(cls, name, cls.__members__.setdefault(name, cls.make(_value=value)))
        if "." in path:
            setattr(space[path.rpartition(".")[0]], cls.__name__, cls)
            space.setdefault(cls.__name__, cls)
    for path, says in ordered:
        for name, text in says.get("constants", {}).items():
            setattr(space[path], name, _constant(space, text))
    for name, text in recording["constants"].items():
        space[name] = _constant(space, text)
    for name, overloads in recording["functions"].items():
        space[name] = _checked(space, name, name, overloads, implementations.get(name) or _missing(name))
    public = {*recording["classes"], *recording["functions"], *recording["constants"]}
    return {name: value for name, value in space.items() if name in public and "." not in name}


def _build_class(space: dict[str, Any], module: str, path: str, says: dict[str, Any], own: type | None) -> Any:
    body: dict[str, Any] = {"_recorded": f"tensorrt.tensorrt.{path}" if module == "tensorrt" else path}
    bases: tuple[type, ...] = (space.get(says.get("base", ""), Base),)
    if "members" in says:
        bases, body["__members__"] = (Enum,), {}
        if says["ordered"]:
            body |= {f"__{name}__": _compare(getattr(operator, name)) for name in ("lt", "le", "gt", "ge")}
    if own is not None:
        bases = tuple(one for one in own.__bases__ if one is not object) + bases
        hidden = ("__init__", "__dict__", "__weakref__", "__module__", "__qualname__", "__firstlineno__")
        body |= {name: value for name, value in vars(own).items() if name.startswith("_") and name not in hidden}
    for name, overloads in says.get("methods", {}).items():
        body[name] = _method(space, f"{path}.{name}", name, overloads, vars(own).get(name) if own else None)
    for name, kind in says.get("properties", {}).items():
        body[name] = _property(space, f"{path}.{name}", kind, vars(own).get(name, ...) if own else ...)
    return Meta(path.rpartition(".")[2], bases, {**body, "__module__": module})


def _depth(recording: dict[str, Any], path: str) -> tuple[int, str]:
    """Bases before what extends them, and a class before those inside it."""
    base = recording["classes"][path].get("base")
    above = _depth(recording, base)[0] + 1 if base in recording["classes"] else 0
    return (above + path.count("."), path)


def _constant(space: dict[str, Any], text: str) -> Any:
    enum, _, member = text.rpartition(".")
    return getattr(space[enum], member) if enum in space else text


def _missing(path: str) -> Callable[..., Any]:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"the double has no {path}: put it into tests/doubles where a test needs it")

    return missing


def _guard(implementations: dict[str, Any], recordings: list[dict[str, Any]]) -> None:
    """Everything that is implemented must be recorded, with parameters that the implementation takes."""
    for path, own in implementations.items():
        kinds = [one["classes"].get(path, {}) for one in recordings]
        if not isinstance(own, type):
            if not any(path in one["functions"] for one in recordings):
                raise AttributeError(f"the double implements {path}(), which no recording has")
            continue
        if not any(path in one["classes"] for one in recordings):
            raise AttributeError(f"the double implements {path}, which no recording has")
        for name, value in vars(own).items():
            if name.startswith("_") and name != "__init__":
                continue
            kind = "methods" if isinstance(value, types.FunctionType | staticmethod) else "properties"
            having = [says[kind][name] for says in kinds if name in says.get(kind, {})]
            if not having:
                raise AttributeError(f"the double implements {path}.{name} in {kind}, which no recording has there")
            for overloads in having if kind == "methods" else []:
                if not any(_takes(getattr(value, "__func__", value), parameters(one)[1:]) for one in overloads):
                    raise TypeError(f"the double's {path}.{name} takes none of {overloads}")


def _takes(function: Callable[..., Any], recorded: list[tuple[str, str, str | None]]) -> bool:
    """Whether a function has every recorded parameter, by name."""
    code = function.__code__
    return {one[0] for one in recorded} <= set(code.co_varnames[: code.co_argcount])


def _method(space: dict[str, Any], path: str, name: str, overloads: list[str], own: Any) -> Any:
    if name in ("__enter__", "__exit__", "__del__"):
        return {"__enter__": _enter, "__exit__": lambda *_: None, "__del__": lambda _: None}[name]
    static = overloads[0].startswith("static ")
    function = getattr(own, "__func__", own)
    if name == "__init__":

        def construct(self: Any, *args: Any, **kwargs: Any) -> None:
            vars(self)["_constructed"] = True
            if own is not None:
                own(self, *args, **kwargs)

        function = construct
    checked = _checked(space, path, name, overloads, function or _missing(path), method=not static)
    return staticmethod(checked) if static else checked


def _enter(self: Any) -> Any:
    warnings.warn("Context managers for TensorRT types are deprecated. ", DeprecationWarning, stacklevel=2)
    return self


def _property(space: dict[str, Any], path: str, kind: str, own: Any) -> property:
    type_, _, access = kind.partition(", ")
    key = "_of_" + path.rpartition(".")[2]

    def read(self: Any) -> Any:
        if isinstance(own, property):
            return own.fget(self)
        if key not in vars(self) and own is ...:
            return _missing(path)()
        enum = space.get(type_)
        if key in vars(self) or not (isinstance(enum, type) and issubclass(enum, Enum)):
            return vars(self).get(key, own)
        return getattr(enum, own)  # the default of an enum is written as the name of a member

    def write(self: Any, value: Any) -> None:
        if not fits(space, value, type_) and value is not None:
            raise TypeError(f"(): incompatible function arguments for {path}: {value!r} is no {type_}")
        if isinstance(own, property) and own.fset:
            own.fset(self, value)
        else:
            vars(self)[key] = value

    return property(None if access == "writeonly" else read, None if access == "readonly" else write)


def parameters(overload: str) -> list[tuple[str, str, str | None]]:
    """Name, type and default of each; commas inside brackets and quotes do not part."""
    inside = overload[overload.index("(") + 1 : overload.rindex(")")]
    parts = re.findall(r"(?:[^,\[\('\"]|\[[^\]]*(?:\[[^\]]*\])*[^\]]*\]|\([^)]*\)|'[^']*')+", inside)
    found = []
    for part in parts:
        declared, _, default = (one.strip() for one in part.partition("="))
        name, _, type_ = (one.strip() for one in declared.partition(":"))
        found.append((name, type_, default or None))
    return found


def _checked(space: Any, path: str, name: str, overloads: list[str], function: Any, method: bool = False) -> Any:
    """Binds a call to the first overload that fits, and calls with the names of the recorded parameters."""
    told = [parameters(one) for one in overloads if not one.endswith("(...)")]

    def call(*args: Any, **kwargs: Any) -> Any:
        if not told:
            return function(*args, **kwargs)
        for takes in told:
            bound = _bind(space, takes, args, kwargs)
            if bound is not None:
                return function(bound.pop(takes[0][0]), **bound) if method else function(**bound)
        shown = "".join(f"\n    {index}. {one}" for index, one in enumerate(overloads, 1))
        raise TypeError(
            f"{name}(): incompatible function arguments. The following argument types are supported:{shown}\n\n"
            f"Invoked with: {', '.join(map(repr, args))}; kwargs: {kwargs}"
        )

    call.__name__, call.__qualname__, call.__doc__ = name, path, "\n".join(f"{name}{one}" for one in overloads)
    return call


def _bind(
    space: dict[str, Any], takes: list[tuple[str, str, str | None]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """The given values by parameter name; None where they do not fit."""
    if len(args) > len(takes):
        return None
    given = {one[0]: value for one, value in zip(takes, args, strict=False)}
    for name, value in kwargs.items():
        if name in given or re.fullmatch(r"arg\d+", name) or name not in {one[0] for one in takes}:
            return None
        given[name] = value
    for name, type_, default in takes:
        if name not in given:
            if default is None:
                return None
        elif name != "self" and not (fits(space, given[name], type_) or (default == "None" and given[name] is None)):
            return None
    return given


def fits(space: dict[str, Any], value: Any, type_: str) -> bool:
    """Whether pybind11 would convert a value; types that are not checked here take everything."""
    known = space.get(type_)
    if isinstance(known, type) and type_ != "Dims":
        return isinstance(value, known)
    if type_ in ("int", "SupportsInt"):
        return hasattr(value, "__int__") and not isinstance(value, float)
    if type_ in ("float", "SupportsFloat"):
        return hasattr(value, "__float__")
    if type_ == "str":
        return isinstance(value, str | bytes)
    if type_ in ("tuple", "list"):
        return isinstance(value, {"tuple": tuple, "list": list}[type_])
    if type_ == "Dims":
        sequence = isinstance(value, list | tuple | space["Dims"])
        return sequence and all(fits(space, one, "int") for one in value)
    if type_ in ("buffer", "Buffer"):
        try:
            memoryview(value)
        except TypeError:
            return False
    return True
