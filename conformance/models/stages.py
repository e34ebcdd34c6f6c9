"""Follow a cell through its stages: how long each takes, and what is raised there."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from conformance import HOME
from conformance.case.draw.draw import Draw
from conformance.case.files.python import caused_by, describe
from conformance.process.errors import Details, Stopped, Unavailable, calls_runtimes, lacks_memory
from conformance.process.worker.progress_note import Progress, encode
from conformance.results.records.record import Record
from conformance.results.records.spent import Spending

_REASON = 1000  # characters of a failure that the parent process is told, which has room for 4,096


class Stages:
    """The stages of a cell: notes each for the parent process, times it, and turns exceptions into Stopped."""

    def __init__(self, record: Record, progress: Progress, folder: Path) -> None:
        self.current = "declare"
        self.planned = 0
        """The number of examples that are meant to run; 0 where it is not known."""
        self._record = record
        self._progress = progress
        self._folder = folder
        self._failed: dict[str, object] = {}
        self._open = 0
        """The number of blocks that the cell is in, one inside another."""

    @contextlib.contextmanager
    def __call__(self, stage: str, fault: str) -> Iterator[None]:
        """Inside the block the cell is at ``stage``; for what is raised there without a fault, ``fault`` is."""
        before, self.current = self.current, stage
        self._open += 1
        self._progress.note(stage=stage, **self._failed)
        try:
            with Spending(self._record.seconds, stage):
                yield
        except Unavailable as reason:
            reason.stage = reason.stage or stage
            raise
        except (Stopped, KeyboardInterrupt):
            raise
        except BaseException as error:  # whatever is raised at this stage, or exited with: the Stopped has it
            raise self.stopped_by(error, fault) from error
        finally:
            self.current = before
            self._open -= 1
            if self._open:  # what comes next is still of the stage around it
                self._progress.note(stage=before, **self._failed)

    def note(self, draw: Draw, stage: str) -> None:
        """Tell the parent process that this draw comes next, in case it ends the process."""
        done, of = self._record.examples, self.planned
        text = f'{{"stage":"{stage}","draw":{draw.encoded},"examples":{done},"of":{of}}}'
        self._progress.write(text if not self._failed else f"{text[:-1]},{encode(self._failed)[1:]}")

    def expect(self, seconds: float) -> None:
        """Tell the parent process how long the current stage may take in all."""
        self._progress.note(stage=self.current, expect=round(seconds), **self._failed)

    def failed(self, stop: Stopped, draw: Draw) -> None:
        """Tell the parent process how the cell has failed, in case explaining that ends the process."""
        what = {"stage": stop.stage, "error": stop.error, "reason": stop.reason[:_REASON], "fault": stop.fault}
        self._failed = {"failed": {**what, "draw": draw.as_dict()}}
        self.note(draw, stop.stage)

    def told_to_nobody(self) -> None:
        """From here on the parent process is told nothing, as in a fork, whose steps are no steps of the cell."""
        self._progress = Progress()

    def stopped_by(self, error: BaseException, fault: str = "harness") -> Stopped:
        """The exception as a stop at the current stage; the harness is at fault for what this package raised, but not
        for want of memory, of which outputs may take more than there is."""
        short_of_memory = lacks_memory(error)
        if _is_of_this_package(error) and not short_of_memory:
            fault = "harness"
        text = describe(error, self._folder)
        lost = None if fault == "harness" else _lost_stream()
        if lost is not None:  # whoever writes there stops, and is not at fault
            fault, text = "case", f"the case's Python has set {lost}, to which others write: {text}"
        details: Details = {}
        if fault == "harness" and not short_of_memory:
            lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
            details = {"hints": ["report"], "traceback": lines[-12:]}
        stop = Stopped(self.current, type(error).__name__, text, fault, details)
        stop.__cause__, stop.caused_by = error, caused_by(error)
        return stop


def _lost_stream() -> str | None:
    """Return the stream of Python that nothing can be written to, as ``sys.stdout = None``; None where all can be."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        if not callable(getattr(stream, "write", None)):
            return f"sys.{name} = {stream!r:.60}"
    return None


_MISTAKES = (AssertionError, AttributeError, IndexError, KeyError, NameError, TypeError)


def _is_of_this_package(error: BaseException) -> bool:
    """Return whether this package itself is wrong, by where the exception was raised.

    What is raised in ``runtimes`` is mostly what a runtime said: it refused a model, or a call of C failed, which has
    no frame of its own. There only ``_MISTAKES`` count.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = Path(frames[-1].filename) if frames else Path()
    if not last.is_relative_to(HOME) or isinstance(error, ValueError):
        return False
    return not calls_runtimes(last) or isinstance(error, _MISTAKES)
