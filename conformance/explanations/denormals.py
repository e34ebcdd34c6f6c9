"""Is a wrong value one of numbers below float32's smallest normal one, which a runtime may flush to zero?"""

from __future__ import annotations

from pathlib import Path

from conformance.arrays import Array
from conformance.explanations import Question
from conformance.runtimes import opener

OPTION = "session.set_denormal_as_zero"
"""ONNX Runtime's session option that flushes denormal numbers."""


def explain(question: Question) -> str | None:
    if question.runtime != "onnxruntime" or question.stage != "compare":
        return None
    flushed = question.config.get(OPTION) == "1"
    other = {**question.config, OPTION: "0" if flushed else "1"}
    outputs = question.run_apart(lambda: _outputs(question.model, question, other))
    if not question.is_right(outputs):
        return None
    how = "keeps denormal numbers" if flushed else "flushes denormal numbers to zero"
    return f"right where ONNX Runtime {how} ({OPTION}: {other[OPTION]})"


def _outputs(model: Path, question: Question, config: dict[str, str]) -> list[Array]:
    with opener("onnxruntime", config=config)(model, question.libraries) as session:
        return session.run(question.inputs)
