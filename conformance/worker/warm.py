"""What a worker process has imported and set before its first cell. Imports nothing of that itself."""

from __future__ import annotations

import contextlib

from conformance.worker.isolation import Worker

MODULES = ("torch", "onnxruntime", "hypothesis", "conformance.checks.run_cell")
"""What ``preload`` imports, once for all workers."""


def prepare_process() -> None:
    """One thread for torch: results and timings then do not depend on how many cells run beside this one."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):  # can be set only once, and only before any work
        torch.set_num_interop_threads(1)


def new_worker() -> Worker:
    """A worker process for cells; it begins to import as it is entered."""
    return Worker(["conformance.worker.preload"], initializer=prepare_process)
