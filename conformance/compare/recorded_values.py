"""Compare what a runtime gives with outputs that somebody recorded, as ONNX's own tests do.

Floats by a relative and an absolute tolerance, of types with few bits at least two steps of their last one; NaN with
NaN and each infinity with itself; whole numbers, bools and texts exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.process.arrays import Array

_STEPS = {"float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float8_e4m3fnuz": 2**-3,
          "float8_e5m2": 2**-2, "float8_e5m2fnuz": 2**-2}  # fmt: skip
"""The step from 1 to the next number, of types of which that is about as large as what ONNX's tests allow: a value
that is rounded once more is no wrong one. Of types of 16 bits, in which whole networks
compute, it may be the next but one."""


_SUM = 16
"""Steps of the largest value of an output that any value of it may be off: sums of numbers as large as that one, of
which nearly nothing is left, have no smaller error."""


@dataclass(frozen=True)
class Difference:
    """The name of the error, and a sentence about the element that is furthest off."""

    error: str
    text: str


def named_tensors(outputs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return all tensors of recorded outputs, as runtimes give them: those of a sequence one by one (``outputs[2]``),
    and none of an optional without a value. A map stays as it is."""
    return [part for name, value in outputs.items() for part in _parts(f"output {name}", value)]


def _parts(called: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _parts(f"{called}[{number}]", one)
    elif value is not None:
        yield called, value


def difference(got: Sequence[Any], wanted: Mapping[str, Any], rtol: float, atol: float) -> Difference | None:
    """Return how the tensors of all outputs are unlike the recorded outputs; None where they are alike."""
    named = named_tensors(wanted)
    if len(got) != len(named):
        return Difference("WrongCount", f"{len(got)} tensors are given instead of {len(named)}")
    pairs = zip(got, named, strict=True)
    found = (_difference(value, right, rtol, atol, called) for value, (called, right) in pairs)
    return next(filter(None, found), None)


def _difference(got: Any, wanted: Any, rtol: float, atol: float, called: str) -> Difference | None:
    if not isinstance(wanted, Mapping):
        return _of_arrays(np.asarray(got), np.asarray(wanted), rtol, atol, called)
    if not isinstance(got, Mapping) or got.keys() != wanted.keys():
        return Difference("WrongValue", f"{called} is another map than that of {len(wanted)} keys")
    each = (_difference(got[key], wanted[key], rtol, atol, f"{called}[{key!r}]") for key in wanted)
    return next(filter(None, each), None)


def _of_arrays(got: Array, wanted: Array, rtol: float, atol: float, called: str) -> Difference | None:
    if wanted.dtype == object or wanted.dtype.kind in "US":
        got, wanted = got.astype(object), wanted.astype(object)
    elif got.dtype != wanted.dtype:
        return Difference("WrongDtype", f"{called} is {got.dtype} instead of {wanted.dtype}")
    if got.shape != wanted.shape:
        return Difference("WrongShape", f"{called} has shape {[*got.shape]} instead of {[*wanted.shape]}")
    if wanted.dtype.kind in "biu" or wanted.dtype == object:
        far, limit = np.where(got != wanted, np.inf, 0.0), "which is exact"
    else:
        steps = 1 if wanted.dtype.name.startswith("float8") else 2
        rtol = max(rtol, steps * _STEPS.get(wanted.dtype.name, 0.0))
        far, limit = _beyond(got, wanted, rtol, atol), f"rtol {rtol:g}, atol {atol:g}"
    wrong = far > 1
    if not np.any(wrong):
        return None
    index = np.unravel_index(int(np.argmax(far)), far.shape)
    where = f"[{', '.join(str(int(place)) for place in index)}]" if wanted.ndim else ""
    text = (
        f"{called}{where} is {got[index]} instead of {wanted[index]}; "
        f"{int(np.sum(wrong))} of {wanted.size} values differ ({limit})"
    )
    return Difference("WrongValue", text)


def _beyond(got: Array, wanted: Array, rtol: float, atol: float) -> Array:
    """Return the error of each value over what is allowed, infinite where only one side is finite."""
    exact = "complex128" if wanted.dtype.kind == "c" else "float64"
    one, other = (array.astype(exact) for array in (got, wanted))
    with np.errstate(all="ignore"):
        alike = (one == other) | (np.isnan(one) & np.isnan(other))
        largest = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
        step = np.finfo(wanted.dtype).eps if wanted.dtype.name not in _STEPS and wanted.dtype.isbuiltin == 1 else 0.0
        limit = np.maximum(atol + rtol * np.abs(other), _SUM * step * largest)
        ratios = np.abs(one - other) / np.maximum(limit, np.finfo(np.float64).tiny)
        far: Array = np.where(alike, 0.0, np.where(np.isfinite(one) & np.isfinite(other), ratios, np.inf))
    return far
