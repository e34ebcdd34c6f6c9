"""Calls in a warm worker process that may crash, hang or flood the memory, and is then replaced.

The standard library's fork server and one pipe: with one worker and one call at a time, waiting for the pipe and the
exit status together tells a death at once, and SIGKILL ends any hang at once. (pebble's pool asks with SIGTERM first,
which a hang that holds the GIL ignores; each such hang takes it 3 s.) ``serve`` is the other end of the pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from conformance.worker.clock import Clock
from conformance.worker.output import Output
from conformance.worker.progress import Progress
from conformance.worker.serve import Answer, prepare, serve

_T = TypeVar("_T")
_OnWait = Callable[[dict[str, Any]], object] | None
_TICK = 0.1  # seconds between looks at the progress; and for a hung worker to print its stacks
_SOON = 1.0  # seconds within which a dead process is reported dead
_STARTUP = 300.0  # seconds for an initializer


@dataclass(frozen=True)
class Death:
    """How a worker ended instead of answering, what it noted last, and the tail of its output.

    ``how``: ``SIGSEGV``, ``exit 3``, ``timeout after 60 s``; also ``SystemExit: 3`` and the like, since an exception
    that is meant to end a process would end the parent's run if raised there. ``output``: stdout and stderr of this
    call, with the Python stacks at a crash or a timeout.
    """

    how: str
    last: dict[str, Any]
    output: str


class WorkerError(Exception):
    """No worker could be prepared, or a worker raised an exception whose class the parent has not imported.

    Cause: an initializer that ends the process, or an exception class that only the worker has imported. Remedy: see
    the text, and the worker's own traceback in ``__cause__``.
    """


class Worker:
    """A context manager with one warm process, started by the first call and after each death.

    On entry the parent's fork server begins to import ``preload``, if it was not running already; workers get the
    environment variables of that moment. A module that cannot be imported there is left to the call that needs it.
    ``initializer``, importable by name, runs in each new worker. ``memory_gib`` bounds the memory that a worker takes
    beyond what it starts with, on Linux.
    """

    def __init__(
        self,
        preload: Sequence[str] = (),
        memory_gib: float | None = 16,
        initializer: Callable[[], object] | None = None,
    ) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._preload = list(preload)
        self._preparation = (memory_gib, initializer)
        self._process: multiprocessing.context.ForkServerProcess | None = None
        self.progress = Progress(self._context.RawArray(ctypes.c_char, Progress.SIZE))

    def __enter__(self) -> Worker:
        self._output = Output(tempfile.TemporaryFile(buffering=0))
        self._context.set_forkserver_preload(self._preload)
        with _forkserver():
            return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._discard()
        self._output.file.close()

    def call(self, function: Callable[..., _T], *args: object, timeout: float, on_wait: _OnWait = None) -> _T | Death:
        """``function(progress, *args)`` in the worker, for at most ``timeout`` seconds. Time in which it waited for a
        processor, or for a new worker to start, does not count.

        ``on_wait`` gets the latest note ten times a second. Raises what the function raises, or WorkerError.
        """
        self.begin(function, *args)
        result: _T | Death = self.finish(timeout=timeout, on_wait=on_wait)
        return result

    def begin(self, function: Callable[..., object], *args: object) -> None:
        """Hands a call to the worker without waiting for the answer; the next call of this object is ``finish``."""
        if self._process is not None and wait([self._connection, self._process.sentinel], 0):
            self._discard()  # it died between two calls, of which neither is to blame
        if self._process is None:
            self._start()
        self._send(function, args)

    def replace(self) -> None:
        """Ends the process; the next call starts another."""
        self._discard()

    def finish(self, *, timeout: float, on_wait: _OnWait = None) -> Any:
        """Returns or raises what ``call`` would for the call that was begun; ``timeout`` counts from now on."""
        return self._receive(timeout, on_wait)

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        with theirs:
            self._process = self._launch(theirs)
        try:
            self._send(prepare, self._preparation)
            death = self._receive(_STARTUP, None)
        except BaseException:
            self._discard()
            raise
        if death is not None:
            self._discard()
            raise WorkerError(f"the worker could not be prepared: {death.how}\n{death.output}")

    def _launch(self, connection: Connection) -> multiprocessing.context.ForkServerProcess:
        arguments = (connection, self.progress, self._output)
        for tries_left in reversed(range(20)):
            process = self._context.Process(target=serve, args=arguments, daemon=True)
            try:
                with _forkserver():
                    process.start()
                break
            except (EOFError, OSError):
                if not tries_left:
                    raise
                # A preloaded module that raises another error than ImportError ends the fork server. Without preload,
                # the error is raised in the call that imports the module, and is told there.
                self._context.set_forkserver_preload([])
                time.sleep(_SOON / 20)  # until the old server's end can be seen, and a new server be started
        return process

    def _send(self, function: Callable[..., object], args: tuple[object, ...]) -> None:
        request = pickle.dumps((function, args))
        self.progress.note()
        self._output.clear()
        try:
            self._connection.send_bytes(request)
        except ConnectionError:  # the worker is dead; its exit status says more
            pass
        except BaseException:  # Ctrl-C, perhaps with half of the request sent
            self._discard()
            raise

    def _receive(self, timeout: float, on_wait: _OnWait) -> Any:
        try:
            answer = self._wait(timeout, on_wait)
        except BaseException:  # Ctrl-C, or on_wait raised: the answer would meet the next call
            self._discard()
            raise
        if isinstance(answer, str):
            self._discard()
            return Death(answer, self.progress.read(), self._output.tail())
        if answer.kind == "ended":
            return Death(answer.text, self.progress.read(), self._output.tail())
        if answer.kind == "raised":
            raise _revived(answer) from WorkerError(answer.trace)
        return pickle.loads(answer.data)

    def _wait(self, timeout: float, on_wait: _OnWait) -> Answer | str:
        """The answer, or how the worker ended."""
        assert self._process is not None and self._process.pid is not None
        clock = Clock(self._process.pid)
        while (left := timeout - clock.seconds()) > 0:
            ready = wait([self._connection, self._process.sentinel], min(left, _TICK))
            if self._connection in ready:
                with contextlib.suppress(EOFError, OSError):  # the worker died while it answered
                    answer: Answer = self._connection.recv()
                    return answer
            if ready:
                self._process.join(_SOON)
                return _how(self._process.exitcode)
            self._output.bound()
            if on_wait is not None:
                on_wait(self.progress.read())
        os.kill(self._process.pid, signal.SIGUSR1)  # prints the stacks, even where the GIL is held
        self._process.join(_TICK)
        return f"timeout after {timeout:g} s"

    def _discard(self) -> None:
        """End the worker and what it started, without asking first: a worker that hangs would not answer."""
        process, self._process = self._process, None
        if process is None:
            return
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()  # a worker that has no process group of its own yet
        process.join(_SOON)
        if process.exitcode is not None:  # else it is stuck in a driver, where no signal arrives
            process.close()


@contextlib.contextmanager
def _forkserver() -> Iterator[None]:
    """A running fork server, and no ``__main__`` for new processes to import, since that may be pytest."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        # blocked signals are inherited: a Ctrl-C for the parent must not interrupt the imports
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield
    finally:
        sys.modules["__main__"] = main


def _how(exitcode: int | None) -> str:
    if exitcode is None:
        return "the worker closed its connection"
    if exitcode >= 0:
        return f"exit {exitcode}"
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # a real-time signal
        return f"signal {-exitcode}"


def _revived(answer: Answer) -> Exception:
    """The exception itself if its module is loaded here, else a WorkerError: unpickling could import torch."""
    if answer.data and answer.module in sys.modules:
        with contextlib.suppress(Exception):
            error: Exception = pickle.loads(answer.data)
            return error
    return WorkerError(answer.text)
