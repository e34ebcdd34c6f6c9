"""The file behind a worker's stdout and stderr, which its parent reads and empties."""

from __future__ import annotations

import fcntl
import os
from io import FileIO
from multiprocessing import reduction
from typing import IO, Any

_TAIL = 8 * 1024  # bytes of output worth showing
_FLOOD = 64 * 2**20  # bytes of output worth keeping on disk


class OutputFile:
    """The file has no name, so that no death leaves it behind. A new process that is given this has the same file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        # appending, so that a worker goes on at the start when its parent has emptied the file
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)

    def __reduce__(self) -> tuple[object, ...]:
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


def _inherited(fd: Any) -> OutputFile:
    return OutputFile(FileIO(fd.detach(), "r+"))
