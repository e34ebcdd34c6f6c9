"""Find out whether ONNX Runtime is off because of a setting that trades accuracy for speed, which is no defect.

Such settings are documented (``onnxruntime_session_options_config_keys.h``; ``docs/ContribOperators.md`` for the
attributes of com.microsoft), and some trade by default: products with weights of few bits are computed with
activations of 8 bits. That the same model comes out right with a setting at its exact value, and wrong without it,
shows that the setting is the cause. They are tried before a pass of the optimizer or a kernel is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.case.draw.example import Example
from conformance.diagnose.nodes import loss, other_runtime
from conformance.diagnose.nodes.blame import Inquiry
from conformance.judge.comparer import Comparer
from conformance.process.arrays import Array, same
from conformance.results.records.explanation import Shows
from conformance.results.records.record import Witness
from conformance.results.records.record_types import Cause


@dataclass(frozen=True)
class Setting:
    """A session option with which ONNX Runtime trades accuracy."""

    key: str
    exact: str
    """Its value with which nothing is traded."""
    operators: frozenset[str]
    """A graph that lacks one of these has nothing that it is about."""


SETTINGS = (
    Setting("session.qdq_matmulnbits_accuracy_level", "1", frozenset({"DequantizeLinear", "MatMul"})),
    Setting("mlas.qnbit.force_fp32", "1", frozenset({"MatMulNBits"})),
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
    got = session.run(example.inputs)

    def agrees(outputs: list[Array]) -> bool:
        return not same(outputs, got) and comparer.compare(outputs, example.right("all")).verdict != "failed"

    for key, changed in _candidates(config, {name.rpartition("::")[2] for name in operators}):
        asked = other_runtime.ask("onnxruntime", model, libraries, example.inputs, changed)
        if asked.outputs is not None and agrees(asked.outputs):
            healing = {key: changed.get(key, "its default")}
            costs = loss.sqnr(got, asked.outputs)
            cause: Cause = {"name": "setting", "shown_by": {**healing}, "lacks": [], "costs": costs}
            witness = Witness("onnxruntime", "agrees", config=healing)
            return inquiry.plus(witness, Shows("setting"), details={"cause": cause})
    return None


def _candidates(config: Mapping[str, str], operators: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the options to try, each with the key that is another: without those that the case sets itself, and with
    the exact values of those that trade by default."""
    from conformance.runtimes.onnxruntime import knows

    for key in sorted(config.keys() - {setting.key for setting in SETTINGS}):
        yield key, {name: kept for name, kept in config.items() if name != key}
    for setting in SETTINGS:
        trades = config.get(setting.key) != setting.exact
        if trades and setting.operators <= {*operators} and knows(setting.key):
            yield setting.key, {**config, setting.key: setting.exact}
