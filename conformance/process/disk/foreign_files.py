"""Files that somebody else may have written, read as text or as plain data. Whatever they are, reading them ends: in
a value, or in one line about what is wrong."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from conformance.process import collector
from conformance.process.errors import UserError, display_path, why

LARGEST = 2**30
"""Bytes of a file that is read whole. A run of 100,000 cells has about a quarter of it."""


def read_text(file: Path) -> str:
    """The UTF-8 text of a regular file. Raises UserError, with its name, for anything else."""
    name = display_path(file)
    try:
        # Opened without waiting: opening a named pipe takes until somebody writes to it.
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UserError(f"{name}: is not a regular file")
            data = stream.read(LARGEST + 1) if os.fstat(handle).st_size <= LARGEST else None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({why(error)})") from None
    if data is None or len(data) > LARGEST:
        raise UserError(f"{name}: is larger than {LARGEST >> 20} MiB, which is the most that is read")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: is not UTF-8 text ({error.reason} at byte {error.start})") from None


def unpack(archive: bytes, target: Path, is_wanted: Callable[[Path], bool] = lambda _: True) -> None:
    """Write the regular files of a tar archive below ``target``: no links, and none whose name leads elsewhere.

    ``TarFile.extractall`` has a filter for that from Python 3.11.4 on. Raises OSError and tarfile.TarError.
    """
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            place = Path(member.name)
            if not member.isfile() or place.is_absolute() or ".." in place.parts or not is_wanted(place):
                continue
            content = tar.extractfile(member)
            assert content is not None, "it is a file"
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            (target / place).write_bytes(content.read())


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, in one line, for what is none: also for NaN and infinities, which
    JSON lacks, and for a text that is nested more deeply than Python can follow."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Inside the block, which makes plain data of a file, the garbage collector is off, and afterwards it leaves out
    what is there. It would find nothing in such data, and look through all of it again and again: a fifth of the time
    that ``conformance accept`` takes for 100,000 cells."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        collector.leave_out_present()
        if enabled:
            gc.enable()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")
