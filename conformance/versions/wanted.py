"""Versions of a package as users name them, and the environments that have them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import UserError, did_you_mean

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
