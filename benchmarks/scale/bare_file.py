"""``python bare_file.py FILE``: five examples of an ONNX file, run in ONNX Runtime with its optimizer and without,
and compared. It is what somebody writes who has no harness, and imports nothing of this project."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import onnxruntime

BATCHES = (1, 2, 3, 5, 8)
"""The size of an open dim in each example."""


def open_session(file: str, level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def draw(
    session: onnxruntime.InferenceSession, batch: int, rng: np.random.Generator
) -> dict[str, npt.NDArray[np.generic]]:
    """Return a value of each input."""
    feeds: dict[str, npt.NDArray[np.generic]] = {}
    for one in session.get_inputs():
        shape = [size if isinstance(size, int) else batch for size in one.shape]
        whole = one.type == "tensor(int64)"
        feeds[one.name] = rng.integers(0, 50, shape) if whole else rng.standard_normal(shape, dtype=np.float32)
    return feeds


def main(file: str) -> None:
    rng = np.random.default_rng(0)
    levels = onnxruntime.GraphOptimizationLevel
    plain, optimized = open_session(file, levels.ORT_DISABLE_ALL), open_session(file, levels.ORT_ENABLE_ALL)
    for batch in BATCHES:
        feeds = draw(plain, batch, rng)
        for got, wanted in zip(optimized.run(None, feeds), plain.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


if __name__ == "__main__":
    main(sys.argv[1])
