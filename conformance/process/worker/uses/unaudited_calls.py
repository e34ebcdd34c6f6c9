"""Note what raises no event.

Variables, the status of a file, the clock, what the host says of itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType, ModuleType
from typing import Any

from conformance.process.worker.uses import first_states
from conformance.process.worker.uses.callers import asking_user, calling_user, user_at
from conformance.process.worker.uses.notes import NOTES, WITHIN, note_use, noting
from conformance.process.worker.uses.whose import USER, absolute, kind_of

Note = Callable[[FrameType, tuple[object, ...]], None]
"""Gets the frame that calls a function, and the arguments."""


class Noted:
    """A function in place of one of Python's own: it calls that one, and notes who asks.

    No function of Python, as these would become methods where they are attributes of a class. Equal to the original,
    which sets such as ``os.supports_fd`` hold.
    """

    def __init__(self, original: Callable[..., object], note: Note, module: str) -> None:
        """``module`` is that in whose namespace it is, by which it is pickled."""
        self.__wrapped__ = original
        self._note = note
        for name in ("__name__", "__qualname__", "__doc__", "__text_signature__"):
            with contextlib.suppress(AttributeError, TypeError):
                setattr(self, name, getattr(original, name))
        self.__module__ = module

    def __call__(self, *arguments: object, **keywords: object) -> object:
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


def replace(module: ModuleType, name: str, kind: str, what: str, *, through: frozenset[str] | None = None) -> None:
    """Put a ``Noted`` in the place of a function of a module.

    ``through``: only the user's own calls count, and those through these modules; None for all of the library.
    """
    original = getattr(module, name, None)
    if original is None or isinstance(original, Noted):
        return

    def note(frame: FrameType, arguments: tuple[object, ...]) -> None:
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


READERS = {"safetensors": "safe_open", "safetensors.numpy": "safe_open", "safetensors.torch": "safe_open"}
"""By module its functions of compiled code that open a file by its path."""
_PATHS = frozenset({"posixpath", "genericpath", "os", "pathlib"})
_LINES = frozenset({"inspect", "linecache", "tokenize"})
"""Modules that look for lines of source, for messages alone."""


def watch() -> None:
    """Note what these functions are asked from now on."""
    _watch_variables()
    _watch_functions()


def watch_libraries() -> None:
    """Note also what PyTorch says of the host, where it is loaded; calling it again changes nothing."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for module, names in ((torch.backends.cpu, ("get_cpu_capability",)), (torch.cuda, ("is_available",))):
        for name in names:
            replace(module, name, "fact", "cpu" if module is not torch.cuda else "gpu")
    for name in [name for name in dir(torch.cpu) if name.startswith("_is_")]:
        replace(torch.cpu, name, "fact", "cpu")
    watch_reader(torch, "from_file")


def _watch_variables() -> None:
    environ: Any = type(os.environ)
    getitem, iterate, setitem = environ.__getitem__, environ.__iter__, environ.__setitem__

    def __getitem__(self: object, key: object) -> object:
        _read_variable(key)
        return getitem(self, key)

    def __iter__(self: object) -> object:
        _read_variable("*")
        return iterate(self)

    def __setitem__(self: object, key: Any, value: object) -> None:
        with noting:
            if (
                NOTES.case is not None
                and user_at(sys._getframe(1)) is not None
                and ("variable", key) not in NOTES.of_cases.get(NOTES.case, ())
            ):
                NOTES.set.add(os.fsdecode(key))
        setitem(self, key, value)

    for function in (__getitem__, __iter__, __setitem__):
        setattr(environ, function.__name__, function)


def _read_variable(key: Any) -> None:
    with noting:
        user = asking_user(sys._getframe(2))
        if user is not None:
            note_use("variable", os.fsdecode(key), user)


def watch_reader(module: Any, name: str) -> None:
    """Note what a function of compiled code reads, which opens the file of its first argument by itself."""
    original = getattr(module, name, None)
    if original is None or isinstance(original, Noted):
        return

    def note(frame: FrameType, arguments: tuple[object, ...]) -> None:
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


def _note_uname(frame: FrameType, arguments: tuple[object, ...]) -> None:
    """Note the platform, and the host's name where the user's own code asks: that is another in each container."""
    user = asking_user(frame)
    if user is not None:
        note_use("fact", "platform", user)
    if frame.f_globals.get("__name__") != "platform":  # which asks for all and keeps it, whatever it was asked
        own = calling_user(frame)
        if own is not None:
            note_use("fact", "host name", own)


def _watch_functions() -> None:
    import locale
    import platform
    import random
    import socket
    import tempfile
    import time

    for name in ("stat", "lstat", "access", "readlink"):
        setattr(os, name, Noted(getattr(os, name), _note_status, "os"))
    asked: Any
    for asked in (os, platform):
        asked.uname = Noted(asked.uname, _note_uname, asked.__name__)
    of_platform = "platform machine processor release system version architecture libc_ver"
    of_locale = "setlocale getlocale localeconv getpreferredencoding getdefaultlocale"
    facts = {
        "cwd": [(os, "getcwd"), (os, "getcwdb")],
        "host name": [(socket, "gethostname"), (socket, "getfqdn"), (platform, "node")],
        "cores": [(os, "cpu_count"), (os, "sched_getaffinity"), (os, "process_cpu_count")],
        "platform": [(platform, name) for name in of_platform.split()],
        "locale": [(locale, name) for name in of_locale.split()],
        "user": [(os, name) for name in ("getlogin", "getuid", "geteuid", "getgid")],
    }  # fmt: skip
    for what, functions in facts.items():
        for module, name in functions:
            replace(module, name, "fact", what)
    for name in ("gettempdir", "gettempdirb", "mkdtemp", "mkstemp"):
        replace(tempfile, name, "variable", "TMPDIR")
    clock = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time")
    for name in (*clock, "process_time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"):
        replace(time, name, "fleeting", "the clock", through=frozenset())
    for name in ("getpid", "times", "getloadavg"):
        replace(os, name, "fleeting", f"os.{name}", through=frozenset())
    chance = frozenset({"random", "secrets", "uuid"})
    replace(os, "urandom", "fleeting", "random numbers of the system", through=chance)
    replace(random, "_urandom", "fleeting", "random numbers of the system", through=chance)
