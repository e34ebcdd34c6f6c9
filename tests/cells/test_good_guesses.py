"""Where a good guess about a runtime was wrong: what this suite says there, of a file of one node or two."""

import re

import numpy as np
import onnx
import pytest

from conformance.front.cli import main
from tests.kit.models import model_of

GUESSES = {
    "an opset under development is refused": (
        28, "(float[4] x) => (float[4] y) { y = Sin (x) }", {}, None,
    ),
    "Softmax of opset 11 is of one dim": (
        11, "(float[2, 2, 3] x) => (float[2, 2, 3] y) { y = Softmax <axis = 1> (x) }", {}, None,
    ),
    "a written rounding to float16 is kept": (
        17, "(float[16] x) => (float[16] y) { h = Cast <to = 10> (x) y = Cast <to = 1> (h) }", {}, None,
    ),
    "a normalization of large values loses digits": (
        17, "(float[4, 64] x) => (float[4, 64] y) { w = Add (x, k) y = LayerNormalization <axis = -1> (w, s) }",
        {"k": np.float32([1e4]), "s": np.ones(64, np.float32)}, None,
    ),
    "a Pad is folded into a MaxPool": (
        17, "(float[1, 1, 6, 6] x) => (float[1, 1, 7, 7] y) "
            "{ p = Pad (x, k) y = MaxPool <kernel_shape = [2, 2]> (p) }",
        {"k": np.int64([0, 0, 1, 1, 0, 0, 1, 1])}, None,
    ),
    "a counted padding ends with the padding": (
        21, "(float[1, 1, 6, 6] x) => (float[1, 1, 4, 4] y) { y = AveragePool <kernel_shape = [3, 3], "
            "strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1, count_include_pad = 1> (x) }",
        {}, "AveragePool divides the last window by all of it",
    ),
    "Softplus is above 0": (
        17, "(float[8] x) => (float[8] y) { z = Mul (x, k) y = Softplus (z) }",
        {"k": np.float32([30])}, "Softplus is coarse below -8",
    ),
}  # fmt: skip
"""By what one would guess: opset, graph, weights, and what is known of OpenVINO, if that is wrong there."""


@pytest.mark.parametrize("guess", GUESSES)
def test_what_a_good_guess_gets_wrong_is_said_as_it_is(tmp_path, monkeypatch, capsys, guess):
    opset, graph, weights, known = GUESSES[guess]
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of(f"net {graph}", opset, **weights), "net.onnx")
    code = main(["check", "net.onnx", "--precision", "fp32", "--runtime", "onnxruntime,openvino", "--store", "store"])
    said = capsys.readouterr().out
    assert code == (known is not None), said
    assert re.search(r"^passed  accuracy\[net-onnx-op\d+-onnxruntime-fp32\]", said, re.M), said
    if known is None:
        assert "right: onnxruntime in fp32; openvino in fp32" in said, said
    else:
        assert "1 of 1: OpenVINO is wrong" in said and f"known      {known} (openvino " in said, said
