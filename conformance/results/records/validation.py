"""Validate plain values, as JSON has them, against types.

A file may come from anybody; what computes with it may rely on its types once it was validated.

A type is what an annotation says: ``str``, ``list[int]``, ``Worst | None``, a TypedDict, a dataclass. An object of a
TypedDict may lack all that is not ``Required`` and have other fields of plain data; one whose TypedDict is total has
these fields alone, as the object of a dataclass. ``Annotated`` narrows a type, by a ``range`` of whole numbers or by
a function that raises ``Misfit``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
)

from typing_extensions import NotRequired, Required, get_type_hints, is_typeddict

from conformance.process.errors import UserError

Check = Callable[[Any], None]
"""Raises ``Misfit`` for a value that it does not allow."""

DEEPEST = 20
"""How deeply the plain data of a field may be nested."""
_LARGEST = 2**63
"""Above all integers of a record; larger ones do not fit what computes with them."""


class Misfit(UserError):
    """A value that its field cannot have; ``str`` names the field, the value and what it has to be."""

    def __init__(self, why: str, path: Sequence[str | int] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.path = list(path)

    def inside(self, name: str | int) -> Misfit:
        """The same misfit, seen from what has the value under ``name``."""
        self.path.insert(0, name)
        return self

    def __str__(self) -> str:
        names = (f"[{name}]" if isinstance(name, int) else f".{name[:200]}" for name in self.path)
        return f"{''.join(names).removeprefix('.')} {self.why}".lstrip()


def wrong(value: object, wanted: str, path: Sequence[str | int] = ()) -> Misfit:
    """The misfit of a value that is not what is ``wanted``."""
    shown = "a list" if type(value) is list else "an object" if type(value) is dict else json.dumps(value)
    return Misfit(f"is {shown if len(shown) <= 60 else shown[:59] + '…'}, not {wanted}", path)


# ---- single values -------------------------------------------------------------------------------------------


def of_type(wanted: str, *kinds: type) -> Check:
    """Allow values of exactly these types: to JSON ``true`` is no number."""

    def check(value: object) -> None:
        if type(value) not in kinds:
            raise wrong(value, wanted)

    return check


def _integer(value: object) -> None:
    if type(value) is not int:
        raise wrong(value, "a whole number")
    if not -_LARGEST < value < _LARGEST:
        raise wrong(value, "a number below 2^63")


def _number(value: object) -> None:
    if type(value) is int:
        _integer(value)
    elif type(value) is not float:
        raise wrong(value, "a number")
    elif not math.isfinite(value):
        raise wrong(value, "a finite number")


def plain(value: Any, depth: int = DEEPEST) -> None:
    """Allow any value of JSON whose numbers are finite, nested at most so deeply."""
    if depth < 0:
        raise Misfit("has too many lists and objects in one another")
    kind = type(value)
    if kind is dict:
        for item in value.values():
            plain(item, depth - 1)
    elif kind is list:
        for item in value:
            plain(item, depth - 1)
    elif kind is int or kind is float:
        _number(value)


def _scalar(value: object) -> None:
    if type(value) in (list, dict):
        raise wrong(value, "a single value")
    plain(value)


Scalar = Annotated[object, _scalar]
"""Text, a number, true, false or null."""
Trusted = Annotated[Any, _scalar]
"""The same, where readers rely on what this package writes there."""
Measure = float | Literal["nan", "inf", "-inf"]
"""A number, also NaN or an infinity, which files have as text."""


def as_json(value: object) -> Any:
    """Return the value as JSON has it: NaN, infinities and what it has no form of as text."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return as_json(dataclasses.asdict(value))
    return str(value)


# ---- values made of others -----------------------------------------------------------------------------------


def _inside(name: str | int, check: Check, item: object) -> None:
    try:
        check(item)
    except Misfit as misfit:
        raise misfit.inside(name) from None


