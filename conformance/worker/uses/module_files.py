"""The files that paths and modules stand for."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

_getcwd = os.getcwd


def absolute(path: Any) -> str:
    """Return a path as an absolute one, without asking for the working directory as code of a case does."""
    name = os.fsdecode(path)
    if not name.startswith(os.sep):
        name = os.path.join(_getcwd(), name)  # noqa: PTH118
    return os.path.normpath(name)


def source_of(file: str) -> str:
    """Return the source that a compiled file is made of, where it is there; any other file as it is."""
    if not file.endswith(".pyc"):
        return file
    try:
        source = importlib.util.source_from_cache(file)
    except (ValueError, NotImplementedError):
        return file
    return source if os.path.isfile(source) else file  # noqa: PTH113


def file_of(name: str) -> str | None:
    """Return the source of a module that is loaded; None for any other, and for one without a file."""
    return file_of_module(sys.modules.get(name))


def file_of_module(module: Any) -> str | None:
    """Return the source of a module, from what it says of itself; its properties, which may import, are not asked."""
    said = getattr(module, "__dict__", None)
    file = said.get("__file__") if isinstance(said, dict) else None
    return source_of(file) if isinstance(file, str) else None
