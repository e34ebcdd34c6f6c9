"""Edits of a case, and how they are written into its file."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

from conformance.case.files.declaration import Case
from conformance.case.files.dims import Expression
from conformance.case.files.field_types import Says
from conformance.case.files.inputs import Input, Values


def saying(case: Case, **changes: Any) -> Case:
    """The case with other parts."""
    return dataclasses.replace(case, says=case.says.model_copy(update=changes))


def with_values(declared: Input, values: dict[str, Any] | None) -> Input:
    """The input with other values; as it is where it holds no floats, or a function makes them."""
    if not declared.type.is_float or (declared.values is not None and declared.values.python):
        return declared
    return declared.model_copy(update={"values": None if values is None else Values.model_validate(values)})


def widened(declared: Input, width: int) -> Input:
    """An integer input that holds but one number, with ``width`` more."""
    between = None if declared.values is None else declared.values.integers
    low, high = (None, None) if between is None else between.constants
    if low is None or low != high:
        return declared
    values = {"integers": {"low": int(low), "high": int(low) + width}}
    return declared.model_copy(update={"values": Values.model_validate(values)})


def values_of(case: Case) -> dict[str, Any]:
    """The remedy that gives the case these inputs."""
    inputs: dict[str, Any] = {}
    for name, declared in case.says.inputs.items():
        shape = ", ".join(map(str, declared.type.shape))
        said: dict[str, Any] = {"type": f"{declared.type.dtype}[{shape}]"}
        if declared.values is not None:
            said["values"] = plain(declared.values)
        if declared.as_ is not None:
            said["as"] = declared.as_
        inputs[name] = said["type"] if len(said) == 1 else said
    return {"kind": "values", "yaml": f"inputs: {flow(inputs)}"}


def plain(value: Any) -> Any:
    """A part of a case as its file says it."""
    if isinstance(value, Says):
        names = type(value).model_fields
        return {
            names[name].alias or name: plain(getattr(value, name)) for name in names if name in value.model_fields_set
        }
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Expression):
        return str(value) if value.constant is None else value.constant
    return value


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w.]*", value) and value.lower() not in (
            "true",
            "false",
            "null",
            "yes",
            "no",
        )
        return value if plain else json.dumps(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return repr(value) if isinstance(value, float) else json.dumps(value)
