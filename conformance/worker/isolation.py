"""Calls in a warm worker process that may crash, hang or flood the memory, and is then replaced.

The standard library's fork server and one pipe: with one worker and one call at a time, waiting for
the pipe and the exit status together tells a death at once, and SIGKILL ends any hang at once.
(pebble's pool asks with SIGTERM first, which a hang that holds the GIL ignores: 3 s each.)
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from multiprocessing import forkserver, reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from conformance.worker.progress import Progress

_T = TypeVar("_T")
_OnWait = Callable[[dict[str, Any]], object] | None
_TICK = 0.1  # seconds between looks at the progress; and for a hung worker to print its stacks
_SOON = 1.0  # seconds within which a dead process is reported dead
_STARTUP = 300.0  # seconds for an initializer
_TAIL = 8 * 1024  # bytes of output worth showing
_FLOOD = 64 * 2**20  # bytes of output worth keeping on disk


@dataclass(frozen=True)
class Death:
    """How a worker ended instead of answering, what it noted last, and the tail of its output.

    ``how``: ``SIGSEGV``, ``exit 3``, ``timeout after 60 s``; also ``SystemExit: 3`` and the like,
    since an exception that is meant to end a process would end the parent's run if raised there.
    ``output``: stdout and stderr of this call, with the Python stacks at a crash or a timeout.
    """

    how: str
    last: dict[str, Any]
    output: str


class WorkerError(Exception):
    """No worker could be prepared, or it raised something of a type that is unknown here.

    Cause: an initializer that ends the process, or an exception class that only the worker has
    imported. Remedy: see the text, and the worker's own traceback in ``__cause__``.
    """


class Worker:
    """A context manager with one warm process, started by the first call and after each death.

    On entry the parent's fork server begins to import ``preload``, if it was not running already;
    workers get the environment variables of that moment. What cannot be imported there is left to
    the call that needs it. ``initializer``, importable by name, runs in each new worker.
    ``memory_gib`` bounds the memory that a worker takes beyond what it starts with, on Linux.
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
        self._output = _Output(tempfile.TemporaryFile(buffering=0))
        self._context.set_forkserver_preload(self._preload)
        with _forkserver():
            return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._discard()
        self._output.file.close()

    def call(self, function: Callable[..., _T], *args: object, timeout: float, on_wait: _OnWait = None) -> _T | Death:
        """``function(progress, *args)`` in the worker, for at most ``timeout`` seconds, not counting those in which
        it waited for a processor.

        ``on_wait`` gets the latest note ten times a second. Raises what the function raises, or
        WorkerError. The time that a new worker takes to start does not count.
        """
        self.begin(function, *args)
        result: _T | Death = self.finish(timeout=timeout, on_wait=on_wait)
        return result

    def begin(self, function: Callable[..., object], *args: object) -> None:
        """Hands a call to the worker without waiting for it; the next thing to ask of it is ``finish``."""
        if self._process is not None and wait([self._connection, self._process.sentinel], 0):
            self._discard()  # it died between two calls, and neither is to blame
        if self._process is None:
            self._start()
        self._send(function, args)

    def finish(self, *, timeout: float, on_wait: _OnWait = None) -> Any:
        """What ``call`` returns or raises, of the call that was begun; ``timeout`` is from now on."""
        return self._receive(timeout, on_wait)

    def _start(self) -> None:
        self._connection, theirs = self._context.Pipe()
        with theirs:
            self._process = self._launch(theirs)
        try:
            self._send(_prepare, self._preparation)
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
            process = self._context.Process(target=_serve, args=arguments, daemon=True)
            try:
                with _forkserver():
                    process.start()
                break
            except (EOFError, OSError):
                if not tries_left:
                    raise
                # A preloaded module that raises more than ImportError ends the fork server. Without
                # preload, that error meets the call that imports the module, and is told there.
                self._context.set_forkserver_preload([])
                time.sleep(_SOON / 20)  # until its end can be seen, and another be started
        return process

    def _send(self, function: Callable[..., object], args: tuple[object, ...]) -> None:
        request = pickle.dumps((function, args))
        self.progress.note()
        self._output.clear()
        try:
            self._connection.send_bytes(request)
        except ConnectionError:  # then its exit status says more
            pass
        except BaseException:  # Ctrl-C, perhaps with half of it sent
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

    def _wait(self, timeout: float, on_wait: _OnWait) -> _Answer | str:
        """The answer, or how the worker ended."""
        assert self._process is not None and self._process.pid is not None
        clock = _Clock(self._process.pid)
        while (left := timeout - clock.seconds()) > 0:
            ready = wait([self._connection, self._process.sentinel], min(left, _TICK))
            if self._connection in ready:
                with contextlib.suppress(EOFError, OSError):  # likewise
                    answer: _Answer = self._connection.recv()
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
        """End the worker and what it started; asking first would wait for one that hangs."""
        process, self._process = self._process, None
        if process is None:
            return
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()  # one that has not come to os.setsid
        process.join(_SOON)
        if process.exitcode is not None:  # else it is stuck in a driver, where no signal arrives
            process.close()


def captured() -> str:
    """Tail of what this worker wrote to stdout and stderr during this call, C++ included."""
    _flush()
    return "" if _redirected is None else _redirected.tail()


