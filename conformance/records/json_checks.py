"""Checks of plain values as JSON has them, and checks that are made of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Check = Callable[[Any], None]
"""Raises ``Misfit`` for a value that it does not allow."""

DEEPEST = 20
"""How deeply the plain data of a field may be nested."""
_LARGEST = 2**63
"""Above all integers of a record; larger ones do not fit what computes with them."""


class Misfit(Exception):
    """A value that its field cannot have; ``str`` names the field and says why."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []

    def inside(self, name: object) -> Misfit:
        """The same misfit, seen from what has the value under ``name``."""
        self.path.insert(0, str(name)[:80])
        return self

    def __str__(self) -> str:
        return f"'{'.'.join(self.path)}' {self.why}" if self.path else self.why


# ---- single values -------------------------------------------------------------------------------------------


def of_type(words: str, *kinds: type) -> Check:
    """Allows values of exactly these types: to JSON ``true`` is no number."""

    def check(value: Any) -> None:
        if type(value) not in kinds:
            raise Misfit(f"is {kind_of(value)}, not {words}")

    return check


def kind_of(value: Any) -> str:
    names = {
        str: "text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "null")


TEXT = of_type("text", str)
TEXT_OR_NULL = of_type("text or null", str, type(None))
FLAG = of_type("true or false", bool)
LIST = of_type("a list", list)
OBJECT = of_type("an object", dict)
_INTEGER = of_type("a whole number", int)


def integer(value: Any) -> None:
    _INTEGER(value)
    if not -_LARGEST < value < _LARGEST:
        raise Misfit("is larger than any such number")


def number(value: Any) -> None:
    """A finite number."""
    if type(value) is int:
        integer(value)
    elif type(value) is not float:
        raise Misfit(f"is {kind_of(value)}, not a number")
    elif not math.isfinite(value):
        raise Misfit("is larger than any such number")


def measure(value: Any) -> None:
    """A number, also NaN or an infinity, which records write as text."""
    if value not in ("nan", "inf", "-inf"):
        number(value)


def plain(value: Any, depth: int = DEEPEST) -> None:
    """Any value of JSON whose numbers are finite, nested at most so deeply."""
    if depth < 0:
        raise Misfit("is nested too deeply")
    kind = type(value)
    if kind is dict:
        for item in value.values():
            plain(item, depth - 1)
    elif kind is list:
        for item in value:
            plain(item, depth - 1)
    elif kind is int or kind is float:
        number(value)


def scalar(value: Any) -> None:
    """Text, a number, true, false or null."""
    if type(value) in (list, dict):
        raise Misfit(f"is {kind_of(value)}, not a single value")
    plain(value)


# ---- values made of others -----------------------------------------------------------------------------------


def or_null(check: Check) -> Check:
    def checked(value: Any) -> None:
        if value is not None:
            check(value)

    return checked


def list_of(check: Check) -> Check:
    def checked(value: Any) -> None:
        LIST(value)
        for number, item in enumerate(value):
            try:
                check(item)
            except Misfit as misfit:
                raise misfit.inside(number) from None

    return checked


def map_of(check: Check) -> Check:
    def checked(value: Any) -> None:
        OBJECT(value)
        for name, item in value.items():
            try:
                check(item)
            except Misfit as misfit:
                raise misfit.inside(name) from None

    return checked


def form(needs: tuple[str, ...] = (), /, **fields: Check) -> Check:
    """An object with these fields. It may lack those that it does not need, and have others of plain data."""

    def checked(value: Any) -> None:
        OBJECT(value)
        for name in needs:
            if name not in value:
                raise Misfit("is not there").inside(name)
        for name, item in value.items():
            try:
                fields.get(name, plain)(item)
            except Misfit as misfit:
                raise misfit.inside(name) from None

    return checked
