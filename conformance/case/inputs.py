"""What a case says of its inputs: their types, where their values come from, and how many are drawn."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from conformance.case.dims import Expression
from conformance.case.fields import DottedName, Says, Size, Type


class Between(Says):
    """Both ends included; the ends may be expressions over dims."""

    low: float | Size
    high: float | Size

    @model_validator(mode="after")
    def _ordered(self) -> Between:
        low, high = self.constants
        if low is not None and high is not None and not low <= high:
            raise ValueError(f"low {low:g} is above high {high:g}")
        return self

    @property
    def constants(self) -> tuple[float | None, float | None]:
        """The two ends where they do not depend on dims."""
        return tuple(e.constant if isinstance(e, Expression) else e for e in (self.low, self.high))  # type: ignore[return-value]


class Normal(Says):
    """A normal distribution."""

    mean: float = 0.0
    std: float = Field(1.0, gt=0)


def _spell_out_values(value: object) -> object:
    return {"python": value} if isinstance(value, str) else value


class Values(Says):
    """Where the values of an input come from; exactly one key is given."""

    uniform: Between | None = None
    """Floats of a range, which every regime stays within."""
    integers: Between | None = None
    """Whole numbers of a range, both ends included."""
    normal: Normal | None = None
    """A normal distribution; regimes may go beyond it."""
    choice: Annotated[list[float], Field(min_length=1)] | None = None
    """The numbers that each element is one of."""
    permutations: Size | None = None
    """Along the last axis, permutations of 0..n-1; that axis has n entries."""
    python: DottedName | None = None
    """A function ``f(shape, dims, rng) -> array`` in a Python file beside the case file."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Values:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}")
        return self


class Input(Says):
    type: Type
    values: Annotated[Values, BeforeValidator(_spell_out_values, json_schema_input_type=Values | str)] | None = None
    """Where values come from; without it, floats are standard normal and bools random. Required for integers, since
    they may be indices."""
    as_: str | None = Field(None, alias="as", pattern=r"^[A-Za-z_]\w*$")
    """Pass the input by this keyword instead of by position."""

    @model_validator(mode="after")
    def _has_values(self) -> Input:
        if self.type.dtype.lstrip("u").startswith("int") and self.values is None:
            raise ValueError(
                "an integer input needs values, as it may be an index: "
                "add values: {integers: {low: 0, high: n - 1}} or another range"
            )
        return self


def _spell_out_input(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


InputOrType: TypeAlias = Annotated[Input, BeforeValidator(_spell_out_input, json_schema_input_type=Input | str)]
"""An input, or its type alone."""


class Examples(Says):
    """How many shapes and values are drawn, for a case that is too slow for the defaults."""

    shapes: int | None = Field(None, ge=0)
    """Drawn shapes for each cell, besides the boundary shapes; the default is what --examples says."""
    values: int = Field(4, ge=1)
    """Value draws for each shape."""
    boundary: int | None = Field(None, ge=1)
    """The largest number of boundary shapes."""
