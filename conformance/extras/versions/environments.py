"""Versions of a package as users name them, and the environments that have them, made with pip; and the release that
changed a cell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance import HOME
from conformance.diagnose.search import least
from conformance.process.errors import UserError, did_you_mean
from conformance.results.records.run_file import read_run

NEWEST = "latest"
_VERSION = re.compile(r"[0-9][\w.!+*-]*")


@dataclass(frozen=True)
class Wanted:
    """A version of a package."""

    name: str
    """What the user calls it: a runtime, or torch."""
    package: str
    version: str
    """As pip takes it behind ``==``, such as ``1.27.*``, or ``NEWEST``."""

    @property
    def requirement(self) -> str:
        return self.package if self.version == NEWEST else f"{self.package}=={self.version}"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with this version of the package."""

    wanted: Wanted
    python: Path
    version: str
    """What is installed of the package."""

    @property
    def name(self) -> str:
        return f"{self.wanted.package} {self.version}"

    @property
    def folder(self) -> str:
        """Return the name of the folder of its run."""
        return f"{self.wanted.package}-{self.version}"


def wanted_of(option: str, text: str, packages: Mapping[str, str]) -> list[Wanted]:
    """``onnxruntime==1.27.*,1.30.0,latest`` as the versions that it names, of a package by its name in ``packages``.

    Raises UserError, which names the ``option``, for another name and for what is no version.
    """
    name, _, versions = (part.strip() for part in text.partition("=="))
    if name not in packages:
        raise UserError(f"{option} {text}: no package brings '{name}'{did_you_mean(name, packages)}")
    named = [version.strip() for version in versions.split(",") if version.strip()] or [NEWEST]
    for version in named:
        if version != NEWEST and not _VERSION.fullmatch(version):
            raise UserError(f"{option} {text}: '{version}' is no version such as 1.27.1 or 1.27.*, nor '{NEWEST}'")
    return [Wanted(name, packages[name], version) for version in named]


def fitting(releases: Sequence[str], wanted: Wanted) -> Iterator[int]:
    """The places of the releases that are of the version that is wanted."""
    stem = wanted.version.removesuffix("*")
    for place, release in enumerate(releases):
        if wanted.version in (NEWEST, release) or (stem != wanted.version and release.startswith(stem)):
            yield place


PYTHON = ".".join(map(str, sys.version_info[:2]))


def available(package: str) -> list[str]:
    """The released versions of a package that pip has for this Python, oldest first. Raises UserError.

    Of builds of the same release, such as ``2.13.0`` and ``2.13.0+cpu``, only the one without a label is named.
    """
    told = run_command([sys.executable, "-m", "pip", "index", "versions", package], f"the versions of {package}")
    line = next((line for line in told.splitlines() if line.startswith("Available versions:")), "")
    versions = [version.strip() for version in line.partition(":")[2].split(",") if version.strip()]
    return [version for version in versions[::-1] if "+" not in version or version.partition("+")[0] not in versions]


def venv(folder: Path) -> Path:
    """The Python of an empty environment. Raises UserError."""
    run_command([sys.executable, "-m", "venv", "--without-pip", str(folder)], f"an environment in {folder}")
    return folder / "bin" / "python"


def install(python: Path, requirements: Sequence[str], what: str, *options: str) -> None:
    """Bring an environment to these requirements, with the pip of this one.

    Raises UserError, which says ``what`` they are for and ends with pip's last words.
    """
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--upgrade", *options]
    run_command([*command, *requirements], f"{what} for Python {PYTHON}")


def add_this_package(python: Path, package: str) -> str:
    """Copy this package into an environment as it is now; the version of ``package`` that is there. Raises
    UserError."""
    ask = "import importlib.metadata, sysconfig; print(sysconfig.get_path('purelib')); "
    told = run_command([str(python), "-c", f"{ask}print(importlib.metadata.version({package!r}))"], package)
    site, version = told.split("\n")[:2]
    place = Path(site) / HOME.name
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(HOME, place, ignore=shutil.ignore_patterns("__pycache__"))
    return version


def clean_environment() -> dict[str, str]:
    """Variables for a process of such an environment, to which no path of this one's packages leads, and for which
    pip's constraints on this one, as tox sets them, do not hold."""
    own = ("PYTHONPATH", "PYTHONHOME", "PIP_CONSTRAINT")
    return {name: value for name, value in os.environ.items() if name not in own}


def run_command(command: Sequence[str], what: str) -> str:
    """Return what a command prints; UserError with its last words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    if done.returncode:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said or [f"exit {done.returncode}"]
        raise UserError(f"{what} cannot be installed: {errors[-1].removeprefix('ERROR: ')}")
    return done.stdout


def bisected(
    first: Wanted, last: Wanted, cell: str, ask: Callable[[Wanted], Path], tell: Callable[[str], object]
) -> str:
    """The sentence about the first release in which a cell is not what it was in the version before.

    ``ask`` gives the run of a version, ``tell`` gets a line about each that is tried. Raises UserError where there is
    no such release between the two.
    """

    def verdict(wanted: Wanted) -> tuple[str, str]:
        found = [record for record in read_run(ask(wanted))[1] if record.id == cell]
        if not found:
            raise UserError(f"--bisect: there is no cell {cell}")
        told = (found[0].status, found[0].error or "")
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
