"""The rules for explicit quantization: each broken once, and models that keep them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from conformance.precision.rules import broken

SOUND = {
    "Conv": ("float[1, 3, 5, 5]", (4, 3, 3, 3), 0, "Conv (xd, wd)"),
    "ConvTranspose": ("float[1, 3, 5, 5]", (3, 4, 3, 3), 1, "ConvTranspose (xd, wd)"),
    "Gemm": ("float[2, 3]", (3, 4), 1, "Gemm (xd, wd)"),
    "Gemm transposed": ("float[2, 3]", (4, 3), 0, "Gemm <transB = 1> (xd, wd)"),
    "MatMul": ("float[2, 3]", (3, 4), 1, "MatMul (xd, wd)"),
}


def model(kind: str = "MatMul", axis: int | None = None, **replaced: np.ndarray) -> onnx.ModelProto:
    """One operator with both operands quantized by the rules, but for what is ``replaced``."""
    given, shape, right, call = SOUND[kind]
    axis = right if axis is None else axis
    arrays = {
        "xs": np.float32(0.1),
        "xz": np.int8(0),
        "w": np.ones(shape, np.int8),
        "ws": np.full(shape[axis], 0.02, np.float32),
        "wz": np.zeros(shape[axis], np.int8),
        **replaced,
    }
    made = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g ({given} x) => (float y) {{
        xq = QuantizeLinear (x, xs, xz)
        xd = DequantizeLinear (xq, xs, xz)
        wd = DequantizeLinear <axis = {axis}> (w, ws, wz)
        y = {call}
    }}""")
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    return made


@pytest.mark.parametrize("kind", SOUND)
def test_a_model_that_keeps_the_rules_has_nothing_against_it(kind):
    assert broken(model(kind)) == []


@pytest.mark.parametrize("kind", SOUND)
def test_scales_along_another_axis_than_that_of_the_output_channels_are_found(kind):
    (found,) = broken(model(kind, axis=1 - SOUND[kind][2]))
    assert kind.split()[0] in found
    assert f"output channels are axis {SOUND[kind][2]}" in found


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ({"xz": np.int8(1)}, "the zero point is not 0"),
        ({"wz": np.array([0, 0, 1, 0], np.int8)}, "the zero point is not 0"),
        ({"xz": np.uint8(0)}, "is uint8"),
        ({"xs": np.float32(0)}, "a scale is 0"),
        ({"xs": np.float32(-0.1)}, "a scale is -0.1"),
        ({"xs": np.float32(np.inf)}, "a scale is inf"),
    ],
)
def test_what_is_not_symmetric_int8_with_positive_scales_is_found(replaced, said):
    found = broken(model(**replaced))
    assert found
    assert all(said in one for one in found)


def test_one_operand_alone_is_found():
    made = model()
    made.graph.node[3].input[0] = "x"
    assert any("only one of its two operands" in one for one in broken(made))


def test_a_quantized_bias_is_found():
    made = model("Conv")
    bias = {"b": np.zeros(4, np.int32), "bs": np.full(4, 1e-3, np.float32), "bz": np.zeros(4, np.int32)}
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in bias.items())
    made.graph.node.insert(3, helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0, name="bias"))
    made.graph.node[4].input.append("bd")
    said = broken(made)
    assert any("the bias is quantized" in one for one in said)
    assert any("DequantizeLinear bias: is int32" in one for one in said)


def test_several_scales_on_what_is_no_weight_are_found():
    made = model(xs=np.full(3, 0.1, np.float32), xz=np.zeros(3, np.int8))
    assert any("operand 0 has several scales, but is no weight" in one for one in broken(made))


def test_several_scales_for_a_stack_of_matrices_are_found():
    made = model(w=np.ones((2, 3, 4), np.int8), ws=np.full(3, 0.02, np.float32), wz=np.zeros(3, np.int8))
    assert any("it can have only one" in one for one in broken(made))


def test_a_scale_that_is_computed_is_found():
    made = model()
    made.graph.node.insert(0, helper.make_node("Abs", ["xs"], ["computed"]))
    made.graph.node[1].input[1] = "computed"
    assert any("the scale is not constant" in one for one in broken(made))


def test_what_is_inside_a_branch_is_looked_at_too():
    inside = model(xz=np.int8(3)).graph
    inside.ClearField("input")
    then = helper.make_node("If", ["c"], ["y"], then_branch=inside, else_branch=inside)
    graph = helper.make_graph([then], "outer", [], [])
    assert any("the zero point is not 0" in one for one in broken(helper.make_model(graph)))
