"""Answer the calls of a parent (a ``Worker`` of ``isolation``) in its worker.

While the code of a call runs, nothing connects the two processes: code that writes to all descriptors, or closes
them, meets no answer. With its answer in hand the worker connects, sends it, takes the next call and hangs up.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import multiprocessing
import resource
import signal
import sys
import traceback

# A socket of this type has methods that no library can patch. All names of modules that the code of a case may patch
# are bound here, before that code is imported.
from _socket import AF_UNIX, SOCK_STREAM, socket
from collections.abc import Callable
from multiprocessing import forkserver, resource_tracker
from os import O_ASYNC, O_RDONLY, _exit, close, dup2, fstat, getpid, kill, setsid
from os import open as open_fd
from pathlib import Path
from pickle import dumps, loads
from typing import Any, NamedTuple

from conformance.process.errors import attempt, or_else
from conformance.process.worker import children, wire
from conformance.process.worker.output import OutputFile
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.state import judging


class Answer(NamedTuple):
    """Hold what a call came to, for the parent."""

    kind: str  # returned | raised | ended (by an exception that is meant to end the process)
    data: bytes = b""  # the pickled result or exception; empty where that cannot be pickled
    text: str = ""  # the exception in short
    module: str = ""  # of the exception's class
    trace: str = ""
    left: tuple[str, ...] = ()  # names of the processes that the call left running, which were ended
    spent: bool = False  # whether the call left something by which a later one could be harmed
    replaced: tuple[str, ...] = ()  # functions that the call replaced, see ``state.judging``


_redirected: OutputFile | None = None
"""Where stdout and stderr of this worker go; None in a process that is none."""
_libc = ctypes.CDLL(None)
_NO_LIMIT = 2.0**30  # GiB; the kernel cannot count further


def captured() -> str:
    """Tail of what this worker wrote to stdout and stderr during this call, C++ included."""
    _flush()
    with contextlib.suppress(OSError):  # a function closed it
        return "" if _redirected is None else _redirected.tail()
    return ""


def serve(address: bytes, key: bytes, progress: Progress, output: OutputFile) -> None:
    """Answer requests until the parent hangs up or is gone.

    ``address`` is the parent's socket; ``key`` goes with each message of this worker.
    """
    global _redirected
    setsid()  # what is started here can be ended together, and a Ctrl-C is the parent's alone
    # the server may have it blocked, which is inherited (``server._interrupted_later``)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    children.adopt_orphans()
    own, number = getpid(), 0
    _redirected = output
    # buffered by line, so that a crash does not take along what was said before it
    for fd, name in ((1, "stdout"), (2, "stderr")):
        dup2(output.file.fileno(), fd)
        stream = open(fd, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    _close_inherited()
    vital = _Descriptors()
    answer = Answer("returned", dumps(None))
    look = judging.look
    with contextlib.suppress(EOFError):
        while True:
            request = _exchange(address, key, number, answer, vital)
            number += 1
            answer = _answer(request, progress)
            if getpid() != own:  # a process that the call forked, and that came back from it
                _exit(0)
            _flush()
            running, left = children.end_all()
            answer = answer._replace(left=tuple(left), spent=running or vital.lost(), replaced=look())


def _exchange(address: bytes, key: bytes, number: int, answer: Answer, vital: _Descriptors) -> bytearray:
    """Send the answer to call ``number``; the request of the next call. EOFError where there is none."""
    with vital.room():
        connection = socket(AF_UNIX, SOCK_STREAM)
        try:
            connection.connect(address)
            wire.send(connection, key, number, dumps(answer))
            return wire.receive(connection, key, number + 1)
        except ConnectionError:
            raise EOFError from None
        finally:
            connection.close()


class _Descriptors:
    """The descriptors that a worker needs, of which the code of a call may close or replace any."""

    def __init__(self) -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        self._known = {fd: _file(fd) for fd in (0, 1, 2, parent.sentinel)}
        self._reserve = open_fd("/dev/null", O_RDONLY)

    def lost(self) -> bool:
        """Return whether any of them is gone, or none is left for the next call."""
        try:
            close(open_fd("/dev/null", O_RDONLY))
        except OSError:
            return True
        return any(_file(fd) != file for fd, file in self._known.items())

    @contextlib.contextmanager
    def room(self) -> Any:
        """In this context there is one free descriptor, also where a call has left none."""
        with contextlib.suppress(OSError):
            close(self._reserve)
        yield
        self._reserve = open_fd("/dev/null", O_RDONLY)


def _file(fd: int) -> tuple[int, int] | None:
    try:
        state = fstat(fd)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _close_inherited() -> None:
    """Close the pipes to the parent's fork server and to its resource tracker. Neither stands a stray write: the
    server would end, the tracker would print it. If needed, this process starts its own."""
    for holder, name in (
        (forkserver._forkserver, "_forkserver_alive_fd"),
        (resource_tracker._resource_tracker, "_fd"),
    ):
        pipe = getattr(holder, name)
        if pipe is not None:
            close(pipe)
            setattr(holder, name, None)


def prepare(_: Progress, memory_gib: float, initializer: Callable[[], object] | None) -> None:
    """The first call in a new worker: how it dies, how much memory it may take, then the initializer."""
    multiprocessing.current_process().daemon = False  # a module may start processes of its own
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, 2)
    _limit(resource.RLIMIT_CORE, 0)  # a core dump takes gigabytes
    _die_with_parent()
    _limit(resource.RLIMIT_DATA, _count_writable() + int(min(memory_gib, _NO_LIMIT) * 2**30))
    _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, "stdout"), None, 1, 0)  # 1: buffered by line, as in ``serve``
    if initializer is not None:
        initializer()


def _limit(what: int, soft: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _count_writable() -> int:
    """Bytes of private memory that this process can write to, which RLIMIT_DATA bounds since Linux 4.7. RLIMIT_AS
    would also count memory that is only reserved, and CUDA reserves far more than there is."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent is gone, whatever it is doing then.

    ``parent.sentinel`` is a pipe whose other end the parent holds while it lives. A thread could watch for its end,
    but not while a call holds the GIL; and PR_SET_PDEATHSIG would watch the fork server instead.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, getpid())
    fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | O_ASYNC)
    if not parent.is_alive():  # it was gone before the kernel watched
        kill(getpid(), signal.SIGKILL)


def _answer(request: bytearray, progress: Progress) -> Answer:
    try:
        function, args = loads(request)
        result = function(progress, *args)
    except Exception as error:  # of what was called: the parent raises it again
        return _raised(error)
    except BaseException as error:  # what was called has ended the process: the parent says how
        return Answer("ended", text=_describe(error))
    data = attempt(lambda: dumps(result))
    if isinstance(data, Exception):
        return _raised(TypeError(f"the result of {function} cannot be pickled: {_describe(data)}"))
    return Answer("returned", data)


def _raised(error: Exception) -> Answer:
    traceback.clear_frames(error.__traceback__)  # after a MemoryError, they hold the memory
    trace = "".join(traceback.format_exception(error))
    data = or_else(b"", lambda: dumps(error))
    return Answer("raised", data, _describe(error), type(error).__module__, trace)


def _describe(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the disk is full; a function closed it
            stream.flush()
    _libc.fflush(None)
