"""Models whose weights do not fit into one message of protobuf: here all that are larger than nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from conformance.disk import onnx_models
from conformance.disk.onnx_models import WEIGHTS, serialized
from tests.support import PASSED, Bench, verdict

MODEL = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[batch, 32] x) => (float[batch, 32] y) {
        h = MatMul (x, w)
        y = Tanh (h)
    }
"""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(onnx_models, "LARGEST", 0)
    return Bench(tmp_path, tmp_path / "store")


def net() -> onnx.ModelProto:
    model = onnx.parser.parse_model(MODEL)
    weights = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def test_the_weights_lie_beside_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    monkeypatch.setattr(onnx_models, "LARGEST", 0)
    written = serialized(model)
    assert written.weights is not None and len(written.data) < 1000
    (tensor,) = onnx.load(written.write(tmp_path)).graph.initializer
    assert tensor.raw_data == model.graph.initializer[0].raw_data
    assert written.sha == serialized(model).sha
    place = written.weights
    model.graph.initializer[0].raw_data = bytes(4096)
    assert serialized(model).sha != written.sha
    del written
    assert not place.exists()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("text", [None, b"a" * 99_999])
def test_a_model_is_large_by_the_bytes_of_its_weights(
    monkeypatch: pytest.MonkeyPatch, text: bytes | None, large: bool
) -> None:
    model = net()
    if text is not None:
        model.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.STRING, [1], [text]))
    size = sum(tensor.ByteSize() for tensor in model.graph.initializer)
    monkeypatch.setattr(onnx_models, "LARGEST", size - large)
    assert onnx_models.is_large(model) is large


@pytest.mark.parametrize("precision, check", [
    ("fp32", "export"), ("fp32", "accuracy"), ("fp16", "fidelity"), ("fp16", "accuracy"), ("int8", "fidelity"),
    ("int8", "accuracy"),
])  # fmt: skip
def test_a_file_is_checked_converted_and_run(bench: Bench, tmp_path: Path, precision: str, check: str) -> None:
    place = tmp_path / "big"
    place.mkdir()
    onnx.save(net(), place / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=0)
    (place / "net.yaml").write_text(
        "net:\n  about: weights beside the model\n  onnx: net.onnx\n  dims: {batch: 1..4}\n"
        "  precisions: {fp16: {}, int8: {}}\n"
    )
    from conformance.case.file import load
    from conformance.plan.catalogue import plan

    (case,) = load(place / "net.yaml")
    (cell,) = (one for one in plan(case) if (one.precision, one.check) == (precision, check)
               and one.runtime in (None, "onnxruntime"))  # fmt: skip
    record = bench.run_cell(cell, examples=4)
    assert verdict(record) == PASSED, record.as_dict()
    assert [*bench.store.rglob(WEIGHTS)], "the weights are in the model"
