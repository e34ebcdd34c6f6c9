"""The rules for explicit quantization: each broken once, and models that keep them."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from conformance.models.precision.int8_rules import broken, unfaithful

pytestmark = pytest.mark.smoke

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
        "xs": np.float32(0.1), "xz": np.int8(0), "w": np.ones(shape, np.int8),
        "ws": np.full(shape[axis], 0.02, np.float32), "wz": np.zeros(shape[axis], np.int8), **replaced,
    }  # fmt: skip
    made = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g ({given} x) => (float y) {{
        xq = QuantizeLinear (x, xs, xz)
        xd = DequantizeLinear (xq, xs, xz)
        wd = DequantizeLinear <axis = {axis}> (w, ws, wz)
        y = {call}
    }}""")
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    return made


@pytest.mark.parametrize("kind", SOUND)
def test_a_model_that_keeps_the_rules_has_nothing_against_it_and_its_axis_may_count_from_the_end(kind):
    _, shape, right, _ = SOUND[kind]
    assert broken(model(kind)) == broken(model(kind, axis=right - len(shape))) == []
    for wrong in (1 - right, 1 - right - len(shape)):
        (found,) = broken(model(kind, axis=wrong))
        assert kind.split()[0] in found and f"output channels are axis {right}" in found


STACK = {"ws": np.full(3, 0.02, np.float32), "wz": np.zeros(3, np.int8)}
SEVERAL = {"xs": np.full(3, 0.1, np.float32), "xz": np.zeros(3, np.int8)}


def reads(made: onnx.ModelProto, place: int, slot: int, name: str, *made_of: str) -> onnx.ModelProto:
    """The same where a node reads another tensor, which is computed where it is said of what."""
    made.graph.node[place].input[slot] = name
    if made_of:
        made.graph.node.insert(0, helper.make_node("Abs", [*made_of], [name]))
    return made


def operator(made: onnx.ModelProto, place: int, kind: str) -> onnx.ModelProto:
    made.graph.node[place].op_type = kind
    return made


def with_bias() -> onnx.ModelProto:
    made = model("Conv")
    bias = {"b": np.zeros(4, np.int32), "bs": np.full(4, 1e-3, np.float32), "bz": np.zeros(4, np.int32)}
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in bias.items())
    made.graph.node.insert(3, helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0, name="bias"))
    made.graph.node[4].input.append("bd")
    return made


def inside_a_branch() -> onnx.ModelProto:
    inside = model(xz=np.int8(3)).graph
    inside.ClearField("input")
    then = helper.make_node("If", ["c"], ["y"], then_branch=inside, else_branch=inside)
    return helper.make_model(helper.make_graph([then], "outer", [], []))


def without_zero_points(**replaced: np.ndarray) -> onnx.ModelProto:
    made = model(**replaced)
    for node in made.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            del node.input[2]
    return made


IS_SEVERAL = ("QuantizeLinear", "what it quantizes is no weight")
BROKEN = {
    "a zero point of a channel": (model(wz=np.array([0, 0, 1, 0], np.int8)), ["the zero point is not 0"]),
    "uint8": (model(xz=np.uint8(0)), ["is uint8"]), "a scale of 0": (model(xs=np.float32(0)), ["a scale is 0"]),
    "an infinite scale": (model(xs=np.float32(np.inf)), ["a scale is inf"]),
    "scales in half precision": (model(xs=np.float16(0.1)), ["the scales are float16"]),
    "one operand alone": (reads(model(), 3, 0, "x"), ["only one of its two operands"]),
    "a quantized bias": (with_bias(), ["the bias is quantized"]),
    "a bias of another type": (with_bias(), ["DequantizeLinear bias: is int32"]),
    "several scales on what is no weight": (model(**SEVERAL), ["operand 0 has several scales, but is no weight"]),
    "several scales for a stack of matrices": (
        model(w=np.ones((2, 3, 4), np.int8), **STACK), ["it can have only one"]),
    "a scale that is computed": (reads(model(), 0, 1, "computed", "xs"), ["the scale is not constant"]),
    "inside a branch": (inside_a_branch(), ["the zero point is not 0"]),
    "two sides of a pair with two scales": (
        reads(model(other=np.float32(0.2)), 1, 1, "other"),
        ["DequantizeLinear", "its scale is not that of QuantizeLinear"]),
    **{f"several scales of an activation that {kind} reads": (operator(model(**SEVERAL), 3, kind), IS_SEVERAL)
       for kind in ("Add", "MaxPool")},
    "scales for blocks": (model(ws=np.full((3, 2), 0.02, np.float32)), ["scales for blocks"]),
    "a constant of uint8": (without_zero_points(w=np.ones((3, 4), np.uint8)), ["DequantizeLinear", "is uint8"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_rule_is_found(name):
    made, parts = BROKEN[name]
    assert any(all(part in one for part in parts) for one in broken(made)), broken(made)


def test_at_opset_21_an_attribute_may_stand_in_place_of_a_zero_point():
    made = without_zero_points()
    made.graph.node[0].attribute.append(helper.make_attribute("output_dtype", onnx.TensorProto.INT8))
    assert broken(made) == []


RNG = np.random.default_rng(0)


def measured(**ranges: tuple[float, float]) -> dict[str, SimpleNamespace]:
    """What ``unfaithful`` needs of a calibrator's ranges."""
    return {name: SimpleNamespace(range_value=tuple(map(np.float32, ends))) for name, ends in ranges.items()}


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
    assert unfaithful(*quantized(kind), measured(x=(-12.7, 3.0))) == []


@pytest.mark.parametrize("factor", [0.5, 0.95, 1.05])
@pytest.mark.parametrize("kind", SOUND)
def test_a_wrong_scale_of_one_channel_is_found(kind, factor):
    before, after = quantized(kind)
    scales = array(after, "ws")
    scales[2] *= np.float32(factor)
    put(after, "ws", scales)
    (found,) = unfaithful(before, after, None)
    assert found.startswith(f"{kind.split()[0]} layer: ")
    assert "more than half a step from the exported ones" in found


@pytest.mark.parametrize("kind", SOUND)
def test_a_weight_with_one_other_value_is_found(kind):
    before, after = quantized(kind)
    w = array(after, "w")
    w.flat[5] += 2 if w.flat[5] < 100 else -2
    put(after, "w", w)
    assert len(unfaithful(before, after, None)) == 1


def test_scales_that_do_not_fit_the_weight_are_found_without_stumbling():
    for scales in (np.full(7, 0.1, np.float32), np.full((4, 2), 0.1, np.float32), np.zeros(4, np.float32)):
        assert unfaithful(*quantized(ws=scales), None)


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
    found = unfaithful(*quantized(), measured(x=ends, unknown=(0.0, 1.0)))
    assert [one.startswith("QuantizeLinear") for one in found] == [True] * (not sound)
