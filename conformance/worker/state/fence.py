"""The fence around a cell: what it changed in its process is noticed, told, and put back where it can be."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Hashable, Iterator
from typing import Any, Literal

from conformance.worker.state import functions, leftovers, numbers, process
from conformance.worker.state.setting import Change, Outcome, Setting, When

Fit = Literal["any", "case", "none"]
"""The cells that a process may go on with: all, those of the same case, or none."""
_UNREAD = object()


class Fence:
    """What the process was before a cell, to which it has to come back.

    What is changed while a case is loaded (its Python imported, its module built) is kept for all cells of that case,
    whichever came first, since Python imports a module once: the process then belongs to the case. What is changed
    while a cell runs is put back. A process in which that is not possible is fit for no other cell.
    """

    def __init__(self) -> None:
        self._settings = [*process.settings(), *numbers.settings()]
        self._readers = [setting.read for setting in self._settings]
        self._values: list[Any] = [_UNREAD] * len(self._settings)
        self._functions = functions.Functions()
        self._held = leftovers.held()
        self._case: Hashable = None
        self._kept: dict[Hashable, list[Change]] = {}
        self._with_code: set[Hashable] = set()
        self._now: list[Change] = []
        self._modules = 0
        self._loading = 0
        self.fit: Fit = "any"
        self._look(None)

    def begin(self, case: Hashable) -> None:
        """A cell of this case comes next."""
        global _standing
        _standing = self
        self._case, self._now, self._loading = case, [], 0
        self._modules = len(sys.modules)
        self._functions.watch()

    def end(self) -> list[Change]:
        """The cell is over: what was changed while its case was loaded, and while it ran. Sets ``fit``."""
        global _standing
        _standing = None
        self._look("running")
        kept = self._kept.get(self._case, [])
        # What a module changes as it is imported, a later cell that imports it again would lack; and who replaces
        # one function may have replaced others that nobody looks at.
        spoilt = any(change.outcome == "left" or change.kind == "function" for change in self._now)
        if spoilt or (self._now and len(sys.modules) > self._modules):
            self.fit = "none"
        elif kept and self.fit == "any":
            self.fit = "case"
        return [*kept, *self._now]

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Inside the block Python of the case is imported, or its module is built."""
        if not self._loading:
            self._look("running")
        self._loading += 1
        try:
            yield
        finally:
            self._loading -= 1
            if not self._loading:
                self._look("loading")
                self._modules = len(sys.modules)
                self._functions.watch()

    def settle(self) -> list[str]:
        """In the midst of a cell: puts back what has been changed. Gives the functions that the cell has replaced."""
        self._look("running")
        changes = [*self._kept.get(self._case, []), *self._now]
        return [change.what for change in changes if change.kind == "function"]

    def note_code(self) -> None:
        """The cell's case has Python of its own, which could replace functions."""
        self._with_code.add(self._case)

    def _look(self, when: When | None) -> None:
        """Notes what has changed since the last look; None for the first one, which only reads."""
        put_back = when == "running"
        # Functions first: with them, what reads the settings is what it was.
        if self._case in self._with_code:
            for name in self._functions.changes(put_back=put_back):
                self._note(Change(name, "function", when or "loading", "put back" if put_back else "kept"))
        if self._read() != self._values:
            for index, setting in enumerate(self._settings):
                self._compare(index, setting, when)
        left = leftovers.left_since(self._held)
        if left:
            self._held = leftovers.held()
            for what, names in left.items():
                self._note(Change(what, "leftover", when or "loading", "left" if put_back else "kept", after=names))

    def _read(self) -> list[Any] | None:
        """The values of all settings; None where one cannot be read, or cannot have been set yet."""
        try:
            return [read() for read in self._readers]
        except Exception:
            return None

    def _compare(self, index: int, setting: Setting, when: When | None) -> None:
        if setting.module not in sys.modules:
            return
        now, before = _read(setting), self._values[index]
        if setting.adopt is not None and before is not _UNREAD:
            before = setting.adopt(before, now)
        if before is _UNREAD or now == before:
            self._values[index] = now
            return
        outcome: Outcome = "kept"
        if when == "running":
            outcome = "put back" if _put_back(setting, before) else "left"
        if outcome != "put back":
            self._values[index] = now
        shown = setting.show(before, now), setting.show(now, before)
        self._note(Change(setting.name, "setting", when or "loading", outcome, *shown))

    def _note(self, change: Change) -> None:
        changes = self._now if change.when == "running" else self._kept.setdefault(self._case, [])
        if change.what not in {known.what for known in changes}:
            changes.append(change)


def _read(setting: Setting) -> Any:
    try:
        return setting.read()
    except Exception as error:
        return type(error).__name__


def _put_back(setting: Setting, before: Any) -> bool:
    if setting.put_back is not None:
        with contextlib.suppress(Exception):
            setting.put_back(before)
    return bool(_read(setting) == before)


# ---- the fence of the cell that is running ---------------------------------------------------------------

_standing: Fence | None = None
_lasting: Fence | None = None


def of_process() -> Fence:
    """The fence of a worker process, where nothing but cells runs."""
    global _lasting
    if _lasting is None:
        _lasting = Fence()
    return _lasting


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """``Fence.loading`` of the cell that is running; nothing where no fence stands."""
    with contextlib.nullcontext() if _standing is None else _standing.loading():
        yield


def settle() -> list[str]:
    """``Fence.settle`` of the cell that is running; nothing where no fence stands."""
    return [] if _standing is None else _standing.settle()


def note_code() -> None:
    """``Fence.note_code`` of the cell that is running."""
    if _standing is not None:
        _standing.note_code()
