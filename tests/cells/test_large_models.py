"""Models whose weights do not fit into one message of protobuf: here all that are larger than nothing."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.process.disk import onnx_models
from conformance.process.disk.onnx_models import WEIGHTS, serialized
from tests.kit.cases import PASSED, Bench, verdict
from tests.kit.models import model_of


@pytest.fixture(autouse=True)
def largest(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Models with any weights are large; ``largest(size)``: those with more bytes of weights."""

    def set_(size: int) -> None:
        monkeypatch.setattr(onnx_models, "LARGEST", size)

    set_(0)
    return set_


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


def net() -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32) / 8
    return model_of("net (float[batch, 32] x) => (float[batch, 32] y) { h = MatMul (x, w) y = Tanh (h) }", w=weights)


def test_the_weights_lie_beside_and_come_back(tmp_path):
    model = net()
    written = serialized(model)
    assert written.weights is not None and len(written.data) < 1000
    (tensor,) = onnx.load(written.write(tmp_path)).graph.initializer
    assert tensor.raw_data == model.graph.initializer[0].raw_data and written.sha == serialized(model).sha
    place = written.weights
    model.graph.initializer[0].raw_data = bytes(4096)
    assert serialized(model).sha != written.sha
    del written
    assert not place.exists()


@pytest.mark.parametrize("large", [False, True])
def test_a_model_is_large_by_the_bytes_of_its_weights_and_texts(largest, large):
    model = net()
    model.graph.initializer.append(onnx.helper.make_tensor("s", onnx.TensorProto.STRING, [1], [b"a" * 99_999]))
    largest(sum(tensor.ByteSize() for tensor in model.graph.initializer) - 100 * large)
    assert onnx_models.is_large(model) is large


def test_a_file_is_checked_converted_and_run(bench, tmp_path):
    place = tmp_path / "big"
    place.mkdir()
    onnx.save(net(), place / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=0)
    (place / "net.yaml").write_text(
        "net:\n  about: weights beside the model\n  onnx: net.onnx\n  dims: {batch: 1..4}\n"
        "  precisions: {fp16: {}, int8: {}}\n  onnxruntime: {config: {session.x64quantprecision: 1}}\n"
    )
    (case,) = load(place / "net.yaml")
    records = {f"{cell.check} {cell.precision}": bench.run_cell(cell, examples=4) for cell in plan(case)}
    checks = ["export fp32", *(f"{check} {one}" for one in ("fp16", "int8") for check in ("fidelity", "accuracy"))]
    assert {*checks, "accuracy fp32"} <= {*records}
    assert {name: verdict(record) for name, record in records.items()} == dict.fromkeys(records, PASSED)
    assert [*bench.store.rglob(WEIGHTS)], "the weights are in the model"


def test_a_weight_beyond_two_gibibytes_is_counted_without_protobuf_which_does_not_count_so_far():
    class Weight:
        data_type, dims = TensorProto.FLOAT, [2**15, 2**15]

        def HasField(self, name):
            return name == "raw_data"

        def ByteSize(self):
            raise ValueError("Failed to serialize proto")

    assert onnx_models.is_large(SimpleNamespace(graph=SimpleNamespace(initializer=[Weight()])))
