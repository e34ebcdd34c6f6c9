"""Notice what the modules beside a case keep from one cell to the next.

Global variables, and attributes of their classes.

A counter or a cache is nobody's mistake and is not told. But a cell that finds it may end otherwise than one that
does not, so that a process in which something is kept runs no other cell.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_CONTAINERS = (dict, list, set, bytearray)


class OwnModules:
    """The modules of a folder that are loaded, and Python's built-in names, as they were when they were taken."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        """That of the case; None where no Python of it was loaded."""
        self._owners: list[Any] = []
        self._then: list[Any] = []

    def take(self) -> None:
        """Take what the modules hold now. To be called while they can be found in ``sys.modules``."""
        if self.folder is None:
            return
        inside = f"{self.folder}{os.sep}"
        modules = [
            module
            for module in [*sys.modules.values()]
            if isinstance(module, ModuleType) and (getattr(module, "__file__", None) or "").startswith(inside)
        ]
        owners: list[Any] = [sys.modules["builtins"], *modules]
        for module in modules:
            owners += [
                value
                for value in vars(module).values()
                if isinstance(value, type) and value.__module__ == module.__name__
            ]
        self._owners = owners
        self._then = [_read_values(owner) for owner in owners]

    def changed(self) -> bool:
        """Return whether anything is kept that was not when the modules were taken."""
        now = [_read_values(owner) for owner in self._owners]
        return any(one.keys() != other.keys() or any(one[name] is not other[name] for name in one if name)
                   or one[""] != other[""] for one, other in zip(now, self._then, strict=True))  # fmt: skip


def _read_values(owner: Any) -> dict[str, Any]:
    """Return the values by name, and under an empty name how much those contain that are containers."""
    values = {name: value for name, value in vars(owner).items() if not name.startswith("__")}
    return {**values, "": [len(value) for value in values.values() if type(value) in _CONTAINERS]}
