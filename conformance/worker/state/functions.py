"""Functions that a cell puts in the place of others: of PyTorch, of what compares, or of Python itself.

Looking each name up would take too long after every cell. The values of a namespace in their order are compared with
those of before, by identity; only where they differ is each name looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from types import ModuleType
from typing import Any

PYTORCH = "torch"
_MODULES = (
    "torch", "torch.nn.functional", "torch.linalg", "torch.special",
    "numpy", "numpy.linalg", "numpy.random",
    "onnx", "onnx.checker", "onnx.helper", "onnx.numpy_helper", "onnx.shape_inference", "onnxruntime",
    "builtins", "math", "random", "time",
)  # fmt: skip
_CLASSES = (
    ("torch", "Tensor"), ("torch.nn", "Module"),
    ("onnxruntime.capi.onnxruntime_inference_collection", "Session"),
    ("onnxruntime.capi.onnxruntime_inference_collection", "InferenceSession"),
)  # fmt: skip
_LAYERS = "torch.nn"
"""The module whose classes are watched for their ``forward``."""
OWN = (
    "conformance.compare.detections", "conformance.compare.indices", "conformance.compare.judges",
    "conformance.compare.noise", "conformance.compare.reading", "conformance.compare.rows",
    "conformance.compare.tolerance", "conformance.compare.vacuity",
    "conformance.runtimes", "conformance.runtimes.onnxruntime",
)  # fmt: skip
"""What runs models and compares; the classes defined there are watched too."""
_FOLLOWS = frozenset({"torch.Storage"})
"""What PyTorch sets with another setting, the default dtype."""
MISSING = object()


@dataclass
class _Names:
    """The content of a module or class, as it was."""

    name: str
    owner: Any
    space: Mapping[str, Any] = field(init=False)
    values: list[Any] = field(init=False)
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.space = vars(self.owner)
        self.take()

    def take(self) -> None:
        self.names, self.values = list(self.space), list(self.space.values())

    def replaced(self) -> Iterator[tuple[str, Any]]:
        """The functions and classes that are others now, or gone, with what they were.

        What was added is nothing in the place of another, but for a class that inherits the name.
        """
        try:
            if self.values == list(self.space.values()):
                return
        except Exception:  # a value that is another one now, and cannot be compared
            pass
        for name, before in zip(self.names, self.values, strict=True):
            now = self.space.get(name, MISSING)
            if now is before or not _is_function(before) or _by_the_compiler(before, now):
                continue
            if f"{self.name}.{name}" not in _FOLLOWS:
                yield name, before
        if isinstance(self.owner, type):
            for name in self.space.keys() - set(self.names):
                if hasattr(super(self.owner, self.owner), name):
                    yield name, MISSING
        self.take()

    def put_back(self, name: str, before: Any) -> None:
        if before is MISSING:
            delattr(self.owner, name)
        else:
            setattr(self.owner, name, before)
        self.take()


class Functions:
    """The functions of this process as they were when it was looked at last."""

    def __init__(self) -> None:
        self._watched: list[_Names] = []
        self._layers: list[type] = []
        self._forwards: list[Any] = []
        self._pending: list[tuple[str, str | None]] = [*((name, None) for name in (*_MODULES, *OWN)), *_CLASSES]
        self.watch()

    def watch(self) -> None:
        """Begins to watch what has been imported by now."""
        loaded = [entry for entry in self._pending if entry[0] in sys.modules]
        for entry in loaded:
            self._pending.remove(entry)
            self._watched += _spaces(*entry)
        if not self._layers and _LAYERS in sys.modules:
            layers = vars(sys.modules[_LAYERS]).values()
            self._layers = [layer for layer in layers if isinstance(layer, type) and "forward" in vars(layer)]
            self._forwards = [layer.forward for layer in self._layers]  # type: ignore[attr-defined]

    def changes(self, *, put_back: bool) -> list[str]:
        """The full names of the functions that were replaced since the last look."""
        changed = []
        for names in self._watched:
            for name, before in list(names.replaced()):
                changed.append(f"{names.name}.{name}")
                if put_back:
                    names.put_back(name, before)
        if self._forwards != [layer.forward for layer in self._layers]:  # type: ignore[attr-defined]
            for index, layer in enumerate(self._layers):
                now = getattr(layer, "forward", None)
                if now != self._forwards[index]:
                    changed.append(f"torch.nn.{layer.__name__}.forward")
                    if put_back:
                        layer.forward = self._forwards[index]  # type: ignore[attr-defined]
                    else:
                        self._forwards[index] = now
        return changed


def _spaces(name: str, of_class: str | None) -> Iterator[_Names]:
    module = sys.modules[name]
    if of_class is not None:
        yield _Names(f"{name}.{of_class}", getattr(module, of_class))
        return
    yield _Names(name, module)
    if name in OWN:
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == name:
                yield _Names(f"{name}.{value.__name__}", value)


def _is_function(value: Any) -> bool:
    return (callable(value) or isinstance(value, (staticmethod, classmethod, property))) and not isinstance(
        value, ModuleType
    )


def _by_the_compiler(before: Any, now: Any) -> bool:
    """Whether PyTorch's compiler put the function there: its own, to watch modules change, or the same one, which it
    is to stay out of. What ``torch.compile`` makes of a function was put there by the case."""
    file = PurePath(getattr(getattr(now, "__code__", None), "co_filename", ""))
    if file.parts[-2:] == ("torch", "_compile.py"):
        return getattr(now, "__wrapped__", None) is before
    return file.parts[-3:-1] == ("torch", "_dynamo") and file.name != "eval_frame.py"


def is_of_the_judges(name: str) -> bool:
    """Whether the comparison itself rests on a function. It does not on those of PyTorch: where a library replaces
    some, they are part of what is exported."""
    return name.split(".", 1)[0] != PYTORCH
