"""Say why a module cannot be built, where, and what to type: the arguments that its class lacks among it."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_overloads

from conformance.case.files.python import describe
from conformance.judge.case_edits import flow
from conformance.process.errors import did_you_mean, display_path, or_else, text_of
from conformance.process.worker.uses import whose
from conformance.results.records.sanitize import command_line

_EXAMPLES: Mapping[str, object] = {"int": 8, "float": 0.5, "bool": True, "str": "text"}
_ONE = re.compile(r"\b(int|float|bool|str)\b")
_SEVERAL = re.compile(
    r"^(?:\w+\.)*(?:list|tuple|sequence|iterable|collection)\[(int|float|bool|str)\b", re.IGNORECASE
)
_MISSING = re.compile(r"(?:(\w+)\.)?(\w+)\(\) missing \d+ required (?:positional|keyword-only) arguments?: (.*)")
_LIBRARIES = ("torch", "numpy")
"""Packages that raise what others have called them with."""


def describe_refusal(
    error: Exception, name: str, make: object, given: Mapping[str, object], typed: Sequence[str], folder: Path
) -> str:
    """Return a sentence about a module that cannot be built, with what to do.

    Args:
        name: what ``make`` is called.
        make: the class, or the function that returns the module; None where that is not known.
        given: the arguments that it was called with.
        typed: the command that asked for the module, to which arguments are added; empty for none.
        folder: that of the case.
    """
    lacking = _lacking(error, make, given)
    if lacking == ["config"]:
        return f"{name} cannot be built without config; give --config FILE, or make a small network with --tiny"
    if lacking:
        words = [word for one in lacking for word in ("--with", f"{one}={_example(make, one)}")]
        what = " and ".join(filter(None, (", ".join(lacking[:-1]), lacking[-1])))
        text = f"{name} cannot be built without {what}; give values, of which these are examples"
        return f"{text}:\n{command_line([*typed, *words])}"
    odd = re.search(r"unexpected keyword argument '(\w+)'", text_of(error))
    near = did_you_mean(odd[1], _parameters(make)) if odd else ""
    return f"{name} cannot be built: {describe_with_place(error, folder)}{near}"


def describe_with_place(error: BaseException, folder: Path) -> str:
    """``ValueError: text (net.py:12)``: an exception in a line, with the innermost line of the user's, or of the
    package whose class it is."""
    said, place = describe(error, folder), place_of(error)
    return f"{said} ({place})" if place and not re.search(r"\(\S+:\d+\)$", said) else said


def place_of(error: BaseException) -> str:
    """Return ``net.py:12``, the innermost line that is neither Python's, torch's nor this package's; empty where
    there is none."""
    whose.learn_places()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        kind, file = whose.kind_of(frame.filename), frame.filename
        if kind == whose.USER or (kind == whose.INSTALLED and whose.package_of(file) not in _LIBRARIES):
            return f"{display_path(Path(file.rpartition(f'site-packages{os.sep}')[2]))}:{frame.lineno}"
    return ""


def _lacking(error: Exception, make: object, given: Mapping[str, object]) -> list[str]:
    """Return the arguments that a class needs and was not given, as far as they can be given by name.

    A class that hands its arguments on, as ``torch.nn.LSTM`` does, names them in its error alone.
    """
    known = _parameters(make)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [name for name, one in known.items() if one.default is one.empty and one.kind in kinds]
    told = _MISSING.match(text_of(error)) if isinstance(error, TypeError) else None
    if told is not None and told[2] in ("__init__", "__new__"):
        own = told[1] is None or any(told[1] == kind.__name__ for kind in getattr(make, "__mro__", ()))
    else:
        own = told is not None and told[2] == getattr(make, "__name__", "")
    found = re.findall(r"'(\w+)'", told[3]) if told is not None and own else []
    return list(dict.fromkeys([*(name for name in needed if name not in given and told is not None), *found]))


def _parameters(make: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function; none where it does not say them."""
    return or_else({}, lambda: inspect.signature(make).parameters)


def _annotations(make: object, name: str) -> Iterator[object]:
    """Yield the annotations of a parameter: of a class itself, of those that it is derived from, and of overloads."""
    makers = [make, *(vars(kind).get("__init__") for kind in getattr(make, "__mro__", ()))]
    overloads = [one for maker in makers for one in or_else([], lambda maker=maker: get_overloads(maker))]  # type: ignore[misc]  # mypy infers no lambda with a default
    for maker in (*makers, *overloads):
        parameter = _parameters(maker).get(name)
        if parameter is not None and parameter.annotation is not parameter.empty:
            yield parameter.annotation


def _example(make: object, name: str) -> str:
    """Return a value of a parameter as ``--with`` takes it, by its annotation; VALUE where that does not tell."""
    for annotation in _annotations(make, name):
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        text = text if text in _EXAMPLES else str(annotation).removeprefix("typing.")
        several, one = _SEVERAL.match(text), _ONE.search(text)
        if several:
            return flow([_EXAMPLES[several[1]]] * 2)
        if one and not isinstance(annotation, type):
            return flow(_EXAMPLES[one[1]])
        if isinstance(annotation, type):
            plain = _EXAMPLES.get(annotation.__name__) if annotation.__module__ == "builtins" else None
            made = {"new": f"{annotation.__module__}.{annotation.__qualname__}", "with": {}}
            return flow(made if plain is None else plain)
    return "VALUE"
