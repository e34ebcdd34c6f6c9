"""Explain wrong values by numbers below float32's smallest normal one, which a runtime may keep or flush to zero."""

from __future__ import annotations

from conformance.diagnose.explanations import Question
from conformance.process.arrays import Array
from conformance.process.errors import has_torch
from conformance.runtimes import opener

OPTION = "session.set_denormal_as_zero"
"""ONNX Runtime's session option that flushes them. It counts for the first session of a process alone, so that here
the processor is set by PyTorch, in a process of the question's own."""


def explain(question: Question) -> str | None:
    if question.runtime != "onnxruntime" or question.stage != "compare" or not has_torch():
        return None
    flush = question.config.get(OPTION) != "1"
    if not question.is_right(question.run_apart(lambda: _outputs(question, flush))):
        return None
    how = "flushed to zero" if flush else "kept"
    return f"right where denormal numbers are {how} ({OPTION}: {int(flush)})"


def _outputs(question: Question, flush: bool) -> list[Array]:
    import torch

    with opener("onnxruntime", config=question.config)(question.model, question.libraries) as session:
        torch.set_flush_denormal(flush)
        return session.run(question.inputs)
