"""Running cells somewhere that may die: a crash, a hang or a memory flood becomes the record of its cell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from conformance.errors import Stopped
from conformance.expect import agrees, settle
from conformance.isolation import Death, Worker
from conformance.plan import Cell, expected
from conformance.record import Record
from conformance.settings import Settings

OnWait = Callable[[dict[str, Any]], object]


class Runner:
    """A context manager that turns cells into records, in a worker process or (for a debugger) in this one."""

    def __init__(self, settings: Settings, timeout: float, *, isolated: bool = True) -> None:
        """``timeout`` is in seconds a cell; it cannot be kept without isolation."""
        self._settings = settings
        self._timeout = timeout
        self._worker = Worker(initializer=prepare_process) if isolated else None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Runner:
        if self._worker is not None:
            self._stack.enter_context(self._worker)
        else:
            prepare_process()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, cell: Cell, on_wait: OnWait | None = None) -> Record:
        """The record of one cell; raises nothing for what the cell did."""
        if self._worker is None:
            from conformance.cell import run_cell
            from conformance.progress import Progress

            return run_cell(Progress(), cell, self._settings)
        answer = self._worker.call(_run, cell, self._settings, timeout=self._timeout, on_wait=on_wait)
        return died(cell, answer) if isinstance(answer, Death) else answer


def _run(progress: Any, cell: Cell, settings: Settings) -> Record:
    # Imported in the worker, so that the process of the tests never imports torch.
    from conformance.cell import run_cell

    return run_cell(progress, cell, settings)


def prepare_process() -> None:
    """One thread for torch: results and timings then do not depend on how many cells run beside this one.

    What has been imported stays for good, so the garbage collector need not look through it: a full pass
    takes a quarter of a second, and hits an export every now and then.
    """
    import gc

    import torch

    gc.collect()
    gc.freeze()
    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):  # can be set only once, and only before any work
        torch.set_num_interop_threads(1)


_FAULTS = {"declare": "case", "export": "exporter", "check": "exporter", "load": "runtime", "run": "runtime"}


def died(cell: Cell, death: Death) -> Record:
    """The record of a cell whose worker ended instead of answering."""
    record = cell.record()
    stage = str(death.last.get("stage", "declare"))
    record.signal = death.how
    record.draw = death.last.get("draw")
    record.examples = int(death.last.get("examples", 0))
    kind = "Timeout" if death.how.startswith("timeout") else death.how
    stop = Stopped(stage, kind, f"the process ended at stage {stage}: {death.how}", _FAULTS.get(stage, "harness"))
    record.status, record.stage, record.error = "failed", stop.stage, stop.error
    record.reason, record.fault = stop.reason, stop.fault
    record.details, in_the_case = _where(cell, death.output)
    if in_the_case:
        # A native operator that crashes in eager PyTorch shows the line of the case that called it.
        record.fault = "reference" if record.draw is not None and kind != "Timeout" else "case"
    if kind == "Timeout" and stage == "run":
        record.details.append("too slow? say examples: or smaller dims, or leave the runtime out with runtimes:")
    return _settle_draw(cell, record) or settle(cell, record)


def _where(cell: Cell, output: str) -> tuple[list[str], bool]:
    """What the process wrote before it ended and where it was, and whether that is in the case's own Python."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    stack = [line for line in lines if line.startswith("File ")]
    own = [line for line in stack if str(cell.case.folder.resolve()) in line]
    frame = ("File ", "Fatal ", "Current ", "Thread ", "Extension ", "Process ")
    said = [line for line in lines if not line.startswith(frame)]
    return [*said[-4:], *(own or stack)[:4]], bool(own)


def _settle_draw(cell: Cell, record: Record) -> Record | None:
    """A crash at a draw that is declared to crash; such draws run last, so the others have passed."""
    from conformance.inputs import Draw, about

    if record.draw is None:
        return None
    draw = Draw(**record.draw)
    for entry in expected(cell):
        if (
            entry.when.only_some_draws
            and about(entry.when, draw)
            and agrees(entry, record.stage, record.error, record.reason)
        ):
            record.status = "xfailed"
            record.details.insert(0, f"found: {record.reason}")
            record.reason, record.fault = entry.because, entry.fault or record.fault
            return record
    return None
