"""The ranges of the values inside a model: those of ONNX Runtime's own calibrators, measured once."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator

from conformance.case.files.precision import Calibration
from conformance.models.precision.ranges import extremes, quietly, ranges
from tests.kit.models import model_of

EVERYTHING = """
planted (float[n, 4] x, int64[1] k) => (float[n, 4] y, float s)
<float[4, 4] w = {1.5, 0, 0, 0, 0, 2, 0, 0, 0, 0, -9, 0, 0, 0, 0, 4}>
{
    a = MatMul (x, w)
    b = Cast <to = 10> (a)
    c = Cast <to = 1> (b)
    i = Cast <to = 7> (c)
    q = Greater (a, c)
    e = Add (a, c)
    p = Log (x)
    y = Relu (e)
    s = ReduceMax <keepdims = 0> (p)
}
"""


def model(text: str = EVERYTHING) -> onnx.ModelProto:
    made = model_of(text)
    for index, node in enumerate(made.graph.node):
        node.name = f"node_{index}"
    return made


def batches(count: int = 3, rows: int = 5) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    sizes = [rows] * (count - 1) + [2]
    return [{"x": rng.uniform(0.1, 9, (size, 4)).astype(np.float32), "k": np.zeros(1, np.int64)} for size in sizes]


class OneBatch(CalibrationDataReader):
    def __init__(self, batch: dict[str, np.ndarray]) -> None:
        self.left = [batch]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


def calibrated(made: onnx.ModelProto, data: list[dict[str, np.ndarray]], folder, operators=None):
    """What ONNX Runtime's own calibrator measures."""
    onnx.save(made, folder / "given.onnx")
    with quietly():
        calibrator = create_calibrator(
            folder / "given.onnx", operators, str(folder / "augmented.onnx"),
            calibrate_method=CalibrationMethod.MinMax, extra_options={"symmetric": True},
        )  # fmt: skip
        for batch in data:
            calibrator.collect_data(OneBatch(batch))
        return calibrator.compute_data()


@pytest.mark.smoke
def test_ranges_are_those_of_the_calibrator_bit_by_bit(tmp_path):
    made, data = model(), batches()
    float16 = next(node for node in made.graph.node if node.output[0] == "c")
    made.graph.node.remove(float16)  # ONNX Runtime's calibrator cannot reduce a float16 tensor
    made.graph.node[1].attribute[0].i = TensorProto.DOUBLE
    for node in made.graph.node:
        for index, name in enumerate(node.input):
            if name == "c":
                node.input[index] = "a"
    right = calibrated(made, data, tmp_path)
    got = ranges(made, extremes(made, data), data, {n.op_type for n in made.graph.node}, Calibration(), tmp_path)
    assert got.calibration_method == right.calibration_method
    assert dict(got.items()).keys() == dict(right.items()).keys() >= {"x", "a", "y"}
    for name, entry in right.items():
        for one, other in zip(got[name].range_value, entry.range_value, strict=True):
            assert one.dtype == other.dtype == np.float32 and one.shape == other.shape
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("says", [Calibration(), Calibration(method="percentile", percentile=60.0)])
def test_only_what_the_operators_read_or_make_has_a_range(says, tmp_path):
    made, data = model(), batches(rows=40)
    got = ranges(made, extremes(made, data), data, ["MatMul"], says, tmp_path)
    assert set(dict(got.items())) == {"x", "a"}
    assert bool(got["x"].range_value[1] < 8) is (says.method == "percentile")


def test_extremes_are_the_least_and_the_largest_of_all_batches():
    data = batches()
    data[1]["x"][3, 2], data[2]["x"][0, 3] = 40.0, -7.0
    ends = extremes(model(), data).ends
    assert [end.item() for end in ends["x"]] == [-7.0, 40.0]
    assert ends["a"][0].item() == min(-360.0, -28.0) and ends["a"][1].shape == (1,)
    assert "b" in ends  # the float16 tensor
    assert ends["b"][0].dtype == np.float32
    assert not {"k", "i", "q", "w"} & set(ends)


def test_a_nan_inside_is_left_out_and_one_in_an_output_is_told():
    data = batches()
    data[1]["x"][0, 0] = -1.0  # whose logarithm is no number
    measured = extremes(model(), data)
    assert measured.nan == "output 1 is NaN on batch 1"
    clean = extremes(model(), [data[0], data[2]])
    assert clean.nan is None
    assert np.isfinite(measured.ends["p"]).all()


def test_the_model_is_as_it_was():
    made = model()
    before = made.SerializeToString(deterministic=True)
    extremes(made, batches())
    assert made.SerializeToString(deterministic=True) == before
    with pytest.raises(Exception, match="missing from input feed"):
        extremes(made, [{"bad": np.zeros(3, np.float32)}])
    assert made.SerializeToString(deterministic=True) == before


def test_a_large_weight_does_not_stop_shape_inference():
    made = model()
    large = numpy_helper.from_array(np.ones((4, 4000), np.float32), "large")
    made.graph.initializer.append(large)
    made.graph.node.append(helper.make_node("MatMul", ["e", "large"], ["wide"], name="wide"))
    made.graph.node.append(helper.make_node("Neg", ["wide"], ["narrow"], name="narrow"))
    ends = extremes(made, batches()).ends
    assert {"wide", "narrow"} <= ends.keys() and "large" not in ends


def test_a_sequence_among_the_outputs_shifts_no_range():
    text = """
    planted (float[n, 4] x) => (seq(float[n, 4]) y, float[n, 4] z)
    {
        a = Neg (x)
        y = SequenceConstruct (x, a, x)
        z = Add (a, a)
    }
    """
    ends = extremes(model(text), [{"x": np.arange(8, dtype=np.float32).reshape(2, 4)}]).ends
    assert [end.item() for end in ends["x"]] == [0.0, 7.0] and [end.item() for end in ends["z"]] == [-14.0, 0.0]
