"""Recurrent operators of which ONNX's evaluator leaves something out, and sums in 16 bits: sound runtimes pass, and a
wrong one of them is found."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from conformance.case.plan.catalogue import plan
from conformance.models.otherwise.undefined_file import OpenSession
from conformance.models.reference.float64_model import in_float64
from conformance.process.errors import Unavailable
from conformance.runtimes import onnxreference, registry
from conformance.runtimes.evaluator_rules import doubts
from tests.kit.cases import PASSED, load_case, say, verdict
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
HIDDEN, INPUTS, TIME = 3, 2, 5


def recurrent_model(operator: str, lengths: list[int] | None = None, **said: object) -> onnx.ModelProto:
    rng, directions = np.random.default_rng(0), 2 if said.get("direction") == "bidirectional" else 1
    rows = GATES[operator] * HIDDEN
    shapes = {"w": (directions, rows, INPUTS), "r": (directions, rows, HIDDEN), "b": (directions, 2 * rows)}
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if lengths:
        values["lens"] = np.array(lengths, np.int32)
    outputs = ["y", "yh", "yc"][: 3 if operator == "LSTM" else 2]
    node = helper.make_node(operator, ["x", *values], outputs, hidden_size=HIDDEN, **said)
    graph = helper.make_graph(
        [node], "net", [helper.make_tensor_value_info("x", 1, [TIME, len(lengths) if lengths else "n", INPUTS])],
        [helper.make_tensor_value_info(name, 1, [None] * (4 if name == "y" else 3)) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)


def drawn(batch: int) -> dict[str, np.ndarray]:
    return {"x": 2 * np.random.default_rng(1).standard_normal((TIME, batch, INPUTS)).astype(np.float32)}


LEFT_OUT = [
    ("LSTM", {"clip": 0.4}), ("LSTM", {"lengths": [5, 1, 3], "direction": "bidirectional"}),
    ("LSTM", {"activations": ["HardSigmoid", "Relu", "Tanh"]}), ("GRU", {"clip": 0.4, "linear_before_reset": 1}),
    ("GRU", {"lengths": [5, 1, 3], "direction": "reverse"}), ("RNN", {"activations": ["Relu"], "clip": 0.7}),
    ("RNN", {"lengths": [2, 5]}), ("LSTM", {"input_forget": 1, "direction": "bidirectional"}),
]  # fmt: skip


@pytest.mark.parametrize("operator, said", LEFT_OUT)
def test_what_the_evaluator_leaves_out_is_computed_as_by_a_runtime(operator, said):
    model, lengths = recurrent_model(operator, **said), said.get("lengths")
    inputs = drawn(len(lengths) if lengths else 4)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    (doubt,) = doubts(model)
    assert doubt.misread and doubt.mended and "leaves out" in doubt.why
    for got, right in zip(OpenSession(model).run(inputs), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_plain_operator_is_computed_as_by_the_evaluator(operator, direction):
    model = recurrent_model(operator, direction=direction)
    if operator == "RNN" and direction == "bidirectional":  # of which the evaluator takes one activation
        model.graph.node[0].attribute.append(helper.make_attribute("activations", ["Tanh", "Tanh"]))
    assert not doubts(model)
    inputs = drawn(4)
    wanted = ReferenceEvaluator(model).run(None, inputs)
    wide = OpenSession(in_float64(model)).run({"x": inputs["x"].astype(np.float64)})
    for got, right in zip(wide, wanted, strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_of_what_is_not_computed_either_nobody_is_told_to_be_right(tmp_path):
    model = recurrent_model("LSTM", activation_alpha=[0.3], activations=["HardSigmoid", "Tanh", "Tanh"])
    (doubt,) = doubts(model)
    assert doubt.misread and not doubt.mended
    onnx.save(model, tmp_path / "net.onnx")
    with pytest.raises(Unavailable), onnxreference.open_model(tmp_path / "net.onnx", ()):
        pass
    with pytest.raises(NotImplementedError):
        OpenSession(model).run(drawn(2))


def records_of(bench, folder, model, *runtimes):
    onnx.save(model, folder / "net.onnx")
    free = bool(model.graph.input[0].type.tensor_type.shape.dim[1].dim_param)
    lines = ["onnx: net.onnx", *(["dims: {n: 1..4}"] if free else []), f"runtimes: [{', '.join(runtimes)}]"]
    case = load_case(folder, say(*lines, "specials: false"))
    cells = [cell for cell in plan(case) if cell.check == "accuracy"]
    return {cell.runtime: bench.run_cell(cell, examples=3) for cell in cells}


HAS_OPENVINO = pytest.mark.skipif(registry.absence("openvino") is not None, reason=f"{registry.absence('openvino')}")


def altered(inputs, outputs):
    return [outputs[0] + np.float32(0.1), *outputs[1:]]


@HAS_OPENVINO
@pytest.mark.parametrize("operator, said", LEFT_OUT[:2])
def test_two_runtimes_that_agree_pass(bench, tmp_path, operator, said):
    records = records_of(bench, tmp_path, recurrent_model(operator, **said), "onnxruntime", "openvino")
    assert [verdict(record) for record in records.values()] == [PASSED, PASSED]


@HAS_OPENVINO
@pytest.mark.parametrize("planted, wrong", [(("openvino",), "openvino"), (ANY_OPTIMIZER, "onnxruntime")])
def test_the_one_that_is_wrong_is_red(bench, tmp_path, planted, wrong):
    with wrong_runtime(altered, *planted):
        records = records_of(bench, tmp_path, recurrent_model("LSTM", clip=0.4), "onnxruntime", "openvino")
    assert verdict(records.pop(wrong)) == ("failed", "compare", "WrongValue", "runtime")
    assert [verdict(record) for record in records.values()] == [PASSED]


@HAS_OPENVINO
@pytest.mark.parametrize("said, status", [({}, "failed"), ({"input_forget": 1}, "passed")])
def test_a_runtime_that_leaves_the_coupling_of_gates_out_is_red(bench, tmp_path, said, status):
    given = onnxruntime.InferenceSession(recurrent_model("LSTM", **said).SerializeToString())
    with wrong_runtime(lambda inputs, _: given.run(None, inputs), "openvino"):
        records = records_of(bench, tmp_path, recurrent_model("LSTM", input_forget=1), "openvino")
    assert records["openvino"].status == status, records["openvino"].reason


@HAS_OPENVINO
def test_a_runtime_that_does_not_know_an_activation_is_not_wrong(bench, tmp_path):
    model = recurrent_model("LSTM", activations=["HardSigmoid", "Relu", "Softsign"])
    records = records_of(bench, tmp_path, model, "openvino")
    assert records["openvino"].status == "skipped"
    assert "OpenVINO does not take the model: Unknown activation function" in str(records["openvino"].reason)


OF_HALVES = {
    "mean": "g (float16[2, 70000] x) => (float16[2] y) { y = ReduceMean <axes = [1], keepdims = 0> (x) }",
    "layers": "g (float16[2, 64] x) => (float16[2, 64] y) { y = LayerNormalization (x, s) }",
}


@pytest.mark.parametrize("text", OF_HALVES.values(), ids=OF_HALVES)
def test_halves_are_added_up_in_float32(text):
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    if "LayerNormalization" in text:
        model.graph.initializer.append(numpy_helper.from_array(np.ones(64, np.float16), "s"))
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).integers(1000, 2000, shape).astype(np.float16)
    wide = x.astype(np.float64)
    wanted = wide.mean(1) if "Mean" in text else (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    with np.errstate(all="ignore"):
        (by_evaluator,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert not np.allclose(by_evaluator, wanted, rtol=2e-3, atol=2e-3)
    (got,) = OpenSession(model).run({"x": x})
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)
