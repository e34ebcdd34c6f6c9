"""Budgets of time, read from texts such as ``1.2 x pytorch``, ``1.0 x tensorrt fp16`` and ``5 ms``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from conformance.process.errors import did_you_mean, shown
from conformance.runtimes.registry import RUNNING

SIDES = ("pytorch", *RUNNING)
UNITS = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
"""Seconds in one unit. The micro sign and the Greek letter look alike, and keyboards have either."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?nan|[+-]?inf(?:inity)?"
_RELATION = re.compile(
    rf"(?P<number>{_NUMBER})\s*[x×*]\s*(?P<runtime>[^\s]+)(?:\s+(?P<precision>\S+))?", re.IGNORECASE
)
_ABSOLUTE = re.compile(rf"(?P<number>{_NUMBER})\s*(?P<unit>[^\W\d]+)?", re.IGNORECASE)
_PRECISION = re.compile(r"fp32|(fp16|int8)(-[a-z0-9_]+)?")
_SYNTAX = "a budget is a relation such as '1.2 x pytorch' or '1.0 x tensorrt fp16', or a time such as '5 ms'"


@dataclass(frozen=True)
class Budget:
    """At most ``limit`` times the other side's duration (a relation), or at most ``limit`` seconds.

    ``runtime`` is None in an absolute budget; ``precision`` is None where the budget leaves it to the case, which
    means fp32 for pytorch and the entry's own precision elsewhere.
    """

    text: str
    kind: Literal["relation", "absolute"]
    limit: float
    runtime: str | None = None
    precision: str | None = None

    def __str__(self) -> str:
        return self.text


def parse(text: object) -> Budget:
    """The budget of a text; a ValueError says what is wrong with it and what may stand there."""
    if not isinstance(text, str):
        raise ValueError(f"{shown(text)} has no unit; {_SYNTAX}")
    plain = " ".join(text.split())
    if match := _RELATION.fullmatch(plain):
        limit = _positive(match["number"], plain)
        return Budget(plain, "relation", limit, _runtime(match["runtime"]), _precision(match["precision"]))
    if match := _ABSOLUTE.fullmatch(plain):
        limit = _positive(match["number"], plain) * _unit(match["unit"], plain)
        return Budget(plain, "absolute", limit)
    raise ValueError(f"{plain!r} is no budget; {_SYNTAX}")


def _positive(number: str, text: str) -> float:
    value = float(number)
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{number} in {text!r} has to be a finite number above 0")
    return value


def _unit(unit: str | None, text: str) -> float:
    if unit is None:
        raise ValueError(f"{text!r} has no unit: us, ms or s for a time, or '{text} x pytorch' for a relation")
    if unit in SIDES:
        raise ValueError(f"{text!r} lacks an x: '{text.removesuffix(unit).rstrip()} x {unit}'")
    if unit in ("x", "X"):
        raise ValueError(f"{text!r} does not say of what it is a multiple, as '{text} pytorch' does")
    if unit not in UNITS:
        near = "" if unit.lower() not in UNITS else f"; did you mean '{unit.lower()}'?"
        near = near or "; it may be us, ms or s"
        raise ValueError(f"unknown unit '{unit}' in {text!r}{near}")
    return UNITS[unit]


def _runtime(name: str) -> str:
    if name not in SIDES:
        raise ValueError(f"unknown runtime '{name}'{did_you_mean(name, SIDES)}")
    return name


def _precision(name: str | None) -> str | None:
    if name is None or _PRECISION.fullmatch(name):
        return name
    near = did_you_mean(name, ("fp32", "fp16", "int8"))
    raise ValueError(f"unknown precision '{name}'{near} (a variant is named like int8-minmax)")
