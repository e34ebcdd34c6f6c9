"""Functions for a worker process that harm what they can reach, for ``test_answers.py``.

Each takes a number that is the call's own, and those that end give it back.
"""

import contextlib
import mmap
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from conformance.process.worker.progress_note import Progress

FRAMES = (b"\0\0\0\x10garbage!", b"\0\0\0\x08\x80\x05garba", b"\xff" * 200)
"""Bytes that a pipe of multiprocessing takes for the length of a message, with less or other than that after it."""
_kept: list[Any] = []


def well_behaved(progress: Progress, number: int) -> int:
    progress.note(number=number)
    return number


def raises(progress: Progress, number: int) -> int:
    raise ValueError(number)


def exits(progress: Progress, number: int) -> int:
    sys.exit(number)


def ends(progress: Progress, number: int) -> int:
    os._exit(number % 200)


def crashes(progress: Progress, number: int) -> int:
    signal.raise_signal(signal.SIGSEGV)  # another call may have patched os.getpid
    return number


def forks_and_exits(progress: Progress, number: int) -> int:
    if os.fork() == 0:
        sys.exit(0)
    return number


def forks_and_waits(progress: Progress, number: int) -> int:
    """The child comes back first."""
    child = os.fork()
    if child == 0:
        return -number
    os.waitpid(child, 0)
    return number


def forks_and_notes(progress: Progress, number: int) -> int:
    """The child goes on with the cell and says so, as a step of ``run_cell`` would."""
    progress.note(number=number)
    child = os.fork()
    if child == 0:
        progress.note(number=-number)
        time.sleep(1000)
    os.waitpid(child, 0)
    assert progress.read() == {"number": number}
    return number


def leaves_a_child(progress: Progress, number: int) -> int:
    _kept.append(subprocess.Popen(["sleep", "1000"]))
    return number


def leaves_a_daemon(progress: Progress, number: int) -> int:
    """Of another session, and with another parent; gives back its process id in place of the number."""
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            time.sleep(1000)
        os.write(tell, str(daemon).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    daemon = int(os.read(told, 100))
    progress.note(daemon=daemon)
    return daemon


def crashes_beside_a_daemon(progress: Progress, number: int) -> int:
    leaves_a_daemon(progress, number)
    return crashes(progress, number)


def hangs_beside_a_daemon(progress: Progress, number: int) -> int:
    leaves_a_daemon(progress, number)
    time.sleep(1000)
    return number


def hangs_beside_a_daemon_with_its_parent_stopped(progress: Progress, number: int) -> int:
    _to_the_fork_server(signal.SIGSTOP)
    return hangs_beside_a_daemon(progress, number)


def leaves_shared_memory(progress: Progress, number: int) -> str:
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=100)
    _kept.append(memory)
    return memory.name


def writes_to_all_descriptors(progress: Progress, number: int) -> int:
    _write(FRAMES[number % len(FRAMES)])
    return number


def writes_and_hangs(progress: Progress, number: int) -> int:
    _write(FRAMES[number % len(FRAMES)])
    time.sleep(1000)
    return number


def _write(data: bytes) -> None:
    for fd in range(3, 4096):
        with contextlib.suppress(OSError):
            os.write(fd, data)


def empties_all_files(progress: Progress, number: int) -> int:
    for fd in range(3, 4096):
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
    return number


def closes_all_descriptors(progress: Progress, number: int) -> int:
    os.closerange(number % 4, 5000)
    return number


def uses_up_the_descriptors(progress: Progress, number: int) -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            _kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return number


def _to_the_fork_server(sent: signal.Signals) -> None:
    """To no other process: after the fork server's end, the parent is one that has nothing to do with the tests."""
    parent = os.getppid()
    if b"forkserver" in Path(f"/proc/{parent}/cmdline").read_bytes():
        os.kill(parent, sent)


def kills_its_parent(progress: Progress, number: int) -> int:
    _to_the_fork_server(signal.SIGKILL)
    return number


def stops_its_parent(progress: Progress, number: int) -> int:
    """And ends, so that another process is needed."""
    _to_the_fork_server(signal.SIGSTOP)
    os._exit(0)


def patches_what_an_answer_takes(progress: Progress, number: int) -> int:
    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError("a patched function was called")

    os.getpid = lambda: 1
    os.open = os.close = os.fstat = os.waitpid = broken
    pickle.dumps = pickle.loads = broken
    time.monotonic = time.sleep = lambda *_: 0.0
    socket.socket.connect = socket.socket.sendall = broken
    return number


def leaves_a_thread(progress: Progress, number: int) -> int:
    """Which writes to all descriptors for a while, also while the answer is sent and the next call waited for."""

    def write() -> None:
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            for fd in range(3, 40):
                with contextlib.suppress(OSError):
                    os.write(fd, b"garbage!" * 10)

    threading.Thread(target=write, daemon=True).start()
    return number


def takes_shared_memory(progress: Progress, size: int, seconds: float) -> int:
    """Anonymous, as a process shares it with its children; then goes on for so long."""
    memory = mmap.mmap(-1, size)
    for start in range(0, size, 2**20):
        memory[start : start + 2**20] = b"x" * 2**20
    time.sleep(seconds)
    return size


def takes_memory_in_children(progress: Progress, size: int) -> int:
    """Three children that each share the memory of this process: that is taken once."""
    memory = bytearray(os.urandom(2**20)) * (size // 2**20)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            sum(memory[:: mmap.PAGESIZE])
            time.sleep(0.6)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return size


def descriptors(progress: Progress, number: int) -> list[str]:
    """What the open descriptors from 3 on lead to."""
    links = [one for one in Path("/proc/self/fd").iterdir() if int(one.name) > 2 and one.is_symlink()]
    return [str(one.readlink()) for one in links]
