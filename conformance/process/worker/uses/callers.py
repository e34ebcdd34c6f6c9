"""Find out who uses something: the frames of a call, from the nearest on."""

from __future__ import annotations

from types import FrameType

from conformance.process.worker.uses.notes import NOTES
from conformance.process.worker.uses.whose import INSTALLED, OWN, PYTHON, USER, kind_of

_PYTHON = frozenset({PYTHON})
_LIBRARIES = frozenset({PYTHON, INSTALLED})


def user_at(frame: FrameType | None) -> str | None:
    """Return the user's file whose code is nearest, on whichever errand; None where this package comes first."""
    return _nearest(frame, past=_LIBRARIES)


def calling_user(frame: FrameType | None) -> str | None:
    """Return the user's file whose code is nearest, with nothing but Python's library between; else None."""
    return _nearest(frame, past=_PYTHON)


def _nearest(frame: FrameType | None, past: frozenset[int]) -> str | None:
    while frame is not None:
        name = frame.f_code.co_filename
        kind = kind_of(name)
        if kind not in past:
            return name if kind == USER else None
        frame = frame.f_back
    return None


def asking_user(frame: FrameType | None) -> str | None:
    """Return the user's file that asks, itself or through Python's library or a package of its choice.

    "" where only such a package does; None for any other code, such as PyTorch's own.
    """
    found = None
    while frame is not None:
        name = frame.f_code.co_filename
        kind = kind_of(name)
        if kind == USER:
            return name
        if kind == OWN:
            return found
        if kind == INSTALLED:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package in NOTES.base:
                return None
            found = ""
        frame = frame.f_back
    return found
