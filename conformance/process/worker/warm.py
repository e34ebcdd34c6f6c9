"""Import and set what a worker process needs before its first cell.

This module itself imports none of it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from conformance.process.errors import attempt, or_else
from conformance.process.worker import uses
from conformance.process.worker.isolation import Worker

MODULES = (
    "torch", "onnx", "torch.onnx", "conformance.runtimes.telemetry", "onnxruntime", "hypothesis",
    "conformance.models.reference.module_reference", "conformance.cells.preload_checks",
)  # fmt: skip
"""What ``preload`` imports, once for all workers."""
FOR_FILES = (
    "onnx", "onnx.reference", "conformance.runtimes.telemetry", "onnxruntime", "hypothesis",
    "conformance.cells.run_cell",
)  # fmt: skip
"""What ``preload_files`` imports: all that cells of ONNX files need."""
FOR_DYNAMO = (
    "torch._dynamo", "torch.export._trace", "torch.onnx._internal.exporter._compat",
    "torch._export.passes.replace_with_hop_pass_util", "torch._export.passes._node_metadata_hook",
    "torch._inductor.sizevars", "sympy.tensor.tensor", "onnxscript.function_libs.torch_lib.ops",
    "conformance.models.exporters.ready_dynamo",
)  # fmt: skip
"""What ``preload_dynamo`` imports. It takes longer than importing torch, and PyTorch itself leaves it to the first
export with dynamo: worth it where processes that export so are replaced again and again."""


def prepare_process() -> None:
    """Give torch one thread, so that results and timings do not depend on how many cells run at the same time, and
    tqdm's progress bars a lock for threads.

    An export with dynamo draws such bars where tqdm is installed. tqdm's own lock serves several processes and starts
    a resource tracker for that; a worker that a call leaves with a process below it is replaced, and the next export
    would import dynamo anew.
    """
    torch = or_else(None, lambda: importlib.import_module("torch"))  # a cell that needs it says what is wrong
    prepare_for_files()
    if torch is None:
        return
    bars: Any = getattr(torch.hub, "tqdm", None)  # or what PyTorch has in place of tqdm's class, which has no lock
    if hasattr(bars, "set_lock"):
        bars.set_lock(threading.RLock())
    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):  # can be set only once, and only before any work
        torch.set_num_interop_threads(1)


def prepare_for_files() -> None:
    """Prepare a process for cells of ONNX files, which need no torch: importing it takes most of a short check."""
    importlib.import_module("conformance.runtimes.telemetry")
    uses.begin()
    uses.watch_libraries()


def prepare_worker() -> None:
    """Prepare a worker for cells of modules."""
    _catch_up(MODULES)
    prepare_process()


def prepare_file_worker() -> None:
    """Prepare a worker for cells of ONNX files."""
    _catch_up(FOR_FILES)
    prepare_for_files()


def _catch_up(modules: Sequence[str]) -> None:
    """Import what the server has not: it was begun for other work, as where a program checks a file, then a module.

    Else it would be imported in the midst of the first cell, and of what is registered while modules are imported
    nobody can say whether the cell did that.
    """
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        import_once(missing)
        uses.settle()
        uses.watch_libraries()


def one_thread() -> None:
    """Have PyTorch, where this process has imported it, compute on one thread: a fork has no others."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def new_file_worker(memory_gib: float | None = None) -> Worker:
    """A worker process for cells of ONNX files; on entry to its context the imports of ``FOR_FILES`` begin."""
    return Worker(["conformance.process.worker.preload_files"], memory_gib, prepare_file_worker)


def new_worker(memory_gib: float | None = None, *, dynamo: bool = False) -> Worker:
    """A worker process for cells; on entry to its context the imports of ``MODULES`` begin, and with ``dynamo`` those
    of ``FOR_DYNAMO``."""
    preload = [
        "conformance.process.worker.preload",
        *(["conformance.process.worker.preload_dynamo"] if dynamo else []),
    ]
    return Worker(preload, memory_gib, prepare_worker)


def import_once(modules: Sequence[str]) -> None:
    """Import modules in the server that worker processes are forked from.

    The objects that these imports make stay to the end. With the garbage collector off, which would look through them
    again and again, the imports take a quarter less time; frozen, the objects do not count in the workers'
    collections either, each of which would take a tenth of a second in the midst of an export.
    """
    gc.disable()
    for name in modules:
        attempt(partial(importlib.import_module, name))  # what it raises is told by the first cell that needs it
    gc.freeze()
    gc.enable()
