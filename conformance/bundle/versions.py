"""A bundle under several versions of a runtime: what each makes of it, and which release changed a cell."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.bundle.environments import NEWEST, Environment, Wanted, available, clean_environment
from conformance.errors import UserError
from conformance.records.run_file import read_run


def replayed(environment: Environment, bundle: Path, words: str, report: Path, timeout: float) -> Path:
    """The folder of the run that an environment's Python makes of a bundle. Raises UserError where it makes none."""
    place = report / environment.name.replace(" ", "-")
    command = [
        str(environment.python), "-m", "conformance", "replay", str(bundle), "--runtime", environment.wanted.runtime,
        "--report", str(place), "--cell-timeout", str(timeout), *(["-k", words] if words else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    if done.returncode not in (0, 1, 5):
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()] or ["nothing"]
        raise UserError(f"{environment.name}: the replay ended with {done.returncode} and said: {said[-1]}")
    return place


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
            raise UserError(f"--bisect: the bundle has no cell {cell}")
        told = (str(found[0]["status"]), str(found[0]["error"] or ""))
        tell(f"{wanted.package} {wanted.version}: {' '.join(told).strip()}")
        return told

    before, after = verdict(first), verdict(last)
    if before == after:
        raise UserError(f"--bisect: {cell} is the same in both: {' '.join(before).strip()}")
    releases = between(available(first.package), first, last)
    low, high = 0, len(releases) - 1  # the first is what it was, the last is not
    while high - low > 1:
        middle = (low + high) // 2
        same = verdict(Wanted(first.runtime, first.package, releases[middle])) == before
        low, high = (middle, high) if same else (low, middle)
    changed = f"{first.package} {releases[high]}"
    return f"{cell} is {' '.join(before).strip()} up to {releases[low]}, and otherwise from {changed} on"


def between(releases: Sequence[str], first: Wanted, last: Wanted) -> list[str]:
    """The releases from one version to another, both included. Raises UserError where they are no two releases in
    order."""

    def place(wanted: Wanted) -> int:
        stem = wanted.version.removesuffix("*")
        fits = [
            number for number, release in enumerate(releases)
            if wanted.version == NEWEST or release == wanted.version or (stem != wanted.version
                                                                         and release.startswith(stem))
        ]  # fmt: skip
        if not fits:
            raise UserError(f"--bisect: there is no {wanted.package} {wanted.version}")
        return fits[-1]

    low, high = place(first), place(last)
    if low >= high:
        raise UserError(f"--bisect: {first.version} is no earlier release than {last.version}")
    return list(releases[low : high + 1])
