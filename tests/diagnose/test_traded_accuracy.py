"""A setting that trades accuracy for speed is named, and nobody is accused of it; a wrong kernel beside it is."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from conformance.case.plan.catalogue import plan
from conformance.results.records import finding_block
from conformance.results.records.findings import findings
from conformance.results.records.record import Record
from tests.kit.cases import load_case, say, verdict
from tests.kit.runtimes import ANY_OPTIMIZER, altered, replaced_runtime, wrong_runtime

LEVEL = "session.qdq_matmulnbits_accuracy_level"
GIVEN, MADE = 64, 32


def model_of_nodes(*nodes: object, **weights: np.ndarray) -> ModelProto:
    """A product of ``x`` with the weights; its opset has 8-bit weights in blocks."""
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", GIVEN])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", MADE])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def dequantized() -> ModelProto:
    """Weights of int8 that are made float32 again and multiplied: ONNX Runtime makes one ``MatMulNBits`` of both."""
    rng = np.random.default_rng(0)
    return model_of_nodes(
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
        w=rng.integers(-127, 128, (GIVEN, MADE)).astype(np.int8),
        s=rng.uniform(0.001, 0.01, MADE).astype(np.float32), z=np.zeros(MADE, np.int8),
    )  # fmt: skip


def plain() -> ModelProto:
    """A product in float32, which no setting changes."""
    weights = np.random.default_rng(0).standard_normal((GIVEN, MADE)).astype(np.float32)
    return model_of_nodes(helper.make_node("MatMul", ["x", "w"], ["y"]), w=weights)


@pytest.fixture
def run(bench, tmp_path: Path) -> Callable[..., Record]:
    """Return what gives the record of a model in ONNX Runtime, with ``more`` keys of its case."""

    def record_of(model: ModelProto, more: str = "") -> Record:
        save(model, tmp_path / "net.onnx")
        body = say("onnx: net.onnx", "dims: {b: 1..8}", "runtimes: onnxruntime", "specials: false", more)
        return bench.run_cell(next(cell for cell in plan(load_case(tmp_path, body)) if cell.check == "accuracy"))

    return record_of


def test_a_setting_that_trades_accuracy_is_named_and_nobody_accused(run):
    record = run(dequantized())
    assert verdict(record) == ("failed", "compare", "WrongValue", "case")
    assert record.conclusion == "setting" and record.optimizer is None and not record.smallest
    assert record.cause is not None and record.cause["shown_by"] == {LEVEL: "1"}
    assert 20 < float(str(record.cause["costs"])) < 80
    block = finding_block.describe(findings([record])[0])
    assert block.who == "a setting of ONNX Runtime trades accuracy for speed"
    assert block.what == f"with {LEVEL}=1 the outputs are right"


def test_with_the_setting_at_its_exact_value_the_file_passes(run):
    assert run(dequantized(), f'onnxruntime: {{config: {{{LEVEL}: "1"}}}}').status == "passed"


@pytest.mark.parametrize("model", [dequantized, plain])
def test_a_wrong_kernel_is_no_setting(run, model):
    def wrong(inputs, outputs):
        return [output + 0.5 for output in outputs]

    with wrong_runtime(wrong, *ANY_OPTIMIZER):
        assert run(model()).conclusion != "setting"


def test_a_setting_that_the_release_does_not_know_is_not_tried(run, monkeypatch):
    monkeypatch.setattr("conformance.runtimes.onnxruntime.knows", lambda key: False)
    record = run(dequantized())
    assert record.status == "failed" and record.conclusion != "setting"


def test_a_setting_that_the_case_itself_makes_is_named(run):
    record = run(dequantized(), f'onnxruntime: {{config: {{{LEVEL}: "4"}}}}')
    assert record.cause is not None and record.cause["shown_by"] == {LEVEL: "1"}


@pytest.mark.parametrize("option, named", [
    ("session.set_denormal_as_zero", True), ("session.enable_quant_qdq_cleanup", False),
])  # fmt: skip
def test_an_option_of_the_case_is_named_only_if_it_is_known_to_trade_accuracy(run, option, named):
    """A value that any other option breaks is a defect of the runtime."""

    def made(opener):
        wrong = altered(opener, lambda inputs, outputs: [output + 0.5 for output in outputs])

        def opened(*model, **how):
            return (wrong if (how.get("config") or {}).get(option) == "1" else opener)(*model, **how)

        return opened

    with replaced_runtime(made):
        record = run(plain(), f'onnxruntime: {{config: {{{option}: "1"}}}}')
    assert record.status == "failed" and (record.conclusion == "setting") is named
    assert (record.cause is not None and record.cause["shown_by"] == {option: "0"}) is named
