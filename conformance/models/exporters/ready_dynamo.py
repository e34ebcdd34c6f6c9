"""Imported by the server that workers are forked from: what the first export with dynamo of each would find out.

Torchlib's functions are listed and their signatures read, which takes longer than exporting a small module.
"""

import importlib
from typing import Any

from conformance.models.exporters import dynamo_cache
from conformance.process.errors import attempt


def _prepare() -> None:
    if dynamo_cache.install() is None:
        registration: Any = importlib.import_module("torch.onnx._internal.exporter._registration")
        registration.ONNXRegistry.from_torchlib()


attempt(_prepare)  # what it raises comes again at the first export
