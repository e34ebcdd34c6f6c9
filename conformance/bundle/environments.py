"""Small environments without PyTorch, each with a version of a runtime's package, in which bundles are replayed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance import HOME
from conformance.errors import UserError, did_you_mean
from conformance.runtimes import registry

NEEDED = ("numpy>=1.26", "onnx>=1.20", "onnxruntime>=1.23")
"""What a replay imports (``pyproject.toml``); a package whose version is asked for has no other bound."""
NEWEST = "latest"
_VERSION = re.compile(r"[0-9][\w.!+*-]*")


@dataclass(frozen=True)
class Wanted:
    """A version of the package that brings a runtime."""

    runtime: str
    package: str
    version: str
    """As pip takes it behind ``==``, such as ``1.27.*``, or ``NEWEST``."""

    @property
    def requirement(self) -> str:
        return self.package if self.version == NEWEST else f"{self.package}=={self.version}"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with this package and what a replay needs, and nothing else."""

    wanted: Wanted
    python: Path
    version: str
    """What is installed of the package."""

    @property
    def name(self) -> str:
        return f"{self.wanted.package} {self.version}"


def wanted_of(text: str) -> list[Wanted]:
    """``onnxruntime==1.27.*,1.30.0,latest`` as the versions that it names. Raises UserError."""
    runtime, _, versions = text.partition("==")
    package = _PACKAGES.get(runtime.strip())
    if package is None:
        raise UserError(f"--runtime {text}: no package brings '{runtime}'{did_you_mean(runtime, _PACKAGES)}")
    named = [version.strip() for version in versions.split(",") if version.strip()] or [NEWEST]
    for version in named:
        if version != NEWEST and not _VERSION.fullmatch(version):
            raise UserError(f"--runtime {text}: '{version}' is no version such as 1.27.1 or 1.27.*, nor '{NEWEST}'")
    return [Wanted(runtime.strip(), package, version) for version in named]


_PACKAGES = {
    entry.name: entry.packages[0] for entry in registry.RUNTIMES
    if entry.packages and entry.in_cases and not entry.provider and not entry.on_device
}  # fmt: skip
"""The package of each runtime that pip alone brings."""


def made(wanted: Wanted, home: Path) -> Environment:
    """The environment of a version, made below ``home`` or brought up to date there. Raises UserError where pip has
    no such version for this Python."""
    folder = (
        home / f"{wanted.package}-{wanted.version.replace('*', 'x')}-py{sys.version_info[0]}.{sys.version_info[1]}"
    )
    python = folder / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(folder)], f"an environment in {folder}")
    others = [need for need in NEEDED if re.split(r"\W", need)[0] != wanted.package]
    command = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", "--only-binary", ":all:"]
    python_version = ".".join(map(str, sys.version_info[:2]))
    _run([*command, wanted.requirement, *others], f"{wanted.requirement} for Python {python_version}")
    ask = "import importlib.metadata, sysconfig; print(sysconfig.get_path('purelib')); "
    told = _run(
        [str(python), "-c", f"{ask}print(importlib.metadata.version({wanted.package!r}))"], wanted.requirement
    )
    site, version = told.split("\n")[:2]
    place = Path(site) / HOME.name
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(HOME, place, ignore=shutil.ignore_patterns("__pycache__"))
    return Environment(wanted, python, version)


def available(package: str) -> list[str]:
    """The released versions of a package that pip has for this Python, oldest first. Raises UserError."""
    told = _run([sys.executable, "-m", "pip", "index", "versions", package], f"the versions of {package}")
    line = next((line for line in told.splitlines() if line.startswith("Available versions:")), "")
    versions = [version.strip() for version in line.partition(":")[2].split(",") if version.strip()]
    return versions[::-1]


def clean_environment() -> dict[str, str]:
    """Variables for a process of such an environment, to which no path of this one's packages leads."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _run(command: Sequence[str], what: str) -> str:
    """What a command prints; UserError with its last words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    if done.returncode:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if line.startswith("ERROR")] or said or [f"exit {done.returncode}"]
        raise UserError(f"{what} cannot be had: {errors[-1].removeprefix('ERROR: ')}")
    return done.stdout
