"""Accuracy conformance from PyTorch to deployment; ``docs/architecture.md`` is the map of this package."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

HOME = Path(__file__).parent
"""The folder of this package."""


def __getattr__(name: str) -> Any:
    """``check``, without which importing this package imports nothing."""
    if name == "check":
        importlib.import_module("conformance.process.worker.reserved").unhide()
        return importlib.import_module("conformance.front.api").check
    raise AttributeError(f"module 'conformance' has no attribute {name!r}")
