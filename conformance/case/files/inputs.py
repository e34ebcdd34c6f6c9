"""Model the inputs of a case: types, values, and how many are drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from conformance.case.files.dims import Expression, Sizes
from conformance.case.files.field_types import DottedName, Says, Size, Type, Word, with_key
from conformance.case.files.limits import DRAWN, TENSORS
from conformance.process.errors import shown


class Between(Says):
    """Both ends included; the ends may be expressions over dims."""

    low: float | Size
    high: float | Size

    def at(self, sizes: Sizes) -> tuple[float, float]:
        """Return both ends at these sizes."""
        low, high = (float(e(sizes)) if isinstance(e, Expression) else float(e) for e in (self.low, self.high))
        return low, high

    @model_validator(mode="after")
    def _ordered(self) -> Between:
        low, high = self.constants
        if low is not None and high is not None and not low <= high:
            raise ValueError(f"low {low:g} is above high {high:g}")
        if low is not None and high is not None and not math.isfinite(high - low):
            raise ValueError(f"{low:g} to {high:g} is wider than a float64 can say")
        return self

    @field_validator("low", "high")
    @classmethod
    def _finite(cls, end: float | Expression) -> float | Expression:
        if isinstance(end, float) and not math.isfinite(end):
            raise ValueError(f"{shown(end)} is no end of a range; the check specials runs NaN and infinities")
        return end

    @property
    def constants(self) -> tuple[float | None, float | None]:
        """The two ends where they do not depend on dims."""
        low, high = (end.constant if isinstance(end, Expression) else end for end in (self.low, self.high))
        return low, high


class Normal(Says):
    """A normal distribution."""

    mean: float = Field(0.0, allow_inf_nan=False)
    std: float = Field(1.0, gt=0, allow_inf_nan=False)


class Values(Says):
    """Set where the values of an input come from; exactly one key is given."""

    uniform: Between | None = None
    """Floats of a range, which every regime stays within."""
    integers: Between | None = None
    """Whole numbers of a range, both ends included."""
    normal: Normal | None = None
    """A normal distribution; regimes may go beyond it."""
    choice: Annotated[list[float], Field(min_length=1)] | None = None
    """The numbers that each element is one of; of floats also ``.nan``, ``.inf`` and ``-.inf``."""
    padding: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    """Padding masks: the numbers that hide and that show, as in ``[0, 1]``. Along the last axis some show, at least
    one, and those behind them hide."""
    left_padding: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    """The same of batches that a language model goes on with: the last ones show, and those before them hide."""
    positions_of: str | None = None
    """The positions of the last tokens of this input, a mask: those that show are counted from 0, and where it hides
    stands 0."""
    permutations: Size | None = None
    """Along the last axis, permutations of 0..n-1; that axis has n entries."""
    exactly: Annotated[list[float], Field(min_length=0, max_length=TENSORS)] | None = None
    """The numbers themselves, in order, as many as the input has; one stands for all."""
    texts: Annotated[list[str], Field(min_length=1, max_length=TENSORS)] | None = None
    """Of an input of texts, those that each element is one of. Without it, words that the model names, and texts that
    are hard to get right."""
    python: DottedName | None = None
    """A function ``f(shape, dims, rng) -> array`` in a Python file beside the case file."""
    recorded: Literal[True] | None = None
    """The values of one of the sets that ``recorded`` names, as they stand there."""

    by_graph: int | None = Field(None, ge=0)
    """Of an input of an ONNX file, which is the default: values by the rules of the operators that read it, such as
    axes within the rank. Where no rule is known, whole numbers from 0 to this one."""

    def numbers(self) -> Iterator[float]:
        """The numbers that values are made of, where they do not depend on dims."""
        yield from (*(self.choice or ()), *(self.mask or ()), *(self.exactly or ()))
        for between in (self.uniform, self.integers):
            yield from (end for end in (between.constants if between else ()) if end is not None)
        if self.normal is not None:
            yield from (self.normal.mean, self.normal.std)

    @property
    def mask(self) -> list[float] | None:
        """The numbers that hide and that show in a padding mask, on whichever side."""
        return self.padding or self.left_padding

    @property
    def may_be_texts(self) -> bool:
        return bool(self.texts or self.python or self.recorded)

    @model_validator(mode="after")
    def _exactly_one(self) -> Values:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}")
        return self


class Input(Says):
    type: Type
    values: Annotated[Values, with_key("python", Values | str)] | None = None
    """Where values come from; without it, floats are standard normal and bools random. Required for integers, since
    they may be indices."""
    sorted: Literal[True] | None = None
    """Values ascend along the last axis, as boundaries do that are searched; NaN comes last."""
    as_: Word | None = Field(None, alias="as")
    """Pass the input by this keyword instead of by position."""

    @property
    def is_drafted(self) -> bool:
        """Return whether nobody has said what values the input has: those of a file are by its graph."""
        return self.values is None or self.values.by_graph is not None

    @property
    def is_flag(self) -> bool:
        """Return whether the elements decide rather than count, as those of a mask."""
        values = self.values
        return self.type.dtype == "bool" or (values is not None and (values.choice or values.mask) is not None)

    @model_validator(mode="after")
    def _has_values(self) -> Input:
        if self.type.dtype.lstrip("u").startswith("int") and self.values is None:
            raise ValueError(
                "an integer input needs values, as it may be an index: "
                "add values: {integers: {low: 0, high: n - 1}} or another range"
            )
        permuted = self.values is not None and self.values.permutations is not None
        if (permuted or self.sorted) and not self.type.shape:
            key = "permutations run" if permuted else "sorted: values ascend"
            raise ValueError(f"{key} along the last axis, which a 0-d input does not have")
        own = self.values.model_fields_set - {"uniform", "normal", "integers", "choice"} if self.values else set()
        if self.sorted and (own or self.type.is_text):
            raise ValueError(f"sorted is said of numbers that are drawn, which {', '.join(own) or 'texts'} are not")
        if self.values is not None and self.values.texts is not None and not self.type.is_text:
            raise ValueError(f"values: texts are no values of {self.type.dtype}")
        if self.values is not None and self.type.is_text and not self.values.may_be_texts:
            raise ValueError("the values of texts are texts, as in values: {texts: [red, green]}")
        for number in self.values.numbers() if self.values is not None else ():
            low, high = self.type.limits
            if self.type.is_float and not math.isfinite(number):
                continue
            if not low <= number <= high:
                raise ValueError(f"values: {number:g} is no {self.type.dtype}, which has {low:g} to {high:g}")
        return self


_MISTYPED = ["Type", "TYPE", "typ", "types", "tpye", "tyep", "ytpe", "tpe", "tye", "ype", "tyype", "ttype", "typee"]
_STRUCTURE = {"type": "object", "propertyNames": {"not": {"enum": ["type", "values", *_MISTYPED]}}}
"""The JSON Schema of a mapping that holds inputs: none that was meant to be one."""


_Structure: TypeAlias = list[Any] | Annotated[dict[str, Any], WithJsonSchema(_STRUCTURE)] | None
InputOrType: TypeAlias = Annotated[Input, with_key("type", Input | str | _Structure)]
"""An input, or its type alone. What holds several is taken apart before (``case.files.structure``)."""


class ExampleLimits(Says):
    """Limit how many shapes and values are drawn, for a case that is slow."""

    shapes: int | None = Field(None, ge=0, le=DRAWN)
    """Drawn shapes for each cell, besides the boundary shapes; the default is what --examples says."""
    values: int = Field(4, ge=1, le=DRAWN)
    """Value draws for each shape."""
    boundary: int | None = Field(None, ge=1, le=DRAWN)
    """The largest number of boundary shapes."""
