"""A file that computes in 16 bits between float32 inputs and outputs is judged by 16 bits: a runtime may make the
roundings that it writes, or leave them out, and anything further off is wrong."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from conformance.case.plan.catalogue import plan
from tests.kit.cases import PASSED, load_case, say, verdict
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

INSIDE = {
    "product": "h = Cast <to = {to}> (x) m = MatMul (h, w) y = Cast <to = 1> (m)",
    "two products": "h = Cast <to = {to}> (x) m = MatMul (h, w) t = Tanh (m) p = Mul (t, t) y = Cast <to = 1> (p)",
    "product and sum": "h = Cast <to = {to}> (x) m = MatMul (h, w) f = Cast <to = 1> (m) y = Add (f, f)",
}


def file_of(nodes, kind="float16"):
    text = f"g (float[n, 8] x) => (float[n, 4] y) {{ {nodes.format(to=10)} }}"
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {text}')
    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(kind)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def of_onnxruntime(bench, folder, model):
    onnx.save(model, folder / "net.onnx")
    case = load_case(folder, say("onnx: net.onnx", "dims: {n: 1..4}", "runtimes: onnxruntime", "specials: false"))
    return bench.run_cell(next(cell for cell in plan(case) if cell.check == "accuracy"), examples=6)


@pytest.mark.parametrize("nodes", INSIDE.values(), ids=INSIDE)
def test_roundings_that_are_kept_are_right(bench, tmp_path, nodes):
    record = of_onnxruntime(bench, tmp_path, file_of(nodes))
    assert verdict(record) == PASSED, record.reason


@pytest.mark.parametrize("nodes", INSIDE.values(), ids=INSIDE)
def test_roundings_that_are_left_out_are_right(bench, tmp_path, nodes):
    weights = numpy_helper.to_array(file_of(nodes).graph.initializer[0]).astype(np.float32)

    def unrounded(inputs, outputs):
        product = inputs["x"] @ weights
        made = {"product": product, "two products": np.tanh(product) ** 2, "product and sum": product * 2}
        return [made[next(name for name, text in INSIDE.items() if text == nodes)]]

    with wrong_runtime(unrounded, *ANY_OPTIMIZER):
        record = of_onnxruntime(bench, tmp_path, file_of(nodes))
    assert verdict(record) == PASSED, record.reason


def test_what_no_rounding_explains_is_wrong(bench, tmp_path):
    with wrong_runtime(lambda _, outputs: [outputs[0] * np.float32(1.05)], *ANY_OPTIMIZER):
        record = of_onnxruntime(bench, tmp_path, file_of(INSIDE["product"]))
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue"), record.reason
    assert "PyTorch" not in str(record.reason)


def test_a_file_in_32_bits_is_not_judged_by_16(bench, tmp_path):
    model = file_of("y = MatMul (x, w)", "float32")
    with wrong_runtime(lambda _, outputs: [outputs[0] * np.float32(1.0005)], *ANY_OPTIMIZER):
        record = of_onnxruntime(bench, tmp_path, model)
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue"), record.reason


def softmax_in_float32(inputs, outputs):
    """The outputs of a runtime that knows a softmax by its parts, and rounds it once."""
    scores = inputs["x"].astype(np.float32) * 8
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return [(parts / parts.sum(-1, keepdims=True)).astype(np.float16)]


@pytest.mark.parametrize("nodes, alter, status", [
    ("l = Mul (x, t) e = Exp (l) s = ReduceSum (e, a) y = Div (e, s)", softmax_in_float32, "passed"),
    ("l = Mul (x, t) e = Exp (l) s = ReduceSum (e, a) y = Div (e, s)", lambda _, outputs: outputs, "passed"),
    ("l = Mul (x, t) e = Exp (l) s = ReduceSum (e, a) y = Div (e, s)",
     lambda inputs, _: [softmax_in_float32(inputs, _)[0] * np.float16(1.1)], "failed"),
    ("y = Sqrt (x)", lambda _, outputs: [np.nan_to_num(outputs[0])], "failed"),
], ids=["left out", "kept", "wrong", "NaN of no range"])  # fmt: skip
def test_what_16_bits_do_not_hold_on_the_way_may_be_held_in_32(bench, tmp_path, nodes, alter, status):
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g (float16[n, 8] x) => (float16[n, 8] y) {{ {nodes} }}'
    )
    kept = {"t": np.float16(8), "a": np.array([-1])} if "Exp" in nodes else {}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in kept.items())
    with wrong_runtime(alter, *ANY_OPTIMIZER):
        record = of_onnxruntime(bench, tmp_path, model)
    assert record.status == status, record.reason
