"""Note what raises no event.

The status of a file, and the working directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from conformance.process.worker.uses import first_states
from conformance.process.worker.uses.callers import asking_user, user_at
from conformance.process.worker.uses.notes import NOTES, WITHIN, note_use
from conformance.process.worker.uses.whose import USER, absolute, kind_of


class Noted:
    """A function in place of one of Python's own: it calls that one, and notes who asks.

    No function of Python, as these would become methods where they are attributes of a class. Equal to the original,
    which sets such as ``os.supports_fd`` hold.
    """

    def __init__(self, original: Any, note: Callable[[FrameType, tuple[Any, ...]], None], module: str) -> None:
        """``module`` is that in whose namespace it is, by which it is pickled."""
        self.__wrapped__ = original
        self._note = note
        for name in ("__name__", "__qualname__", "__doc__", "__text_signature__"):
            with contextlib.suppress(AttributeError, TypeError):
                setattr(self, name, getattr(original, name))
        self.__module__ = module

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        thread = get_ident()
        if thread not in WITHIN:
            WITHIN.add(thread)
            try:
                self._note(sys._getframe(1), arguments)
            except (TypeError, ValueError):  # arguments that the function itself refuses: nothing is used
                pass
            except Exception:  # whatever a path of the user's raises: the use is lost, and so no result is kept
                NOTES.lost = True
            finally:
                WITHIN.discard(thread)
        return self.__wrapped__(*arguments, **keywords)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.__wrapped__

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __reduce__(self) -> str:
        return str(self.__name__)  # type: ignore[attr-defined]  # taken over from the function

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


READERS = {"safetensors": "safe_open", "safetensors.numpy": "safe_open", "safetensors.torch": "safe_open"}
"""By module its functions of compiled code that open a file by its path."""
_PATHS = frozenset({"posixpath", "genericpath", "os", "pathlib"})
_LINES = frozenset({"inspect", "linecache", "tokenize"})
"""Modules that look for lines of source, for messages alone."""


def watch_libraries() -> None:
    """Note also what PyTorch reads by itself, where it is loaded; calling it again changes nothing."""
    watch_reader(sys.modules.get("torch"), "from_file")


def watch_reader(module: Any, name: str) -> None:
    """Note what a function of compiled code reads, which opens the file of its first argument by itself."""
    original = getattr(module, name, None)
    if original is None or isinstance(original, Noted):
        return

    def note(frame: FrameType, arguments: tuple[Any, ...]) -> None:
        if arguments:
            user = user_at(frame)
            first_states.note_file(absolute(arguments[0]))
            note_use("read", absolute(arguments[0]), user)

    setattr(module, name, Noted(original, note, module.__name__))


def _note_status(frame: FrameType, arguments: tuple[Any, ...]) -> None:
    if not arguments or isinstance(arguments[0], int):
        return
    path = os.fsdecode(arguments[0])
    if "<" in path or "__editable__" in path:
        return
    path = absolute(path)
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals.get("__name__") in _PATHS:
        caller = caller.f_back
    if caller is not None and caller.f_globals.get("__name__") in _LINES:
        return
    # PyTorch looks whether a file is there before its compiled code opens it
    user = asking_user(frame) or (user_at(frame) if kind_of(path) == USER else None)
    if user:
        first_states.note_file(path)
        note_use("looked", path, user)


def _note_folder(frame: FrameType, arguments: tuple[Any, ...]) -> None:
    user = asking_user(frame)
    if user is not None:
        note_use("fact", "cwd", user)


def watch() -> None:
    """Note what these functions are asked from now on."""
    for note, names in (
        (_note_status, ("stat", "lstat", "access", "readlink")),
        (_note_folder, ("getcwd", "getcwdb")),
    ):
        for name in names:
            setattr(os, name, Noted(getattr(os, name), note, "os"))