class _Output:
    """The file behind a worker's stdout and stderr; nameless, so that no death leaves it behind."""

    def __init__(self, file: Any) -> None:
        self.file = file
        # appending, so that a worker goes on at the start when its parent has emptied the file
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited, (reduction.DupFd(self.file.fileno()),)

    def clear(self) -> None:
        self.file.truncate(0)

    def bound(self) -> None:
        if os.fstat(self.file.fileno()).st_size > _FLOOD:
            self.clear()

    def tail(self) -> str:
        fd = self.file.fileno()
        start = max(0, os.fstat(fd).st_size - _TAIL)
        return os.pread(fd, _TAIL, start).decode(errors="replace")


def _inherited(fd: Any) -> _Output:
    return _Output(FileIO(fd.detach(), "r+"))


_STRETCH = 10  # times its limit that a worker gets at most, however busy the processors are


class _Clock:
    """The time that a process has had: without what it waited for a processor that others used.

    A limit in plain time fails a sound cell on a busy host. The kernel counts, for each thread, how long it was ready
    and not running (the second number of ``schedstat``, in nanoseconds).
    """

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._start = time.monotonic()
        self._before: dict[str, float] | None = None

    def seconds(self) -> float:
        passed = time.monotonic() - self._start
        if passed < _TICK:  # most calls are over by then, and need no look at the kernel's counts
            return passed
        waits = self._waits()
        if self._before is None:
            self._before = waits
        # Of threads that wait at the same time each may be what the others wait for.
        waited = max((wait - self._before.get(thread, 0.0) for thread, wait in waits.items()), default=0.0)
        return max(passed - waited, passed / _STRETCH)

    def _waits(self) -> dict[str, float]:
        found = {}
        with contextlib.suppress(OSError):  # the process is gone, or this is not Linux
            for task in self._tasks.iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):  # that thread is gone
                    found[task.name] = int((task / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
        return found


@contextlib.contextmanager
def _forkserver() -> Iterator[None]:
    """A running fork server, and no ``__main__`` for new processes to import: it may be pytest."""
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


class _Answer(NamedTuple):
    kind: str  # returned | raised | ended
    data: bytes = b""  # the pickled result or exception; empty where it cannot be pickled
    text: str = ""
    module: str = ""
    trace: str = ""


def _revived(answer: _Answer) -> Exception:
    """The exception itself if its module is loaded here; unpickling another could import torch."""
    if answer.data and answer.module in sys.modules:
        with contextlib.suppress(Exception):
            error: Exception = pickle.loads(answer.data)
            return error
    return WorkerError(answer.text)


# What follows runs in the worker.

_redirected: _Output | None = None


def _serve(connection: Connection, progress: Progress, output: _Output) -> None:
    """Answer requests until the parent closes the pipe or is gone."""
    global _redirected
    os.setsid()  # what is started here can be ended together, and a Ctrl-C is the parent's alone
    _redirected = output
    # by line, so that a crash does not take along what was said before it
    for fd, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(output.file.fileno(), fd)
        stream = open(fd, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    with contextlib.suppress(EOFError):
        while True:
            answer = _answer(connection.recv_bytes(), progress)
            _flush()
            connection.send(answer)


def _prepare(_: Progress, memory_gib: float | None, initializer: Callable[[], object] | None) -> None:
    multiprocessing.current_process().daemon = False  # a module may start processes of its own
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, 2)
    _limit(resource.RLIMIT_CORE, 0)  # gigabytes each
    if sys.platform == "linux":
        _die_with_parent()
        if memory_gib is not None:
            _limit(resource.RLIMIT_DATA, _written() + int(memory_gib * 2**30))
        libc = ctypes.CDLL(None)
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # 1: by line, as above
    if initializer is not None:
        initializer()


def _limit(what: int, soft: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _written() -> int:
    """Bytes of memory of its own that this process can write to: what RLIMIT_DATA bounds since Linux 4.7. RLIMIT_AS
    would count what is only reserved too, and CUDA reserves far more than there is."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone, whatever it is doing then.

    The parent holds the other end of this pipe while it lives. A thread could watch for that, but
    not while a call holds the GIL; and PR_SET_PDEATHSIG would watch the fork server instead.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not parent.is_alive():  # it went before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def _answer(request: bytes, progress: Progress) -> _Answer:
    try:
        function, args = pickle.loads(request)
        result = function(progress, *args)
    except Exception as error:
        return _raised(error)
    except BaseException as error:
        return _Answer("ended", text=_told(error))
    try:
        return _Answer("returned", pickle.dumps(result))
    except Exception as error:
        return _raised(TypeError(f"the result of {function} cannot be pickled: {_told(error)}"))


def _raised(error: Exception) -> _Answer:
    traceback.clear_frames(error.__traceback__)  # after a MemoryError, they hold the memory
    trace = "".join(traceback.format_exception(error))
    data = b""
    with contextlib.suppress(Exception):
        data = pickle.dumps(error)
    return _Answer("raised", data, _told(error), type(error).__module__, trace)


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the disk is full; a function closed it
            stream.flush()
    ctypes.CDLL(None).fflush(None)
