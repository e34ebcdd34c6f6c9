"""The settings of a run that its cells read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.process.disk.stores import DRAWS, OTHERS, SECTIONS
from conformance.results.records import processor

DRAWN_SHAPES = 8
"""Drawn shapes for each cell, besides the boundary ones, unless the case or --examples says otherwise."""


@dataclass(frozen=True)
class Settings:
    store: Path
    """Folder of the exported models."""
    examples: int | None = None
    """Drawn shapes for each cell; None leaves it to the case."""
    budget: float | None = None
    """Seconds of CPU for the examples of each cell; None is ``judge.in_time.SECONDS``."""
    random: int | None = None
    """What this run mixes into the seeds of its draws, so that it draws anew; None draws what every run draws."""
    failures: Path | None = None
    """Folder in which failing draws are kept, to be replayed first next time; None keeps none."""
    answers: Path | None = None
    """Folder in which PyTorch's answers are kept for a later run; None keeps none."""
    outcomes: Path | None = None
    """Folder in which it is kept how declared failures came about, and which graphs are the same at other sizes; None
    keeps nothing."""
    instructions: frozenset[str] = field(default_factory=processor.instructions)
    """The instruction sets of the processor that the cells run on."""
    smallest: bool = True
    """Whether the smallest model or function that fails alike is looked for, which may take a minute a failure."""
    smallest_seconds: float = 30.0
    """How long a model or a function is made smaller; then the smallest so far is left."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """In which cell the smallest function was looked for, by its cause
    (``results.records.record.cause_of_smallest``)."""
    observe: bool = True
    """Whether it is observed what cells use; where it is not, nothing is kept for a later run."""
    only: Mapping[str, Any] | None = None
    """The one draw that cells run, as ``Draw.as_dict`` has it; None runs all."""
    explain_declared: bool = True
    """Ask others also about a failure that the case declares."""
    suite: str | None = None
    """What ``models.kept.fingerprint.suite`` said where the run was started; None asks it where the cells run."""
    require_provider: bool = False
    """Whether an execution provider of ONNX Runtime that leaves nodes to the CPU has failed."""
    tensorrt: Mapping[str, object] = field(default_factory=dict)
    """Builder options of this run, which take precedence over those of the cases."""
    provider_option: Mapping[str, str] = field(default_factory=dict)
    """Options of the execution providers of this run, which take precedence over those of the cases."""

    def own_folders(self) -> list[Path]:
        """Return the folders that this package keeps things in, which no case depends on."""
        beside = (self.store.parent / name for name in (*SECTIONS, DRAWS, *OTHERS))
        return [folder for folder in (self.store, self.failures, self.answers, self.outcomes, *beside) if folder]

    @property
    def index(self) -> Path | None:
        """The folder in which it is kept under which conditions models and answers hold; None keeps nothing."""
        return self.store.parent / "index" if self.observe else None

    def __post_init__(self) -> None:
        """Paths are absolute before a worker sees them, whose working directory a case may change."""
        object.__setattr__(self, "store", self.store.absolute())
        for name in ("failures", "answers", "outcomes"):
            folder = getattr(self, name)
            object.__setattr__(self, name, None if folder is None else folder.absolute())
