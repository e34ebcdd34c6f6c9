"""Check a runtime of another package: ``check_runtime(ENTRY)`` in a test of that package.

Each question is asked in a process of its own, as a runtime may end it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import attempt, summarize
from conformance.process.worker import aside
from conformance.runtimes import Session, registry

__all__ = ["NoRuntime", "check_runtime"]

SECONDS = 120.0
"""Seconds that a question may take: of a compiler for a model of two nodes."""
_OPSET = 17
_CALLS = 20
"""Calls of each of two threads: what is not mixed up in one may be in another."""


class NoRuntime(AssertionError):
    """A runtime is not what the suite takes it for; each line of the text says in what."""


def check_runtime(entry: Mapping[str, Any]) -> None:
    """Check a runtime that another package adds by the entry point ``conformance.runtimes``.

    It has to be an entry of the table; give right outputs in the order of the model, of the right shapes and dtypes,
    again and again the same bits, whatever the order of its inputs, and of two threads that use one session to each
    its own; raise an exception for a file that is no model, and for a library that it does not load; and import
    neither torch nor its packages before a model is opened. What it does not take at all (integers, no dims, empty
    arrays, a second thread) it may refuse by an exception. Converted models are not asked about.

    Raises NoRuntime, and unittest.SkipTest where the entry says that this host cannot run it.
    """
    why = registry.misfit(dict(entry), {one.name for one in registry.RUNTIMES if not one.interface})
    if why is not None:
        raise NoRuntime(why)
    runtime = registry.RuntimeEntry(**entry)
    missing = [f"{key}: {error}" for key in _NAMING if (error := _missing(getattr(runtime, key)))]
    if missing:
        raise NoRuntime("\n".join(missing))
    absent = registry.function(runtime.absent)() if runtime.absent else None
    if absent is not None:
        raise unittest.SkipTest(f"{runtime.name}: {absent}")
    wrong = [f"{what}: {text}" for what, ask in _QUESTIONS.items() if (text := _asked(partial(ask, runtime)))]
    if wrong:
        raise NoRuntime("\n".join(wrong))


_NAMING = ("opens", "absent", "no_witness")
"""Fields that name a function."""


def _missing(name: str) -> str | None:
    found = attempt(partial(registry.function, name)) if name else None
    return f"there is no {name}: {summarize(found)}" if isinstance(found, Exception) else None


def _asked(question: Callable[[], str | None]) -> str | None:
    answer = attempt(partial(aside.ask, question, SECONDS))
    return summarize(answer) if isinstance(answer, Exception) else answer


def _model(text: str) -> bytes:
    import onnx.parser

    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {_OPSET}]> {text}')
    return bytes(made.SerializeToString())


def _opened(runtime: registry.RuntimeEntry, data: bytes, use: Callable[[Session], Any], libraries: list[str]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        file.write_bytes(data)
        opened = registry.function(runtime.opens)(file, libraries)
        if not isinstance(opened, AbstractContextManager):
            raise TypeError(f"{runtime.opens} gives {type(opened).__name__}, no context manager of a session")
        with opened as session:
            return use(session)


_TWO = "two (float[2, 3] a, float[2, 3] b) => (float[2, 3] y, float[2, 3] z) { z = Mul(a, b) y = Sub(a, b) }"
_A = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
_B = np.array([[1, -2, 0.5], [8, 0, -0.25]], np.float32)


def _unlike(got: object, wanted: Array) -> str | None:
    """Return in what an output is not the one that is due."""
    array = np.asarray(got)
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        return f"{array.dtype}{[*array.shape]} in place of {wanted.dtype}{[*wanted.shape]}"
    return None if np.array_equal(array, wanted) else f"{array.tolist()} in place of {wanted.tolist()}"


def _in_order(runtime: registry.RuntimeEntry) -> str | None:
    def use(session: Session) -> str | None:
        given: dict[str, Array] = {"b": _B.copy(), "a": _A.copy()}
        outputs: Any = session.run(given)
        if not isinstance(outputs, (list, tuple)):
            return f"{type(outputs).__name__} in place of a list"
        if len(outputs) != 2:
            return f"{len(outputs)} outputs in place of 2"
        return _unlike(outputs[0], _A - _B) or _unlike(outputs[1], _A * _B)

    said: str | None = _opened(runtime, _model(_TWO), use, [])
    return said


def _again(runtime: registry.RuntimeEntry) -> str | None:
    data = _model("net (float[2, 3] a, float[3, 2] b) => (float[2, 2] y) { c = MatMul(a, b) y = Tanh(c) }")
    given: dict[str, Array] = {"a": _A, "b": np.ascontiguousarray(_B.T)}

    def twice(session: Session) -> list[bytes]:
        return [np.array(session.run({name: given[name].copy() for name in given})[0]).tobytes() for _ in range(2)]

    seen = {*_opened(runtime, data, twice, []), *_opened(runtime, data, twice, [])}
    return None if len(seen) == 1 else "other bits in another call, or in another session"


def _threads(runtime: registry.RuntimeEntry) -> str | None:
    """Return what is wrong of a session that two threads use at once; calls that it refuses are not."""
    data = _model("net (float[64, 64] x) => (float[64, 64] y) { c = MatMul(x, x) y = Tanh(c) }")
    whole = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    given = (whole, whole / 2)

    def use(session: Session) -> str | None:
        def called(x: Array) -> bytes:
            return np.array(session.run({"x": x.copy()})[0]).tobytes()

        alone, start = [called(x) for x in given], threading.Barrier(len(given))

        def differs(x: Array, due: bytes) -> bool:
            start.wait()
            told = [attempt(partial(called, x)) for _ in range(_CALLS)]
            return any(one != due for one in told if isinstance(one, bytes))

        with ThreadPoolExecutor(len(given)) as pool:
            mixed = any([*pool.map(differs, given, alone)])
        return "other bits than in one; a session that is not for two has to raise an exception" if mixed else None

    said: str | None = _opened(runtime, data, use, [])
    return said


def _said(runtime: registry.RuntimeEntry) -> str | None:
    def use(session: Session) -> str | None:
        told = session.arithmetic
        lacking = [key for key in ("provider", "storage", "arithmetic") if not isinstance(told.get(key), str)]
        return f"arithmetic does not say {', '.join(lacking)}" if lacking else None

    said: str | None = _opened(runtime, _model(_TWO), use, [])
    return said


def _taken_or_refused(text: str, x: Array, runtime: registry.RuntimeEntry) -> str | None:
    """Return what is wrong of Neg of an array; None where the model is refused."""

    def use(session: Session) -> str | None:
        outputs = attempt(lambda: session.run({"x": x.copy()}))
        return None if isinstance(outputs, Exception) else _unlike(outputs[0], -x)

    said = attempt(lambda: _opened(runtime, _model(text), use, []))
    return None if isinstance(said, Exception) else said


def _refuses(data: bytes, libraries: list[str], runtime: registry.RuntimeEntry) -> str | None:
    opened = attempt(lambda: _opened(runtime, data, lambda session: session.run({"a": _A, "b": _B}), libraries))
    return None if isinstance(opened, Exception) else "no exception is raised"


def _imports(runtime: registry.RuntimeEntry) -> str | None:
    modules = sorted({name.partition(":")[0] for name in (runtime.opens, runtime.absent) if name})
    unwanted = ["torch", *(name.replace("-", "_") for name in runtime.packages)]
    code = f"import sys, {', '.join(modules)}; print(*(one for one in {unwanted} if one in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    told = done.stdout.split()
    return f"importing its modules imports {', '.join(told)}" if told else None


def _questions() -> Iterator[tuple[str, Callable[[registry.RuntimeEntry], str | None]]]:
    yield "outputs by name and order", _in_order
    yield "the same bits again", _again
    yield "two threads at once", _threads
    yield "what really computes", _said
    whole = np.array([[1, -7, 40]])
    yield "int64", partial(_taken_or_refused, "net (int64[1, 3] x) => (int64[1, 3] y) { y = Neg(x) }", whole)
    alone, none = np.array(0.5, np.float32), np.zeros((0, 3), np.float32)
    yield "no dims", partial(_taken_or_refused, "net (float x) => (float y) { y = Neg(x) }", alone)
    yield "an empty array", partial(_taken_or_refused, "net (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }", none)
    yield "a file that is no model", partial(_refuses, b"no model", [])
    yield "a library that is not there", partial(_refuses, _model(_TWO), ["/there/is/no/such/library.so"])
    yield "imports", _imports


_QUESTIONS = dict(_questions())
