"""Explain wrong values by the one thread that the suite gives ONNX Runtime, where several threads give right ones."""

from __future__ import annotations

from conformance.diagnose.explanations import Question
from conformance.process.arrays import Array

THREADS = 4


def explain(question: Question) -> str | None:
    if question.runtime != "onnxruntime" or question.stage != "compare":
        return None
    outputs = question.run_apart(lambda: _outputs(question))
    return f"right with {THREADS} threads, and wrong with one" if question.is_right(outputs) else None


def _outputs(question: Question) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    for key, value in question.config.items():  # else an option of the case could be what makes the difference
        options.add_session_config_entry(key, value)
    for library in question.libraries:
        options.register_custom_ops_library(library)
    session = onnxruntime.InferenceSession(str(question.model), options, providers=["CPUExecutionProvider"])
    names = {entry.name for entry in session.get_inputs()}
    return list(session.run(None, {name: array for name, array in question.inputs.items() if name in names}))
