"""A shape that OpenVINO infers otherwise than ONNX is its failure, where it stops at a later node."""

import numpy as np
import pytest
from onnx import save

from conformance.case.plan.catalogue import plan
from conformance.runtimes import other_shapes
from conformance.runtimes.other_shapes import other_shape
from tests.kit.cases import load_case
from tests.kit.models import model_of

pytest.importorskip("openvino")
SUMMED = "net (float[n, 4] x, float[n, 2] e) => (float[n, 6] y) { l = Abs (x) y = Concat <axis = 1> (l, e) }"
INPUTS = {"x": np.ones((3, 4), np.float32), "e": np.ones((3, 2), np.float32)}


@pytest.fixture
def flattening(monkeypatch):
    """Have OpenVINO infer that Abs gives a scalar, so that it does not take what joins it."""
    original = other_shapes._shapes

    def wrong(model, count, known):
        found = original(model, count, known)
        return None if count > 1 else found and {name: [] for name in found}

    monkeypatch.setattr(other_shapes, "_shapes", wrong)


def test_a_sound_model_has_no_other_shape(tmp_path):
    save(model_of(SUMMED), tmp_path / "net.onnx")
    assert other_shape(tmp_path / "net.onnx", INPUTS) is None


def test_the_first_other_shape_is_named(tmp_path, flattening):
    save(model_of(SUMMED), tmp_path / "net.onnx")
    said = str(other_shape(tmp_path / "net.onnx", INPUTS))
    assert "the node Abs 'l' gets the shape [], where ONNX infers [n, 4]" in said


@pytest.mark.parametrize("wrong", [False, True])
def test_it_decides_between_a_failure_and_a_model_that_is_not_taken(bench, tmp_path, request, monkeypatch, wrong):
    from conformance.runtimes import openvino

    def refuse(model, settings):
        raise RuntimeError("Model wasn't fully converted. Axis 1 out of the tensor rank range [-1, 0].")

    monkeypatch.setattr(openvino, "_compiled", refuse)
    if wrong:
        request.getfixturevalue("flattening")
    save(model_of(SUMMED), tmp_path / "net.onnx")
    case = load_case(tmp_path, "onnx: net.onnx\nruntimes: [onnxruntime, openvino]\nspecials: false")
    (cell,) = (one for one in plan(case) if one.runtime == "openvino" and one.check == "accuracy")
    record = bench.run_cell(cell)
    if wrong:
        assert (record.status, record.error, record.fault) == ("failed", "WrongShape", "runtime")
    else:
        assert record.status == "skipped" and "does not take the model" in str(record.reason)
