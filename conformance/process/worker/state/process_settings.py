"""The settings of Python and of the operating system that a cell can change."""

from __future__ import annotations

import contextlib
import gc
import importlib
import locale
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from conformance.process.worker.state.setting import Setting, attribute, kind_of, text

# The C module beneath ``signal``, which makes an enumeration of each handler and takes ten times as long for it.
_signal = importlib.import_module("_signal")
_HANDLED = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGCHLD", "SIGUSR1", "SIGUSR2")
)
_OF_LIBRARIES = (b"PROTOCOL_BUFFERS_", b"TORCHINDUCTOR_", b"TRITON_")
"""Environment variables that PyTorch and the libraries of ONNX set as parts of them are imported."""
_Handler = Callable[..., object] | int | None
_LIMITS = ("AS", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")


def settings() -> Iterator[Setting]:
    yield Setting("the working directory", _folder, os.chdir)
    yield Setting("the environment", _environment, _put_back_environment, _other_names, _with_own)
    yield Setting("os.umask", _umask, os.umask, lambda value, _: f"{value:#o}")
    yield Setting("sys.setrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield Setting("sys.setswitchinterval", sys.getswitchinterval, sys.setswitchinterval)
    yield Setting("sys.settrace", sys.gettrace, sys.settrace, kind_of)
    yield Setting("sys.setprofile", sys.getprofile, sys.setprofile, kind_of)
    for name in ("stdin", "stdout", "stderr"):
        yield attribute(sys, name)
    for number, name in ((1, "stdout"), (2, "stderr")):
        yield Setting(f"the descriptor of {name}", _file(number))
    yield Setting("gc.set_threshold", gc.get_threshold, lambda value: gc.set_threshold(*value))
    yield Setting("gc.disable", gc.isenabled, lambda value: gc.enable() if value else gc.disable())
    yield Setting("warnings that are errors", _errors, _put_back_errors, lambda value, _: f"{len(value)} filters")
    yield Setting("locale.setlocale", lambda: locale.setlocale(locale.LC_ALL), _put_back_locale)
    yield Setting("decimal.getcontext", _decimal, _put_back_decimal, module="decimal")
    yield Setting("multiprocessing.set_start_method", _start_method, _put_back_start, module="multiprocessing")
    for name in _LIMITS:
        yield from _limit(name)
    for name, which in (("signal.alarm", signal.ITIMER_REAL), ("ITIMER_VIRTUAL", signal.ITIMER_VIRTUAL),
                        ("ITIMER_PROF", signal.ITIMER_PROF)):  # fmt: skip
        yield Setting(name, _timer(which), _stop_timer(which), lambda value, _: "set" if value else "not set")
    yield Setting("signal handlers", _handlers, _put_back_handlers, _other_signals)
    yield Setting("signal.pthread_sigmask", _blocked, _put_back_blocked, lambda value, _: _names(value))
    if sys.platform == "linux":
        yield Setting("os.sched_setaffinity", lambda: os.sched_getaffinity(0), lambda v: os.sched_setaffinity(0, v))
    # raising a priority again is forbidden to most users
    yield Setting(
        "os.nice", lambda: os.getpriority(os.PRIO_PROCESS, 0), lambda v: os.setpriority(os.PRIO_PROCESS, 0, v)
    )


def _folder() -> str | None:
    """The working directory; None where it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109 - a fifth of the time, after every cell
    except FileNotFoundError:
        return None


def _umask() -> int:
    mask = os.umask(0o77)  # which can only be read by setting it
    os.umask(mask)
    return mask


# ---- the environment -------------------------------------------------------------------------------------


def _environment() -> dict[bytes, bytes]:
    # The dictionary inside: os.environ itself decodes each of its texts anew, which takes a hundred times as long.
    inside: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # no part of its interface
    return inside.copy()


def _put_back_environment(before: dict[bytes, bytes]) -> None:
    for key in _environment().keys() - before.keys():
        del os.environ[os.fsdecode(key)]
    now = _environment()
    for key, value in before.items():
        if now.get(key) != value:
            os.environ[os.fsdecode(key)] = os.fsdecode(value)


def _other_names(value: dict[bytes, bytes], other: dict[bytes, bytes]) -> str:
    """The names of the variables that differ. Their values may be secrets."""
    return text(", ".join(sorted(os.fsdecode(key) for key in value if value[key] != other.get(key))), None)


def _with_own(before: dict[bytes, bytes], now: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return before | {key: value for key, value in now.items() if key.startswith(_OF_LIBRARIES)}


# ---- limits, timers and signals --------------------------------------------------------------------------


def _limit(name: str) -> Iterator[Setting]:
    which = getattr(resource, f"RLIMIT_{name}", None)
    if which is not None:
        yield Setting(f"RLIMIT_{name}", lambda: resource.getrlimit(which), lambda v: resource.setrlimit(which, v))


def _timer(which: int) -> Callable[[], bool]:
    return lambda: signal.getitimer(which) != (0.0, 0.0)


def _stop_timer(which: int) -> Callable[[bool], None]:
    def put_back(was_set: bool) -> None:
        if not was_set:  # a timer that was stopped cannot be set as it was
            signal.setitimer(which, 0)

    return put_back


def _handlers() -> tuple[_Handler, ...]:
    return tuple(map(_signal.getsignal, _HANDLED))


def _put_back_handlers(before: tuple[_Handler, ...]) -> None:
    for number, handler in zip(_HANDLED, before, strict=True):
        if handler is not None and _signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _other_signals(value: tuple[object, ...], other: tuple[object, ...]) -> str:
    return _names(number for number, one, two in zip(_HANDLED, value, other, strict=True) if one != two)


def _blocked() -> set[int | signal.Signals]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _put_back_blocked(before: set[int | signal.Signals]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _names(numbers: Iterable[int]) -> str:
    return ", ".join(sorted(getattr(number, "name", str(number)) for number in numbers)) or "none"


# ---- other -----------------------------------------------------------------------------------------------


def _file(number: int) -> Callable[[], tuple[int, int] | None]:
    def read() -> tuple[int, int] | None:
        with contextlib.suppress(OSError):  # it was closed
            found = os.fstat(number)
            return found.st_dev, found.st_ino
        return None

    return read


def _errors() -> list[tuple[object, ...]]:
    """The filters that make errors of warnings. Other filters decide on nothing, and libraries add some on import."""
    return [entry for entry in warnings.filters if entry[0] == "error"]


def _put_back_errors(before: list[tuple[object, ...]]) -> None:
    others = [entry for entry in warnings.filters if entry[0] != "error"]
    module: Any = warnings  # whose filters are declared as what cannot be changed
    module.filters[:] = [*before, *others]
    module._filters_mutated()


def _put_back_locale(before: str) -> None:
    locale.setlocale(locale.LC_ALL, before)


def _decimal() -> tuple[int, str]:
    import decimal

    context = decimal.getcontext()
    return context.prec, context.rounding


def _put_back_decimal(before: tuple[int, str]) -> None:
    import decimal

    context = decimal.getcontext()
    context.prec, context.rounding = before


def _start_method() -> str:
    import multiprocessing

    # None turns into the default as soon as any library makes a lock
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _put_back_start(before: str) -> None:
    import multiprocessing

    multiprocessing.set_start_method(before, force=True)
