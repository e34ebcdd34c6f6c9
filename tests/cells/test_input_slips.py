"""Recorded inputs that are not what the recorded outputs were made of: by which slip, where it is a usual one."""

import contextlib

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.cells.test_recorded_data import cells, saved, write_set
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import replaced_runtime

FOREIGN = ("failed", "declare", "ForeignData", "case")
RANDOM = np.random.default_rng(7)
IMAGES = RANDOM.random((2, 3, 5, 5)).astype(np.float32)
KERNEL = RANDOM.standard_normal((4, 3, 2, 2)).astype(np.float32)
CONV = model_of("net (float[n, 3, h, w] x) => (float[n, 4, a, b] y) { y = Conv (x, kernel) }", kernel=KERNEL)
BYTES = np.arange(12, dtype=np.uint8).reshape(2, 6) * 20
CAST = model_of("net (uint8[n, 6] x) => (float[n, 6] y) { f = Cast <to = 1> (x) y = Sqrt (f) }")
MINUS = model_of("net (float[n, 4] x, float[n, 4] z) => (float[n, 4] y) { y = Sub (x, z) }")
TWO = model_of("net (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) { y = Abs (x) z = Neg (x) }")
SQUARE = model_of("net (float[n, 4, 4] x) => (float[n, 4] y) { y = ReduceSum <keepdims = 0> (x, last) }",
                  last=np.array([2], np.int64))  # fmt: skip
ROWS = RANDOM.standard_normal((3, 4)).astype(np.float32)
OTHERS = RANDOM.standard_normal((3, 4)).astype(np.float32)
SQUARES = RANDOM.standard_normal((2, 4, 4)).astype(np.float32)
_MEAN, _STD = np.reshape([0.485, 0.456, 0.406], (3, 1, 1)), np.reshape([0.229, 0.224, 0.225], (3, 1, 1))

SLIPS = {
    # the model, its inputs, what was recorded in their place, what is said
    "exchanged": (MINUS, [ROWS, OTHERS], [OTHERS, ROWS], "the inputs 'x' and 'z' exchanged"),
    "channels": (CONV, [IMAGES], [IMAGES[:, ::-1]], "'x' with the first three channels in the other order"),
    "not scaled": (CONV, [IMAGES], [IMAGES * 255], "'x' divided by 255"),
    "scaled twice": (CONV, [IMAGES * 255], [IMAGES], "'x' times 255"),
    "not normalized": (CONV, [((IMAGES - _MEAN) / _STD).astype(np.float32)], [IMAGES],
        "'x' less ImageNet's mean and divided by"),
    "channels, not scaled": (CONV, [IMAGES], [IMAGES[:, ::-1] * 255], "in the other order (RGB and BGR) and divided"),
    "reshaped": (CONV, [IMAGES], [np.moveaxis(IMAGES, 1, -1).reshape(IMAGES.shape)],
        "'x' transposed to channels first, and not reshaped"),
    "height and width": (CONV, [IMAGES], [np.swapaxes(IMAGES, 2, 3)], "'x' with its last two axes exchanged"),
    "a layout": (SQUARE, [SQUARES], [np.moveaxis(SQUARES, 1, 2)], "'x' with its last two axes exchanged"),
    "signed": (CAST, [BYTES], [BYTES ^ np.uint8(128)], "'x' shifted by 128 (int8 and uint8)"),
    "both not scaled": (MINUS, [ROWS, OTHERS], [ROWS * 255, OTHERS * 255], "'x' and 'z' divided by 255"),
}  # fmt: skip


def outputs_of(model, inputs):
    names = [one.name for one in model.graph.input]
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))


def recorded(bench, folder, model, inputs, outputs):
    """The record of ONNX Runtime's cell of recorded data alone."""
    saved(folder, model)
    for file in (folder / "test_data_set_0").iterdir():
        file.unlink()
    (folder / "test_data_set_0").rmdir()
    write_set(folder, [np.ascontiguousarray(one, dtype=one.dtype) for one in inputs], outputs)
    dims = ", ".join(f"{name}: 1..9" for name in sorted(dims_of(model)))
    body = "net:\n  about: a file\n  onnx: net.onnx\n  recorded: {data: test_data_set_0, only: true}\n"
    (found,) = [cell for cell in cells(folder, f"{body}  dims: {{{dims}}}\n") if (cell.check, cell.runtime) == NAME]
    return bench.run_cell(found)


NAME = ("recorded", "onnxruntime")


def dims_of(model):
    return {size.dim_param for one in model.graph.input for size in one.type.tensor_type.shape.dim if size.dim_param}


@pytest.mark.parametrize("slip", SLIPS)
def test_the_slip_is_named_and_the_right_inputs_pass(bench, tmp_path, slip):
    model, inputs, wrong, said = SLIPS[slip]
    (tmp_path / "wrong").mkdir()
    (tmp_path / "right").mkdir()
    record = recorded(bench, tmp_path / "wrong", model, wrong, outputs_of(model, inputs))
    assert verdict(record) == FOREIGN, record.reason
    assert f"{said}" in record.reason and "the recorded outputs come out" in record.reason
    assert verdict(recorded(bench, tmp_path / "right", model, inputs, outputs_of(model, inputs))) == PASSED


def test_outputs_that_were_exchanged_are_named(bench, tmp_path):
    record = recorded(bench, tmp_path, TWO, [ROWS], outputs_of(TWO, [ROWS])[::-1])
    assert verdict(record) == FOREIGN and "with the outputs 'y' and 'z' exchanged" in record.reason


def test_the_data_of_another_model_has_no_slip(bench, tmp_path):
    record = recorded(bench, tmp_path, CONV, [IMAGES], [2 * outputs_of(CONV, [IMAGES])[0]])
    assert verdict(record) == FOREIGN and "the recorded outputs are not this model's" in record.reason


def test_a_runtime_that_is_wrong_by_such_a_slip_is_accused_all_the_same(bench, tmp_path):
    def swapping(original):
        @contextlib.contextmanager
        def open_model(model, libraries, **options):
            with original(model, libraries, **options) as session:
                run = session.run
                session.run = lambda inputs: run({"x": inputs["z"], "z": inputs["x"]})
                yield session

        return open_model

    with replaced_runtime(swapping, "onnxruntime", "onnxruntime-unoptimized"):
        record = recorded(bench, tmp_path, MINUS, [ROWS, OTHERS], outputs_of(MINUS, [ROWS, OTHERS]))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime"), record.reason
