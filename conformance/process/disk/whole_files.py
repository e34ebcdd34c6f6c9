"""Write files so that nobody ever sees a part of one."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

UNFINISHED = ".new-"
"""The beginning of the name of a file that is not whole yet, beside the place that it will take."""


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """Inside the block, a stream whose bytes take the place of ``file`` at the end of the block, at once.

    Of a block that raises nothing is left, and ``file`` stays as it was. Raises OSError where it cannot be written.
    """
    unfinished = file.with_name(f"{UNFINISHED}{os.getpid()}-{threading.get_ident()}")
    try:
        with unfinished.open("wb") as stream:
            yield stream
        unfinished.replace(file)
    except BaseException:  # also Ctrl-C: half of a file is of no use to anybody
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
