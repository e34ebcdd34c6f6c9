"""Behind Q/DQ an exact tie may be rounded to either side, which documentation leaves open; anything else is wrong."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from conformance.case.plan.catalogue import plan
from conformance.front.cli import main
from conformance.models.otherwise.undefined_file import OpenSession, UndefinedInFile
from tests.kit.cases import PASSED, load_case, say, verdict
from tests.kit.models import model_of
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


LEAKY = ("x0", "[n, 8]", "[n, 8]", "x2 = LeakyRelu <alpha=0.5> (x1)", 2)


@pytest.mark.parametrize("kind", [POOLED, LEAKY], ids=["pooled", "leaky"])
def test_nor_is_it_where_the_file_is_compared_in_decibels(tmp_path, capsys, kind):
    """Sums that nearly cancel come to a tie up to what float32 makes of their terms, and each quantizer by itself."""
    onnx.save(quantized_model(kind, 17), tmp_path / "net.onnx")
    given = ["check", str(tmp_path / "net.onnx"), "--runtime", "onnxruntime", "--store", str(tmp_path / "store")]
    code, out = main(given), capsys.readouterr().out
    assert code == 0 and "right: onnxruntime in int8" in out, out


def test_a_runtime_that_parts_at_one_quantizer_is_met_and_another_step_is_none(tmp_path):
    """Of the mean of 0, 7, -13 and 4 steps, -0.5, either neighbour is right, and no other."""
    session = OpenSession(quantized_model(POOLED, 17))
    x = {"x0": np.float32([[[[0, 0.7], [-1.3, 0.4]], [[0.1, 0.1], [0.1, 0.1]]]])}
    right = session.run(x)[0]
    with UndefinedInFile(session, None) as noted:
        session.run(x)
    found = set()
    for seed in range(noted.most_equal):
        with UndefinedInFile(session, seed):
            found.add(tuple(np.round(session.run(x)[0].reshape(-1) * 10).tolist()))
    assert noted.rules == {"tie"} and found == {(0, 1), (-1, 1)} and right.shape == (1, 2, 1, 1)


WITHIN = {
    "MatMul": ("QLinearMatMul (q, s, z, w, s, z, s, z)", np.full((8, 4), 133, np.uint8)),
    "Conv": ("QLinearConv (q, s, z, w, s, z, s, z)", np.full((4, 1, 1), 133, np.uint8)),
}


@pytest.mark.parametrize("kind", WITHIN)
def test_nor_is_it_within_an_operator_that_quantizes_what_it_computes(tmp_path, kind):
    """So many steps of 0.1 by five of 0.1 are half as many steps."""
    computes, weights = WITHIN[kind]
    shape = ("n, 8", "n, 4") if kind == "MatMul" else ("n, 1, 8", "n, 4, 8")
    text = f"""g (float[{shape[0]}] x) => (float[{shape[1]}] y) {{
        q = QuantizeLinear (x, s, z) m = {computes} y = DequantizeLinear (m, s, z) }}"""
    session = OpenSession(model_of(text, w=weights, s=np.float32(0.1), z=np.uint8(128)))
    x = np.zeros(8, np.float32)
    for steps, is_tie in ((1, True), (2, False), (3, True)):
        x[0] = steps * 0.1
        given = {"x": x.reshape(1, 8) if kind == "MatMul" else x.reshape(1, 1, 8)}
        found = set()
        for seed in (0, 1):
            with UndefinedInFile(session, seed) as noted:
                found.add(round(float(session.run(given)[0].max()) * 10))
        middle = steps / 2
        assert found == {int(middle), int(middle + 0.5)} and ("tie" in noted.rules) is is_tie
