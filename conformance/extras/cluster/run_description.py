"""Describe a run to the workers of a cluster, and find where they keep files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.process.disk import DEFAULT_STORE

MARKS = "cluster"
"""The folder of a store in which a run leaves a file of its name, by which workers see that they share the store."""


@dataclass(frozen=True)
class Run:
    """Sent with each task."""

    name: str
    """Unique, also among the runs of others; the topic of its events and the stem of its resources."""
    folder: str
    """Absolute: where the run was started."""
    store: str
    """Absolute: the store of the run, which workers on the same file system share."""
    store_shown: str
    """As records show it."""
    roots: tuple[str, ...]
    """The folders of the user's own Python that come first on ``sys.path``; absolute."""
    settings: Mapping[str, object]
    """``case.plan.settings.Settings``, but for the folders and what only the worker's host can say."""
    timeout: float
    """Seconds for a cell."""
    memory_gib: float | None
    """What a cell may take; None for its share of the worker's host."""
    neighbours: int
    """How many workers there are at most on a host."""


def mark(store: Path, name: str) -> Path:
    """The file by which workers see that they share the store of that run."""
    return store / MARKS / name


def store_of(run: Run, folder: Path) -> Path:
    """The run's store where this host sees the same one; else that in ``folder``, where the worker was started."""
    return Path(run.store) if mark(Path(run.store), run.name).is_file() else folder / DEFAULT_STORE
