"""A function in place of one of Python's own, which notes who asks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from conformance.worker.uses.callers import asking_user
from conformance.worker.uses.notes import NOTES, WITHIN, note_use
from conformance.worker.uses.whose import USER, kind_of


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


def replace(module: Any, name: str, kind: str, what: str, *, through: frozenset[str] | None = None) -> None:
    """Put a ``Noted`` in the place of a function of a module.

    ``through``: only the user's own calls count, and those through these modules; None for all of the library.
    """
    original = getattr(module, name, None)
    if original is None or isinstance(original, Noted):
        return

    def note(frame: FrameType, arguments: tuple[Any, ...]) -> None:
        caller: FrameType | None = frame
        if through is not None:
            while caller is not None and caller.f_globals.get("__name__") in through:
                caller = caller.f_back
            if caller is None or kind_of(caller.f_code.co_filename) != USER:
                return
        user = asking_user(caller)
        if user is not None:
            note_use(kind, what, user)

    setattr(module, name, Noted(original, note, module.__name__))
