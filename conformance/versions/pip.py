"""Ask pip what it has for this Python, and make environments with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance import HOME
from conformance.errors import UserError

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
    """Brings an environment to these requirements, with the pip of this one.

    Raises UserError, which says ``what`` they are for and ends with pip's last words.
    """
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--upgrade", *options]
    run_command([*command, *requirements], f"{what} for Python {PYTHON}")


def add_this_package(python: Path, package: str) -> str:
    """Copies this package into an environment as it is now; the version of ``package`` that is there. Raises
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
