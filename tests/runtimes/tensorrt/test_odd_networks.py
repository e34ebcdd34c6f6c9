"""Networks that are hard to compute, models that have none, and packages of another version: each ends with right
values or with a sentence that names what, and accuses nobody."""

import sys
import types

import numpy as np
import onnx
import pytest

from conformance.process.disk.value_store import KeptValues
from conformance.process.errors import NoVerdict, Unavailable
from conformance.runtimes.registry import LITERAL, RTX
from conformance.runtimes.tensorrt import rtx
from conformance.runtimes.tensorrt.network.evaluation import NetworkEvaluator
from conformance.runtimes.tensorrt.network.layer_call import BrokenLayer, UncoveredLayer
from conformance.runtimes.tensorrt.network.network_session import open_network
from conformance.runtimes.tensorrt.network.parsed_network import NetworkLayer, NetworkTensor, ParsedNetwork
from tests.kit.cases import write_case
from tests.kit.models import model_of
from tests.kit.runs import run_suite
from tests.runtimes.tensorrt.support import LINEAR, PYTHON, saved
from tests.runtimes.tensorrt.test_network import alike, in_network, inputs_of

real = pytest.mark.skipif(rtx.absence() is not None, reason=f"{rtx.absence()}")
IMAGE = "(float[0,2,4,4] x) => (float[0,C,H,W] y)"

RIGHT = {
    "sizes that a value decides": ("""(float[4] x, int64 n) => (float[K] y) { a = Constant<value_int=-2>()
        s = Constant<value_int=1>()  r = Range(a, n, s)  y = Cast<to=1>(r) }""", 17),
    "a shape that a value decides": ("(float[1,1] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }", 17),
    "no rows": ("(float[0,3] x) => (float[A] y) { y = ReduceSum<keepdims=0>(x) }", 13),
    "no rows, of which the largest": ("""(float[0,3] x) => (float[1,3] y) { a = Constant<value_ints=[0]>()
        y = ReduceMax(x, a) }""", 18),
    "nothing to multiply": ("(float[2,0] x, float[0,3] z) => (float[2,3] y) { y = MatMul(x, z) }", 17),
    "nothing between places": ("""(float[4] x) => (float[A] y) { s = Constant<value_ints=[2]>()
        y = Slice(x, s, s) }""", 17),
    "no places": ("(float[4] x, int64[0] i) => (float[0] y) { y = Gather(x, i) }", 17),
    "no images, convolved": (f"{IMAGE} <float[2,1,1,1] w = {{2, 3}}> {{ y = Conv<group=2>(x, w) }}", 17),
    "no images, convolved backwards": (f"{IMAGE} <float[2,1,1,1] w = {{2, 3}}> {{ y = ConvTranspose(x, w) }}", 17),
    "8 dims": ("(float[1,2,1,2,1,2,1,2] x) => (float[2,1,2,1,2,1,2,1] y) { y = Transpose(x) }", 17),
    "bfloat16": ("(bfloat16[4] x) => (bfloat16[4] y) { y = Neg(x) }", 22),
    "float8": ("(float[4] x) => (float[4] y) { a = Cast<to=17>(x)  y = Cast<to=1>(a) }", 21),
    "float4": ("(float[4] x) => (float[4] y) { a = Cast<to=23>(x)  y = Cast<to=1>(a) }", 23),
    "int4": ("""(float[4] x) => (float[4] y) <float s = {0.5}, int4 o = {0}>
        { a = QuantizeLinear(x, s, o)  y = DequantizeLinear(a, s, o) }""", 21),
}  # fmt: skip


@real
@pytest.mark.parametrize("name", RIGHT)
def test_odd_sizes_and_types_give_right_values(tmp_path, name):
    text, opset = RIGHT[name]
    by = LITERAL if "images" in name else "onnx-reference"
    assert alike(*in_network(tmp_path, model_of(f"g {text}", opset), by))


SAID = {
    "9 dims": ("(float[1,2,1,2,1,2,1,2,1] x) => (float y) { y = Relu(x) }", "input x: UNSUPPORTED_GRAPH: .*dim"),
    "9 dims inside": ("""(float[1,2,1,2,1,2,1,2] x) => (float y) { a = Constant<value_ints=[0]>()
        u = Unsqueeze(x, a)  y = Neg(u) }""", "node Unsqueeze u: INVALID_NODE: .*rank"),
    "int16": ("(int16[4] x) => (int16[4] y) { y = Abs(x) }", "input x: UNSUPPORTED_NODE: .*type"),
    "complex": ("(complex64[2] x) => (complex64[2] y) { y = Identity(x) }", "input x: UNSUPPORTED_NODE: .*type"),
    "sequences": ("""(float[2] x) => (float[2] y) { i = Constant<value_int=0>()  s = SequenceConstruct(x, x)
        y = SequenceAt(s, i) }""", "SequenceConstruct s: .*knows no operator SequenceConstruct"),
    "a plugin that nobody knows": ("(float[2] x) => (float[2] y) { y = own.Gate(x) }",
        "node Gate y: .*Plugin not found"),
    "an input that is an output": ("(float[3] x) => (float[3] x, float[3] y) { y = Neg(x) }",
        "calls an input __x; .*NVIDIA"),
    "whole numbers of which none is least": ("(int64[0,2] x) => (int64[1,2] y) { y = ReduceMin<axes=[0]>(x) }",
        r"layer node_of_y \(REDUCE\): ValueError: zero-size"),
}  # fmt: skip