def _list(check: Check) -> Check:
    def checked(value: object) -> None:
        if type(value) is not list:
            raise wrong(value, "a list")
        for number, item in enumerate(value):
            _inside(number, check, item)

    return checked


def _tuple(*checks: Check) -> Check:
    def checked(value: object) -> None:
        if type(value) is not list or len(value) != len(checks):
            raise wrong(value, f"a list of {len(checks)}")
        for number, (check, item) in enumerate(zip(checks, value, strict=True)):
            _inside(number, check, item)

    return checked


def object_of(fields: Callable[[str], Check | None], needed: Sequence[str] = ()) -> Check:
    """``fields`` has the check of a field by its name; None for one that may not be there."""

    def checked(value: object) -> None:
        if type(value) is not dict:
            raise wrong(value, "an object")
        for name in needed:
            if name not in value:
                raise Misfit(f"lacks '{name}'")
        for name, item in value.items():
            check = fields(name)
            if check is None:
                raise Misfit(f"has an unknown field '{name[:200]}'")
            _inside(name, check, item)

    return checked


def _any_of(checks: Sequence[Check], null: bool) -> Check:
    """Of several misfits that of the deepest value is told, which all others of its kind fit."""

    def checked(value: object) -> None:
        if value is None and null:
            return None
        misfits = []
        for check in checks:
            try:
                return check(value)
            except Misfit as misfit:
                misfits.append(misfit)
        raise max(misfits, key=lambda misfit: len(misfit.path))

    return checks[0] if len(checks) == 1 and not null else checked


def _all_of(checks: Sequence[Check]) -> Check:
    def checked(value: object) -> None:
        for check in checks:
            check(value)

    return checked


def _within(numbers: range) -> Check:
    def checked(value: object) -> None:
        if type(value) is not int or value not in numbers:
            raise wrong(value, f"a whole number from {numbers.start} to {numbers.stop - 1}")

    return checked


def _one_of(values: Sequence[Any]) -> Check:
    def checked(value: object) -> None:
        if type(value) is not str or value not in values:
            raise wrong(value, " or ".join(values))

    return checked


# ---- types ---------------------------------------------------------------------------------------------------

_SIMPLE: dict[object, Check] = {
    str: of_type("a text", str), bool: of_type("true or false", bool), int: _integer, float: _number,
    Any: plain, object: plain,
}  # fmt: skip


@functools.cache
def check_of(kind: Any) -> Check:
    """Return what holds a value against a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        narrower = [_within(more) if isinstance(more, range) else more for more in kind.__metadata__]
        return narrower[0] if arguments[0] in (int, Any, object) else _all_of([check_of(arguments[0]), *narrower])
    if origin in (Required, NotRequired):
        return check_of(arguments[0])
    if origin in (Union, UnionType):
        return _any_of([check_of(each) for each in arguments if each is not NoneType], NoneType in arguments)
    if origin is Literal:
        return _one_of(arguments)
    if origin is list:
        return _list(check_of(arguments[0]))
    if origin is tuple:
        return _tuple(*map(check_of, arguments))
    if origin is dict:
        check = check_of(arguments[1])
        return object_of(lambda name: check)
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        fields = checks_of(kind)
        closed = dataclasses.is_dataclass(kind) or kind.__total__
        return object_of(fields.get if closed else lambda name: fields.get(name, plain), _needed(kind))
    return _SIMPLE[kind]


@functools.cache
def checks_of(kind: type) -> dict[str, Check]:
    """The check of each field of a TypedDict or a dataclass."""
    return {name: check_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _needed(kind: Any) -> list[str]:
    """The fields that an object of this type has to have."""
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return [field.name for field in dataclasses.fields(kind) if field.default is field.default_factory is missing]
    hints = get_type_hints(kind, include_extras=True)
    origins: dict[str, object] = {name: get_origin(hint) for name, hint in hints.items()}
    if kind.__total__:
        return [name for name, origin in origins.items() if origin is not NotRequired]
    return [name for name, origin in origins.items() if origin is Required]
