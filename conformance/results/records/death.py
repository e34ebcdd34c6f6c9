"""The record of a cell whose worker ended instead of answering; in the suite and in a replay alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from conformance import HOME
from conformance.process.errors import Stopped, calls_runtimes, display_path, limit_of_shell
from conformance.process.worker.isolation import Death
from conformance.results.records.explanation import Shows, fail, note, note_details
from conformance.results.records.record import Record
from conformance.results.records.record_types import Place

_FAULTS = {
    "declare": "case", "export": "exporter", "check": "exporter", "convert": "precision", "load": "runtime",
    "run": "runtime",
}  # fmt: skip
_SENT = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT")
"""Signals that come from elsewhere: from a supervisor, or from the kernel for want of memory."""
_NO_CRASH = ("Timeout", "OutOfMemory")
ENDED = "the process ended at stage"
"""The beginning of the reason of a cell whose process ended."""
_UNEXPLAINED = "looking for the smallest example and for who is at fault ended before it was done"
_FRAME = ("File ", "Fatal ", "Current ", "Thread ", "Extension ", "Process ")
"""How the lines begin that ``faulthandler`` and multiprocessing write of a process that ends."""


def note_death(record: Record, death: Death, case: Path | None = None) -> None:
    """Write into the record how the process ended, and where it was. ``case`` is the folder with the case's own
    Python, where there is one."""
    if isinstance(failed := death.last.get("failed"), dict):
        record.draw, record.examples = failed["draw"], int(death.last.get("examples", 0))
        fail(record, Stopped(failed["stage"], failed["error"], failed["reason"], failed["fault"]))
        record.output = [f"{_UNEXPLAINED}: {death.how}"]
        return
    stage = str(death.last.get("stage", "load" if case is None else "declare"))
    record.signal, record.draw = death.how, death.last.get("draw")
    record.examples = int(death.last.get("examples", 0))
    text = f"{ENDED} {stage}: {death.how}"
    # Who sent a signal that no process sends itself by mistake is not known.
    fault = None if death.error in _SENT else _FAULTS.get(stage, "harness")
    fail(record, Stopped(stage, death.error, text, fault))
    lines = [line.strip() for line in death.output.splitlines() if line.strip()]
    stack = [line for line in lines if line.startswith("File ")]
    own = [] if case is None else [line for line in stack if str(case.resolve()) in line]
    said = [line for line in lines if not line.startswith(_FRAME)]
    # Only the innermost frames, which come first, tell anything.
    record.output = [*said[-4:], *(own or stack)[:4]]
    limit = None if death.error in (*_NO_CRASH, *_SENT) else limit_of_shell()
    if limit is not None:  # libraries end a process that gets no memory in ways of their own
        record.error, record.reason = "OutOfMemory", f"{limit} ({text})"
        note_details(record, {"hints": ["memory"]})
        note(record, Shows("no memory"))
        return
    if death.error not in (*_NO_CRASH, *_SENT) and _in_the_harness(lines):
        note(record, Shows("harness"))
        note_details(record, {"hints": ["report"]})
    elif own:
        record.place = _place(own[0])
        # A native operator that crashes in eager PyTorch shows the line of the case that called it.
        crashed = death.error not in _NO_CRASH
        note(record, Shows("PyTorch" if record.draw is not None and crashed else "case"))
    if death.error == "Timeout" and stage == "run" and case is not None:
        note_details(record, {"hints": ["slow"]})


def crashed(record: Record) -> bool:
    """Return whether the process of a cell ended by a fault of its own."""
    return record.signal is not None and record.error not in (*_NO_CRASH, *_SENT)


def _in_the_harness(lines: Sequence[str]) -> bool:
    """Return whether the innermost frame of Python, at which a process crashed, is of this package; calls of a
    runtime's own code have no frame of their own."""
    start = next((number for number, line in enumerate(lines) if line.startswith("Current thread")), 0)
    innermost = next((line for line in lines[start:] if line.startswith('File "')), "")
    file = Path(innermost.removeprefix('File "').partition('"')[0])
    return file.is_relative_to(HOME) and not calls_runtimes(file)


def _place(line: str) -> Place | None:
    """The place that a line of ``faulthandler`` names."""
    found = re.match(r'File "(.+)", line (\d+)', line)
    return {"file": display_path(Path(found[1])), "line": int(found[2]), "own": True} if found else None
