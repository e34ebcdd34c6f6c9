"""How often functions are called, counted without replacing them."""

import contextlib
import cProfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def count_calls(*functions: Callable[..., Any]) -> Iterator[Counter[str]]:
    """Count the calls of these functions by their names; the counts are there once the block has ended.

    Properties are given as their ``fget``, cached ones as their ``func``; of a context manager its opening counts.
    """
    counts: Counter[str] = Counter()
    codes = {getattr(one, "__wrapped__", one).__code__: one.__name__ for one in functions}
    profile = cProfile.Profile()
    try:
        with profile:
            yield counts
    finally:
        for entry in profile.getstats():
            if entry.code in codes:
                counts[codes[entry.code]] += entry.callcount
