"""The fork server of this process, which is multiprocessing's: kept running, and replaced when it is gone."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from typing import Any

from conformance import HOME
from conformance.process.worker import children

_context = multiprocessing.get_context("forkserver")
_GUARD, _READY = "conformance.process.worker.guard", "conformance.process.worker.server_ready"
_SEED, SAFE = "PYTHONHASHSEED", "PYTHONSAFEPATH"
MARK = "conformance"
"""The value of PYTHONSAFEPATH that ``guard`` takes away again, so that nothing that a cell starts has it."""
_TRIES = 20
_PAUSE = 0.05  # seconds until the end of a server can be seen, and a new one be started
_TICK = 1.0  # seconds after which a server that is to fork is continued, in case somebody stopped it
_SLOWEST = 300.0  # seconds in which a server has to come to fork: its imports take less on a host that is busy
_ended: set[int] = set()
"""Servers that were ended for being slower than that."""
_workers: set[int] = set()
"""What this process has launched and not yet seen end."""
_launching = threading.RLock()
"""Held while a worker is launched, while what is below the server is compared with what was launched, and while it is
read how a worker has ended: threads may each have a worker."""


def start(preload: Sequence[str]) -> None:
    """Have a server begin to import ``preload``, if none is running already."""
    with _launching:
        _context.set_forkserver_preload([_GUARD, *preload, _READY])
        with _running():
            pass


def launch(function: Callable[..., object], *args: object) -> ForkServerProcess:
    """A new process that calls the function. Raises OSError or EOFError where no server can be brought to fork."""
    failed: set[int | None] = set()
    for tries_left in reversed(range(_TRIES)):
        process = _context.Process(target=function, args=args, daemon=True)
        try:
            with _launching, _running():
                with _in_time():
                    process.start()
                assert process.pid is not None
                _workers.add(process.pid)
            return process
        except (EOFError, OSError):
            if not tries_left:
                raise
            failed.add(server_pid())
            if len(failed & _ended) > 1:  # the second of them had nothing to import
                text = f"no process came of the server that forks workers, within {_SLOWEST:g} s: it was ended"
                raise TimeoutError(text) from None
            if len(failed) > 1 or failed & _ended:
                # A preloaded module that raises another error than ImportError ends each server. Without preload,
                # the error is raised in the call that imports the module, and is told there.
                _context.set_forkserver_preload([_GUARD, _READY])
            time.sleep(_PAUSE)
    raise AssertionError


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """Inside the block a server that was stopped goes on, and one that takes too long is ended: what waits for it
    raises EOFError or OSError then, and would wait for ever else."""
    done = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + _SLOWEST
        while not done.wait(min(_TICK, _SLOWEST)):
            wake()
            pid = server_pid()
            if time.monotonic() > deadline and pid is not None:
                _ended.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def lost() -> bool:
    """Return whether the server has ended, so that nobody tells how a worker ends."""
    pid = server_pid()
    try:
        return pid is None or os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def exit_code(process: ForkServerProcess, seconds: float) -> int | None:
    """Return how a process has ended within so many seconds; None if it has not.

    The server tells it once, through a pipe. multiprocessing reads that pipe of all processes whenever it starts one,
    so that two threads could read at the same time: the second finds nothing, and takes the code for 255.
    """
    with _launching:
        process.join(seconds)
        return process.exitcode


def wake() -> None:
    """Have the server go on, if a call has stopped it as the parent of its process."""
    pid = server_pid()
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def forget(pid: int) -> None:
    """Take note that a worker has ended, and end what it left behind, also what has a session of its own."""
    with _launching:
        _workers.discard(pid)
        server = server_pid()
        if server is not None:
            children.end_below(server, _workers)


def server_pid() -> int | None:
    """The process id of the server that was started last; None where none was."""
    server: Any = forkserver._forkserver
    pid: int | None = server._forkserver_pid
    return pid


@contextlib.contextmanager
def _running() -> Iterator[None]:
    """A running server, and no ``__main__`` for new processes to import, since that may be pytest."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        with _interrupted_later(), _environment():
            forkserver.ensure_running()
            wake()
            yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Have a server that starts inside the block, and all that is forked from it, hash texts alike in each run, and
    import nothing from the working directory, where any file may have the name of a module.

    Else the order of a set of texts, and what a case or an exporter makes of it, would be another at each run; and
    tox gives each run a seed of its own, so that nothing that depends on the seed could be kept.
    """
    given = {_SEED: "0"}
    if SAFE not in os.environ and not HOME.parent.samefile(os.curdir):  # where the package itself lies, not installed
        given[SAFE] = MARK
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupted_later() -> Iterator[None]:
    """A Ctrl-C in this context comes at its end. Between the fork of a worker and what it is sent, the worker would
    end with a traceback."""
    # Blocked signals are inherited: a Ctrl-C for the parent must not interrupt the imports of the server. The block
    # holds for this thread alone, and any other, as OpenBLAS starts them, takes the signal for the main thread.
    handler, came = signal.getsignal(signal.SIGINT), []
    held = callable(handler) and threading.current_thread() is threading.main_thread()
    if held:
        signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if held:
            signal.signal(signal.SIGINT, handler)
    if came and callable(handler):
        handler(*came[-1])
