"""Find out whether ONNX Runtime is off because of a setting that trades accuracy for speed, which is no defect.

Such settings are documented (``onnxruntime_session_options_config_keys.h``; ``docs/ContribOperators.md`` for the
attributes of com.microsoft), and some trade by default: products with weights of few bits are computed with
activations of 8 bits. That the same model comes out right with a setting at its exact value, and wrong without it,
shows that the setting is the cause. They are tried before a pass of the optimizer or a kernel is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from conformance.case.draw.example import Example
from conformance.diagnose.nodes import loss, other_runtime
from conformance.diagnose.nodes.blame import Inquiry
from conformance.judge.comparer import Comparer
from conformance.process.arrays import same
from conformance.process.errors import attempt
from conformance.results.records.explanation import Shows
from conformance.results.records.record import Witness
from conformance.results.records.record_types import Cause


@dataclass(frozen=True)
class TradingOption:
    """A session option with which ONNX Runtime trades accuracy."""

    key: str
    exact: str
    """Its value with which nothing is traded."""
    by_default: frozenset[str] | None = None
    """The operators about which it is, where it trades unless told not to; None where it has to be asked for."""


OPTIONS = (
    TradingOption("session.qdq_matmulnbits_accuracy_level", "1", frozenset({"DequantizeLinear", "MatMul"})),
    TradingOption("mlas.qnbit.force_fp32", "1", frozenset({"MatMulNBits"})),
    TradingOption("optimization.enable_gelu_approximation", "0"),
    TradingOption("session.set_denormal_as_zero", "0"),
    TradingOption("mlas.enable_gemm_fastmath_arm64_bfloat16", "0"),
)
"""In the order in which they are tried. The first, 4 by default, is about ``DequantizeLinear`` and ``MatMul`` that
become one ``MatMulNBits``, the second about that operator, whatever ``accuracy_level`` the file says (ONNX Runtime
1.32)."""


def ask_about(
    inquiry: Inquiry, example: Example, comparer: Comparer, model: Path, libraries: Sequence[str],
    config: Mapping[str, str], operators: Collection[str],
) -> Inquiry | None:  # fmt: skip
    """Return the inquiry with the setting that makes the outputs of an example right; None where none does, or none
    is known to this release. ``config`` are the options of the session that failed."""
    session = comparer.session
    if session is None:
        return None
    for key, changed in _candidates(config, {name.rpartition("::")[2] for name in operators}):
        asked = other_runtime.ask("onnxruntime", model, libraries, example.inputs, changed)
        got = attempt(partial(session.run, example.inputs))
        if asked.outputs is None or isinstance(got, Exception) or same(asked.outputs, got):
            continue
        if comparer.compare(asked.outputs, example.right("all")).verdict != "failed":
            healing = {key: changed[key]}
            costs = loss.sqnr(got, asked.outputs)
            cause: Cause = {"name": "setting", "shown_by": {**healing}, "lacks": [], "costs": costs}
            witness = Witness("onnxruntime", "agrees", config=healing)
            return inquiry.plus(witness, Shows("setting"), details={"cause": cause})
    return None


def _candidates(config: Mapping[str, str], operators: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the options to try, each with the key that is another: the exact values of those with which the case
    trades, and of those that trade by default."""
    from conformance.runtimes.onnxruntime import knows

    for option in OPTIONS:
        trades = option.by_default is not None and option.by_default <= {*operators} and knows(option.key)
        if config.get(option.key, option.exact if not trades else None) != option.exact:
            yield option.key, {**config, option.key: option.exact}
