"""OpenVINO in processes that were forked from one in which it had run."""

import gc
import weakref
from functools import partial

import numpy as np
import pytest

from conformance.process.worker import aside
from conformance.runtimes import opener
from tests.kit.models import model_of

pytest.importorskip("openvino")


def lasting(file):
    """What a model gives, and whether it is still there when nobody uses it any more."""
    with opener("openvino")(file, ()) as session:
        (output,) = session.run({"x": np.ones((2, 3), np.float32)})
        ends = weakref.finalize(session._model, int)
    del session
    gc.collect()
    return output.tolist(), ends.alive


def test_a_fork_ends_no_model_since_that_would_wait_for_threads_of_another_process(tmp_path):
    """OpenVINO 2026.4 gives a model threads that the parent's had, and waits for these at the model's end."""
    file = tmp_path / "model.onnx"
    file.write_bytes(model_of("net (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }").SerializeToString())
    question = partial(lasting, file)
    assert question() == ([[-1.0] * 3] * 2, False)
    assert aside.ask(question, 60.0) == ([[-1.0] * 3] * 2, True)
