"""Find the release of a package that changed a cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.errors import UserError
from conformance.explain.search import least
from conformance.records.run_file import read_run
from conformance.versions.pip import available
from conformance.versions.wanted import Wanted, fitting


def bisected(
    first: Wanted, last: Wanted, cell: str, ask: Callable[[Wanted], Path], tell: Callable[[str], object]
) -> str:
    """The sentence about the first release in which a cell is not what it was in the version before.

    ``ask`` gives the run of a version, ``tell`` gets a line about each that is tried. Raises UserError where there is
    no such release between the two.
    """

    def verdict(wanted: Wanted) -> tuple[str, str]:
        found = [record for record in read_run(ask(wanted))[1] if record["id"] == cell]
        if not found:
            raise UserError(f"--bisect: there is no cell {cell}")
        told = (str(found[0]["status"]), str(found[0]["error"] or ""))
        tell(f"{wanted.package} {wanted.version}: {' '.join(told).strip()}")
        return told

    before, after = verdict(first), verdict(last)
    if before == after:
        raise UserError(f"--bisect: {cell} is the same in both: {' '.join(before).strip()}")
    releases = between(available(first.package), first, last)
    at = least(  # the first is what it was, the last is not
        1, len(releases) - 1, lambda at: verdict(Wanted(first.name, first.package, releases[at])) != before
    )
    changed = f"{first.package} {releases[at]}"
    return f"{cell} is {' '.join(before).strip()} up to {releases[at - 1]}, and otherwise from {changed} on"


def between(releases: Sequence[str], first: Wanted, last: Wanted) -> list[str]:
    """The releases from one version to another, both included. Raises UserError where they are no two releases in
    order."""

    def place(wanted: Wanted) -> int:
        found = max(fitting(releases, wanted), default=None)
        if found is None:
            raise UserError(f"--bisect: there is no {wanted.package} {wanted.version}")
        return found

    low, high = place(first), place(last)
    if low >= high:
        raise UserError(f"--bisect: {first.version} is no earlier release than {last.version}")
    return list(releases[low : high + 1])
