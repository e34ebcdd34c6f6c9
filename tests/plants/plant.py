"""What a plant is: a defect whose culprit is known, in a small case that passes without it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Culprit = Literal["exporter", "optimizer", "kernel", "conversion", "reference", "case", "host"]
CULPRITS: tuple[Culprit, ...] = get_args(Culprit)


@dataclass(frozen=True)
class Written:
    """A case as somebody writes it: the body of its entry, and ``beside.py``."""

    body: str
    python: str = ""


class Planted:
    """How often a defect was put somewhere; zero means that nothing was planted."""

    def __init__(self) -> None:
        self.times = 0

    def note(self) -> None:
        self.times += 1


Planting = Callable[[Planted], contextlib.AbstractContextManager[None]]
"""Holds the defect inside its block."""


@contextlib.contextmanager
def written_into_the_case(planted: Planted) -> Iterator[None]:
    """The case itself is the defect."""
    planted.note()
    yield


@dataclass(frozen=True)
class Plant:
    """One defect."""

    name: str
    culprit: Culprit
    case: Written
    """What runs: sound but for ``planting``, or with the mistake in it."""
    planting: Planting = written_into_the_case
    sound: Written | None = None
    """The same without the defect, which has to pass; None where it is ``case`` without ``planting``."""
    check: str = "accuracy"
    precision: str = "fp32"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of ``case.plan.settings.Settings``."""
    memory_gib: float | None = None
    """What its worker may take; None for the default."""
    timeout: float = 90.0
    """Seconds."""
    own_code: bool = False
    """True where the defect is in code of the case's own that an export runs."""
    lines: range | None = None
    """Those of ``beside.py`` of which the record has to name one; None where it need not."""
    alone: bool = False
    """True where its Python registers what stays in a process, so that it takes a worker of its own."""

    @property
    def twin(self) -> Written | None:
        """What has to pass for the plant to prove anything; None for a mistake that has no sound form."""
        if self.sound is not None:
            return self.sound
        return None if self.planting is written_into_the_case else self.case
