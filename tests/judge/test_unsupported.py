"""Files that a runtime does not support, or of which nobody can say what they mean, accuse nobody."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, save

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.runtimes import opener
from conformance.runtimes.onnxgraph.random_nodes import random_nodes
from conformance.runtimes.onnxgraph.value_free import value_free
from conformance.runtimes.unsupported import refusal, sentence
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime


def accuracy(folder, made: ModelProto, more: str = ""):
    save(made, folder / "net.onnx")
    (folder / "net.yaml").write_text(f"net:\n  about: a file\n  onnx: net.onnx\n{more}", encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return next(cell for cell in plan(case) if cell.check == "accuracy")


# ---- what a runtime says ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("said", "words"), [
    ("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Max(13) node with name ''",
     "Could not find an implementation for Max(13) node with name ''"),
    ("[ONNXRuntimeError] : 1 : FAIL : Load model from /a/b.onnx failed:Fatal error: ai.onnx:Own(-1) is not a "
     "registered function/op", "ai.onnx:Own(-1) is not a registered function/op"),
    ("Exception from src/core.cpp:132:\nCheck 'false' failed at src/report.cpp:151:\nFrontEnd API failed with "
     "OpConversionFailure:\nModel wasn't fully converted.\nSummary:\n-- No conversion rule found for operations: "
     "Det-22",
     "No conversion rule found for operations: Det-22"),
])  # fmt: skip
def test_what_a_runtime_does_not_support_is_said_in_its_own_words(said, words):
    assert sentence(RuntimeError(said)) == words
    assert refusal("onnxruntime", RuntimeError(said)) == f"ONNX Runtime does not take the model: {words}"


def test_what_a_runtime_stops_at_for_another_reason_is_no_refusal():
    said = "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add node: out of range"
    assert refusal("onnxruntime", RuntimeError(said)) is None
    assert refusal("onnxruntime", None) is None


def test_a_type_without_a_kernel_skips_the_cell_and_asks_nobody(tmp_path, bench):
    made = model_of("net (int16[4] x, int16[4] y) => (int16[4] z) { z = Max (x, y) }", 13)
    record = bench.run_cell(accuracy(tmp_path, made))
    assert record.status == "skipped" and not record.witnesses
    assert "ONNX Runtime does not take the model: Could not find an implementation for Max(13)" in record.reason


def test_a_runtime_that_stops_at_a_model_that_it_supports_is_still_red(tmp_path, bench):
    def stops(inputs, outputs):
        raise RuntimeError("a kernel gave up")

    with wrong_runtime(stops):
        record = bench.run_cell(accuracy(tmp_path, model_of("net (float[4] x) => (float[4] y) { y = Abs (x) }")))
    assert (record.status, record.stage) == ("failed", "run")


# ---- who says what is right ---------------------------------------------------------------------------------
def test_where_nobody_says_what_a_file_means_each_is_named_with_its_own_words(tmp_path, bench):
    made = model_of("net (float[2, 3] x, int64[3] shape) => (float[a, b, c] y) { y = Reshape (x, shape) }")
    cell = accuracy(tmp_path, made, "  inputs: {shape: {type: 'int64[3]', values: {integers: {low: 2, high: 2}}}}\n")
    record = bench.run_cell(cell)
    assert record.status == "skipped" and record.fault is None
    assert "nobody says what the file means at x[2, 3], shape[3]: ONNX's evaluator: " in record.reason
    assert "; ONNX Runtime: " in record.reason


@pytest.mark.parametrize("node", ["RandomNormalLike (x)", "RandomUniformLike (x)", "Bernoulli (x)"])
def test_random_files_are_reported_as_random(tmp_path, bench, node):
    made = model_of(f"net (float[n, 3] x) => (float[n, 3] y) {{ y = {node} }}")
    record = bench.run_cell(accuracy(tmp_path, made))
    assert record.status == "skipped" and "draws random numbers" in record.reason
    assert node.split()[0] in record.reason


def test_dropout_in_inference_is_the_identity_and_is_checked(tmp_path, bench):
    made = model_of(
        "net (float[n, 3] x) => (float[n, 3] y) { y = Dropout (x, ratio) }", ratio=np.array(0.5, np.float32)
    )
    cell = accuracy(tmp_path, made)
    assert verdict(bench.run_cell(cell, examples=2)) == PASSED
    with wrong_runtime(lambda inputs, outputs: [outputs[0] * np.float32(2)]):
        assert bench.run_cell(cell, examples=2).status == "failed"


def test_random_nodes_are_found_in_functions_and_bodies():
    body = helper.make_graph([helper.make_node("RandomNormal", [], ["r"], shape=[1])], "body", [],
                             [helper.make_tensor_value_info("r", TensorProto.FLOAT, [1])])  # fmt: skip
    made = model_of("net (float[1] x, bool c) => (float[1] y) { y = Abs (x) }")
    made.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    assert random_nodes(made) == ["RandomNormal"]
    made = model_of("net (float[1] x) => (float[1] y) { y = Abs (x) }")
    assert random_nodes(made) == []


# ---- outputs that show nothing ------------------------------------------------------------------------------
def test_an_output_of_sizes_alone_is_right_where_it_is_right(tmp_path, bench):
    made = model_of("net (float[2, 3] x) => (int64[2] y) { y = Shape (x) }")
    assert value_free(made) == [0]
    cell = accuracy(tmp_path, made)
    assert verdict(bench.run_cell(cell, examples=2)) == PASSED
    with wrong_runtime(lambda inputs, outputs: [outputs[0] + 1]):
        assert bench.run_cell(cell, examples=2).status == "failed"


def test_an_output_that_no_drawn_value_changes_verifies_nothing(tmp_path, bench):
    made = model_of("net (float[2, 3] x) => (float[2, 3] y) { y = Mul (x, zero) }", zero=np.float32(0))
    record = bench.run_cell(accuracy(tmp_path, made), examples=2)
    assert record.status == "skipped" and "do not show whether the runtime is right" in record.reason


@pytest.mark.parametrize("node", ["Dropout (x)", "Sum (x)", "Identity (x)"])
def test_openvino_is_given_the_input_that_a_model_gives_back(tmp_path, node):
    pytest.importorskip("openvino")
    save(model_of(f"net (float[3] x) => (float[3] y) {{ y = {node} }}"), tmp_path / "net.onnx")
    x = np.array([1, 2, 3], np.float32)
    with opener("openvino")(tmp_path / "net.onnx", []) as session:
        assert session.run({"x": x})[0].tolist() == [1, 2, 3]
