"""The words that case files, options and records share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from conformance.runtimes.registry import IN_CASES

Exporter: TypeAlias = Literal["torchscript", "dynamo", "onnx"]
"""``onnx`` for a model that nobody exports: a case names its file."""
Precision: TypeAlias = Literal["fp32", "fp16", "int8", "bf16", "int4", "int2", "fp8", "fp4"]
"""The numbers that a model computes in; all from the fourth on of files that others have converted."""
CONVERTED = ("fp16", "int8")
"""The precisions that the suite converts to itself."""
STORAGE = {
    "fp16": "float16", "int8": "int8", "bf16": "bfloat16", "int4": "int4", "int2": "int2",
    "fp8": "float8", "fp4": "float4",
}  # fmt: skip
"""The type in which a model of a precision holds its weights, in the words of records."""
Check: TypeAlias = Literal[
    "export", "registration", "accuracy", "specials", "fidelity", "engine", "parse", "build", "meaning", "latency",
    "recorded", "steps", "metric", "preprocess",
]  # fmt: skip
Stage: TypeAlias = Literal["declare", "export", "check", "convert", "load", "run", "compare", "latency"]
Fault: TypeAlias = Literal["exporter", "runtime", "precision", "reference", "case", "preparation", "harness"]

if TYPE_CHECKING:
    Runtime: TypeAlias = str
else:  # a type checker takes no Literal of computed names
    Runtime = Literal[IN_CASES]

Regime: TypeAlias = Literal[
    "plain", "large", "ties", "negative", "grid", "equal", "ends", "tiny", "offset", "zero", "huge"
]  # fmt: skip
"""Kinds of finite values, which ``case.draw.value_regimes`` makes; plain is what the case declares, or standard
normal."""
Special: TypeAlias = Literal["nan", "inf", "-inf", "signed zero", "mixed"]
"""Kinds of values that have a check of their own."""

HUGE = "huge"
"""The regime of values at which most modules lose their precision: it shows where it does not, and is no part of the
others' turns."""
REGIMES: tuple[str, ...] = tuple(name for name in get_args(Regime) if name != HUGE)
SPECIALS: tuple[str, ...] = get_args(Special)


def base_of(precision: str) -> str:
    """``int8`` of ``int8-entropy``."""
    return precision.partition("-")[0]
