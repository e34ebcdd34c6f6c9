"""Calls in a warm worker process that may crash, hang or flood the memory, and is then replaced.

``server`` forks the workers. ``serve`` is what runs in them, and connects for each answer: ``process`` takes that of
the process it started, for the call it made, and nothing else. With one worker and one call at a time, waiting for
the answer and the process's end together tells a death at once, and SIGKILL ends any hang at once. (pebble's pool
asks with SIGTERM first, which a hang that holds the GIL ignores; each such hang takes it 3 s.)
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from conformance.process.errors import UserError, limit_of_shell
from conformance.process.worker import memory, scratch, server
from conformance.process.worker.output import OutputFile
from conformance.process.worker.progress_note import SharedProgress
from conformance.process.worker.serve import Answer, prepare
from conformance.process.worker.worker_process import End, Process

_BRIEF = 0.1  # seconds in which most calls are over
_STRETCH = 10  # times its limit that a worker gets at most, however busy the processors are


class Clock:
    """The time that a process has had: without what it waited for a processor that others used.

    A limit in plain time would fail a sound cell on a busy host. The kernel counts, for each thread, how long it was
    ready and not running (the second number of ``schedstat``, in nanoseconds).
    """

    def __init__(self, pid: int, *, tasks: Path | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """``tasks`` has a folder for each thread with its ``schedstat``, where that is not below ``/proc``; ``now``
        gives the seconds that have passed."""
        self._tasks, self._now = tasks or Path(f"/proc/{pid}/task"), now
        self._start = now()
        self._before: dict[str, float] | None = None

    def seconds(self) -> float:
        passed = self._now() - self._start
        if passed < _BRIEF:  # no need yet to look at the kernel's counts
            return passed
        waits = self._waits()
        if self._before is None:
            self._before = waits
        # The longest wait, not the sum: of threads that wait at the same time each may be what the others wait for.
        waited = max((wait - self._before.get(thread, 0.0) for thread, wait in waits.items()), default=0.0)
        return max(passed - waited, passed / _STRETCH)

    def _waits(self) -> dict[str, float]:
        """By thread, the seconds in which it was ready and not running."""
        waits = {}
        with contextlib.suppress(OSError):  # the process is gone, or this is not Linux
            for task in self._tasks.iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):  # that thread is gone
                    waits[task.name] = int((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
        return waits


_T = TypeVar("_T")
OnWait = Callable[[dict[str, Any]], object]
Until = Callable[[dict[str, Any], float], str | None]
"""Gets the latest note and the seconds of a call, and says why the call is to be ended; None where it is not."""
_TICK = 0.1  # seconds between looks at the progress and the memory
_STARTUP = 300.0  # seconds for an initializer
TRANSFER = 5.0
"""Seconds beyond its limit in which the answer of a call has to be here, once it has begun to come."""


@dataclass(frozen=True)
class Death:
    """Tell how a worker ended instead of answering.

    Also what it noted last, and the tail of its output.

    ``how``: ``SIGSEGV``, ``exit 3``, ``timeout after 60 s``; also ``SystemExit: 3`` and the like, since an exception
    that is meant to end a process would end the parent's run if raised there. ``output``: stdout and stderr of this
    call, with the Python stacks at a crash or a timeout.
    """

    how: str
    last: dict[str, Any]
    output: str
    name: str | None = None
    """The name of what happened, where ``how`` says more than that: ``Timeout``, ``OutOfMemory``, ``BadAnswer``."""

    @property
    def error(self) -> str:
        return self.name or self.how


class WorkerError(Exception):
    """No worker could be prepared, or a worker raised an exception whose class the parent has not imported.

    Cause: an initializer that ends the process, or an exception class that only the worker has imported. Remedy: see
    the text, and the worker's own traceback in ``__cause__``.
    """


class Worker:
    """A context manager with one warm process, started by the first call and after each death.

    On entry the parent's fork server begins to import ``preload``, if it was not running already; workers get the
    environment variables of that moment. A module that cannot be imported there is left to the call that needs it.
    ``initializer``, importable by name, runs in each new worker. ``memory_gib`` bounds the memory that a worker and
    the processes below it take beyond what it starts with; the default is ``memory.share()``. ``transfer`` is how
    many seconds beyond its limit a call has for an answer that has begun to come.
    """

    def __init__(
        self,
        preload: Sequence[str] = (),
        memory_gib: float | None = None,
        initializer: Callable[[], object] | None = None,
        transfer: float = TRANSFER,
    ) -> None:
        self._preload = list(preload)
        self._transfer = transfer
        self._memory_gib = memory.share() if memory_gib is None else memory_gib
        self._initializer = initializer
        self._process: Process | None = None
        self._scratch: Path | None = None
        self._stopped = False
        self.progress = SharedProgress()
        self.left: tuple[str, ...] = ()
        """Names of the processes that the last call left running. They were ended, and so was the worker."""
        self.patched: tuple[str, ...] = ()
        """Functions on which a verdict rests that the last call replaced, and whose replacement nothing has told."""

    def __enter__(self) -> Worker:
        self._output = OutputFile(tempfile.TemporaryFile(buffering=0))
        with contextlib.suppress(OSError):
            scratch.begin()  # before the server has its socket in a temporary folder
        server.start(self._preload)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.replace()
        self._output.file.close()

    def replace(self) -> None:
        """End the current process, and drop a call that was begun; the next call starts a new process."""
        process, self._process = self._process, None
        folder, self._scratch = self._scratch, None
        if process is not None:
            process.end()
        if folder is not None:
            scratch.remove(folder)

    def stop(self) -> None:
        """End a call that another thread waits for, within a tenth of a second, as if its process had been killed;
        calls after it raise WorkerError. For a run that is broken off."""
        self._stopped = True

    def ready(self) -> None:
        """Start a process, where there is none, so that the next call need not wait for it. Raises what a call
        raises that cannot start one."""
        if self._process is None:
            self._start()

    def call(
        self, function: Callable[..., _T], *args: object, timeout: float, on_wait: OnWait | None = None
    ) -> _T | Death:
        """``function(progress, *args)`` in the worker, for at most ``timeout`` seconds. Time in which it waited for a
        processor, or for a new worker to start, does not count.

        ``on_wait`` gets the latest note ten times a second. Raises what the function raises, or WorkerError, or
        UserError where a limit of the shell lets no worker start.
        """
        self.begin(function, *args)
        result: _T | Death = self.finish(timeout=timeout, on_wait=on_wait)
        return result

    def begin(self, function: Callable[..., object], *args: object) -> None:
        """Hand a call to the worker without waiting for the answer; the next call of this object is ``finish``."""
        if self._process is not None and self._process.lost():
            self.replace()  # it died between two calls, of which neither is to blame
        if self._process is None:
            self._start()
        self._send(function, args)

    @property
    def running(self) -> bool:
        """Return whether the next call comes to the process of the last."""
        return self._process is not None

    def finish(self, *, timeout: float, on_wait: OnWait | None = None, until: Until | None = None) -> Any:
        """Return or raise what ``call`` would for the call that was begun; ``timeout`` counts from now on. What
        ``until`` says ends the worker."""
        try:
            answer = self._wait(timeout, on_wait, until)
        except BaseException:  # Ctrl-C, or on_wait raised: the answer would meet the next call
            self.replace()
            raise
        if isinstance(answer, End):
            self.replace()
            self.left = self.patched = ()
            return Death(answer.how, self.progress.read(), self._output.tail(), answer.name)
        self.left, self.patched = answer.left, answer.replaced
        if answer.spent:
            self.replace()
        if answer.kind == "ended":
            return Death(answer.text, self.progress.read(), self._output.tail())
        if answer.kind == "raised":
            raise _revived(answer) from WorkerError(answer.trace)
        return pickle.loads(answer.data)

    def _start(self) -> None:
        if self._stopped:
            raise WorkerError("the run was broken off")
        self._output.clear()
        with contextlib.suppress(OSError):  # no room for it: calls that need some will say so
            self._scratch = scratch.new()
        try:
            self._process = Process(self.progress, self._output, self._memory_gib)
            death = self.finish(timeout=_STARTUP)
            if death is None and self._scratch is not None:
                self._send(scratch.use, (str(self._scratch),))
                death = self.finish(timeout=_STARTUP)
            if death is None:
                self._send(prepare, (self._memory_gib, self._initializer))
                death = self.finish(timeout=_STARTUP)
        except BaseException:  # also Ctrl-C: the next call starts another process
            self.replace()
            raise
        if death is not None:
            self.replace()
            text, limit = f"the worker could not be prepared: {death.how}\n{death.output}", limit_of_shell()
            raise WorkerError(text) if limit is None else UserError(f"{limit} ({text})")

    def _send(self, function: Callable[..., object], args: tuple[object, ...]) -> None:
        assert self._process is not None
        request = pickle.dumps((function, args))
        self.progress.note()
        self._output.clear()
        try:
            self._process.send(request)
        except BaseException:  # Ctrl-C, perhaps with half of the request sent
            self.replace()
            raise

    def _wait(self, timeout: float, on_wait: OnWait | None, until: Until | None) -> Answer | End:
        """The answer, or how the worker ended."""
        process = self._process
        assert process is not None
        clock, first = Clock(process.pid), True
        while (left := timeout - clock.seconds()) > 0:
            event = process.wait(min(left, _TICK), lambda: timeout + self._transfer - clock.seconds())
            if event is not None:
                return event
            if self._stopped:
                return End("the run was broken off")
            self._output.bound()
            if first:  # not before, since it would cost a short call as much as all else
                process.memory.look()
                first = False
            excess = process.memory.excess()
            if excess is not None:
                process.print_stacks()
                return End(excess, "OutOfMemory")
            if on_wait is not None:
                on_wait(self.progress.read())
            reason = None if until is None else until(self.progress.read(), clock.seconds())
            if reason is not None:
                return End(reason)
        process.print_stacks()
        return End(f"timeout after {timeout:g} s", "Timeout")


def _revived(answer: Answer) -> Exception:
    """The exception itself if its module is loaded here, else a WorkerError: unpickling could import torch."""
    if answer.data and answer.module in sys.modules:
        with contextlib.suppress(Exception):  # its class may unpickle in any way; its text is left
            error: Exception = pickle.loads(answer.data)
            return error
    return WorkerError(answer.text)
