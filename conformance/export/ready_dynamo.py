"""Imported by the server that workers are forked from: what the first export with dynamo of each would find out.

Torchlib's functions are listed and their signatures read, which takes longer than exporting a small module.
"""

import contextlib
import importlib
from typing import Any

from conformance.export import dynamo_cache

with contextlib.suppress(Exception):  # told by the first export that meets it
    if dynamo_cache.install() is None:
        registration: Any = importlib.import_module("torch.onnx._internal.exporter._registration")
        registration.ONNXRegistry.from_torchlib()
