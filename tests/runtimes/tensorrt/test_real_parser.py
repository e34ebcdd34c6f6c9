"""The double of TensorRT says what the real parser says, wherever TensorRT for RTX, which has it, is installed."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from conformance.runtimes.tensorrt.build import UnsupportedModel, make_log, parse
from conformance.runtimes.tensorrt.rtx import MODULE, absence
from tests.kit.models import model_of

real = pytest.mark.skipif(absence() is not None, reason=f"{absence()}")

NODES = {
    "an operator of ONNX": "(float[N,3] x) => (float[N,3] y) { y = Relu(x) }",
    "several types": "(float[N,3] x) => (int64[N,3] y) { b = Cast<to=9>(x)  y = Cast<to=7>(b) }",
    "a branch": """(float[2] x, bool c) => (float[2] y) { y = If(c) <
        then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] q) { q = Abs(x) }> }""",
    "float64": "(double[N,3] x) => (double[N,3] y) { y = Relu(x) }",
    "a cast to float64": "(float[3] x) => (double[3] y) { y = Cast<to=11>(x) }",
    "int16": "(int16[N,3] x) => (int16[N,3] y) { y = Abs(x) }",
    "uint64": "(uint64[3] x) => (uint64[3] y) { y = Identity(x) }",
    "a custom operator": "(float[3] x) => (float[3] y) { y = own.Foo(x) }",
    "an operator that no importer knows": "(float[3,3] x) => (float y) { y = Det(x) }",
    "such an operator in a branch": """(float[2,2] x, bool c) => (float y) { y = If(c) <
        then_branch = t () => (float p) { p = ReduceSum<keepdims=0>(x) },
        else_branch = e () => (float q) { d = Det(x)  q = Neg(d) }> }""",
    "a zero point of 0": """(float[2] x) => (float[2] y) <float s = {0.5}, int8 o = {0}>
        { q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }""",
    "a zero point of 1": """(float[2] x) => (float[2] y) <float s = {0.5}, int8 o = {1}>
        { q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }""",
    "types that do not fit": "(float[2] x, float16[2] z) => (float[2] y) { y = Add(x, z) }",
}  # fmt: skip
UNKNOWN = "Det"
"""What the double is asked to have no importer for, of what the real parser has none for."""


def outcome(trt: Any, folder: Path, data: bytes) -> tuple[Any, ...]:
    """Return what the parser says of a model: codes, operators, and where they stand; empty where it takes it."""
    file = folder / "model.onnx"
    file.write_bytes(data)
    log = make_log(trt)
    try:
        parse(trt, log, trt.Builder(log), file)
    except UnsupportedModel as error:
        return tuple((one.code, one.function, one.operator, one.text, one.inside) for one in error.refusals[:1])
    return ()


@real
@pytest.mark.parametrize("name", [*NODES, "garbage"])
def test_the_double_takes_and_refuses_what_the_real_parser_does_by_the_same_codes(double, tmp_path, name):
    data = b"no model" if name == "garbage" else model_of(f"g {NODES[name]}").SerializeToString()
    said = outcome(importlib.import_module(MODULE), tmp_path, data)
    double("11.0.0", unsupported=UNKNOWN)
    assert outcome(importlib.import_module("tensorrt"), tmp_path, data) == said


@real
@pytest.mark.parametrize("low, high, taken", [
    ((1, 3), (4, 3), True), ((4, 3), (1, 3), False), ((-1, 3), (4, 3), None),
])  # fmt: skip
def test_the_double_refuses_the_profiles_that_the_real_builder_refuses(double, tmp_path, low, high, taken):
    """In the same way: by a number below 0, or by an exception."""

    def told(trt: Any) -> bool | None:
        builder = trt.Builder(make_log(trt))
        config, profile = builder.create_builder_config(), builder.create_optimization_profile()
        try:
            profile.set_shape("x", low, (2, 3), high)
        except RuntimeError:
            return None
        return int(config.add_optimization_profile(profile)) >= 0

    assert told(importlib.import_module(MODULE)) is taken
    double("11.0.0")
    assert told(importlib.import_module("tensorrt")) is taken
