"""The fence around a cell: what it changed in its process is noticed, told, and put back where it can be.

What modules beside a case keep from one cell to the next, as a counter or a cache, is nobody's mistake and is not
told. But a cell that finds it may end otherwise than one that does not, so that a process in which something is kept
runs no other cell.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from conformance.process.errors import attempt, or_else
from conformance.process.worker.state import (
    hooks,
    judging,
    numeric_settings,
    patched_functions,
    process_settings,
    registries,
)
from conformance.process.worker.state.setting import Outcome, Setting, StateChange, When

_CONTAINERS = (dict, list, set, bytearray)


class OwnModules:
    """The modules of a folder that are loaded, and Python's built-in names, as they were when they were taken."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        """That of the case; None where no Python of it was loaded."""
        self._owners: list[object] = []
        self._then: list[dict[str, object]] = []

    def take(self) -> None:
        """Take what the modules hold now. To be called while they can be found in ``sys.modules``."""
        if self.folder is None:
            return
        inside = f"{self.folder}{os.sep}"
        modules = [
            module
            for module in [*sys.modules.values()]
            if isinstance(module, ModuleType) and (getattr(module, "__file__", None) or "").startswith(inside)
        ]
        owners: list[object] = [sys.modules["builtins"], *modules]
        for module in modules:
            owners += [
                value
                for value in vars(module).values()
                if isinstance(value, type) and value.__module__ == module.__name__
            ]
        self._owners = owners
        self._then = [_read_values(owner) for owner in owners]

    def changed(self) -> bool:
        """Return whether anything is kept that was not when the modules were taken."""
        now = [_read_values(owner) for owner in self._owners]
        return any(one.keys() != other.keys() or any(one[name] is not other[name] for name in one if name)
                   or one[""] != other[""] for one, other in zip(now, self._then, strict=True))  # fmt: skip


def _read_values(owner: object) -> dict[str, object]:
    """Return the values by name, and under an empty name how much those contain that are containers."""
    values = {name: value for name, value in vars(owner).items() if not name.startswith("__")}
    return {**values, "": [len(value) for value in values.values() if type(value) in _CONTAINERS]}


_UNREAD = object()


class Fence:
    """Bring a process back to what it was before a cell.

    What is changed while a case is loaded (its Python imported, its module built) is kept for all cells of that case,
    whichever came first, since Python imports a module once. What is changed while a cell runs is put back, as the
    rest of the cell and a process that is not a worker's go on with it. But nobody looks at everything: a worker in
    which something was changed so is ``spoilt``, and runs no other cell.
    """

    def __init__(self) -> None:
        self._settings = [*process_settings.settings(), *hooks.settings(), *numeric_settings.settings()]
        self._readers = [setting.read for setting in self._settings]
        self._values: list[object] = [_UNREAD] * len(self._settings)
        registries.count_schemas()
        self._judging = judging.remember()
        self._functions = patched_functions.remember()
        self._registries = registries.remember()
        for watched in (self._judging, self._functions, self._registries):
            watched.accept()
        self._own = OwnModules()
        self._held = held()
        self._kept: list[StateChange] = []
        self._with_code = False
        self._now: list[StateChange] = []
        self._loading = 0
        self.spoilt = False
        self._look(None)

    def begin(self) -> None:
        """A cell comes next."""
        global _standing
        _standing = self
        self._now, self._loading = [], 0
        self._functions.extend()
        self._registries.watch()

    def end(self) -> list[StateChange]:
        """The cell is over: what was changed while its case was loaded, and while it ran. Sets ``spoilt``."""
        global _standing
        _standing = None
        self._look("running")
        runs_on = any(change.kind == "leftover" for change in self._kept)
        added = self._judging.added or self._functions.added
        self.spoilt = self.spoilt or bool(self._now) or runs_on or added or self._own.changed()
        return [*self._kept, *self._now]

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
                self._functions.extend()
                self._registries.watch()
                self._own.take()
                self._judging.added = self._functions.added = False

    def settle(self) -> list[str]:
        """In the midst of a cell: puts back what has been changed. Gives the functions that the cell has replaced."""
        self._look("running")
        return [change.what for change in [*self._kept, *self._now] if change.kind == "function"]

    def note_code(self, folder: Path) -> None:
        """The cell's case has Python of its own, which could change anything; that of ``folder`` may keep state."""
        self._with_code = True
        judging.note_code()
        self._own.folder = folder

    def _look(self, when: When | None) -> None:
        """Note what has changed since the last look; None for the first one, which only reads."""
        put_back = when == "running"
        outcome: Outcome = "put back" if put_back else "kept"
        # Functions first: with them, what reads the settings is what it was.
        if self._with_code:
            for watched in (self._judging, self._functions):
                for name in watched.changes(put_back=put_back):
                    self._note(StateChange(name, "function", when or "loading", outcome))
            for name in self._registries.changes():
                self._note(StateChange(name, "registry", when or "loading", "left" if put_back else "kept"))
        if self._read() != self._values:
            for index, setting in enumerate(self._settings):
                self._compare(index, setting, when)
        left = left_since(self._held)
        if left:
            self._held = held()
            for what, named in left.items():
                self._note(
                    StateChange(what, "leftover", when or "loading", "left" if put_back else "kept", after=named)
                )

    def _read(self) -> list[object] | None:
        """The values of all settings; None where one cannot be read, or cannot have been set yet."""
        return or_else(None, lambda: [read() for read in self._readers])

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
        self._note(StateChange(setting.name, "setting", when or "loading", outcome, *shown))

    def _note(self, change: StateChange) -> None:
        changes = self._now if change.when == "running" else self._kept
        if change.what not in {known.what for known in changes}:
            changes.append(change)


