"""Functions of PyTorch that a cell puts in the place of others, while its case is loaded or as it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from conformance.process.errors import attempt
from conformance.process.worker.state.judging import Watched, by_the_compiler, is_function
from conformance.process.worker.state.spaces import MISSING

_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "torch.onnx")
_CLASSES = (("torch", "Tensor"), ("torch.nn", "Module"))
_LAYERS = "torch.nn"
"""The module whose classes are watched for their ``forward`` and what else they define."""
_FOLLOWS = frozenset({"torch.Storage"})
"""What PyTorch sets with another setting, the default dtype."""
_CONVERSIONS = (
    *(f"torch.Tensor.{name}" for name in ("numpy", "__array__", "tolist", "detach", "cpu", "clone", "contiguous")),
    *(f"torch.{name}" for name in ("from_numpy", "as_tensor", "tensor")),
)
"""The functions by which values go between PyTorch, exporters and NumPy, and stay what they are."""


class Functions(Watched):
    """The functions of PyTorch in this process as they were when it was looked at last."""

    def __init__(self) -> None:
        super().__init__({"torch"}, _counts)
        self._pending = [*_MODULES, _LAYERS]
        self._original: dict[str, Callable[..., Any]] = {}
        self._converting: set[str] = set()
        self.extend()

    def extend(self) -> None:
        for name in [name for name in self._pending if sys.modules.get(name) is not None]:
            self._pending.remove(name)
            module = sys.modules[name]
            if name == "torch":
                self._original = {full: _conversion(full) for full in _CONVERSIONS}
            owners: dict[str, object] = {} if name == _LAYERS else {name: module}
            owners |= {f"{name}.{key}": getattr(module, key) for place, key in _CLASSES if place == name}
            if name == _LAYERS:
                layers = [value for value in vars(module).values() if isinstance(value, type)]
                owners |= {f"{name}.{layer.__name__}": layer for layer in layers}
            for place, owner in owners.items():
                self._add(place, owner)

    def changes(self, *, put_back: bool) -> list[str]:
        """Note also which of the functions convert values to others."""
        now = {full: _conversion(full) for full in self._original}
        changed = super().changes(put_back=put_back)
        self._converting -= {*changed}
        self._converting |= {name for name in changed if name in now and self._converts(name, now[name])}
        return changed

    def converts_to_others(self, name: str) -> bool:
        """Return whether a function that was replaced does not keep the values that it is to convert."""
        return name in self._converting

    def _converts(self, name: str, function: Callable[..., Any]) -> bool:
        for tensor in self._samples():
            given = tensor if name.startswith("torch.Tensor.") else self._original["torch.Tensor.numpy"](tensor)
            wanted = self._read(self._original[name](given))
            if attempt(partial(lambda sample: self._read(function(sample)), given)) != wanted:
                return True
        return False

    def _samples(self) -> Iterator[Any]:
        torch: Any = sys.modules["torch"]
        rows = self._original["torch.tensor"]([[0.0, -1.5, 2.0], [1e-3, 300.25, -7.0]])
        yield from (rows, rows.to(torch.float64), rows.to(torch.int64), rows.to(torch.bool))

    def _read(self, value: Any) -> object:
        """Return what a value holds, however it is held."""
        if not isinstance(value, list) and hasattr(value, "detach"):
            value = self._original["torch.Tensor.numpy"](value)
        return value if isinstance(value, list) else (str(value.dtype), value.shape, value.tolist())


def _conversion(full: str) -> Callable[..., Any]:
    owner, _, name = full.rpartition(".")
    torch: Any = sys.modules["torch"]
    function: Callable[..., Any] = getattr(torch if owner == "torch" else torch.Tensor, name)
    return function


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
