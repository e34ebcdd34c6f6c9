"""Functions for a worker process, most of them fatal, for tests of isolation."""

import collections
import ctypes
import itertools
import mmap
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import tempfile
import zlib
from typing import Any

from conformance.process.worker.progress_note import Progress
from conformance.process.worker.serve import captured

_libc = ctypes.CDLL(None)


class Unfamiliar(Exception):
    """Cannot be unpickled: its constructor takes more than its text."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def segv() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def lowers(x: object, *more: object) -> None:
    """As the function by which an exporter lowers an operator."""
    segv()


def sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_3() -> None:
    os._exit(3)


def system_exit() -> None:
    sys.exit(3)


def keyboard_interrupt() -> None:
    raise KeyboardInterrupt("planted")


def stop() -> None:
    """As somebody does who stops a process of a run and forgets it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    """In C, with the GIL, and without a look at signals: no Python code runs here again."""
    collections.deque(itertools.repeat(None), maxlen=0)


def flood() -> None:
    kept = []
    while True:
        kept.append(bytearray(2**26))


def reserved(progress: Progress, size: int) -> int:
    """Reserve so many bytes of address space without the right to use them, as CUDA does; the size of what it got."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0) as found:
        return len(found)


def recurse() -> None:
    recurse()


def unfamiliar() -> None:
    raise Unfamiliar("one", "two")


def of_a_hidden_type() -> None:
    raise type("Hidden", (Exception,), {"__module__": "nowhere"})("planted")


def value_error() -> None:
    raise ValueError("planted 17")


def noted(progress: Progress, name: str) -> None:
    """Note the process and the plant, then run the plant."""
    progress.note(stage="run", pid=os.getpid(), draw={"dims": {"batch": 3}, "index": 2}, plant=name)
    globals()[name]()


def litter(progress: Progress) -> None:
    """Leave a temporary folder, and die."""
    progress.note(folder=tempfile.mkdtemp())
    sigkill()


def pid(progress: Progress) -> int:
    return os.getpid()


def echo(progress: Progress, what: object) -> object:
    return what


def unpicklable(progress: Progress) -> Any:
    return lambda: None


def loaded(progress: Progress, *names: str) -> list[str]:
    return [name for name in names if name in sys.modules]


def write(progress: Progress, text: str, times: int) -> str:
    """Through Python, the C library and the descriptors."""
    print(text, "python ", end="")
    sys.stdout.flush()
    print(text, "error ", file=sys.stderr, end="")
    sys.stderr.flush()
    _libc.printf(b"%s c ", text.encode())
    _libc.fflush(None)
    block = (text * times).encode()
    while block:
        block = block[os.write(1, block) :]
    print(" the end", end="")  # stays in the buffer
    return captured()


def print_then_segv(progress: Progress) -> None:
    _libc.puts(b"puts before the crash")
    print("print before the crash")
    segv()


def read_mark(progress: Progress) -> str | None:
    return os.environ.get("PLANTED_MARK")


def mark() -> None:
    os.environ["PLANTED_MARK"] = "set by the initializer"


def broken_initializer() -> None:
    raise RuntimeError("planted in the initializer")


def fatal_initializer() -> None:
    os._exit(4)


def note_forever(progress: Progress) -> None:
    for count in itertools.count():
        progress.note(count=count, padding="x" * (count % 1000))


def start_a_process(progress: Progress) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=os._exit, args=(5,))
    process.start()
    process.join()
    return process.exitcode


def answers_wrongly(progress: Progress, name: str, address: bytes, key: bytes) -> None:
    """In place of ``serve``, as only a call could do that knows all of it: an answer to call 5, or half of it."""
    data = {"unreadable": b"no pickle", "other": pickle.dumps(17)}.get(name, b"answer")
    number = 1 if name == "earlier" else 5
    head = struct.pack("=16sQQI", key, number, 2**63 - 1 if name == "long" else len(data), zlib.crc32(data))
    bad = {"garbage": b"garbage!" * 10, "damaged": head + b"anwser", "half": head + b"ans"}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(bad.get(name, head + data))
        hang()
