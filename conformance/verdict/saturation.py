"""Whether ONNX Runtime's 8-bit kernels saturated: they add up products in 16 bits on x86 processors without VNNI.

``vpmaddubsw``, which those kernels are made of, adds two products of 8-bit numbers into 16 bits and saturates: 127
times 255, twice, is 64,770, and 32,767 comes out. ONNX Runtime has a switch that makes it take wider kernels
(``session.x64quantprecision``, in ``onnxruntime_session_options_config_keys.h``). That a model comes out right with
the switch, and wrong without it, shows that saturation is the cause; that a processor has no VNNI does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.arrays import Array, same
from conformance.records.processor import is_of_kind
from conformance.records.record import Answer, Witness
from conformance.verdict import asking
from conformance.verdict.blame import Opinion
from conformance.verdict.example import Example
from conformance.verdict.loop import Comparer

SWITCH = {"session.x64quantprecision": "1"}
"""The session option that makes ONNX Runtime take wider kernels."""

VNNI = ("avx512_vnni", "avx_vnni")
"""Instruction sets that add up 8-bit products in 32 bits."""

OPERATORS = {
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
}  # fmt: skip
"""A graph with none of these has nothing that 8-bit kernels compute."""


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
) -> Witness:
    """Runs the model with ``SWITCH``; ``agrees`` decides on its outputs. ``got`` are its outputs without the switch,
    or None where they are unknown.

    Outputs that the switch does not change prove nothing: ONNX Runtime takes options that it does not know without a
    word.
    """
    from conformance.runtimes.onnxruntime import knows

    def witness(answer: Answer, error: str | None = None) -> Witness:
        return Witness("onnxruntime", answer, error, config=SWITCH)

    if not all(map(knows, SWITCH)):
        return witness("abstains")
    asked = asking.ask("onnxruntime", model, libraries, inputs, {**config, **SWITCH})
    if asked.outputs is None:
        return witness(asked.answer, asked.error)
    if got is not None and same(asked.outputs, got):
        return witness("same")
    return witness("agrees" if agrees(asked.outputs) else "wrong")


def ask_about(
    opinion: Opinion,
    example: Example,
    comparer: Comparer,
    model: Path,
    libraries: Sequence[str],
    config: Mapping[str, str],
) -> None:
    """Adds to an opinion on a wrong answer of ONNX Runtime what it answers with kernels that cannot saturate."""
    assert comparer.session is not None
    try:
        got = comparer.session.run(example.inputs)
    except Exception:  # only a wrong answer is explained here
        return

    def agrees(outputs: list[Array]) -> bool:
        return comparer.compare(outputs, example.right(conditioned=True)).verdict != "failed"

    witness = ask(model, libraries, config, example.inputs, got, agrees)
    opinion.witnesses.append(witness)
    cause = cause_shown_by(witness)
    if cause is not None:
        opinion.cause, opinion.fault = cause, "runtime"


def cause_shown_by(witness: Witness) -> dict[str, Any] | None:
    """The cause, for the record, that the answer of ``ask`` shows; None where the answer shows no saturation."""
    if witness.answer != "agrees":
        return None
    return {"name": "saturation", "shown_by": dict(SWITCH), "lacks": list(VNNI)}
