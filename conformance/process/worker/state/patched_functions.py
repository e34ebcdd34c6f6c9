"""Functions of PyTorch that a cell puts in the place of others, while its case is loaded or as it runs."""

from __future__ import annotations

import sys
from functools import cache

from conformance.process.worker.state.judging import Watched, by_the_compiler, is_function
from conformance.process.worker.state.spaces import MISSING

_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "torch.onnx")
_CLASSES = (("torch", "Tensor"), ("torch.nn", "Module"))
_LAYERS = "torch.nn"
"""The module whose classes are watched for their ``forward`` and what else they define."""
_FOLLOWS = frozenset({"torch.Storage"})
"""What PyTorch sets with another setting, the default dtype."""


class Functions(Watched):
    """The functions of PyTorch in this process as they were when it was looked at last."""

    def __init__(self) -> None:
        super().__init__({"torch"}, _counts)
        self._pending = [*_MODULES, _LAYERS]
        self.extend()

    def extend(self) -> None:
        for name in [name for name in self._pending if sys.modules.get(name) is not None]:
            self._pending.remove(name)
            module = sys.modules[name]
            owners: dict[str, object] = {} if name == _LAYERS else {name: module}
            owners |= {f"{name}.{key}": getattr(module, key) for place, key in _CLASSES if place == name}
            if name == _LAYERS:
                layers = [value for value in vars(module).values() if isinstance(value, type)]
                owners |= {f"{name}.{layer.__name__}": layer for layer in layers}
            for place, owner in owners.items():
                self._add(place, owner)


@cache
def remember() -> Functions:
    """Return the functions of this process, taken at the first call."""
    return Functions()


def _counts(place: str, owner: object, name: str, before: object, now: object) -> bool:
    """Return whether a function is another one now. What was added is nothing in the place of another, but for a
    class that inherits the name."""
    if f"{place}.{name}" in _FOLLOWS:
        return False
    if before is MISSING:
        return isinstance(owner, type) and hasattr(super(owner, owner), name) and not name.startswith("__")
    return is_function(before) and not by_the_compiler(before, now)