def _read(setting: Setting) -> object:
    value = attempt(setting.read)
    return type(value).__name__ if isinstance(value, Exception) else value


def _put_back(setting: Setting, before: object) -> bool:
    if setting.put_back is not None:
        attempt(partial(setting.put_back, before))
    return bool(_read(setting) == before)


# ---- the fence of the cell that is running ---------------------------------------------------------------

_standing: Fence | None = None


@cache
def of_process() -> Fence:
    """The fence of a worker process, where nothing but cells of cases with the same Python runs."""
    return Fence()


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """``Fence.loading`` of the cell that is running; nothing where no fence stands."""
    with contextlib.nullcontext() if _standing is None else _standing.loading():
        yield


def settle() -> list[str]:
    """``Fence.settle`` of the cell that is running; nothing where no fence stands."""
    return [] if _standing is None else _standing.settle()


def note_code(folder: Path) -> None:
    """``Fence.note_code`` of the cell that is running."""
    if _standing is not None:
        _standing.note_code(folder)


_ENDING = 0.05  # seconds that a thread gets to end which is about to
_NAMED = 3  # threads, those that were started last
_OF_LIBRARIES = {"tqdm_monitor"}  # started with the first progress bar of whatever library, and shared by all of them
_MANY = 100  # files that a cell may leave open; libraries keep a few


class Held(NamedTuple):
    """The threads of Python, but for those of ``_OF_LIBRARIES``, and the lowest number that a new file would get."""

    threads: int
    free: int


def held() -> Held:
    return Held(_threads(), _lowest_free())


def _threads() -> int:
    """All threads count, also those that ``threading`` does not know."""
    return _thread._count() - sum(thread.name in _OF_LIBRARIES for thread in threading.enumerate())


def left_since(before: Held) -> dict[str, str]:
    """Return what is held now and was not before, by kind, in a few words."""
    now = held()
    if now == before:
        return {}
    left = {}
    if now.threads > before.threads and _still_more(before.threads):
        own = {threading.main_thread().name, *_OF_LIBRARIES}
        names = [thread.name for thread in threading.enumerate() if thread.name not in own]
        left["threads"] = ", ".join(names[-_NAMED:]) or "without a name"
    if now.free > before.free + _MANY:
        left["open files"] = f"about {now.free - before.free}"
    return left


def _still_more(threads: int) -> bool:
    deadline = time.monotonic() + _ENDING
    while _threads() > threads:
        if time.monotonic() > deadline:
            return True
        time.sleep(_ENDING / 50)
    return False


def _lowest_free() -> int:
    with contextlib.suppress(OSError):  # no number is left, or stdin was closed
        number = os.dup(0)
        os.close(number)
        return number
    return 0 if _can_open() else 1 << 20


def _can_open() -> bool:
    with contextlib.suppress(OSError), Path(os.devnull).open("rb"):
        return True
    return False
