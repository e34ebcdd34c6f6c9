"""Models that nothing but ONNX's shape inference refuses: a warning where runtimes show that they are right."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from conformance.checks import models
from conformance.disk.onnx_models import Serialized
from conformance.export import graph
from conformance.export.exporters import Exported
from conformance.runtimes import onnxreference, onnxruntime
from tests.support import PASSED, altered, details, verdict

CEIL = """
forward: F.max_pool2d(x, 1, 2, 0, ceil_mode=True)
inputs: {x: "float32[n, 2, 6, 6]"}
dims: {n: 1..3}
export: {dynamo: [20]}
"""
PLAIN = """
forward: torch.sin(x) * 2
inputs: {x: "float32[n, 6]"}
dims: {n: 1..3}
export: {dynamo: [20]}
"""
REFUSED = ("failed", "check", "InferenceError", "exporter")


def declaring(bench, monkeypatch, body, change):
    """A case whose exported model is changed before anybody reads it."""

    def export(*arguments, **words):
        exported = original(*arguments, **words)
        change(exported.model)
        return Exported(exported.model, exported.usage)

    original = models.export
    monkeypatch.setattr(models, "export", export)
    return body


@pytest.fixture
def inner_size_is_wrong(bench, monkeypatch):
    """A sound model in which a tensor inside is declared with a size that it does not have."""

    def change(model):
        (name,) = (node.output[0] for node in model.graph.node if node.op_type == "Sin")
        del model.graph.value_info[:]
        model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 7]))

    return declaring(bench, monkeypatch, PLAIN, change)


def test_a_size_that_only_shape_inference_has_otherwise_is_a_warning(bench, inner_size_is_wrong):
    record = bench.run(inner_size_is_wrong, check="export")
    assert verdict(record) == PASSED
    (warning,) = record.warnings
    assert (warning["name"], warning["error"]) == ("shape inference", "InferenceError")
    assert warning["agree"] == ["onnx-reference", "onnxruntime"]
    told = "\n".join(details(record))
    assert "only ONNX's shape inference refuses the model: [ShapeInferenceError]" in told
    assert "give PyTorch's shapes and values with it" in told
    for runtime in ("onnxruntime", "onnx-reference"):
        record = bench.run(inner_size_is_wrong, runtime=runtime)
        assert verdict(record) == PASSED
        assert [warning["name"] for warning in record.warnings] == ["shape inference"]


def test_pooling_with_ceil_mode_is_judged_by_its_values(bench):
    record = bench.run(CEIL, check="export")
    assert verdict(record) == PASSED
    assert verdict(bench.run(CEIL)) == PASSED


@pytest.mark.parametrize("openers", [("onnxruntime",), ("onnx-reference",), ("onnxruntime", "onnx-reference")])
def test_a_doubted_model_with_other_values_is_refused(bench, inner_size_is_wrong, monkeypatch, openers):
    def wrong(inputs, outputs):
        return [outputs[0] + np.float32(0.01)]

    places = {"onnxruntime": (onnxruntime, "open_optimized"), "onnx-reference": (onnxreference, "open_model")}
    for name in openers:
        module, function = places[name]
        monkeypatch.setattr(module, function, altered(getattr(module, function), wrong))
    record = bench.run(inner_size_is_wrong, check="export")
    assert verdict(record) == REFUSED
    assert f"{openers[0]}: WrongValue" in record.reason


def test_a_doubted_model_that_nobody_can_run_is_refused(bench, inner_size_is_wrong, monkeypatch):
    def refuses(model, libraries, **options):
        raise RuntimeError("planted")

    monkeypatch.setattr(onnxruntime, "open_optimized", refuses)
    monkeypatch.setattr(onnxreference, "open_model", refuses)
    record = bench.run(inner_size_is_wrong, check="export")
    assert verdict(record) == REFUSED
    assert "neither onnx-reference nor onnxruntime can run it" in record.reason


def test_one_that_can_run_it_is_enough(bench, inner_size_is_wrong, monkeypatch):
    def refuses(model, libraries, **options):
        raise RuntimeError("planted")

    monkeypatch.setattr(onnxreference, "open_model", refuses)
    record = bench.run(inner_size_is_wrong, check="export")
    assert verdict(record) == PASSED
    assert record.warnings[0]["agree"] == ["onnxruntime"]


def test_an_output_that_the_model_declares_with_another_size_is_wrong(bench, monkeypatch):
    """The runtimes give the right values, and whoever reads the model's signature is misled."""

    def change(model):
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7

    record = bench.run(declaring(bench, monkeypatch, PLAIN.replace("* 2", "* 3"), change), check="export")
    assert verdict(record) == REFUSED
    assert "declares" in record.reason


@pytest.mark.parametrize("nodes, kinds", [
    pytest.param([("Clip", ["x"])], {"x": (TensorProto.INT64, [3])}, id="a type that the operator does not take"),
    pytest.param([("Add", ["x", "z"])], {"x": (TensorProto.FLOAT, [3]), "z": (TensorProto.FLOAT16, [3])},
                 id="two types"),
    pytest.param([("MatMul", ["x", "x"])], {"x": (TensorProto.FLOAT, [3, 4])}, id="sizes that do not fit"),
])  # fmt: skip
def test_what_an_operator_cannot_be_given_is_refused_and_not_doubted(nodes, kinds):
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node(operator, inputs, ["y"]) for operator, inputs in nodes], "g",
            [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
            [helper.make_tensor_value_info("y", *kinds["x"])],
        ),
        opset_imports=[helper.make_opsetid("", 11)],
    )  # fmt: skip
    onnx.checker.check_model(made)
    facts = graph.read(made, Serialized(b""))
    assert facts.invalid is not None
    assert facts.doubted is None
