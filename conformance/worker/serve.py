"""What runs in a worker process: it answers the calls of its parent, which is a ``Worker`` of ``isolation``."""

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
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from conformance.worker.output import Output
from conformance.worker.progress import Progress


class Answer(NamedTuple):
    """What a call came to, for the parent."""

    kind: str  # returned | raised | ended (by an exception that is meant to end the process)
    data: bytes = b""  # the pickled result or exception; empty where that cannot be pickled
    text: str = ""  # the exception in short
    module: str = ""  # of the exception's class
    trace: str = ""


_redirected: Output | None = None
"""Where stdout and stderr of this worker go; None in a process that is none."""


def captured() -> str:
    """Tail of what this worker wrote to stdout and stderr during this call, C++ included."""
    _flush()
    return "" if _redirected is None else _redirected.tail()


def serve(connection: Connection, progress: Progress, output: Output) -> None:
    """Answer requests until the parent closes the pipe or is gone."""
    global _redirected
    os.setsid()  # what is started here can be ended together, and a Ctrl-C is the parent's alone
    _redirected = output
    # buffered by line, so that a crash does not take along what was said before it
    for fd, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(output.file.fileno(), fd)
        stream = open(fd, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    with contextlib.suppress(EOFError):
        while True:
            answer = _answer(connection.recv_bytes(), progress)
            _flush()
            connection.send(answer)


def prepare(_: Progress, memory_gib: float | None, initializer: Callable[[], object] | None) -> None:
    """The first call in a new worker: how it dies, how much memory it may take, then the initializer."""
    multiprocessing.current_process().daemon = False  # a module may start processes of its own
    faulthandler.enable(2)
    faulthandler.register(signal.SIGUSR1, 2)
    _limit(resource.RLIMIT_CORE, 0)  # a core dump takes gigabytes
    if sys.platform == "linux":
        _die_with_parent()
        if memory_gib is not None:
            _limit(resource.RLIMIT_DATA, _written() + int(memory_gib * 2**30))
        libc = ctypes.CDLL(None)
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # 1: buffered by line, as in ``serve``
    if initializer is not None:
        initializer()


def _limit(what: int, soft: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _written() -> int:
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
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
    if not parent.is_alive():  # it was gone before the kernel watched
        os.kill(os.getpid(), signal.SIGKILL)


def _answer(request: bytes, progress: Progress) -> Answer:
    try:
        function, args = pickle.loads(request)
        result = function(progress, *args)
    except Exception as error:
        return _raised(error)
    except BaseException as error:
        return Answer("ended", text=_told(error))
    try:
        return Answer("returned", pickle.dumps(result))
    except Exception as error:
        return _raised(TypeError(f"the result of {function} cannot be pickled: {_told(error)}"))


def _raised(error: Exception) -> Answer:
    traceback.clear_frames(error.__traceback__)  # after a MemoryError, they hold the memory
    trace = "".join(traceback.format_exception(error))
    data = b""
    with contextlib.suppress(Exception):
        data = pickle.dumps(error)
    return Answer("raised", data, _told(error), type(error).__module__, trace)


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the disk is full; a function closed it
            stream.flush()
    ctypes.CDLL(None).fflush(None)
