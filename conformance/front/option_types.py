"""The numbers that options take: what is no such number is refused where the option is read."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable


def seconds(text: str) -> float:
    """Return a time in seconds, above 0. Raises ArgumentTypeError, which argparse and pytest show with the option."""
    return _above_zero(text, "a number of seconds")


def budget(text: str) -> str:
    """Return ``none``, ``all``, or a time such as ``60s`` or ``5m``. Raises ArgumentTypeError."""
    if text not in ("none", "all"):
        duration(text, "none, all, or a time such as 60s or 5m")
    return text


def duration(text: str, what: str = "a time such as 60s or 5m") -> float:
    """Return a time such as ``60s``, ``5m`` or ``60`` in seconds, above 0. Raises ArgumentTypeError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    return _UNITS[unit] * _above_zero(number, what)


BUDGET = (
    "CPU for the examples of each cell, as in 60s or 5m; if it does not last, those that tell most go first, and "
    "without the ends of all dims there is no verdict (default: 5s, and these ends)"
)
"""The help of ``--budget`` in several commands."""


_UNITS = {"s": 1.0, "m": 60.0}


def gibibytes(text: str) -> float:
    """Return a size in GiB, above 0. Raises ArgumentTypeError."""
    return _above_zero(text, "a number of GiB")


def factor(text: str) -> float:
    """Return a factor above 0. Raises ArgumentTypeError."""
    return _above_zero(text, "a factor")


def _above_zero(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ArgumentTypeError(f"'{text}' is not {what} above 0")
    return number


def count(least: int) -> Callable[[str], int]:
    """Return what reads whole numbers from ``least`` on, and raises ArgumentTypeError for all else."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise ArgumentTypeError(f"'{text}' is not a whole number from {least} on")
        return number

    return read
