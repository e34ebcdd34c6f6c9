"""The words that case files, options and records share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from conformance.runtimes.registry import IN_CASES

Exporter: TypeAlias = Literal["torchscript", "dynamo", "onnx"]
"""``onnx`` for a model that nobody exports: a case names its file."""
Precision: TypeAlias = Literal["fp32", "fp16", "int8"]
Check: TypeAlias = Literal[
    "export", "registration", "accuracy", "specials", "fidelity", "engine", "parse", "build", "meaning", "latency",
    "recorded",
]  # fmt: skip
Stage: TypeAlias = Literal["declare", "export", "check", "convert", "load", "run", "compare", "latency"]
Fault: TypeAlias = Literal["exporter", "runtime", "precision", "reference", "case", "harness"]

if TYPE_CHECKING:
    Runtime: TypeAlias = str
else:  # a type checker takes no Literal of computed names
    Runtime = Literal[IN_CASES]

Regime: TypeAlias = Literal[
    "plain", "large", "ties", "negative", "grid", "equal", "ends", "tiny", "offset", "zero"
]  # fmt: skip
"""Kinds of finite values, which ``case.draw.value_regimes`` makes; plain is what the case declares, or standard
normal."""
Special: TypeAlias = Literal["nan", "inf", "-inf", "signed zero", "mixed"]
"""Kinds of values that have a check of their own."""

REGIMES: tuple[str, ...] = get_args(Regime)
SPECIALS: tuple[str, ...] = get_args(Special)


def base_of(precision: str) -> str:
    """``int8`` of ``int8-entropy``."""
    return precision.partition("-")[0]
