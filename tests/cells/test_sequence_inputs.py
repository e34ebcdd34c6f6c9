"""Files that take sequences and optionals are drawn for: two tensors for a sequence, one for an optional."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from conformance.case.plan.catalogue import plan
from conformance.models.reference.carried_types import carry
from conformance.runtimes.onnxruntime import OnnxRuntimeSession
from tests.kit.cases import load_case, say

FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 3])
SEQUENCE = helper.make_sequence_type_proto(FLOATS)
JOINED = helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)
GRAPHS = {
    "sequence": (SEQUENCE, [JOINED]),
    "optional": (helper.make_optional_type_proto(FLOATS), [helper.make_node("OptionalGetElement", ["x"], ["y"])]),
    "optional sequence": (
        helper.make_optional_type_proto(SEQUENCE),
        [
            helper.make_node("OptionalGetElement", ["x"], ["s"]),
            helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
        ],
    ),
}
"""By kind the type of an input, and nodes that make a tensor of it."""


def cell_of(folder, kind):
    """The cell of ONNX Runtime on a file with such an input."""
    taken, nodes = GRAPHS[kind]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_value_info("x", taken)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx"
    )
    case = load_case(folder, say("onnx: net.onnx", "dims: {n: 1..5}", "runtimes: onnxruntime", "specials: false"))
    return next(cell for cell in plan(case) if cell.check == "accuracy")


def spoil(monkeypatch):
    """Has ONNX Runtime give another value."""
    run = OnnxRuntimeSession.run

    def off(self, inputs):
        (first,) = run(self, inputs)
        first = np.array(first)
        first[-1, 0] += 1
        return [first]

    monkeypatch.setattr(OnnxRuntimeSession, "run", off)


@pytest.mark.parametrize("kind", ["sequence", "optional"])
def test_tensors_are_drawn_for_what_holds_them(bench, tmp_path, monkeypatch, kind):
    cell = cell_of(tmp_path, kind)
    assert [*cell.case.says.inputs] == (["x"] if kind == "optional" else ["x.0", "x.1"])
    record = bench.run_cell(cell, examples=3)
    assert record.status == "passed" and record.examples >= 3, record.reason
    spoil(monkeypatch)
    record = bench.run_cell(cell, examples=3)
    # of optionals nobody else computes anything, so that it is the word of one against that of another
    assert record.status == ("skipped" if kind == "optional" else "failed"), record.reason


def test_a_sequence_that_is_optional_is_made_of_the_same_tensors(tmp_path):
    """It is made by two nodes; what ONNX's evaluator computes of it has another shape than ONNX Runtime's."""
    assert [*cell_of(tmp_path, "optional sequence").case.says.inputs] == ["x.0", "x.1"]
    model = carry(onnx.load(tmp_path / "net.onnx"))
    onnx.checker.check_model(model, full_check=True)
    values = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(["x.0", "x.1"])}
    (got,) = OnnxRuntimeSession(model, [], optimize=False).run(values)
    np.testing.assert_array_equal(got, np.concatenate([*values.values()]))


def test_an_input_that_holds_what_is_not_drawn_is_refused(tmp_path):
    held = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.COMPLEX64, ["n"]))
    graph = helper.make_graph(
        [JOINED],
        "g",
        [helper.make_value_info("x", held)],
        [helper.make_tensor_value_info("y", TensorProto.COMPLEX64, [None])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    with pytest.raises(Exception, match="the input x has a type that is not drawn"):
        load_case(tmp_path, say("onnx: net.onnx", "runtimes: onnxruntime"))
