"""What a worker process has imported and set before its first cell. This module itself imports none of it."""

from __future__ import annotations

import contextlib

from conformance.worker.isolation import Worker

MODULES = ("torch", "onnxruntime", "hypothesis", "conformance.checks.run_cell")
"""What ``preload`` imports, once for all workers."""


def prepare_process() -> None:
    """Gives torch one thread: results and timings then do not depend on how many cells run at the same time."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):  # can be set only once, and only before any work
        torch.set_num_interop_threads(1)


def new_worker(memory_gib: float | None = None) -> Worker:
    """A worker process for cells; on entry to its context the imports of ``MODULES`` begin."""
    return Worker(["conformance.worker.preload"], memory_gib, prepare_process)
