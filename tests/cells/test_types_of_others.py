"""Files in the number types that people ship: what each is called, whose meaning is right, and who is skipped."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from conformance.compare.noise import Noise, NoiseLimit
from conformance.front.cli import main
from conformance.models.precision.by_others import precision_of
from conformance.runtimes import outputs_of
from conformance.runtimes.registry import EVALUATOR
from tests.kit.converted import INPUT, SOUND, check, floats, layers, network, original, quantized, weights


def blocks(bits):
    made = MatMulNBitsQuantizer(original(), block_size=16, bits=bits, is_symmetric=True)
    made.process()
    assert "MatMulNBits" in {node.op_type for node in made.model.model.graph.node}
    return made.model.model


class _Data(CalibrationDataReader):
    def __init__(self):
        self._left = iter([{"x": np.random.default_rng(0).standard_normal((4, INPUT)).astype(np.float32)}])

    def get_next(self):
        return next(self._left, None)


def qoperator(folder):
    onnx.save(original(), folder / "net.onnx")
    quantize_static(folder / "net.onnx", folder / "small.onnx", _Data(), quant_format=QuantFormat.QOperator)
    return onnx.load(folder / "small.onnx")


def embedded(bits):
    """A table of which rows are gathered and read by a scale for each block."""
    sizes = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    node = helper.make_node("GatherBlockQuantized", ["table", "x", "s"], ["y"], domain="com.microsoft", **sizes)
    ends = [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])]  # fmt: skip
    kept = [numpy_helper.from_array(np.zeros((9, 32 * bits // 8), np.uint8), "table"),
            numpy_helper.from_array(np.ones((9, 2), np.float32), "s")]  # fmt: skip
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], kept)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports)


PRECISIONS = {
    "blocks of 2 bits": (lambda _: blocks(2), "int2"), "blocks of 4 bits": (lambda _: blocks(4), "int4"),
    "blocks of 8 bits": (lambda _: blocks(8), "int8"), "2 bits in Q/DQ": (lambda _: quantized(bits=2), "int2"),
    "QOperator": (qoperator, "int8"), "a table of 4 bits": (lambda _: embedded(4), "int4"),
    "a table of 8 bits": (lambda _: embedded(8), "int8"),
    "e5m2": (lambda _: floats(ml_dtypes.float8_e5m2, 57344), "fp8"),
    "e2m1": (lambda _: floats(ml_dtypes.float4_e2m1fn, 6, opset=23), "fp4"),
}  # fmt: skip


@pytest.mark.parametrize("make, precision", PRECISIONS.values(), ids=PRECISIONS)
def test_the_precision_of_a_file_is_read_from_its_graph(tmp_path, make, precision):
    assert precision_of(make(tmp_path)) == precision
    assert precision_of(original()) is None


SKIPPED = "ONNX Runtime does not take the model: Could not find an implementation"


@pytest.mark.parametrize("name", ["fp4", "bf16"])
def test_a_type_that_a_runtime_lacks_is_judged_by_the_evaluator_and_the_runtime_is_skipped(tmp_path, capsys, name):
    pytest.importorskip("openvino")
    code, out = check(capsys, tmp_path, SOUND[name][1](), runtime="onnxruntime,openvino")
    assert code == 0 and f"passed  fidelity[net-onnx-op21-{name}]" in out, out
    assert f"skipped  accuracy[net-onnx-op21-onnxruntime-{name}]" in out and SKIPPED in out
    assert f"passed  accuracy[net-onnx-op21-openvino-{name}]" in out and f"openvino in fp32, {name}" in out


def test_a_file_in_bfloat16_by_itself_is_verified(tmp_path, capsys):
    pytest.importorskip("openvino")
    file = tmp_path / "net.onnx"
    onnx.save(SOUND["bf16"][1](), file)
    code = main(["check", str(file), "--runtime", "onnxruntime,openvino", "--store", str(tmp_path / "store")])
    out = capsys.readouterr().out
    assert code == 0 and "passed  accuracy[net-onnx-op21-openvino-fp32]" in out and SKIPPED in out, out


def in_bfloat16(bits):
    """Weights as whole numbers whose scales are bfloat16, as all else is: language models are shipped so."""
    whole, parts = quantized(bits=bits), {}
    for tensor in whole.graph.initializer:
        values = numpy_helper.to_array(tensor)
        parts[tensor.name] = values.astype(ml_dtypes.bfloat16) if values.dtype == np.float32 else values
    dequantize = [node for node in whole.graph.node if node.op_type == "DequantizeLinear"]
    return network([*dequantize, *cast_around(layers("given", "made"))], parts)


def cast_around(nodes):
    """From ``x`` to ``given`` in bfloat16, and back from ``made`` to ``y``."""
    to = helper.make_node("Cast", ["x"], ["given"], to=TensorProto.BFLOAT16)
    return [to, *nodes, helper.make_node("Cast", ["made"], ["y"], to=TensorProto.FLOAT)]


def test_weights_of_4_bits_in_a_model_of_bfloat16_are_compared_though_onnx_runtime_does_not_run_it(tmp_path, capsys):
    code, out = check(capsys, tmp_path, in_bfloat16(4), runtime="onnxruntime")
    assert "passed  fidelity[net-onnx-op21-int4]" in out and code == 0, out
    assert "skipped  accuracy[net-onnx-op21-onnxruntime-int4]" in out and SKIPPED in out


# ---- what bfloat16 means -------------------------------------------------------------------------------------

BFLOAT16 = ml_dtypes.bfloat16


def as_torch(array):
    return torch.from_numpy(np.asarray(array, np.float32)).to(torch.bfloat16)


def mlp_in_torch(x, w):
    return torch.relu(as_torch(x) @ as_torch(w["W1"]) + as_torch(w["b1"])) @ as_torch(w["W2"])


def product(x, w):
    """A product in float32, rounded once."""
    return (x.astype(np.float32) @ w.astype(np.float32)).astype(BFLOAT16)


def mlp_in_numpy(x, w):
    hidden = np.maximum(product(x.astype(BFLOAT16), w["W1"].astype(BFLOAT16)) + w["b1"].astype(BFLOAT16), BFLOAT16(0))
    return product(hidden, w["W2"].astype(BFLOAT16))


def gated():
    nodes = [
        helper.make_node("MatMul", ["given", "W1"], ["gate"]), helper.make_node("Sigmoid", ["gate"], ["open"]),
        helper.make_node("Mul", ["gate", "open"], ["let"]), helper.make_node("MatMul", ["let", "W2"], ["made"]),
    ]  # fmt: skip
    return nodes, {name: values for name, values in weights().items() if name != "b1"}


def gated_in_torch(x, w):
    gate = as_torch(x) @ as_torch(w["W1"])
    return (gate * torch.sigmoid(gate)) @ as_torch(w["W2"])


def gated_in_numpy(x, w):
    gate = product(x.astype(BFLOAT16), w["W1"].astype(BFLOAT16))
    opened = (1 / (1 + np.exp(-gate.astype(np.float32)))).astype(BFLOAT16)
    return product(gate * opened, w["W2"].astype(BFLOAT16))


MODULES = {
    "mlp": (lambda: (layers("given", "made"), weights()), mlp_in_torch, mlp_in_numpy),
    "gated": (gated, gated_in_torch, gated_in_numpy),
}


@pytest.mark.parametrize("make, in_torch, in_numpy", MODULES.values(), ids=MODULES)
def test_what_bfloat16_means_is_what_pytorch_and_numpy_compute(make, in_torch, in_numpy):
    """Float32 with a rounding behind each node: nearer to both than any of them is to float32."""
    nodes, w = make()
    model = network(cast_around(nodes), {name: values.astype(BFLOAT16) for name, values in w.items()})
    ends = [helper.make_node("Identity", [one], [other]) for one, other in (("x", "given"), ("made", "y"))]
    exact_model = network([ends[0], *nodes, ends[1]], w)
    x = np.random.default_rng(1).standard_normal((64, INPUT)).astype(np.float32)
    (meant,), (exact,) = (outputs_of(each, EVALUATOR, (), {"x": x}) for each in (model, exact_model))
    torchs, numpys = in_torch(x, w).float().numpy(), in_numpy(x, w).astype(np.float32)

    def decibels(got, right):
        noise = Noise(NoiseLimit(0, 0, 0))
        noise.see(got, right)
        return noise.sqnr

    assert 40 < decibels(meant, exact) < 60
    step = np.abs(meant) * 2.0**-7 + np.abs(meant).mean() * 2.0**-7
    for other in (torchs, numpys):
        assert decibels(other, meant) > decibels(meant, exact) + 3
        assert (np.abs(other - meant) <= step).all()


# ---- what nothing loads --------------------------------------------------------------------------------------


def test_a_file_that_onnx_takes_and_no_runtime_loads_is_called_wrong_by_its_name(tmp_path, capsys):
    model = blocks(4)
    (size,) = (entry for entry in model.graph.node[0].attribute if entry.name == "K")
    size.i *= 2
    onnx.checker.check_model(model, full_check=True)
    code, out = check(capsys, tmp_path, model, runtime="onnxruntime,openvino")
    said = " ".join(out.split())
    assert code == 1 and "1 of 1: net_small.onnx is wrong" in said, out
    assert "net_small.onnx, which onnx.checker takes, does not load in ONNX Runtime: Node (fc1_Q4)" in said, out
    assert str(tmp_path / "store") not in out and "model.onnx" not in out


def near_levels():
    """Weights near whole multiples of -2 to 1 of a number for each column, as of a network trained for two bits."""
    rng, parts = np.random.default_rng(11), {}
    for name, values in weights().items():
        steps = rng.integers(-2, 2, values.shape) + rng.normal(0, 0.12, values.shape)
        own = (steps * rng.uniform(0.06, 0.12, values.shape[-1])).astype(np.float32)
        parts[name] = own if values.ndim > 1 else values
    return parts


def of_two_bits(place=None):
    """These with an int2 DequantizeLinear (opset 25); at a place of ``W1_q`` another level, of ``W2_z`` a zero point
    that is one too many."""
    parts, nodes = near_levels(), layers()
    for name in ("W1", "W2"):
        values = parts.pop(name)
        scale = np.abs(values).max(0) / 2
        parts |= {f"{name}_q": np.clip(np.round(values / scale), -2, 1), f"{name}_z": np.zeros(len(scale))}
        if place is not None and place[0] == f"{name}_q":
            parts[f"{name}_q"][place[1]] = -2 if parts[f"{name}_q"][place[1]] == 1 else 1
        elif place is not None and place[0] == f"{name}_z":
            parts[f"{name}_z"][place[1]] = 1
        parts |= {key: array.astype(ml_dtypes.int2) for key, array in parts.items() if key[:-1] == f"{name}_"}
        parts[f"{name}_s"] = scale.astype(np.float32)
        given = [f"{name}_q", f"{name}_s", f"{name}_z"]
        nodes.insert(0, helper.make_node("DequantizeLinear", given, [name], f"{name}_dq", axis=1))
    return network(nodes, parts, opset=25)


@pytest.mark.parametrize("place, said", [
    (None, "is a model in int2: compared with net.onnx in decibels"),
    (("W2_z", 3), "is not net.onnx converted: W2 of W2_dq, channel 3 of axis 1: its zero point is off by 1"),
    (("W1_q", (5, 7)), "is not net.onnx converted: W1 of W1_dq, place 5 of axis 0, place 7 of axis 1"),
])  # fmt: skip
def test_a_file_of_two_bits_in_q_dq_is_right_and_one_wrong_level_or_zero_point_is_named(
    tmp_path, capsys, monkeypatch, place, said
):
    monkeypatch.setattr("tests.kit.converted.original", lambda: network(layers(), near_levels()))
    code, out = check(capsys, tmp_path, of_two_bits(place))
    assert code == (place is not None) and f"net_small.onnx {said}" in " ".join(out.split()), out
    assert ("right: onnxruntime in fp32, int2" in out) == (place is None)


@pytest.mark.parametrize("name, runtime", [("bf16", "openvino"), ("fp16", "onnxruntime")])
@pytest.mark.parametrize("alone", [True, False])
def test_a_file_of_halves_is_called_by_its_type_alone_and_beside_another_of_it(
    tmp_path, capsys, name, runtime, alone
):
    pytest.importorskip(runtime)
    file, second = tmp_path / "net.onnx", tmp_path / "second.onnx"
    for path in (file, second):
        onnx.save(SOUND[name][1](), path)
    files = [str(file)] if alone else [str(file), str(second)]
    code = main(["check", *files, "--runtime", runtime, "--precision", "fp32", "--store", str(tmp_path / "store")])
    out = capsys.readouterr().out
    words = [line.split()[0] for line in out.partition("\nprecision ")[2].splitlines()[1:2]]
    assert code == 0 and words == [name] and f"right: {runtime} in {name}\n" in out, out
