"""Looking into an exporter while it works: functions of torch wrapped for a time, and whose a line of Python is."""

from __future__ import annotations

import contextlib
import functools
import importlib
import linecache
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conformance.diagnose.operators.captured_program import Unable

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)')
Frame = tuple[str, int, str]
"""File, line, name of the function."""


def part_of(module: str, *names: str) -> Any:
    """Something of torch's, private or not, by its module and the names of attributes.

    Raises Unable where this torch has no such thing.
    """
    try:
        return functools.reduce(getattr, names, importlib.import_module(module))
    except (ImportError, AttributeError):
        raise Unable("torch", ".".join((module, *names))) from None


Original = Callable[..., Any]
"""A function of torch's, as it is without a wrapper."""


@contextlib.contextmanager
def wrapped(owner: object, name: str, wrapper: Callable[..., object]) -> Iterator[None]:
    """Inside the block ``owner.name(...)`` is ``wrapper(original, ...)``. Raises Unable where it has no such name."""
    try:
        original = getattr(owner, name)
    except AttributeError:
        raise Unable("torch", f"{getattr(owner, '__name__', owner)}.{name}") from None

    @functools.wraps(original)
    def instead(*args: object, **kwargs: object) -> object:
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, original)


def of_torch(file: str) -> bool:
    import torch

    return file.startswith((f"{Path(torch.__file__).parent}{os.sep}", f"torch{os.sep}"))


def of_users(file: str) -> bool:
    """Return whether a file is neither torch's own nor made up, with no source to show."""
    if of_torch(file) or file.startswith("<eval_with_key>"):
        return False
    return not file.startswith("<") or bool(linecache.getline(file, 1))


def frames_of(trace: str) -> list[Frame]:
    """The frames of a stack as Python writes it, from the outermost."""
    return [(found["file"], int(found["line"]), found["name"].strip()) for found in _FRAME.finditer(trace)]


def below_forward(frames: list[Frame]) -> list[Frame]:
    """The frames of users from the first call of a forward on, as the rest is who runs the exporter; or those of code
    that no file has, as ``exec`` runs or torch.fx generates it, where there are no others."""
    calls = (place for place, (file, _, name) in enumerate(frames) if name == "forward" or file.endswith(_MODULE))
    below = [frame for frame in frames[next(calls, len(frames)) :] if not of_torch(frame[0])]
    return [frame for frame in below if of_users(frame[0])] or below


_MODULE = str(Path("torch", "nn", "modules", "module.py"))
"""Where modules are called, whatever their forward is called."""


def told(frames: list[Frame]) -> tuple[str | None, str | None]:
    """The innermost of some frames as ``modules.py:53``, or ``torch/nn/functional.py:53``, and the text of that line;
    None for each that is unknown."""
    if not frames:
        return None, None
    file, line, _ = frames[-1]
    name = re.sub(r"^(<\w+>)\.\d+$", r"\1", Path(file).name)  # which torch.fx numbers in each process
    if of_torch(file):
        name = f"torch{os.sep}{file.rpartition(f'torch{os.sep}')[2]}"
    return f"{name}:{line}", linecache.getline(file, line).strip() or None


def in_a_file_of_users(line: str | None, source: str | None) -> bool:
    """Return whether that is a line of a file that is there, and not torch's own."""
    return source is not None and not f"{line}".startswith(("<", f"torch{os.sep}"))
