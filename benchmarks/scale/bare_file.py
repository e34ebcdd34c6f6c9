"""``python bare_file.py FILE``: five examples of an ONNX file, run in ONNX Runtime with and without its optimizer, and
compared. What somebody writes who has no harness; it imports nothing of this project."""

import sys

import numpy as np
import onnxruntime

BATCHES = (1, 2, 3, 5, 8)
"""What an open dim is in each example."""


def open_session(file, level):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def draw(session, batch, rng):
    feeds = {}
    for one in session.get_inputs():
        shape = [size if isinstance(size, int) else batch for size in one.shape]
        whole = one.type == "tensor(int64)"
        feeds[one.name] = rng.integers(0, 256, shape) if whole else rng.standard_normal(shape, dtype=np.float32)
    return feeds


def main(file):
    rng = np.random.default_rng(0)
    levels = onnxruntime.GraphOptimizationLevel
    plain, optimized = open_session(file, levels.ORT_DISABLE_ALL), open_session(file, levels.ORT_ENABLE_ALL)
    for batch in BATCHES:
        feeds = draw(plain, batch, rng)
        for got, wanted in zip(optimized.run(None, feeds), plain.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


if __name__ == "__main__":
    main(sys.argv[1])
