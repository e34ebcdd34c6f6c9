"""Rows of what is counted: enough of something, none of it, or a share of it."""

from __future__ import annotations

from benchmarks.common import Row


def enough(what: str, count: int, least: int, beside: str = "") -> Row:
    """Return the row of a count that has to be ``least``."""
    return Row(what, str(count), beside, target=f"at least {least}", met=count >= least)


def none(what: str, count: int, beside: str = "", of: int = 1) -> Row:
    """Return the row of something that must not happen, among ``of``."""
    return Row(what, str(count), beside, target="0", met=not count, repeats=of)


def share(what: str, count: int, of: int, least: float, more: str = "") -> Row:
    """Return the row of a share that has to be ``least``; ``more`` stands behind the two counts."""
    part = count / of if of else 0.0
    return Row(what, f"{part:.1%}", f"{count} of {of}{more}", target=f"at least {least:.0%}", met=part >= least,
               repeats=of)  # fmt: skip
