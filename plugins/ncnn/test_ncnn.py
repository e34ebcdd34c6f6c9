"""ncnn is a runtime that the suite may rely on: ``pytest plugins/ncnn`` where ncnn and pnnx are installed."""

import numpy as np
import onnx
import onnx.parser
import pytest
from conformance_ncnn.entry import ENTRY
from conformance_ncnn.session import ConversionFailed, open_model

from conformance.process.errors import Unavailable
from conformance.testing import check_runtime


def computed(folder, text, **inputs):
    model = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}'), model)
    with open_model(model, []) as session:
        return session.run(inputs)[0]


def test_ncnn_is_a_runtime():
    check_runtime(ENTRY)


def test_a_batch_keeps_its_dim_and_an_output_the_dims_of_the_model(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(3, 2, 2, 2)
    text = "(float[n, 2, 2, 2] x) => (float[n, 2, 1, 1] y) { y = GlobalMaxPool(x) }"
    assert np.array_equal(computed(tmp_path, text, x=x), x.max((2, 3), keepdims=True))
    text = "(float[n, 2, 2, 2] x) => (float y) { y = ReduceMax <keepdims = 0> (x) }"
    assert computed(tmp_path, text, x=x).shape == ()


def test_what_ncnn_lacks_is_named(tmp_path):
    x = np.ones((2, 3), np.float32)
    with pytest.raises(Unavailable, match="no layer Hardmax"):
        computed(tmp_path, "(float[2, 3] x) => (float[2, 3] y) { y = Hardmax(x) }", x=x)
    with pytest.raises(Unavailable, match="UnaryOp takes no integers"):
        computed(tmp_path, "(int64[2, 3] x) => (float[2, 3] y) { z = Neg(x) y = Cast <to = 1> (z) }", x=x.astype(int))


def test_a_converter_that_ends_is_an_error_of_that_model(tmp_path):
    text = "(float[3, 2] x, int64[2] i) => (float[2, 2] y) { y = Gather(x, i) }"
    with pytest.raises(ConversionFailed, match="exit -"):
        computed(tmp_path, text, x=np.ones((3, 2), np.float32), i=np.array([2, 0]))
