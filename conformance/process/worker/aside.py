"""Questions that may crash or hang, asked in a forked process of their own: what is lost then is the answer.

A fork has all that this process has loaded, and costs what copying its page tables does. Threads do not come along,
so a question must not need one that runs here already; one that waits for it is ended at its time limit.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import select
import signal
import struct
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from conformance.process.errors import or_else, works
from conformance.process.worker.children import signalled_with_parent

_T = TypeVar("_T")
_HEAD = struct.Struct("!Q")


class Lost(Exception):
    """The process that was asked ended without an answer; the text says how: ``SIGSEGV``, ``timeout after 40 s``."""


def ask(question: Callable[[], _T], seconds: float) -> _T:
    """Return what the question returns within so many seconds.

    It has to be picklable. Raises what the question raises, or RuntimeError with its text where that cannot be
    pickled, and Lost where there is no answer.
    """
    reading, writing = os.pipe()
    try:
        child = _fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise Lost(f"no process for it: {error.strerror}") from None
    if not child:
        _answer(question, reading, writing)
    os.close(writing)
    try:
        data = _read(reading, seconds)
    finally:
        os.close(reading)
        status = _end(child)
    if data is None:
        raise Lost(f"timeout after {seconds:g} s")
    if len(data) < _HEAD.size or len(data) < _HEAD.size + _HEAD.unpack_from(data)[0]:
        raise Lost(_how(status))
    kind, value = pickle.loads(data[_HEAD.size :])
    if kind == "raised":
        raise value
    result: _T = value
    return result


def _fork() -> int:
    """Fork with Python's collector off until the child leaves out all objects from before: the end of one may wait
    for threads that are not there, and what Python itself does behind a fork is enough for a collection."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # later Pythons warn of any fork beside threads
            child = os.fork()
        if not child:
            gc.freeze()
        return child
    finally:
        if collects:
            gc.enable()


def _answer(question: Callable[[], object], reading: int, writing: int) -> None:
    """Answer in the child; this never returns."""
    try:
        faulthandler.disable()
        os.setsid()
        signalled_with_parent(signal.SIGKILL)
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        try:
            answer: tuple[str, object] = ("gave", question())
        except BaseException as error:  # whatever the question raises: the parent raises it again
            answer = ("raised", error)
        data = or_else(None, lambda: pickle.dumps(answer))
        if data is None or not works(partial(pickle.loads, data)):
            data = pickle.dumps(("raised", RuntimeError(f"{type(answer[1]).__name__}: {answer[1]}")))
        with open(writing, "wb") as stream:
            stream.write(_HEAD.pack(len(data)) + data)
    finally:
        os._exit(0)


def _read(reading: int, seconds: float) -> bytes | None:
    """All that comes until the other end is closed or the answer is complete; None where it takes longer."""
    data = bytearray()
    deadline = time.monotonic() + seconds
    while len(data) < _HEAD.size or len(data) < _HEAD.size + _HEAD.unpack_from(data)[0]:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reading], [], [], left)[0]:
            return None
        part = os.read(reading, 1 << 20)
        if not part:
            break
        data += part
    return bytes(data)


def _end(child: int) -> int:
    """End the child, what it started in its own session too, and return how it ended by itself."""
    status = None
    for _ in range(20):  # one that has answered or crashed is about to end
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.002)
    if not ended:  # by itself first: it may not have come to its own session yet
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(child, 0)
    assert status is not None
    return status


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit {os.waitstatus_to_exitcode(status)}"
