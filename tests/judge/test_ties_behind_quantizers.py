"""Behind Q/DQ an exact tie may be rounded to either side, which documentation leaves open; anything else is wrong."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from conformance.case.plan.catalogue import plan
from tests.kit.cases import PASSED, load_case, say, verdict
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

QUANTIZED = "d{0} = QuantizeLinear (x{0}, s, z) x{1} = DequantizeLinear (d{0}, s, z)"
POOLED = ("x0", "[n, 2, 2, 2]", "[n, 2, 1, 1]", "x2 = GlobalAveragePool (x1)", 2)
HALVED = ("x0", "[n, 8]", "[n, 8]", "h = Constant <value = float {0.5}> () x2 = Mul (x1, h)", 2)
WINDOWS = ("x0", "[n, 2, 4, 4]", "[n, 2, 2, 2]", "x2 = AveragePool <kernel_shape=[2,2], strides=[2,2]> (x1)", 2)


def quantized_model(kind, opset):
    _, given, made, nodes, last = kind
    text = f"""g (float{given} x0) => (float{made} x{last + 1}) {{
        {QUANTIZED.format(0, 1)} {nodes} {QUANTIZED.format(last, last + 1)} }}"""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    for name, value in {"s": np.float32(0.1), "z": np.uint8(128)}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    return model


def of_onnxruntime(bench, folder, model):
    onnx.save(model, folder / "net.onnx")
    case = load_case(folder, say("onnx: net.onnx", "dims: {n: 1..4}", "runtimes: onnxruntime", "specials: false"))
    return bench.run_cell(next(cell for cell in plan(case) if cell.check == "accuracy"), examples=6)


@pytest.mark.parametrize("opset", [13, 19])
@pytest.mark.parametrize("kind", [POOLED, HALVED, WINDOWS], ids=["pooled", "halved", "windows"])
def test_a_tie_is_nobodys_mistake(bench, tmp_path, kind, opset):
    record = of_onnxruntime(bench, tmp_path, quantized_model(kind, opset))
    assert verdict(record) == PASSED, record.reason


@pytest.mark.parametrize("kind", [POOLED], ids=["pooled"])
def test_a_step_everywhere_is_one(bench, tmp_path, kind):
    with wrong_runtime(lambda _, outputs: [outputs[0] + np.float32(0.1)], *ANY_OPTIMIZER):
        record = of_onnxruntime(bench, tmp_path, quantized_model(kind, 17))
    assert verdict(record)[:3] == ("failed", "compare", "WrongValue"), record.reason
