"""Define what the models of case files are built of.

The closed mapping, and small texts, parsed as the file is read. Each small text is a type for pydantic's fields,
with the JSON Schema of what the author writes.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
)
from pydantic_core import core_schema

from conformance.case.files import time_budget
from conformance.case.files.dims import Expression, Range, TensorType
from conformance.case.files.limits import ENTRIES, SIZE, TENSORS, TEXT
from conformance.case.files.time_budget import Budget
from conformance.process.errors import shown
from conformance.results.records.environment import versions
from conformance.results.records.host_conditions import installed_version, is_met

PATH = re.compile(r"\w+(\.\w+)*")
"""Of keys, attributes and numbers."""


class Says(BaseModel):
    """A mapping of a case file: closed, frozen, its fields described by the text below each."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True, ser_json_inf_nan="strings"
    )


@dataclass(frozen=True)
class _Parsed:
    """Annotates a type whose values are texts (or numbers) that ``parse`` turns into something better."""

    parse: Callable[[Any], object]
    types: tuple[str, ...] = ("string",)
    pattern: str | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, object]:
        types = self.types[0] if len(self.types) == 1 else list(self.types)
        return {"type": types, **({"pattern": self.pattern} if self.pattern else {})}

    def _validate(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (str, int, float, list)):
            raise ValueError(f"expected text, not {shown(value)}")
        if isinstance(value, str) and len(value) > TEXT:  # what parses it may take the square of its length
            raise ValueError(f"{shown(value)} is longer than {TEXT} characters")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{shown(value)} is no number that can stand here")
        return self.parse(value)


def _text(pattern: str, otherwise: str, types: tuple[str, ...] = ("string",), schema: str | None = None) -> _Parsed:
    """A text of a pattern, which the ``schema`` may have shorter; ``otherwise`` is what is said of another one."""

    def parse(value: object) -> str:
        if not re.fullmatch(pattern, str(value)):
            raise ValueError(f"{shown(value)} {otherwise}")
        return str(value)

    return _Parsed(parse, types, f"^{schema or pattern}$")


def with_key(key: str, written: object) -> BeforeValidator:
    """Return what makes a text that stands alone the value of a key; ``written`` is the type of what is allowed."""
    return BeforeValidator(
        lambda value: {key: value} if isinstance(value, str) else value, json_schema_input_type=written
    )


def _beside(value: object) -> str:
    if not str(value).strip() or str(value).startswith("/"):
        raise ValueError(f"{shown(value)} is no file or pattern of files beside the case file, such as data/*.npy")
    return str(value)


def _returned(value: object) -> str:
    if isinstance(value, bool) or not PATH.fullmatch(str(value)):
        raise ValueError(f"{shown(value)} is no path into what forward returns, such as logits, 0 or past.0.key")
    return str(value)


def _decibels(value: object) -> float:
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d+)?)\s*(?:dB)?\s*", str(value))
    if isinstance(value, bool) or match is None:
        raise ValueError(f"{shown(value)} is not a number of decibels, such as 20 dB")
    return float(match[1])


def _requirement(value: object) -> str:
    is_met(str(value))
    package = re.split(r"[^\w.-]", str(value).strip(), maxsplit=1)[0]
    known = {name.lower().replace("_", "-") for name in versions()}
    if installed_version(package) is None and package.lower().replace("_", "-") not in known:
        likely = difflib.get_close_matches(package, known, n=1)
        if likely:
            raise ValueError(f"no package {package} is installed; is it {likely[0]}?")
    return str(value)


_UNITS = {"": 1, "MiB": 1, "GiB": 1024}


def _memory(value: object) -> int:
    match = re.fullmatch(r"\s*(\d{1,9})\s*(MiB|GiB|)\s*", str(value))
    if isinstance(value, bool) or match is None or not int(match[1]):
        raise ValueError(f"{shown(value)} is not a size of memory, such as 512 MiB or 1 GiB")
    return int(match[1]) * _UNITS[match[2]]


