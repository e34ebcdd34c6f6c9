"""A bundle under a version of a runtime, in a small environment without PyTorch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from conformance.extras.versions import environments
from conformance.extras.versions.environments import Environment, Wanted
from conformance.process.errors import UserError
from conformance.runtimes import registry

NEEDED = ("numpy>=1.26", "onnx>=1.20", "onnxruntime>=1.23")
"""What a replay imports (``pyproject.toml``); a package whose version is asked for has no other bound."""
PACKAGES = {
    entry.name: entry.packages[0] for entry in registry.RUNTIMES
    if entry.packages and entry.name in registry.RUNNING and not entry.provider and not entry.on_device
}  # fmt: skip
"""The package of each runtime that pip alone brings."""


def made(wanted: Wanted, home: Path) -> Environment:
    """The environment of a version, made below ``home`` or brought up to date there. Raises UserError where pip has
    no such version for this Python."""
    folder = home / f"{wanted.package}-{wanted.version.replace('*', 'x')}-py{environments.PYTHON}"
    python = folder / "bin" / "python"
    if not python.exists():
        python = environments.venv(folder)
    others = [need for need in NEEDED if re.split(r"\W", need)[0] != wanted.package]
    environments.install(python, [wanted.requirement, *others], wanted.requirement, "--only-binary", ":all:")
    return Environment(wanted, python, environments.add_this_package(python, wanted.package))


def replayed(environment: Environment, bundle: Path, words: str, report: Path, timeout: float) -> Path:
    """The folder of the run that an environment's Python makes of a bundle. Raises UserError where it makes none."""
    place = report / environment.folder
    command = [
        str(environment.python), "-m", "conformance", "replay", str(bundle), "--runtime", environment.wanted.name,
        "--report", str(place), "--cell-timeout", str(timeout), *(["-k", words] if words else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environments.clean_environment())
    if done.returncode not in (0, 1, 5):
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()] or ["nothing"]
        raise UserError(f"{environment.name}: the replay ended with {done.returncode} and said: {said[-1]}")
    return place
