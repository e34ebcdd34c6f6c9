"""Functions of PyTorch that a cell puts in the place of others, while its case is loaded or as it runs."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from conformance.worker.state.bodies import Bodies
from conformance.worker.state.judging import by_the_compiler, came_late, is_function
from conformance.worker.state.spaces import MISSING, Spaces

_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "torch.onnx")
_CLASSES = (("torch", "Tensor"), ("torch.nn", "Module"))
_LAYERS = "torch.nn"
"""The module whose classes are watched for their ``forward`` and what else they define."""
_FOLLOWS = frozenset({"torch.Storage"})
"""What PyTorch sets with another setting, the default dtype."""


class Functions:
    """The functions of PyTorch in this process as they were when it was looked at last."""

    def __init__(self) -> None:
        self._spaces = Spaces()
        self._bodies = Bodies({"torch"})
        self._owners: list[Any] = []
        self._pending = [*_MODULES, _LAYERS]
        self.added = False
        """Whether anything was added, as in ``judging``."""
        self.watch()

    def watch(self) -> None:
        """Begins to watch what has been imported by now."""
        for name in [name for name in self._pending if sys.modules.get(name) is not None]:
            self._pending.remove(name)
            module = sys.modules[name]
            owners: dict[str, Any] = {} if name == _LAYERS else {name: module}
            owners |= {f"{name}.{key}": getattr(module, key) for place, key in _CLASSES if place == name}
            if name == _LAYERS:
                layers = [value for value in vars(module).values() if isinstance(value, type)]
                owners |= {f"{name}.{layer.__name__}": layer for layer in layers}
            for place, owner in owners.items():
                count = len(self._spaces)
                self._spaces.add(place, vars(owner))
                if len(self._spaces) > count:
                    self._owners.append(owner)

    def accept(self) -> None:
        """Take everything as it is now."""
        for index in self._spaces.touched():
            self._spaces.take(index)
        self.added = False
        self.watch()
        self._bodies.take()

    def changes(self, *, put_back: bool) -> list[str]:
        """The full names of the functions that were replaced since the last look."""
        changed = []
        for index in self._spaces.touched():
            place, owner = self._spaces.names[index], self._owners[index]
            for name, before, now in self._spaces.changes(index):
                if not _counts(owner, name, before, now) or f"{place}.{name}" in _FOLLOWS:
                    self.added |= before is MISSING and not came_late(place, name, now)
                    continue
                changed.append(f"{place}.{name}")
                if put_back and before is MISSING:
                    delattr(owner, name)
                elif put_back:
                    setattr(owner, name, before)
            self._spaces.take(index)
        return changed + self._bodies.changes(put_back=put_back)


@cache
def remember() -> Functions:
    """Return the functions of this process, taken at the first call."""
    return Functions()


def _counts(owner: Any, name: str, before: Any, now: Any) -> bool:
    """Return whether a function is another one now. What was added is nothing in the place of another, but for a
    class that inherits the name."""
    if before is MISSING:
        return isinstance(owner, type) and hasattr(super(owner, owner), name) and not name.startswith("__")
    return is_function(before) and not by_the_compiler(before, now)
