"""Execution providers of ONNX Runtime that come as a library of their own, which a process registers once.

ONNX Runtime documentation, "Plugin Execution Provider Libraries": the package that brings one is a module with the
functions ``get_ep_name`` and ``get_library_path``.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.process.errors import Unavailable, attempt, summarize

_NAMED = re.compile(r"onnxruntime_(?:ep_\w+|qnn)")
"""The names of modules of such packages."""
_DEVICE = "ov_device"
"""The key by which OpenVINO's devices say what they are: here its CPU is what runs, as everywhere in this package."""


@functools.cache
def modules() -> tuple[str, ...]:
    """The names of the modules here that may bring a provider; none is imported."""
    folders = [Path(folder or ".") for folder in sys.path]
    found = (place for folder in folders if folder.is_dir() for place in folder.glob("onnxruntime_*/__init__.py"))
    return tuple(sorted({name for place in found if _NAMED.fullmatch(name := place.parent.name)}))


def module_of(provider: str) -> ModuleType | None:
    """Import the module that brings a provider; None where there is none. Raises Unavailable where it may be one that
    cannot be imported."""
    found = {name: attempt(functools.partial(importlib.import_module, name)) for name in modules()}
    for module in found.values():
        if not isinstance(module, Exception) and module.get_ep_name() == provider:
            return module
    for name, error in found.items():
        if isinstance(error, Exception):
            raise Unavailable(f"no {provider}, and {name}, which may bring it, raises {summarize(error)}")
    return None


@functools.cache
def devices(provider: str) -> list[Any]:
    """The devices that a provider in a library of its own offers, of which a session takes its providers; empty for
    any other, for one that is built in, and where its package is not installed.

    Raises Unavailable where its library cannot be registered, or knows no device.
    """
    import onnxruntime

    if provider in onnxruntime.get_available_providers():
        return []
    module = module_of(provider)
    if module is None:
        return []
    failed = attempt(lambda: _register(onnxruntime, module))
    if isinstance(failed, Exception):  # as where the library of the driver is missing
        raise Unavailable(f"the library of ONNX Runtime's {provider} cannot be registered: {summarize(failed)}")
    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
    found = [device for device in found if device.ep_metadata.get(_DEVICE, "CPU") == "CPU"]
    if not found:
        raise Unavailable(f"ONNX Runtime's {provider} knows no device on this host")
    return found


def _register(onnxruntime: ModuleType, module: ModuleType) -> None:
    onnxruntime.register_execution_provider_library(module.get_ep_name(), module.get_library_path())
