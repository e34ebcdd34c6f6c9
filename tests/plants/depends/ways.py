"""The ways of the benchmark, and the rounds in which they are changed."""

from __future__ import annotations

from collections.abc import Sequence

from tests.plants.depends import code, data, lowerings, surroundings
from tests.plants.depends.way import Way

UNOBSERVABLE = 5
"""How many ways may be unobservable."""


def ways() -> list[Way]:
    """Return all ways."""
    return [*code.ways(), *data.ways(), *surroundings.ways(), *lowerings.ways()]


def rounds(chosen: Sequence[Way]) -> dict[str, list[Way]]:
    """Return the ways by the name of their round."""
    found: dict[str, list[Way]] = {}
    for way in chosen:
        found.setdefault(way.round, []).append(way)
    return found
