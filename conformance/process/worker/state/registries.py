"""The registries of PyTorch and of ONNX that decide what an export gives.

Whoever registers something while a cell runs would have the next cell in its process exported otherwise than in a
process of its own. What is registered while the case is loaded belongs to it. PyTorch and its exporters register
things of their own as parts of them are loaded, which is no change.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from conformance.process.worker.state.spaces import MISSING, Spaces

_FAMILY = frozenset(
    {"torch", "torchvision", "torchaudio", "functorch", "onnxscript", "onnx_ir", "onnx", "conformance", "functools"}
)
"""Packages whose own entries come when they are loaded. What was registered before, they do not replace."""
_SCRIPTED = "torch.onnx._internal.torchscript_exporter.registration"
_TORCHLIB = "onnxscript.function_libs.torch_lib.registration"
_IN_TORCH = "torch.onnx._internal.exporter._torchlib._torchlib_registry"
_HOOKS = "torch.nn.modules.module"

Tables = Iterable[tuple[str, Mapping[Any, object]]]


def _tables_in(label: str, registry: Mapping[Any, object], table_of: Callable[[Any], Mapping[Any, object]]) -> Tables:
    """Yield a registry, and the table of each of its entries."""
    yield label, registry
    for name, entry in [*registry.items()]:
        yield f"{label}: {name}", table_of(entry)


def _decompositions(decomp: ModuleType) -> Tables:
    for name, table in decomp.global_decomposition_table.items():
        yield f"decompositions, {name}", table


def _operators(ops: ModuleType) -> Tables:
    """The kernels in Python of operators that were used by now."""
    import torch

    for name, operator in [*ops._higher_order_ops.items()]:
        yield f"kernels: {name}", operator.py_kernels
        yield f"kernels: {name}", operator.python_key_table
    for space in [*vars(torch.ops).values()]:
        if isinstance(space, ops._OpNamespace):
            for packet in [*vars(space).values()]:
                if isinstance(packet, ops.OpOverloadPacket):
                    for overload in [*vars(packet).values()]:
                        if isinstance(overload, ops.OpOverload):
                            yield f"kernels: {overload}", overload.py_kernels


def _library(library: ModuleType) -> Tables:
    yield "torch.library", library.singleton._data
    for name, entry in [*library.singleton._data.items()]:
        for key, value in [*vars(entry).items()]:
            if hasattr(value, "__dict__"):
                yield f"torch.library: {name}, {key}", vars(value)


def _hooks(module: ModuleType) -> Tables:
    for name, value in [*vars(module).items()]:
        if name.startswith("_global") and isinstance(value, dict):
            yield f"torch.nn.Module, {name.removeprefix('_global_')}", value


_SET_BY_EXPORTS = frozenset(
    {"_export_onnx_opset_version", "_training_mode", "_in_onnx_export", "export_training", "operator_export_type",
     "_autograd_inlining"}
)  # fmt: skip


_TABLES: Mapping[str, Callable[[ModuleType], Tables]] = {
    _SCRIPTED: lambda scripted: _tables_in(
        "symbolics", scripted.registry._registry, lambda one: one._functions._merged
    ),
    _TORCHLIB: lambda torchlib: _tables_in("torchlib", torchlib.default_registry._registry, vars),
    "torch._decomp": _decompositions,
    "torch._ops": _operators,
    "torch._library.simple_registry": _library,
    "torch.utils._pytree": lambda pytree: [("pytree", pytree.SUPPORTED_NODES)],
    _HOOKS: _hooks,
    "torch.onnx._internal.torchscript_exporter._globals": lambda exporter: [
        ("torch.onnx, settings", vars(exporter.GLOBALS))
    ],
}
"""By the module that holds them, tables of entries that are compared by identity."""


_COUNTED: Mapping[str, tuple[str, Callable[[ModuleType], object]]] = {
    _IN_TORCH: ("torchlib in torch", lambda torchlib: len(torchlib._registry)),
    "torch.library": ("torch.library", lambda library: (len(library._impls), len(library._defs))),
    "onnx.defs": ("onnx.defs, domains", lambda defs: defs.C.schema_version_map()),
}
"""What has no such table, by its module: its name, and what differs after a new entry."""
_SCHEMAS = "onnx.defs, schemas"
_REGISTERING = {"register_schema": 1, "deregister_schema": -1}
"""The functions that change the number of schemas. Listing all takes milliseconds, so their calls are counted."""


class Registries:
    """The registries of this process as they were when it was looked at last."""

    def __init__(self) -> None:
        self._spaces = Spaces()
        self._loaded: set[str] = set()
        self._modules: frozenset[str] = frozenset()
        self._counts: dict[str, object] = {}
        self._schemas = _schemas
        self.watch()

    def watch(self) -> None:
        """Begin to watch what has been imported by now."""
        if len(sys.modules) == len(self._modules):
            return
        self._modules = frozenset(sys.modules)
        for name in _TABLES.keys() - self._loaded:
            if name in sys.modules:
                self._loaded.add(name)
                for label, table in _TABLES[name](sys.modules[name]):
                    self._spaces.add(label, table)
        self._counts = self._count_all()

    def accept(self) -> None:
        """Take everything as it is now."""
        for index in self._spaces.touched():
            self._spaces.take(index)
        self._schemas = _schemas
        self.watch()

    def changes(self) -> list[str]:
        """Return what was registered or replaced since the last look, by somebody else than PyTorch itself."""
        changed: dict[str, None] = {}
        new = () if len(sys.modules) == len(self._modules) else sys.modules.keys() - self._modules
        imported = any(name.partition(".")[0] in _FAMILY for name in new)
        for index in self._spaces.touched():
            table = self._spaces.names[index]
            for key, before, now in self._spaces.changes(index):
                own = before is MISSING and _of_family(now) and (not isinstance(key, type) or _of_family(key))
                if not own and key not in _SET_BY_EXPORTS:
                    name = getattr(key, "__qualname__", key)
                    changed[f"{table}: {name!s:.80}" if ": " not in table else table] = None
            self._spaces.take(index)
        counts = self._count_all()
        if not imported:
            changed |= {name: None for name, count in counts.items() if count != self._counts.get(name, count)}
        self._counts = counts
        if self._schemas != _schemas:
            self._schemas = _schemas
            changed[_SCHEMAS] = None
        return [*changed]

    def _count_all(self) -> dict[str, object]:
        return {label: count(sys.modules[name]) for name, (label, count) in _COUNTED.items() if name in sys.modules}


_schemas = 0
"""The number of ONNX schemas that were added since ``count_schemas``."""


def count_schemas() -> None:
    """Count the schemas that are added from now on; calling it again changes nothing.

    To be called before ``judging`` takes the functions of ONNX, of which two are replaced.
    """
    defs = importlib.import_module("onnx.defs")
    for owner in (defs, defs.C):
        for name, step in _REGISTERING.items():
            original = getattr(owner, name, None)
            if original is not None and not hasattr(original, "__wrapped__"):
                setattr(owner, name, _counting(original, step))


def _counting(original: Callable[..., object], step: int) -> Callable[..., object]:
    @functools.wraps(original)
    def counting(*arguments: object, **keywords: object) -> object:
        global _schemas
        result = original(*arguments, **keywords)
        _schemas += step
        return result

    return counting


@cache
def remember() -> Registries:
    """Return the registries of this process, taken at the first call."""
    return Registries()


def _of_family(value: object) -> bool:
    """Return whether a function or a class is one of the family, or an object of such a class.

    Of a group of symbolics its functions count.
    """
    if hasattr(value, "_functions"):
        return all(map(_of_family, value._functions._merged.values()))
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or module == "builtins":
        module = type(value).__module__
    return module.partition(".")[0] in _FAMILY
