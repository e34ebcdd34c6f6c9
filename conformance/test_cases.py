"""Whether each case file can be read and every expected failure in it is about some cell."""

from __future__ import annotations

from collections.abc import Callable


def test_case_file(case_file: str, read_case_file: Callable[[str], None]) -> None:
    read_case_file(case_file)
