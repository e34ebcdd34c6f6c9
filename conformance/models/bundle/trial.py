"""The inputs and limits that an engine is tried with, as a bundle keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.compare.judges import Judge
from conformance.process.arrays import Inputs


@dataclass(frozen=True)
class EngineTrial:
    """The inputs and limits of a trial of an engine."""

    inputs: Inputs
    """One example at the traced sizes."""
    judge: Judge
    """Decides whether two builds answer alike."""
    rows: Inputs | None = None
    """A batch of equal rows; None where the case has no dim of rows."""
    equal: Sequence[int] = ()
    """The outputs whose rows come out equal in PyTorch for ``rows``."""
    batches: Mapping[int, Inputs] = field(default_factory=dict)
    """Inputs by number of rows."""
