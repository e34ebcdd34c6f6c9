"""Another process that saves a file while a cell runs, as an editor does: what the cell writes itself is its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.process.worker.progress_note import Progress

_SAVER = """
import json, sys
for line in sys.stdin:
    file, text = json.loads(line)
    open(file, "w").write(text)
    print("saved", flush=True)
"""
_waiting: dict[str, tuple["subprocess.Popen[str]", Path, str]] = {}
"""By moment what is saved then."""


def reached(moment: str) -> None:
    """Have the file saved that waits for this moment, and wait for that; nothing where none does, as in a later run.

    Pipes raise no audit event, so that nothing of this is observed.
    """
    saver, file, text = _waiting.pop(moment, (None, None, None))
    if saver is not None:
        assert saver.stdin is not None and saver.stdout is not None
        saver.stdin.write(json.dumps([str(file), text]) + "\n")
        saver.stdin.flush()
        assert saver.stdout.readline() == "saved\n"


@contextmanager
def saving(file: Path, text: str, moment: str) -> Iterator[None]:
    """Inside the block the file gets this text once the moment is reached, and has to."""
    command = [sys.executable, "-c", _SAVER]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as saver:
        _waiting[moment] = saver, file, text
        try:
            yield
            assert moment not in _waiting, f"the cell did not reach the moment {moment}"
        finally:
            _waiting.clear()


class Reaching(Progress):
    """The note of a cell whose stages are moments."""

    def note(self, **what: Any) -> None:
        reached(str(what.get("stage")))
        super().note(**what)
