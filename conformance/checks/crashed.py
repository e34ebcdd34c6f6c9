"""The call at which an export ends its process."""

from __future__ import annotations

import contextlib
import json
import mmap
from typing import Any

from conformance.align.operators.captured_program import Operator, Unable
from conformance.align.operators.first_operator import of_operator
from conformance.align.operators.refused_operator import stopped_export
from conformance.checks.models import CellRun
from conformance.checks.refused import SECONDS, placed
from conformance.plan.cell import Cell
from conformance.plan.settings import Settings
from conformance.worker import aside

SHARED = 2**16
"""Bytes in which what is known of a call has to fit."""


def crashed_export(progress: object, cell: Cell, settings: Settings) -> dict[str, Any] | None:
    """In a worker: the call at which an export ends its process, as fields of ``Record.operator``; None where another
    export does not, or at none.

    Each call is written into memory that the two processes share before it is translated, so that the last one is
    there when the process is not.
    """
    with mmap.mmap(-1, SHARED) as shared, CellRun.opened(cell, settings) as run:

        def begun(operator: Operator) -> None:
            data = json.dumps(placed(run, of_operator(operator))).encode()
            shared[:] = (data if len(data) <= SHARED else b"").ljust(SHARED)

        def question() -> None:
            run.set_apart()
            stopped_export(cell.exporter, run.export, begun)

        with contextlib.suppress(Unable):
            try:
                aside.ask(question, SECONDS)
            except aside.Lost:
                data = shared[:].strip(b"\0 ")
                return {**json.loads(data), "stage": "translation", "how": "crashes"} if data else None
    return None
