"""List what Python calls that anybody may put there.

Finders of modules, hooks for errors, handlers of logs, functions at exit. Libraries add some as they are imported,
which is no change of a cell.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from conformance.process.worker import uses
from conformance.process.worker.state.setting import Setting, attribute, text


def settings() -> Iterator[Setting]:
    for module, names in ((sys, ("excepthook", "unraisablehook")), (threading, ("excepthook",))):
        for name in names:
            yield attribute(module, name)
    yield Setting("sys.meta_path", lambda: [*sys.meta_path], _put_back_finders, _others, _with_libraries)
    yield Setting("sys.path_hooks", lambda: [*sys.path_hooks], _put_back_path_hooks, _others, _with_libraries)
    yield Setting("logging.disable", lambda: logging.root.manager.disable, logging.disable)
    yield Setting("the root logger's level", lambda: logging.root.level, logging.root.setLevel)
    yield Setting(
        "the root logger's handlers", lambda: [*logging.root.handlers], _put_back_handlers, _others, _with_python
    )
    yield Setting("atexit.register", _at_exit, None, lambda value, _: f"{value[0]} functions", _with_imported)


# ---- lists -----------------------------------------------------------------------------------------------


def _others(value: list[object], other: list[object]) -> str:
    """Return the kinds of those that are not in the other list; of all where both have as many."""
    found = value if len(value) == len(other) else [entry for entry in value if entry not in other]
    return text(", ".join(getattr(entry, "__name__", type(entry).__name__) for entry in found), None)


def _with_libraries(before: list[object], now: list[object]) -> list[object]:
    """Return what was there with what installed packages have added, anywhere between."""
    kept = [entry for entry in now if entry in before or uses.is_of_a_library(entry)]
    return kept if [entry for entry in kept if entry in before] == before else before


def _put_back_finders(before: list[Any]) -> None:
    sys.meta_path[:] = before


def _put_back_path_hooks(before: list[Any]) -> None:
    sys.path_hooks[:] = before
    sys.path_importer_cache.clear()  # it holds finders that the hooks made


def _put_back_handlers(before: list[logging.Handler]) -> None:
    logging.root.handlers[:] = before


def _with_python(before: list[object], now: list[object]) -> list[object]:
    """``logging.warning`` gives the root logger a handler where that has none."""
    return now if not before and [type(entry) for entry in now] == [logging.StreamHandler] else before


# ---- functions at exit -----------------------------------------------------------------------------------


_ever_loaded: set[str] = set()
"""The names of modules. Those of a case are taken out of ``sys.modules`` as it ends, which is no import."""


def _at_exit() -> tuple[int, int]:
    """Return how many functions are registered, without that of ``weakref``, which comes with the first finalizer;
    and how many modules were loaded by now."""
    finalizers: Any = weakref.finalize
    _ever_loaded.update(sys.modules)
    return atexit._ncallbacks() - finalizers._registered_with_atexit, len(_ever_loaded)


def _with_imported(before: tuple[int, int], now: tuple[int, int]) -> tuple[int, int]:
    """Take over what was registered while modules were imported: nobody can say whose it is."""
    return now if now[1] != before[1] or now[0] <= before[0] else before
