"""Inputs and outputs of types that NumPy has not: bfloat16, and 8, 4 and 2 bits."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator

from conformance.case.draw.draw import Draw, Maker
from conformance.case.draw.few_bits import carried
from conformance.case.files.case_file import load
from conformance.case.files.dims import OF_FILES, TensorType
from conformance.case.files.onnx_header import header
from conformance.case.plan.catalogue import plan
from conformance.models.reference.carried_types import carry
from conformance.runtimes import outputs_of
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime


def cast_to_float(dtype: int, opset: int = 25):
    """A model that casts an input of a type to float32 and doubles it."""
    values = [helper.make_tensor_value_info("x", dtype, [4, 3]), helper.make_tensor_value_info("y", 1, [4, 3])]
    nodes = [helper.make_node("Cast", ["x"], ["wide"], to=1), helper.make_node("Add", ["wide", "wide"], ["y"])]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def case_of(folder, made):
    save(made, folder / "net.onnx")
    (folder / "net.yaml").write_text("net:\n  about: a file\n  onnx: net.onnx\n", encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return case


KINDS = {
    "bfloat16": TensorProto.BFLOAT16, "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "int4": TensorProto.INT4, "uint4": TensorProto.UINT4,
    "float4_e2m1fn": TensorProto.FLOAT4E2M1,
}  # fmt: skip


@pytest.mark.parametrize("dtype", KINDS)
def test_numbers_of_few_bits_are_drawn_as_their_type_has_them(tmp_path, dtype):
    import ml_dtypes

    case = case_of(tmp_path, cast_to_float(KINDS[dtype]))
    assert header(tmp_path / "net.onnx").inputs[0].dtype == dtype
    for regime in ("plain", "large", "ends"):
        drawn = Maker(case, lambda _: None)(Draw({}, regime, 1))["x"]
        assert drawn.dtype == TensorType.parse(f"{dtype}[1]").carrier
        own = drawn.astype(getattr(ml_dtypes, dtype))
        assert np.array_equal(own.astype(drawn.dtype), drawn) and np.isfinite(drawn.astype(np.float32)).all()
    assert np.unique(Maker(case, lambda _: None)(Draw({}, "plain", 1))["x"]).size > 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "uint4"])
def test_a_file_of_few_bits_is_verified_and_a_wrong_runtime_is_found(tmp_path, bench, dtype):
    cell = next(cell for cell in plan(case_of(tmp_path, cast_to_float(KINDS[dtype], 21))) if cell.check == "accuracy")
    assert verdict(bench.run_cell(cell, examples=2)) == PASSED
    with wrong_runtime(lambda inputs, outputs: [outputs[0] + np.float32(1)]):
        assert bench.run_cell(cell, examples=2).status == "failed"


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_numbers_of_all_sizes_are_drawn(tmp_path, bench, dtype):
    kind = dtype.upper()
    made = model_of(f"net ({dtype}[4, 3] x) => (float[4, 3] y) {{ y = Cast <to = 1> (x) }}", 21)
    assert getattr(TensorProto, kind) == made.graph.input[0].type.tensor_type.elem_type
    cell = next(cell for cell in plan(case_of(tmp_path, made)) if cell.check == "accuracy")
    assert verdict(bench.run_cell(cell, examples=2)) == PASSED


def test_a_carried_model_computes_what_the_model_does():
    made = cast_to_float(TensorProto.BFLOAT16)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    (right,) = ReferenceEvaluator(made).run(None, {"x": x.astype(carried_type())})
    (got,) = ReferenceEvaluator(carry(cast_to_float(TensorProto.BFLOAT16))).run(None, {"x": x})
    assert np.array_equal(got, right)
    assert carried(x) is x and carried(x.astype(carried_type())).dtype == np.float32


def carried_type():
    import ml_dtypes

    return ml_dtypes.bfloat16


def test_a_file_of_another_domain_alone_is_read(tmp_path):
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", scale=[2.0], offset=[1.0])
    values = [helper.make_tensor_value_info(name, 1, [3]) for name in "xy"]
    graph = helper.make_graph([node], "net", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=9)
    save(made, tmp_path / "net.onnx")
    assert header(tmp_path / "net.onnx").opset >= 7
    assert case_of(tmp_path, made).says.inputs["x"].type.dtype == "float32"


@pytest.mark.parametrize("dtype", OF_FILES)
def test_types_of_files_are_no_types_of_modules(tmp_path, dtype):
    values = ", values: {integers: {low: 0, high: 1}}" if "int" in dtype else ""
    body = f"net:\n  about: a\n  forward: x\n  inputs: {{x: {{type: '{dtype}[2]'{values}}}}}\n"
    (tmp_path / "net.yaml").write_text(body, encoding="utf-8")
    with pytest.raises(Exception, match="type of inputs of ONNX files alone"):
        load(tmp_path / "net.yaml")


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "int4"])
def test_recorded_numbers_of_few_bits_reach_runtimes_as_they_were_recorded(tmp_path, bench, name):
    """Infinities stay ones where the type has them, and a wrong value is one in the type of the record."""
    import ml_dtypes

    kind = getattr(ml_dtypes, name)
    values = [-3, -2, 1, np.inf] if name == "float8_e5m2" else [-3, -2, 1, 0]
    x = np.array(values, np.float32).astype(kind)
    nodes = [helper.make_node("Transpose", ["x"], ["y"])]
    infos = [helper.make_tensor_value_info(one, KINDS[name], [2, 2]) for one in "xy"]
    made = helper.make_model(
        helper.make_graph(nodes, "net", infos[:1], infos[1:]),
        opset_imports=[helper.make_opsetid("", 23)],
        ir_version=10,
    )
    place = tmp_path / "test_data_set_0"
    place.mkdir()
    for file, array in (("input_0.pb", x.reshape(2, 2)), ("output_0.pb", x.reshape(2, 2).T)):
        (place / file).write_bytes(numpy_helper.from_array(array).SerializeToString())
    save(made, tmp_path / "net.onnx")
    body = "net:\n  about: a file\n  onnx: net.onnx\n  recorded: test_data_set_0\n"
    (tmp_path / "net.yaml").write_text(body, encoding="utf-8")
    (case,) = load(tmp_path / "net.yaml")
    cell = next(cell for cell in plan(case) if cell.check == "recorded")
    assert verdict(bench.run_cell(cell)) == PASSED
    with wrong_runtime(lambda inputs, outputs: [outputs[0] * 0 + outputs[0].dtype.type(1)]):
        record = bench.run_cell(cell)
    assert (record.status, record.fault) == ("failed", "runtime") and name not in str(record.reason)


def of_bfloat16(nodes, outputs, constants=()):
    infos = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [2]) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("outputs", [["y", "w"], ["y", "x"]], ids=["a constant", "an input"])
def test_an_output_that_no_node_gives_is_carried(outputs):
    x, w = np.array([1, -2], np.float32), helper.make_tensor("w", TensorProto.BFLOAT16, [2], [3.0, 0.5])
    made = carry(of_bfloat16([helper.make_node("Neg", ["x"], ["y"])], outputs, [w]))
    y, other = ReferenceEvaluator(made).run(None, {"x": x})
    assert y.tolist() == [-1, 2] and other.tolist() == ([3, 0.5] if "w" in outputs else [1, -2])
    assert y.dtype == other.dtype == np.float32


def test_openvino_computes_the_bfloat16_that_it_is_given():
    """Its copy of an array of bfloat16 has the bits of the values rounded to float16: an Identity shows nothing."""
    pytest.importorskip("openvino")
    import ml_dtypes

    x = np.array([1, -20], ml_dtypes.bfloat16)
    (y,) = outputs_of(of_bfloat16([helper.make_node("Mul", ["x", "x"], ["y"])], ["y"]), "openvino", (), {"x": x})
    assert y.dtype == x.dtype and y.tolist() == [1, 400]