@real
@pytest.mark.parametrize("name", SAID)
def test_what_has_no_network_or_no_values_is_named(tmp_path, name):
    text, said = SAID[name]
    model = model_of(f"g {text}")
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(NoVerdict, match=said), open_network(tmp_path / "model.onnx", ()) as session:
        session.run(inputs_of(model))


@real
def test_a_model_whose_weights_are_inputs_is_not_the_parser_s_fault(tmp_path):
    """As by an export without parameters, which the case's other checks are about."""
    model = model_of("g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul(x, w) }")
    given = inputs_of(model)
    onnx.save(model, tmp_path / "model.onnx")
    with open_network(tmp_path / "model.onnx", ()) as session:
        assert session.run(given)[0].shape == (2, 4)
        with pytest.raises(NoVerdict, match="inputs that nothing is given for, so that it has no values: w"):
            session.run({"x": given["x"]})


@real
@pytest.mark.parametrize("declared", ["", "[5,5]"])
def test_an_output_of_which_onnx_infers_no_size_is_not_held_against_what_the_file_declares(tmp_path, declared):
    """The file may be wrong: ONNX infers nothing here, and this network cannot be computed."""
    body = "{ u = RandomUniformLike(x)  y = GroupNormalization<num_groups=2>(u, s, s) }"
    text = f"(float[2,4,3] x, float[4] s) => (float{declared} y) {body}"
    with pytest.raises(NoVerdict, match="random values"):
        in_network(tmp_path, model_of(f"g {text}", 21))


def network_of(kind: str, dtype: str = "FLOAT", **says: object) -> NetworkEvaluator:
    """An evaluator of a network of one layer of two inputs."""
    tensors = (*(NetworkTensor(name, "FLOAT", (2,)) for name in "xz"), NetworkTensor("y", dtype, (2,)))
    layer = NetworkLayer(kind, "here", (0, 1), (2,), says)
    return NetworkEvaluator(ParsedNetwork(tensors, (layer,), (0, 1), (2,)))


@pytest.mark.parametrize("kind, dtype, says, size, error, said", [
    ("PLUGIN_V3", "FLOAT", {}, 2, UncoveredLayer, r"\(PLUGIN_V3\)$"),
    ("ELEMENTWISE", "FLOAT", {"op": "HYPOT"}, 2, UncoveredLayer, r"\(ELEMENTWISE\): nothing is known of HYPOT"),
    ("ELEMENTWISE", "FLOAT", {}, 2, UncoveredLayer, r"\(ELEMENTWISE\): its op cannot be read"),
    ("ELEMENTWISE", "INT2", {"op": "SUM"}, 2, BrokenLayer, r"\(ELEMENTWISE\): .*known of the dtype INT2"),
    ("ELEMENTWISE", "FLOAT", {"op": "SUM"}, 3, BrokenLayer, r"\(ELEMENTWISE\): ValueError: .*shapes \(2,\) \(3,\)"),
])  # fmt: skip
def test_what_another_version_has_more_is_named_with_its_layer(kind, dtype, says, size, error, said):
    with pytest.raises(error, match=f"layer here {said}"):
        network_of(kind, dtype, **says).run({"x": np.zeros(2), "z": np.zeros(size)})


OTHERS = {
    "it lacks a class": ("", "AttributeError: module 'tensorrt_rtx' has no attribute 'ILogger'"),
    "it lacks a method": ("""
class ILogger:
    Severity = None
    def __init__(self): pass
class NetworkDefinitionCreationFlag: __members__ = {}
class Builder:
    def __init__(self, log): pass
""", "AttributeError: 'Builder' object has no attribute 'create_network'"),
    "it takes other arguments": ("""
class ILogger:
    Severity = None
    def __init__(self): pass
class Builder:
    def __init__(self, log): raise TypeError("__init__(): incompatible function arguments.")
""", "TypeError: __init__.*incompatible"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_version_of_the_package_is_no_fault_of_the_model(tmp_path, monkeypatch, name):
    code, said = OTHERS[name]
    other = types.ModuleType(rtx.MODULE)
    exec(f"__version__ = '9.9'\n{code}", vars(other))  # a package of that name
    monkeypatch.setitem(sys.modules, rtx.MODULE, other)
    monkeypatch.setattr(rtx, "absence", lambda: None)
    monkeypatch.setattr("conformance.runtimes.tensorrt.network.network_session.absence", lambda: None)
    model = saved(tmp_path, "(float[3] x) => (float[3] y) { y = Relu(x) }")
    known = f"tensorrt-rtx 9.9 is not as 1.7.1, which is known here: {said}"
    with pytest.raises(Unavailable, match=known):
        rtx.tried(model, "", rtx.Job(), KeptValues(None))
    with pytest.raises(Unavailable, match=known), open_network(model, ()):
        pass


ENDS = """import os
__version__ = '9.9'
def __getattr__(name):
    os.abort()
"""


def test_a_parser_that_ends_its_process_is_named_and_no_other_cell_fails(tmp_path):
    package = tmp_path / "other" / "tensorrt_rtx.py"
    package.parent.mkdir()
    package.write_text(ENDS)
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, "-k", "fp32 and (meaning or accuracy)", "--runtime", f"onnxruntime,{RTX}",
                     own_process=True, PYTHONPATH=str(package.parent))  # fmt: skip
    found = {(one["runtime"], one["check"]): one for one in done.records.values()}
    ended = found[RTX, "meaning"]
    assert (ended["status"], ended["stage"], ended["signal"]) == ("failed", "load", "SIGABRT")
    assert found["onnxruntime", "accuracy"]["status"] == "passed" and "Traceback" not in done.text
