"""Where a good guess about a runtime was wrong: what this suite says there, of a file of one node or two."""

import numpy as np
import onnx
import pytest

from conformance.front.cli import main
from tests.kit.models import model_of

GUESSES = {
    "an opset under development is refused": (
        28, "(float[4] x) => (float[4] y) { y = Sin (x) }", {},
    ),
    "Softmax of opset 11 is of one dim": (
        11, "(float[2, 2, 3] x) => (float[2, 2, 3] y) { y = Softmax <axis = 1> (x) }", {},
    ),
    "a written rounding to float16 is kept": (
        17, "(float[16] x) => (float[16] y) { h = Cast <to = 10> (x) y = Cast <to = 1> (h) }", {},
    ),
    "a normalization of large values loses digits": (
        17, "(float[4, 64] x) => (float[4, 64] y) { w = Add (x, k) y = LayerNormalization <axis = -1> (w, s) }",
        {"k": np.float32([1e4]), "s": np.ones(64, np.float32)},
    ),
    "a Pad is folded into a MaxPool": (
        17, "(float[1, 1, 6, 6] x) => (float[1, 1, 7, 7] y) "
            "{ p = Pad (x, k) y = MaxPool <kernel_shape = [2, 2]> (p) }",
        {"k": np.int64([0, 0, 1, 1, 0, 0, 1, 1])},
    ),
}  # fmt: skip
"""By what one would guess and what is not so: opset, graph, weights."""


@pytest.mark.parametrize("guess", GUESSES)
def test_what_a_good_guess_gets_wrong_is_said_as_it_is(tmp_path, monkeypatch, capsys, guess):
    opset, graph, weights = GUESSES[guess]
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of(f"net {graph}", opset, **weights), "net.onnx")
    code = main(["check", "net.onnx", "--precision", "fp32", "--runtime", "onnxruntime,openvino", "--store", "store"])
    said = capsys.readouterr().out
    assert code == 0 and "right: onnxruntime in fp32; openvino in fp32" in said, said
