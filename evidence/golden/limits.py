"""Notes which searches of an explanation ran out of time.

A search that its time limit ends gives what it has so far, which depends on how busy the host is. Some say so in the
record; the others are watched here, in the worker that runs a row.
"""

from __future__ import annotations

import functools
import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.case.plan.settings import Settings
from conformance.process.worker import aside
from conformance.process.worker.isolation import Worker

NOTES = "CONFORMANCE_GOLDEN_NOTES"
"""The variable that names the file of the notes."""
LIMITS = {
    "conformance.diagnose.operators.rewrites": ("SECONDS",),
    "conformance.diagnose.explain_failure": ("SHRINK_SECONDS",),
    "conformance.diagnose.locate": ("SECONDS",),
    "conformance.diagnose.smallest.model_trial": ("ONE",),
    "conformance.judge.remedy": ("SECONDS",),
    "conformance.diagnose.smallest.smallest": ("SECONDS", "ONE"),
    "conformance.diagnose.smallest.smallest_function": ("ONE", "SCRIPT"),
    "conformance.diagnose.nodes.other_runtime": ("SECONDS",),
    "conformance.diagnose.nodes.blame": ("WALK_SECONDS",),
}
"""By module: the seconds of its searches and questions."""
TIMES = 4.0
"""Limits are raised by this factor: the values are for a user who waits, and a busy host would reach them."""
CELL = 600.0
"""Seconds for a cell."""


def patient(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a cell with more time for its smallest model or function."""
    return {**settings, "smallest_seconds": Settings.smallest_seconds * TIMES}


def watched_worker() -> Worker:
    """Return a worker whose searches are watched. ``NOTES`` has to be set when it is entered."""
    preload = ["conformance.process.worker.preload", "conformance.process.worker.preload_dynamo"]
    return Worker(preload, initializer=_prepare)


def _prepare() -> None:
    from conformance.diagnose import explain_failure
    from conformance.process.worker.warm import prepare_process

    prepare_process()
    for name, limits in LIMITS.items():
        module = importlib.import_module(name)
        for limit in limits:
            setattr(module, limit, getattr(module, limit) * TIMES)
    # no function is wrapped that asks: its frame would be looked at where the line of an operator is searched
    aside.Lost = Lost  # type: ignore[assignment, misc]
    smallest = explain_failure.smallest_example
    explain_failure.smallest_example = _noting_slow(smallest, explain_failure.SHRINK_SECONDS)


class Lost(aside.Lost):
    """A question without an answer, which is noted where its time ran out."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        if how.startswith("timeout"):
            _note(f"a question: {how}")


def _noting_slow(search: Callable[..., Any], limit: float) -> Callable[..., Any]:
    @functools.wraps(search)
    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.monotonic()
        answer = search(*arguments, **options)
        if time.monotonic() - start >= limit:
            _note("the smallest example")
        return answer

    return timed


def _note(what: str) -> None:
    with Path(os.environ[NOTES]).open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


def out_of_time(record: Mapping[str, Any], notes: Path, *, hangs: bool) -> list[str]:
    """Return what ran out of time while a record was made; a defect that ``hangs`` ends at its time limit."""
    noted = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    return list(dict.fromkeys([*_told(record, hangs), *noted]))


def _told(record: Mapping[str, Any], hangs: bool) -> Iterator[str]:
    cut = any("ended before it was done: timeout" in line for line in record["output"])
    if (record["error"] == "Timeout" or cut) and not hangs:
        yield "the cell"
    if (record["optimizer"] or {}).get("unfinished"):
        yield "the passes of the optimizer"
    smallest = record["smallest"] or {}
    why = str(smallest.get("why_not", ""))
    if smallest.get("unfinished") or why == "time" or "it took longer than" in why:
        yield "the smallest model or function"
