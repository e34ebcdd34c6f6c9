"""Model the user's own metric, and the preparations of inputs that stand before a model."""

from __future__ import annotations

from pydantic import Field, model_validator

from conformance.case.files.field_types import Decibels, DottedName, FilesBeside, Positive, Says


class Metric(Says):
    """Say by which score of one's own, on one's own data, every runtime and precision is compared with the module."""

    of: DottedName
    """A function ``f(outputs, batch)`` of the list of forward's outputs and the arrays of ``data`` by name, for all
    samples: a score for each, from 0 to 1, or one number. Higher is better."""
    data: FilesBeside
    """An ``.npz`` file beside the case file, samples along the first axis: the inputs by name, and whatever else the
    metric alone is to see, such as labels."""
    drop: float = Field(gt=0, le=100)
    """Percentage points of the score that may be lost."""
    batch: Positive = 32
    """Samples that the models see at once; as many as the case allows, if it allows fewer or asks for more."""


class Preprocess(Says):
    """Name two functions that make inputs of raw data: that of training, and that of the deployment."""

    pytorch: DottedName
    """``f(raw)``, which is right: ``raw`` has all arrays of ``data`` by name. It returns the inputs of all samples by
    name, or the array of a case with one input."""
    deployed: DottedName
    """The same as the deployment does it."""
    data: FilesBeside | None = None
    """An ``.npz`` file beside the case file; by default that of ``metric``."""
    sqnr: Decibels = 40.0
    """Decibels that the module's outputs on both preparations have to keep over all samples. Rounding to 8 bits
    leaves about 50."""

    @model_validator(mode="after")
    def _two(self) -> Preprocess:
        if self.pytorch == self.deployed:
            raise ValueError(f"pytorch and deployed are both {self.pytorch}, so that nothing would be compared")
        return self
