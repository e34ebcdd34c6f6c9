"""Models that nothing but ONNX's shape inference refuses: a warning where runtimes show that they are right."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from conformance.models.exporters import graph
from conformance.process.disk.onnx_models import Serialized
from conformance.results.records.record import Record
from conformance.runtimes import onnxreference, onnxruntime
from tests.kit.cases import PASSED, Bench, details, say, verdict
from tests.kit.models import model_of
from tests.kit.planting import planted
from tests.plants.edits import Edit
from tests.plants.planting import exported

pytestmark = pytest.mark.own_store

CEIL = say(
    "forward: F.max_pool2d(x, 1, 2, 0, ceil_mode=True)", 'inputs: {x: "float32[n, 2, 6, 6]"}', "dims: {n: 1..3}",
    "export: {torchscript: [17]}",
)  # fmt: skip
PLAIN = say("forward: torch.sin(x) * 2", 'inputs: {x: "float32[n, 6]"}', "dims: {n: 1..3}")
REFUSED = ("failed", "check", "InferenceError", "exporter")


def wrong_inside(model: Any) -> int:
    """A tensor inside a sound model is declared with a size that it does not have."""
    (name,) = (node.output[0] for node in model.graph.node if node.op_type == "Sin")
    del model.graph.value_info[:]
    model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 7]))
    return 1


def wrong_output(model: Any) -> int:
    """The runtimes give the right values, and whoever reads the model's signature is misled."""
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7
    return 1


def declared(bench: Bench, edit: Edit = wrong_inside) -> Record:
    """The record of an export whose model declares something wrong."""
    with planted(exported(edit)):
        return bench.run(PLAIN, check="export")


def test_a_size_that_only_shape_inference_has_otherwise_is_a_warning(bench):
    cells = bench.cells(say(PLAIN, "export: {torchscript: [17]}"))
    with planted(exported(wrong_inside)):
        records = [bench.run_cell(cell) for cell in cells if cell.check in ("export", "accuracy")]
    assert {cell.runtime for cell in cells} == {None, "onnxruntime", "onnx-reference"}
    for record in records:
        assert verdict(record) == PASSED and [warning["name"] for warning in record.warnings] == ["shape inference"]
    (warning,) = records[0].warnings
    assert (warning["error"], warning["agree"]) == ("InferenceError", ["onnx-reference", "onnxruntime"])
    told = "\n".join(details(records[0]))
    assert "only ONNX's shape inference refuses the model: [ShapeInferenceError]" in told
    assert "give PyTorch's shapes and values with it" in told


def test_pooling_with_ceil_mode_is_judged_by_its_values(bench):
    assert verdict(bench.run(CEIL, check="export")) == verdict(bench.run(CEIL)) == PASSED


def off(inputs: Any, outputs: Any) -> Any:
    return [outputs[0] + np.float32(0.01)]


def refuses(inputs: Any, outputs: Any) -> Any:
    raise RuntimeError("planted")


@pytest.mark.parametrize("runtime, evaluator, said", [
    (off, None, "onnxruntime: WrongValue"), (None, off, "onnx-reference: WrongValue"),
    (off, off, "onnxruntime: WrongValue"), (refuses, refuses, "neither onnx-reference nor onnxruntime can run it"),
    (None, refuses, None),
])  # fmt: skip
def test_a_doubted_model_passes_where_all_that_can_run_it_agree(bench, break_opener, runtime, evaluator, said):
    for module, name, alter in ((onnxruntime, "open_optimized", runtime), (onnxreference, "open_model", evaluator)):
        if alter is not None:
            break_opener(module, name, alter)
    record = declared(bench)
    assert verdict(record) == (REFUSED if said else PASSED)
    assert said in record.reason if said else record.warnings[0]["agree"] == ["onnxruntime"]


def test_an_output_that_the_model_declares_with_another_size_is_wrong(bench):
    record = declared(bench, wrong_output)
    assert verdict(record) == REFUSED and "declares" in record.reason


@pytest.mark.parametrize("call, kind", [
    pytest.param("Clip (x)", "int64[3]", id="a type that the operator does not take"),
    pytest.param("MatMul (x, x)", "float[3, 4]", id="sizes that do not fit"),
])  # fmt: skip
def test_what_an_operator_cannot_be_given_is_refused_and_not_doubted(call, kind):
    made = model_of(f"g ({kind} x) => ({kind} y) {{ y = {call} }}", 11)
    onnx.checker.check_model(made)
    facts = graph.read(made, Serialized(made.SerializeToString()))
    assert (facts.invalid is not None, facts.doubted) == (True, None)
