"""Execution providers of ONNX Runtime that come as a library of their own, which a process registers once.

ONNX Runtime documentation, "Plugin Execution Provider Libraries". Built-in providers need nothing of this.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType
from typing import Any

from conformance.process.errors import Unavailable, attempt, summarize

MODULES = {"NvTensorRTRTXExecutionProvider": "onnxruntime_ep_nv_tensorrt_rtx"}
"""By provider the module that has ``get_ep_name`` and ``get_library_path``."""


@functools.cache
def devices(provider: str) -> list[Any]:
    """The devices that a provider of ``MODULES`` offers, of which a session takes its providers; empty for any other,
    for one that is built in, and where its module is not installed.

    Raises Unavailable where its library cannot be registered, or knows no device.
    """
    import onnxruntime

    name = MODULES.get(provider)
    if name is None or provider in onnxruntime.get_available_providers() or importlib.util.find_spec(name) is None:
        return []
    failed = attempt(lambda: _register(onnxruntime, importlib.import_module(name)))
    if isinstance(failed, Exception):  # as where the library of the driver is missing
        raise Unavailable(f"the library of ONNX Runtime's {provider} cannot be registered: {summarize(failed)}")
    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
    if not found:
        raise Unavailable(f"ONNX Runtime's {provider} knows no device on this host")
    return found


def _register(onnxruntime: ModuleType, module: ModuleType) -> None:
    onnxruntime.register_execution_provider_library(module.get_ep_name(), module.get_library_path())
