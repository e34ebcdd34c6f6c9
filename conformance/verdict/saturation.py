"""Whether ONNX Runtime's 8-bit kernels saturated: they add up products in 16 bits on x86 processors without VNNI.

``vpmaddubsw``, which those kernels are made of, adds two products of 8-bit numbers into 16 bits and saturates: 127
times 255, twice, is 64,770, and 32,767 comes out. ONNX Runtime has a switch that makes it take wider kernels
(``session.x64quantprecision``, in ``onnxruntime_session_options_config_keys.h``). That a model comes out right with
the switch, and wrong without it, shows that saturation is the cause; that a processor has no VNNI does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.arrays import Array
from conformance.records.processor import is_of_kind
from conformance.runtimes import opener

SWITCH = {"session.x64quantprecision": "1"}

VNNI = ("avx512_vnni", "avx_vnni")
"""Instruction sets that add up 8-bit products in 32 bits."""

OPERATORS = {
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
}  # fmt: skip
"""A graph with none of these has nothing that 8-bit kernels compute."""


@dataclass(frozen=True)
class Answer:
    """What running a model with the switch showed: ``cause`` for the record, None where it showed nothing."""

    cause: dict[str, Any] | None
    lines: tuple[str, ...]


NOTHING = Answer(None, ())


def possible(nodes: Mapping[str, int], config: Mapping[str, str], instructions: Collection[str]) -> bool:
    """Whether a model with these nodes can meet saturating kernels on a processor with these instruction sets."""
    eight_bit = any(name.rpartition("::")[2] in OPERATORS for name in nodes)
    return eight_bit and not (SWITCH.items() <= config.items()) and is_of_kind({"lacks": VNNI}, instructions)


def ask(
    model: Path,
    libraries: Sequence[str],
    config: Mapping[str, str],
    inputs: Mapping[str, Array],
    got: Sequence[Array] | None,
    agrees: Callable[[list[Array]], bool],
) -> Answer:
    """Runs the model with the switch. ``got`` are its outputs without (None: unknown), ``agrees`` decides on outputs.

    Outputs that do not change prove nothing: ONNX Runtime takes options that it does not know without a word.
    """
    from conformance.runtimes.onnxruntime import knows

    (key,) = SWITCH
    if not knows(key):
        return Answer(None, (f"this ONNX Runtime has no {key}, so it is open whether its 8-bit sums saturated",))
    try:
        with opener("onnxruntime", config={**config, **SWITCH})(model, libraries) as session:
            outputs = session.run(inputs)
    except Exception as error:  # this only explains a failure, and must not be another
        return Answer(None, (f"ONNX Runtime with {_switch()}: stops with {type(error).__name__}",))
    if got is not None and _same(outputs, got):
        return Answer(None, (f"ONNX Runtime with {_switch()}: the same outputs, so its 8-bit sums did not saturate",))
    if not agrees(outputs):
        return Answer(None, (f"ONNX Runtime with {_switch()}: is wrong too",))
    cause = {"name": "saturation", "shown_by": dict(SWITCH), "lacks": list(VNNI)}
    return Answer(cause, (f"ONNX Runtime with {_switch()}: is right", *ADVICE))


def _switch() -> str:
    return ", ".join(f"{key}={value}" for key, value in SWITCH.items())


def _same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, other, strict=True)
    )


ADVICE = (
    f"so its 8-bit kernels saturate: without {' or '.join(VNNI)} they add up products in 16 bits",
    "what to do, in the case and in the deployment that it stands for; one of these:",
    '  onnxruntime: {config: {session.x64quantprecision: "1"}}   wider kernels, slower (docs/precision.md)',
    "  precisions: {int8: {reduce_range: true}}                  weights of 7 bits, which lose up to 6 dB",
    "  deploy on processors with VNNI, and declare the failure for the others: "
    f"fails: [{{when: {{cpu: {{lacks: [{', '.join(VNNI)}]}}}}, ...}}]",
)
