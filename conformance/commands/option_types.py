"""The numbers that options take: what is no such number is refused where the option is read."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable


def seconds(text: str) -> float:
    """Return a time in seconds, above 0. Raises ArgumentTypeError, which argparse and pytest show with the option."""
    return _above_zero(text, "a number of seconds")


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
