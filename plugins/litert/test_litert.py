"""LiteRT is a runtime that the suite may rely on: ``pytest plugins/litert`` where it is installed with onnx2tf."""

import numpy as np
import onnx
import onnx.parser
import pytest
from conformance_litert.entry import ENTRY
from conformance_litert.session import CONVERTER, open_model

from conformance.process.errors import Unavailable
from conformance.testing import check_runtime

X = np.arange(24, dtype=np.float32).reshape(3, 2, 2, 2)


def computed(folder, operator):
    text = f"(float[n, 2, 2, 2] x) => (float[n, 2, 2, 2] y) {{ y = {operator} }}"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}'), folder / "model.onnx")
    with open_model(folder / "model.onnx", []) as session:
        return session.run({"x": X})[0]


def test_litert_is_a_runtime():
    check_runtime(ENTRY)


def test_images_are_given_in_the_order_of_onnx(tmp_path):
    assert np.array_equal(computed(tmp_path, "MaxPool <kernel_shape = [1, 1]> (x)"), X)


def test_what_onnx2tf_lacks_is_named(tmp_path):
    with pytest.raises(Unavailable, match="Mod with fmod=1 is not supported"):
        computed(tmp_path, "Mod <fmod = 1> (x, x)")


def test_a_python_without_onnx2tf_is_a_reason_to_skip(tmp_path, monkeypatch):
    monkeypatch.setenv(CONVERTER, "false")
    with pytest.raises(Unavailable, match=r"does not start \(exit 1\)"):
        computed(tmp_path, "Neg (x)")