_NAME = r"[A-Za-z_]\w*"
Word: TypeAlias = Annotated[
    str, _text(r"[A-Za-z_]\w{0,63}", "is not a name: a letter, then at most 63 letters, digits and _", schema=_NAME)
]
ChoiceName: TypeAlias = Annotated[str, _text(r"[\w.]+", "names no choice: letters, digits, _ and .")]
FilesBeside: TypeAlias = Annotated[str, _Parsed(_beside)]
_NOT_DOTTED = "is not file.name; symbolics.asinh means asinh in the symbolics.py beside"
DottedName: TypeAlias = Annotated[str, _text(rf"{_NAME}(\.{_NAME})+", _NOT_DOTTED)]
_NO_SUBMODULE = "is no path of a submodule, such as encoder.layer.0"
SubmodulePath: TypeAlias = Annotated[str, _text(PATH.pattern, _NO_SUBMODULE, ("string", "integer"))]
ReturnedPath: TypeAlias = Annotated[str, _Parsed(_returned, ("string", "integer"), f"^{PATH.pattern}$")]
_NO_OPERATOR = "is not namespace::operator, such as aten::asinh"
OperatorName: TypeAlias = Annotated[str, _text(r"\w+::\w+(\.\w+)?", _NO_OPERATOR)]
TENSOR = re.compile(r"[^\x00-\x1f\x7f]+")
"""A name that a tensor of a graph may have, as ``gpu_0/data_0`` or ``input_ids:0``."""
TensorName: TypeAlias = Annotated[str, _text(TENSOR.pattern, "is no name of a tensor: it has control characters")]


def _named_as_parameter(name: str, info: ValidationInfo) -> str:
    if not (info.data.get("onnx") or re.fullmatch(r"[A-Za-z_][\w.]*", name)):
        raise ValueError(f"{shown(name)} is not a name: a letter, then letters, digits, _ and .")
    return name


InputName: TypeAlias = Annotated[TensorName, AfterValidator(_named_as_parameter)]
"""Of a case of a file any name that the file has; else that of a parameter."""
_NO_PRECISION = (
    "is not a precision: fp32, fp16, int8, of a file also bf16, int4, int2, fp8, fp4, or a variant as int8-entropy"
)
_A_PRECISION = r"(fp32|(fp16|int8|bf16|int4|int2|fp8|fp4)(-[a-z0-9_]+)?)"
PrecisionName: TypeAlias = Annotated[str, _text(_A_PRECISION, _NO_PRECISION)]
Requirement: TypeAlias = Annotated[str, _Parsed(_requirement)]
Decibels: TypeAlias = Annotated[float, _Parsed(_decibels, ("string", "number"))]
Mebibytes: TypeAlias = Annotated[int, _Parsed(_memory, ("string", "integer"))]
BudgetText: TypeAlias = Annotated[Budget, _Parsed(time_budget.parse)]
Size: TypeAlias = Annotated[Expression, _Parsed(Expression.parse, ("string", "integer"))]
SizeRange: TypeAlias = Annotated[Range, _Parsed(Range.parse, ("string", "integer"))]
Type: TypeAlias = Annotated[TensorType, _Parsed(TensorType.parse, pattern=r"^\s*\w+\s*\[.*\]\s*$")]


class _OrOne:
    """Annotates a list that may also be written as its only item."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._listed, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        listed = handler(schema)
        return {"anyOf": [listed, listed["items"]]}

    @staticmethod
    def _listed(value: object) -> object:
        return [value] if isinstance(value, (str, int)) and not isinstance(value, bool) else value


_T = TypeVar("_T")
Listed: TypeAlias = Annotated[list[_T], _OrOne()]


def _once(values: list[_T]) -> list[_T]:
    seen: set[_T] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{shown(value)} stands here twice")
        seen.add(value)
    return values


Short = Field(max_length=ENTRIES)
"""Annotates a list or mapping whose entries are held against every cell."""
Many = Field(max_length=TENSORS)
"""Annotates a list or mapping that has an entry for each input of a model, or for each dim."""
Once = AfterValidator(_once)
"""Annotates a short list of which each item makes cells of its own, so that it can stand there only once."""
SizeNumber: TypeAlias = Annotated[int, Field(ge=0, le=SIZE)]
"""The size of a dim as a number."""
Axis: TypeAlias = Annotated[int, Field(ge=-64, lt=64)]
"""An axis of a tensor, counted from its last one where it is negative."""
Positive: TypeAlias = Annotated[int, Field(ge=1, le=SIZE)]
"""A size that is not 0."""


_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}


def _opset_condition(value: object) -> frozenset[int]:
    """The opsets that ``17``, ``[9, 12]``, ``"< 19"``, ``">= 17"`` or ``"13..16"`` mean."""
    known = range(1, 100)
    if isinstance(value, list) and value and all(type(opset) is int for opset in value):
        return frozenset(value)
    if not isinstance(value, bool):
        if match := re.fullmatch(r"\s*(<=|>=|==|<|>)?\s*(\d+)\s*", str(value)):
            return frozenset(n for n in known if _COMPARE[match[1] or "=="](n, int(match[2])))
        if match := re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", str(value)):
            return frozenset(n for n in known if int(match[1]) <= n <= int(match[2]))
    raise ValueError(f'{shown(value)} is not a condition on opsets; write 17, [9, 12], "< 19" or "13..16"')


OpsetCondition: TypeAlias = Annotated[frozenset[int], _Parsed(_opset_condition, ("integer", "string", "array"))]
