"""An order or a value that rounding decides in an ONNX file is found as in a module, by NumPy alone."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from conformance.export.float64_model import in_float64
from conformance.export.rounded_file import ArrayUnits, RoundedSession
from conformance.export.rounding import Rounding, Units
from tests.kit.runs import run_command

pytestmark = pytest.mark.smoke
WAYS = [
    {}, {"mirrored": True}, {"uneven": True}, {"finer": 10}, {"ties": True}, {"merged": True},
    {"merged": True, "mirrored": True},
]  # fmt: skip


@pytest.mark.parametrize("bits", [11, 24])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_arrays_move_as_tensors_do(bits, way):
    rng = np.random.default_rng(0)
    values = np.concatenate([
        rng.normal(size=50) * 2.0 ** rng.integers(-160, 160, size=50),
        [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e-45],
    ])  # fmt: skip
    rounding = Rounding(bits, 3, **way)
    tensors = Units(rounding).rounded(torch.from_numpy(values.copy())).numpy()
    np.testing.assert_array_equal(ArrayUnits(rounding).rounded(values), tensors)


def model(*nodes, k=3):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 16])
    outputs = [
        helper.make_tensor_value_info("v", TensorProto.FLOAT, ["b", k]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["b", k]),
    ]
    graph = helper.make_graph([*nodes], "g", [x], outputs, [helper.make_tensor("k", TensorProto.INT64, [1], [k])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SATURATED = model(helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("TopK", ["t", "k"], ["v", "i"], "top"))


def test_each_result_is_off_and_nothing_is_without_a_rounding():
    session = RoundedSession(in_float64(onnx.ModelProto.FromString(SATURATED.SerializeToString())))
    x = {"x": np.linspace(0.1, 0.9, 16)[None]}
    exact, moved, again = session.run(x), session.run(x, Rounding(24, 0)), session.run(x)
    off = np.abs(moved[0] - exact[0]) / np.spacing(np.float32(0.5))
    assert 0.4 < off.max() < 4 and [a.tolist() for a in exact] == [a.tolist() for a in again]


def test_an_order_on_which_rounding_decides_accuses_no_runtime(tmp_path):
    onnx.save(SATURATED, tmp_path / "net.onnx")
    told = run_command(tmp_path, "check", "net.onnx", "--precision", "fp32", "--examples", "64")
    assert "FAILED  accuracy[net-onnx-op17-onnxruntime-fp32]" not in told.text, told.text
    assert "passed  accuracy[net-onnx-op17-onnxruntime-fp32]" in told.text
