"""The rules for explicit quantization: each broken once, and models that keep them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from conformance.precision.rules import broken, unfaithful

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


@pytest.mark.parametrize("kind", SOUND)
def test_an_axis_that_counts_from_the_end_is_the_same_axis(kind):
    _, shape, right, _ = SOUND[kind]
    assert broken(model(kind, axis=right - len(shape))) == []
    assert broken(model(kind, axis=1 - right - len(shape)))


def test_the_two_sides_of_a_pair_have_one_scale():
    made = model(other=np.float32(0.2))
    made.graph.node[1].input[1] = "other"
    (found,) = broken(made)
    assert found.startswith("DequantizeLinear")
    assert "its scale is not that of QuantizeLinear" in found


@pytest.mark.parametrize("operator", ["Add", "Mul", "MaxPool"])
def test_several_scales_of_an_activation_are_found_whatever_reads_it(operator):
    made = model(xs=np.full(3, 0.1, np.float32), xz=np.zeros(3, np.int8))
    made.graph.node[3].op_type = operator
    assert any("QuantizeLinear" in one and "what it quantizes is no weight" in one for one in broken(made))


def test_scales_in_half_precision_are_found():
    found = broken(model(xs=np.float16(0.1)))
    assert len(found) == 2
    assert all("the scales are float16" in one for one in found)


def test_scales_for_blocks_are_found():
    assert any("scales for blocks" in one for one in broken(model(ws=np.full((3, 2), 0.02, np.float32))))


def without_zero_points(made: onnx.ModelProto) -> onnx.ModelProto:
    for node in made.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            del node.input[2]
    return made


def test_without_a_zero_point_what_is_quantized_is_uint8_and_a_constant_is_what_it_is():
    (found,) = broken(without_zero_points(model()))
    assert found.startswith("QuantizeLinear")
    assert "is uint8, only int8" in found
    made = without_zero_points(model(w=np.ones((3, 4), np.uint8)))
    assert sum("DequantizeLinear" in one and "is uint8" in one for one in broken(made)) == 1


def test_at_opset_21_an_attribute_may_stand_in_place_of_a_zero_point():
    made = without_zero_points(model())
    made.graph.node[0].attribute.append(helper.make_attribute("output_dtype", onnx.TensorProto.INT8))
    assert broken(made) == []


def test_a_zero_point_that_is_computed_is_found_and_not_said_to_be_missing():
    made = model()
    made.graph.node.insert(0, helper.make_node("Abs", ["xz"], ["computed"]))
    made.graph.node[1].input[2] = "computed"
    assert any("the zero point is not constant" in one for one in broken(made))


def test_a_stack_of_matrices_that_is_quantized_by_a_node_can_have_one_scale_only_too():
    made = model(w=np.ones((2, 3, 4), np.float32), ws=np.full(3, 0.02, np.float32), wz=np.zeros(3, np.int8))
    quantize = helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], axis=1)
    made.graph.node.insert(2, quantize)
    made.graph.node[3].input[0] = "wq"
    assert any("it can have only one" in one for one in broken(made))


# ---- weights and ranges are those that the quantizer was given -------------------------------------------------

RNG = np.random.default_rng(0)


class Measured:
    """What ``unfaithful`` needs of a calibrator's ranges."""

    def __init__(self, **ranges: tuple[float, float]) -> None:
        self._ranges = ranges

    def items(self):
        class Data:
            def __init__(self, ends):
                self.range_value = tuple(np.float32(end) for end in ends)

        return [(name, Data(ends)) for name, ends in self._ranges.items()]


def quantized(kind: str = "Conv", **replaced: np.ndarray) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """An exported operator with random weights, and the same quantized as it should be, but for what is replaced."""
    given, shape, axis, call = SOUND[kind]
    w = RNG.normal(size=shape).astype(np.float32)
    others = tuple(place for place in range(len(shape)) if place != axis)
    scale = (np.abs(w).max(axis=others) / 127).astype(np.float32)
    steps = np.expand_dims(scale, others)
    after = model(kind, **{"w": np.rint(w / steps).astype(np.int8), "ws": scale, **replaced})
    after.graph.node[3].name = "layer"
    call = call.replace("xd", "x").replace("wd", "w")
    before = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({given} x) => (float y) {{ [layer] y = {call} }}'
    )
    before.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return before, after


