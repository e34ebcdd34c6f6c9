"""Names of modules that a user's own file must not take from Python, from PyTorch and from this suite."""

from __future__ import annotations

import sys
from pathlib import Path

_NEEDED = frozenset(
    {"conformance", "hypothesis", "ml_dtypes", "numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "torch"}
)


def is_reserved(name: str) -> bool:
    """Return whether a module of that name is Python's own, or one that runs the cells."""
    return name in sys.stdlib_module_names or is_needed(name)


def is_needed(name: str) -> bool:
    """Return whether a module of that name, which is not Python's, runs the cells."""
    return name in _NEEDED


def names_of(folder: Path) -> list[str]:
    """Return the modules and packages that lie in a folder."""
    packages = (file.parent.name for file in folder.glob("*/__init__.py"))
    return [*(file.stem for file in folder.glob("*.py")), *packages]
