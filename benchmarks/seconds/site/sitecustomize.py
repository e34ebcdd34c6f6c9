"""Python imports this at its start where this folder is on its path: the process then notes where its time goes.

Each note is one line, ``KIND SECONDS``, appended to the file that the environment names. Workers end without a word
of farewell, so nothing may wait for the end of a process.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
import time
from collections.abc import Callable
from typing import Any

_notes = os.open(os.environ["CONFORMANCE_SECONDS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_WATCHED = {
    "torch.onnx": ("export", "exports"),
    "onnxruntime.capi.onnxruntime_inference_collection": ("InferenceSession", "sessions"),
}
"""Modules, a function or class of each, and the kind under which its seconds are noted."""
_IMPORTS = {"torch", "onnx", "onnxruntime"}
"""Modules whose first import is noted as starting a process. Processes that are forked do not import them again."""


def _note(kind: str, seconds: float) -> None:
    os.write(_notes, f"{kind} {seconds:.6f}\n".encode())


def _timed(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            _note(kind, time.perf_counter() - start)

    return timed


class _Loader(importlib.abc.Loader):
    """Load as the module's own loader does, then note the seconds or put a timed function in place."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        start = time.perf_counter()
        self._loader.exec_module(module)
        name = module.__name__
        if name in _IMPORTS:
            _note("starts", time.perf_counter() - start)
        if name in _WATCHED:
            attribute, kind = _WATCHED[name]
            found = getattr(module, attribute)
            if isinstance(found, type):
                found.__init__ = _timed(kind, found.__init__)  # type: ignore[misc]  # what a profiler does
            else:
                setattr(module, attribute, _timed(kind, found))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # get_resource_reader and the like


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _WATCHED and name not in _IMPORTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
