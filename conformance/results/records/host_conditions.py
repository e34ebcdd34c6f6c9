"""Conditions on the host that a declared failure is about: its processor, and the versions of its packages."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Collection, Mapping, Sequence

from conformance.results.records.processor import is_of_kind

Host = Mapping[str, Sequence[str]]
"""``has`` and ``lacks`` instruction sets, as ``is_of_kind`` takes them; ``versions`` are requirements of packages."""


def installed_version(package: str) -> str | None:
    """Return the version of a package of this environment; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def is_about(
    host: Host | None, instructions: Collection[str], version: Callable[[str], str | None] = installed_version
) -> bool:
    """Return whether a condition is about a host with these instruction sets and versions; None is about all."""
    if host is None:
        return True
    return is_of_kind(host, instructions) and all(is_met(text, version) for text in host.get("versions") or ())


def is_met(requirement: str, version: Callable[[str], str | None] = installed_version) -> bool:
    """Return whether a package is installed in a version that a requirement, such as ``onnxruntime < 1.32``, allows.

    Raises ValueError for anything that is no name with versions.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        needed = Requirement(requirement)
    except InvalidRequirement:
        raise ValueError(f"{requirement!r} is no package with its versions, such as onnxruntime < 1.32") from None
    if needed.extras or needed.marker or needed.url:
        raise ValueError(f"{requirement!r} has more than a package and its versions, such as onnxruntime < 1.32")
    found = version(needed.name)
    return found is not None and needed.specifier.contains(found, prereleases=True)
