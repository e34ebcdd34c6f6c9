"""Code of the case's own by every door, run apart from the other plants: its rows, and its section of their page."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.common import Row
from evidence.culprits.page import rows_of_own_code, write_own_code
from evidence.culprits.run import study


def rows(quick: bool) -> Iterator[Row]:
    yield from rows_of_own_code(study(quick, "doors"))


def write(where: str) -> None:
    write_own_code(study(False, "doors"), where)
