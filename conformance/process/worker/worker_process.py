"""One worker process as its parent sees it: what it is sent, what it answers, how it ends."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import NamedTuple

from conformance.process.worker import children, server, wire
from conformance.process.worker.memory import Watch
from conformance.process.worker.output import OutputFile
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.serve import Answer, serve

_SOON = 1.0  # seconds within which a dead process is reported dead
_STACKS = 0.1  # seconds for a hung process to print its stacks
_SENDING = 10.0  # seconds in which a worker that waits for a call has taken it
_PEER = struct.Struct("=3i")  # what the kernel tells of the other end of a socket: process, user, group


class End(NamedTuple):
    """Tell how a worker ended in place of an answer."""

    how: str
    name: str | None = None
    """The name of the error on docs/errors.md, where it is not ``how``."""


class Process:
    """A process that ``serve``s, with all that is below it.

    It connects for each answer to a socket of this object's own. Calls are numbered, and the process and its parent
    share a key: what a forked child, an earlier worker or a stray write sends is no answer.
    """

    def __init__(self, progress: Progress, output: OutputFile, memory_gib: float) -> None:
        """Raise OSError or EOFError where no process can be forked."""
        self._key = os.urandom(wire.KEY)
        self._calls = 0
        self._connection: socket.socket | None = None  # while the process waits for a call
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(b"")  # the kernel chooses an address, which is in no folder
            self._listener.listen()
            self._listener.setblocking(False)
            address = self._listener.getsockname()
            self._process = server.launch(serve, address, self._key, progress, output)
        except BaseException:  # also Ctrl-C: nobody else closes the socket
            self._listener.close()
            raise
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self._ended = os.pidfd_open(self.pid)
        self.memory = Watch(self.pid, memory_gib, server.server_pid())

    def send(self, request: bytes) -> None:
        """Send the next call. Where the process is dead, ``wait`` says more about it."""
        connection, self._connection = self._connection, None
        self._calls += 1
        if connection is not None:
            with connection, contextlib.suppress(ConnectionError, TimeoutError):
                connection.settimeout(_SENDING)
                wire.send(connection, self._key, self._calls, request)

    def lost(self) -> bool:
        """Return whether the process, or who could tell how it ends, has ended."""
        return bool(wait([self._ended, self._process.sentinel], 0))

    def wait(self, seconds: float, left: Callable[[], float]) -> Answer | End | None:
        """The answer to the last call, or how the process ended instead; None where there is neither so far.

        ``left`` says how many seconds are left for an answer that has begun to come.
        """
        ready = wait([self._listener, self._ended], seconds)
        if not ready:
            return None
        try:
            self._connection = self._listener.accept()[0]
        except BlockingIOError:
            return self._end() if self._ended in ready else None
        return self._answer(self._connection, left)

    def print_stacks(self) -> None:
        """Have a hung process print its stacks, also where the GIL is held."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        wait([self._ended], _STACKS)

    def end(self) -> None:
        """End the process and all below it, without asking first: a worker that hangs would not answer."""
        for connection in (self._listener, self._connection):
            if connection is not None:
                connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)  # so that it starts nothing in the meantime
        children.end_below(self.pid, patience=None)  # the trackers notice its end
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        gone = bool(wait([self._ended], _SOON))
        os.close(self._ended)
        server.wake()
        server.forget(self.pid)
        # without a pause where it is not gone: it is stuck in a driver, where no signal arrives
        if server.exit_code(self._process, _SOON if gone else 0) is not None:
            self._process.close()

    def _answer(self, connection: socket.socket, left: Callable[[], float]) -> Answer | End | None:
        pid, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if user != os.getuid():  # another user of this host, who may connect to any such address
            self._connection = None
            connection.close()
            return None
        if pid != self.pid:
            return End(f"an answer from another process (pid {pid})", "BadAnswer")
        try:
            answer = pickle.loads(wire.receive(connection, self._key, self._calls, left))
        except (EOFError, ConnectionError):
            return self._end()
        except TimeoutError:
            return End("the answer did not come to its end", "BadAnswer")
        except wire.Mismatch as error:
            return End(str(error), "BadAnswer")
        except Exception as error:  # bytes that are no pickle may raise anything; the record says it
            return End(f"an answer that cannot be read: {type(error).__name__}", "BadAnswer")
        return answer if isinstance(answer, Answer) else End("bytes that are no answer", "BadAnswer")

    def _end(self) -> End:
        if server.lost():
            return End("killed, and the fork server with it")
        server.wake()
        code = server.exit_code(self._process, _SOON)
        if code is None:
            return End("the worker closed its connection")
        if code >= 0:
            return End(f"exit {code}")
        if -code == signal.SIGKILL and self.memory.out_of_memory():
            return End("SIGKILL from the kernel, since the host was out of memory", "OutOfMemory")
        try:
            return End(signal.Signals(-code).name)
        except ValueError:  # a real-time signal
            return End(f"signal {-code}")