def array(made: onnx.ModelProto, name: str) -> np.ndarray:
    (tensor,) = (one for one in made.graph.initializer if one.name == name)
    found: np.ndarray = numpy_helper.to_array(tensor).copy()
    return found


def put(made: onnx.ModelProto, name: str, values: np.ndarray) -> None:
    (tensor,) = (one for one in made.graph.initializer if one.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(values), name))


@pytest.mark.parametrize("kind", SOUND)
def test_a_weight_that_is_rounded_is_the_exported_one(kind):
    assert unfaithful(*quantized(kind), Measured(x=(-12.7, 3.0))) == []


@pytest.mark.parametrize("factor", [0.125, 0.5, 0.95, 1.05, 2.0])
@pytest.mark.parametrize("kind", SOUND)
def test_a_wrong_scale_of_one_channel_is_found(kind, factor):
    before, after = quantized(kind)
    scales = array(after, "ws")
    scales[2] *= np.float32(factor)
    put(after, "ws", scales)
    (found,) = unfaithful(before, after, None)
    assert found.startswith(f"{kind.split()[0]} layer: ")
    assert "more than half a step from the exported ones" in found


@pytest.mark.parametrize("change", [
    lambda w: np.where(np.arange(w.size).reshape(w.shape) == 5, w + np.int8(2), w), lambda w: np.roll(w, 1, axis=0),
    lambda w: np.clip(w, -60, 60), np.zeros_like,
], ids=["one value", "moved", "clipped", "nothing"])  # fmt: skip
@pytest.mark.parametrize("kind", SOUND)
def test_a_weight_that_is_another_is_found(kind, change):
    before, after = quantized(kind)
    put(after, "w", change(array(after, "w")))
    assert len(unfaithful(before, after, None)) == 1


def test_scales_that_do_not_fit_the_weight_are_found_without_stumbling():
    for scales in (np.full(7, 0.1, np.float32), np.full((4, 2), 0.1, np.float32), np.zeros(4, np.float32)):
        assert unfaithful(*quantized(ws=scales), None)
    before, after = quantized()
    after.graph.node[2].attribute[0].i = 9
    assert unfaithful(before, after, None)


def test_a_weight_with_one_scale_and_one_that_stays_float_are_sound():
    before, after = quantized("MatMul")
    w, step = array(before, "w"), np.float32(np.abs(array(before, "w")).max() / 127)
    put(after, "w", np.rint(w / step).astype(np.int8))
    put(after, "ws", step)
    put(after, "wz", np.int8(0))
    assert unfaithful(before, after, None) == []
    after.graph.node[3].input[1] = "w"
    put(after, "w", w)
    assert unfaithful(before, after, None) == []


@pytest.mark.parametrize("ends, sound", [
    ((-12.7, 3.0), True), ((0.0, 12.7), True), ((-25.4, 1.0), False), ((-12.0, 12.0), False), ((-1.5, 1.5), False),
    ((0.0, 0.0), True),
])  # fmt: skip
def test_the_scale_of_an_activation_is_that_of_its_range(ends, sound):
    found = unfaithful(*quantized(), Measured(x=ends, unknown=(0.0, 1.0)))
    assert [one.startswith("QuantizeLinear") for one in found] == [True] * (not sound)


def test_a_scale_that_is_computed_is_left_to_the_other_rules():
    before, after = quantized()
    for name in ("xs", "ws"):
        after.graph.node.insert(0, helper.make_node("Abs", [name], [f"{name}/computed"]))
        for node in after.graph.node:
            if node.op_type.endswith("Linear") and node.input[1] == name:
                node.input[1] = f"{name}/computed"
    assert unfaithful(before, after, Measured(x=(-1.0, 1.0))) == []
    assert broken(after)
