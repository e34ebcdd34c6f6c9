"""A setting of the process: how it is read, put back and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from types import ModuleType
from typing import Any, Literal

MOST = 120
"""Characters of a value that a record shows."""


def text(value: object, other: object) -> str:
    """A value in short; ``other`` is what it is compared with."""
    return str(value)[:MOST]


@dataclass(frozen=True)
class Setting:
    """``read`` gives a value that is equal as long as nothing was set; where it raises, that is another value."""

    name: str
    """As the user knows it, which mostly is what sets it: ``torch.set_default_dtype``."""
    read: Callable[[], Any]
    put_back: Callable[[Any], object] | None = None
    """Sets a value that was read before; None where nothing can."""
    show: Callable[[Any, Any], str] = text
    """A value in short, given the one that it is compared with."""
    adopt: Callable[[Any, Any], Any] | None = None
    """Given the value of before and that of now, the former with what libraries are known to set by themselves."""
    module: str = "sys"
    """Read only where this module has been imported: until then nobody can have set it."""


def kind_of(value: object, _: object) -> str:
    """The class of a value; ``none`` of None."""
    return "none" if value is None else type(value).__name__


def attribute(module: ModuleType, name: str) -> Setting:
    """The setting that is an attribute of a module."""
    read, put_back = partial(getattr, module, name, None), partial(setattr, module, name)
    return Setting(f"{module.__name__}.{name}", read, put_back, kind_of)


When = Literal["loading", "running"]
Outcome = Literal["put back", "kept", "left"]


@dataclass(frozen=True)
class StateChange:
    """One thing that a cell changed in its process, as a record holds it."""

    what: str
    kind: Literal["setting", "function", "registry", "leftover"]
    when: When
    """``loading``: while the case's Python was imported or its module built."""
    outcome: Outcome
    """``kept`` for the other cells of the case; ``left`` where it could not be put back."""
    before: str = ""
    after: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)
