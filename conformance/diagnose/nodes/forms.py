"""The forms in which operators take their inputs, whatever their values: lists of numbers, one number, and dtypes.

``forms.csv`` has what https://onnx.ai/onnx/operators says, but for numbers in one axis, which ONNX Runtime takes
everywhere for those in none. Dtypes are those of ONNX's schemas.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Inputs = Sequence[Any]

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
VECTORS: dict[str, dict[int, str]] = {}
"""By operator, the inputs that are lists of numbers, and so have one axis."""
NUMBERS: dict[str, dict[int, str]] = {}
"""By operator, the inputs that are one number, in no axis or in one."""
WORDS: dict[str, dict[str, str]] = {}
"""By operator and attribute, the words that it may be, of all opsets, first those that operators of PyTorch need."""


def _read_forms() -> None:
    with Path(__file__).with_name("forms.csv").open(encoding="utf-8", newline="") as file:
        for operator, kind, at, what in csv.reader(file):
            if kind == "words":
                WORDS.setdefault(operator, {})[at] = what
            elif kind in ("list", "number"):
                inputs = VECTORS if kind == "list" else NUMBERS
                inputs.setdefault(operator, {})[int(at)] = what


_read_forms()


def words_of(operator: str, name: str) -> list[str]:
    """Return the words that an attribute may be, but for what no exporter of PyTorch writes."""
    words = "" if name in ("auto_pad", "keep_aspect_ratio_policy") else WORDS.get(operator, {}).get(name, "")
    return [word for word in words.split() if not word.startswith("tf_")]


def wrong_word(operator: str, attributes: Mapping[str, object]) -> str | None:
    """Return which attribute is a word that the operator does not know, neither by ``WORDS`` nor by the text of the
    newest schema, as a later ONNX may have more."""
    import onnx

    for name, words in WORDS.get(operator, {}).items():
        word = attributes.get(name, b"")
        word = word.decode(errors="replace") if isinstance(word, bytes) else str(word)
        if not word or word in words.split():
            continue
        schema = onnx.defs.get_schema(operator)
        about = schema.attributes.get(name)
        if word not in f"{about.description if about is not None else ''} {schema.doc}":
            return f"{name} {word} is none of {words.replace(' ', ', ')}"
    return None


def wrong_form(operator: str, inputs: Inputs) -> str | None:
    """Return which input is no list of numbers, or not one number, where the operator takes such."""
    for place, what in VECTORS.get(operator, {}).items():
        array = inputs[place] if place < len(inputs) else None
        if isinstance(array, np.ndarray) and array.ndim != 1:
            return f"{what}: {count_axes(array.ndim)} instead of one axis"
    for place, what in NUMBERS.get(operator, {}).items():
        array = inputs[place] if place < len(inputs) else None
        if isinstance(array, np.ndarray) and array.shape not in ((), (1,)):
            return f"{what}: shape {array.shape} instead of one number"
    return None


def count_axes(count: int) -> str:
    return f"{count or 'no'} {'axis' if count == 1 else 'axes'}"


def wrong_dtype(operator: str, inputs: Inputs, opset: int) -> str | None:
    """Return which input has no type that the operator takes there, or another than one that has to have the same."""
    import onnx

    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return None
    allowed = {one.type_param_str: {*one.allowed_type_strs} for one in schema.type_constraints}
    first: dict[str, str] = {}
    formal = [*schema.inputs]
    for place, array in enumerate(inputs):
        given = formal[min(place, len(formal) - 1)] if formal else None
        name = _type_of(array)
        if given is None or name is None:
            continue
        if name not in allowed.get(given.type_str, {given.type_str}):
            return f"input {place} is a {name}"
        shared = given.type_str in allowed and given.is_homogeneous
        if shared and first.setdefault(given.type_str, name) != name:
            return f"{first[given.type_str]} meets {name}"
    return None


def _type_of(array: object) -> str | None:
    """``tensor(float)``; None for what is no tensor of a type that ONNX has, or may be of one that NumPy lacks, of
    which runtimes give the bits."""
    from onnx import TensorProto, helper

    if not isinstance(array, np.ndarray) or array.dtype in (np.uint16, np.uint8, np.int8):
        return None
    try:
        name = TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(array.dtype))
    except (KeyError, ValueError, TypeError):
        return None
    return f"tensor({name.lower()})"
