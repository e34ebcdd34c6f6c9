"""Note what Python's audit events tell of.

Files, listings, text that is executed, other processes, connections.
"""

from __future__ import annotations

import os
import sys
from threading import get_ident
from types import CodeType
from typing import Any

from conformance.process.worker.uses import first_states
from conformance.process.worker.uses.callers import asking_user, calling_user, user_at
from conformance.process.worker.uses.notes import NOTES, WITHIN, note_use
from conformance.process.worker.uses.whose import USER, absolute, kind_of, source_of

_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_ELSEWHERE = {
    "subprocess.Popen": "another process", "os.system": "another process", "os.posix_spawn": "another process",
    "os.exec": "another process", "os.spawn": "another process", "socket.connect": "a connection",
    "socket.getaddrinfo": "a connection", "urllib.Request": "a connection", "os.fork": "another process",
    "os.forkpty": "another process",
}  # fmt: skip
_EVENTS = frozenset({"open", "import", "exec", "ctypes.dlopen", "sqlite3.connect", *_LISTINGS, *_ELSEWHERE})
_MEMORY = ("/proc/", "/sys/", "/dev/")
_WRITING = os.O_WRONLY | os.O_RDWR


def watch() -> None:
    """Note the events of this process from now on."""
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    thread = get_ident()
    if thread in WITHIN:
        return
    WITHIN.add(thread)
    refused: OSError | None = None
    try:
        if event == "open":
            refused = _opened(*arguments[:3])
        elif event == "exec":
            _executed(arguments[0])
        elif event == "import":
            if arguments[1] is not None:  # the shared object of a module
                _opened(arguments[1], "r", 0)
        elif event in ("ctypes.dlopen", "sqlite3.connect"):
            if arguments[0] is not None and os.sep in os.fsdecode(arguments[0]):
                _opened(arguments[0], "r", 0)
        elif event in _ELSEWHERE:
            user = asking_user(sys._getframe(1))
            if user is not None:
                note_use("unseen", _ELSEWHERE[event], user)
        else:
            frame = sys._getframe(1)
            if not frame.f_code.co_filename.startswith("<frozen importlib"):
                user = user_at(frame)
                if user is not None:
                    folder = absolute(arguments[0] if arguments[0] is not None else ".")
                    first_states.note_folder(folder)
                    note_use("listed", folder, user)
    except (TypeError, ValueError):  # arguments that the function itself refuses: nothing is used
        return
    except Exception:  # whatever a path of the user's raises: the use is lost, and so no result is kept
        NOTES.lost = True
    finally:
        WITHIN.discard(thread)
    if refused is not None:
        raise refused


def _opened(path: Any, mode: str | None, flags: int | None) -> OSError | None:
    """Note that a file is opened; return the error at which Python has to read another in its place."""
    if isinstance(path, int):
        return None
    frame = sys._getframe(2)
    name = absolute(path)
    if isinstance(flags, int) and flags & _WRITING and not (mode and mode.startswith("r")):
        if NOTES.case is not None and (not os.path.exists(name) or flags & os.O_TRUNC):  # noqa: PTH110
            NOTES.written.add(name)
        return None
    if name.startswith(_MEMORY):
        # packages look at the host as they are imported, as psutil does at /proc/stat, and few results depend on it
        user = asking_user(frame) if name == "/proc/cpuinfo" else calling_user(frame)
        if user is not None and not name.startswith("/dev/null"):
            note_use("fact" if name == "/proc/cpuinfo" else "fleeting", "cpu" if "cpuinfo" in name else name, user)
        return None
    importing = frame.f_code.co_filename.startswith("<frozen importlib")
    if importing and kind_of(name) != USER:
        return None  # imports say what is loaded of distributions
    if "<" in name or "__editable__" in name or frame.f_globals.get("__name__") == "tokenize":
        return None  # lines of source for a traceback
    user = user_at(frame)
    if user is None and kind_of(name) != USER:
        return None
    if importing and first_states.is_doubtful(name):
        return first_states.refusal(name)
    if user is not None and not os.fsdecode(path).startswith(os.sep):
        note_use("fact", "cwd", user)
    first_states.note_file(source_of(name))
    note_use("read", source_of(name), user)
    return None


def _executed(code: object) -> None:
    if not isinstance(code, CodeType) or kind_of(code.co_filename) != USER:
        return
    names = NOTES.names.setdefault(code.co_filename, set())
    waiting = [code]
    while waiting:
        part = waiting.pop()
        names.update(part.co_names)
        waiting += [constant for constant in part.co_consts if isinstance(constant, CodeType)]
