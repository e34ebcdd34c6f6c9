"""An order or a value that rounding decides in an ONNX file is found as in a module, by NumPy alone."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conformance.case.draw.draw import Draw
from conformance.case.plan.catalogue import plan
from conformance.judge.conditioning import Roundings
from conformance.models.otherwise import rounded_file
from conformance.models.otherwise.rounded_file import RoundedSession
from conformance.models.otherwise.rounding import Rounding, Sums, Units
from conformance.models.reference.float64_model import in_float64
from conformance.models.reference.written_out import COMPOSITE, write_out_operators
from conformance.runtimes.onnxreference import ReferenceSession
from tests.kit.cases import load_case
from tests.kit.judging import verifying_cell
from tests.kit.models import model_of
from tests.kit.runs import run_command

pytestmark = pytest.mark.smoke
WAYS = [
    {}, {"mirrored": True}, {"uneven": True}, {"finer": 10}, {"ties": True}, {"merged": True},
    {"merged": True, "mirrored": True},
]  # fmt: skip


@pytest.mark.parametrize("bits", [11, 24])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_arrays_without_dims_stay_so_and_large_ones_keep_their_layout(bits, way):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 40, 500)) * 2.0 ** rng.integers(-160, 160, size=(3, 40, 500))
    values.flat[:7] = [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e-45]
    rounding = Rounding(bits, 3, **way)
    whole, turned = Units(rounding).rounded(values), Units(rounding).rounded(values.transpose(2, 0, 1))
    np.testing.assert_array_equal(turned, whole.transpose(2, 0, 1))
    assert whole.flags["C_CONTIGUOUS"] and turned.transpose(1, 2, 0).flags["C_CONTIGUOUS"]
    for number in (values[1, 0, 0], 0.0, np.nan):
        one, alone = Units(rounding), Units(rounding)
        rounded, moved = one.rounded(np.array(number)), one.moved(np.array(number))
        assert isinstance(rounded, np.ndarray) and rounded.shape == moved.shape == ()
        np.testing.assert_array_equal(
            [rounded, moved], [alone.rounded(np.array([number]))[0], alone.moved(np.array([number]))[0]]
        )


def model(*nodes, k=3):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 16])
    outputs = [
        helper.make_tensor_value_info("v", TensorProto.FLOAT, ["b", k]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["b", k]),
    ]
    graph = helper.make_graph([*nodes], "g", [x], outputs, [helper.make_tensor("k", TensorProto.INT64, [1], [k])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SATURATED = model(helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("TopK", ["t", "k"], ["v", "i"], "top"))


def test_each_result_is_off_and_nothing_is_without_a_rounding():
    session = RoundedSession(in_float64(onnx.ModelProto.FromString(SATURATED.SerializeToString())))
    x = {"x": np.linspace(0.1, 0.9, 16)[None]}
    exact, moved, again = session.run(x), session.run(x, Rounding(24, 0)), session.run(x)
    off = np.abs(moved[0] - exact[0]) / np.spacing(np.float32(0.5))
    assert 0.4 < off.max() < 4 and [a.tolist() for a in exact] == [a.tolist() for a in again]


def test_an_order_on_which_rounding_decides_accuses_no_runtime(tmp_path):
    onnx.save(SATURATED, tmp_path / "net.onnx")
    told = run_command(tmp_path, "check", "net.onnx", "--precision", "fp32", "--examples", "64")
    assert "FAILED  accuracy[net-onnx-op17-onnxruntime-fp32]" not in told.text, told.text
    assert "passed  accuracy[net-onnx-op17-onnxruntime-fp32]" in told.text


@pytest.mark.parametrize("node", ["y = LogSoftmax (x)", "y = ReduceLogSumExp <keepdims = 1> (x, axes)",
                                  "y = LayerNormalization (x, scale)"])  # fmt: skip
def test_operators_that_onnx_defines_by_functions_are_written_out(node):
    made = model_of(f"net (float[2, 5] x) => (float[a, b] y) {{ {node} }}", 18,
                    axes=np.array([1]), scale=np.ones(5, np.float32))  # fmt: skip
    written = write_out_operators(made, COMPOSITE)
    assert written.functions and not made.functions
    x = {"x": np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)}
    (own,), (of_steps,) = ReferenceSession(made).run(x), ReferenceSession(written).run(x)
    assert own == pytest.approx(of_steps, rel=1e-5)


@pytest.mark.parametrize("node", [
    "y = BatchNormalization (x, s, s, m0, v0)", "y, m, v = BatchNormalization <training_mode=1> (x, s, s, m0, v0)",
    "y = InstanceNormalization (x, s, s)",
])  # fmt: skip
def test_a_norm_may_be_computed_as_a_factor_and_a_shift(node):
    one = np.array([1], np.float32)
    text = f"net (float[n, 1, 2] x) => (float[n, 1, 2] y) {{ {node} }}"
    session = RoundedSession(in_float64(model_of(text, 17, s=one, m0=100 * one, v0=one * 0)))
    x = {"x": np.full((1, 1, 2), 100.0)}
    exact, *moved = (session.run(x, rounding)[0].max() for rounding in (None, *(Rounding(24, n) for n in range(4))))
    off, unit = max(abs(one - exact) for one in moved), 200 / np.sqrt(1e-5) * 2.0**-24
    assert exact == 1 and 0.05 < off / unit < 5


def test_how_far_a_transform_is_off_is_a_matter_of_all_of_its_signal():
    made = model_of("net (float[1, 64, 1] x) => (float[1, 64, 2] y) { y = DFT (x) }", 20)
    session = RoundedSession(in_float64(made))
    x = {"x": np.ones((1, 64, 1))}
    exact, moved = session.run(x), session.run(x, Rounding(24, 0))
    off = np.abs(exact[0] - moved[0])
    assert off[0, 5].max() > 1e-7, "a value that is zero moves, as 64 terms of size 1 cancel out"
    assert off.max() < 1e-4


def test_a_place_between_values_is_rounded_too_and_other_weights_are_found(tmp_path):
    """Computed at places of float32, as runtimes do, the value next to 0 is off by several times what is allowed."""
    graph = 'g (float[1,1,1,4] x, int64[4] s) => (float[1,1,1,10] y) { y = Resize <mode = "cubic"> (x, , , s) }'
    file, x = tmp_path / "net.onnx", np.float32([[[[1600, 1, 1500, 1600]]]])
    onnx.save(model_of(graph, 19), file)
    inputs = {"x": x, "s": np.array([1, 1, 1, 10])}
    body = "onnx: net.onnx\nruntimes: onnxruntime"
    with verifying_cell(next(plan(load_case(tmp_path, body)))) as verify:
        example = verify.example(Draw({}, "plain", 0), inputs)
        (right,) = verify.reference(inputs)
        off, other = (cubic(x.reshape(-1), places, a) for places, a in ((np.float32, -0.75), (np.float64, -0.5)))
        assert np.abs(off - right).max() > 0
        assert verify.judged(example, [off.reshape(right.shape)]).verdict != "failed"
        assert verify.judged(example, [other.reshape(right.shape)]).verdict == "failed"


def cubic(values, kind, a):
    """A row of 4 values resized to 10, at places of a type and with the kernel of R. Keys (1981)."""
    found = []
    for index in range(10):
        place = (kind(index) + kind(0.5)) / kind(2.5) - kind(0.5)
        start = int(np.floor(place))
        total = 0.0
        for at in range(start - 1, start + 3):
            t = abs(float(place) - at)
            near, far = (a + 2) * t**3 - (a + 3) * t**2 + 1, a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
            total += float(values[min(max(at, 0), 3)]) * (near if t <= 1 else far)
        found.append(total)
    return np.float32(found)


# ---- large weights -----------------------------------------------------------------------------------------------


def embedding():
    """A model of which rows of one weight are taken and multiplied with another; both have no values in it."""
    rng = np.random.default_rng(0)
    weights = {
        "rows": rng.standard_normal((500, 64)).astype(np.float32),
        "w": rng.standard_normal((64, 40)).astype(np.float32),
    }
    nodes = [helper.make_node("Gather", ["rows", "i"], ["taken"]), helper.make_node("MatMul", ["taken", "w"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("i", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 40])],
        [helper.make_tensor(name, TensorProto.FLOAT, one.shape, one.tobytes(), True) for name, one
         in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weights


@pytest.mark.parametrize("most", [10, 10**9], ids=["each by its node", "all at once"])
def test_weights_are_widened_wherever_they_are_read(monkeypatch, most):
    monkeypatch.setattr("conformance.models.otherwise.rounded_file.MOVED_WEIGHTS", most)
    made, weights = embedding()
    session, i = RoundedSession(made, weights), np.array([1, 2, 3])
    (y,) = session.run({"i": i})
    right = weights["rows"][i].astype(float) @ weights["w"].astype(float)
    assert y.dtype == np.float64 and np.allclose(y, right, rtol=1e-14)
    assert all(one.dtype == np.float32 for one in weights.values())


@pytest.mark.parametrize("columns", [1, 7, 10**9])
@pytest.mark.parametrize("node", [
    helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("MatMul", ["v", "w"], ["y"]),
    helper.make_node("Gemm", ["x", "w", "b"], ["y"]), helper.make_node("Gemm", ["x", "t", "b"], ["y"], transB=1),
    helper.make_node("Gemm", ["x", "t", "b"], ["y"], transB=1, alpha=0.5),
], ids=["MatMul", "of weights alone", "Gemm", "transposed", "with a factor"])  # fmt: skip
def test_a_product_is_of_float64_however_many_columns_are_made_so_at_a_time(monkeypatch, columns, node):
    monkeypatch.setattr("conformance.models.otherwise.rounded_file.MOVED_WEIGHTS", 10)
    monkeypatch.setattr("conformance.runtimes.evaluator_kernels.OF_FEW", 20 * columns)
    rng = np.random.default_rng(0)
    shapes = {"v": (3, 20), "w": (20, 9), "t": (9, 20), "b": (9,)}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items() if name in node.input}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 20])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 9])
    held = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    made = helper.make_model(
        helper.make_graph([node], "g", [x], [y], held), opset_imports=[helper.make_opsetid("", 17)]
    )
    session = RoundedSession(in_float64(made), weights)
    given = rng.standard_normal((3, 20))
    right = {**{name: value.astype(float) for name, value in weights.items()}, "x": given}
    of = [right[name] for name in node.input]
    factor = 0.5 if "alpha" in [one.name for one in node.attribute] else 1.0
    wanted = factor * (of[0] @ (of[1].T if "t" in node.input else of[1])) + (of[2] if len(of) > 2 else 0.0)
    (got,) = session.run({"x": given})
    assert got.dtype == np.float64 and np.allclose(got, wanted, rtol=1e-13, atol=1e-14)
    (moved,) = session.run({"x": given}, Rounding(24, 0))
    assert 1e-9 < np.abs(moved - got).max() < 1e-5


def test_small_weights_that_are_moved_together_are_off_by_a_unit_each_and_whole_numbers_stay():
    rng = np.random.default_rng(0)
    off = {"one": rng.standard_normal(()), "few": rng.standard_normal((3, 4)), "many": rng.standard_normal((40, 50))}
    stay = {"count": np.array([7]), "none": np.zeros((0, 2)), "places": np.array([1.0, 2.0])}
    weights = {**off, **stay}
    moved, back = (Units(Rounding(24, 3, mirrored=mirrored)).nudged(weights) for mirrored in (False, True))
    assert list(moved) == list(weights)
    for name, value in weights.items():
        assert moved[name].shape == value.shape and moved[name].dtype == value.dtype
        unit = 2.0 ** (np.floor(np.log2(np.abs(value))) - 23) if name in off else np.zeros(value.shape)
        np.testing.assert_allclose(np.abs(moved[name] - value), unit, rtol=1e-6)
        np.testing.assert_allclose(moved[name] - value, value - back[name], rtol=1e-6)


JUMPING = [
    "y = Round (t)", "y, i = MaxPool <kernel_shape = [2], strides = [1]> (t)", "y = own.Tanh (t)", "y = Div (t, x)",
    "i = ArgMax (t) y = Cast <to = 1> (i)",
]  # fmt: skip


@pytest.mark.parametrize(("node", "jumps"), [(one, True) for one in JUMPING] + [("y = Softmax (t)", False)], ids=str)
def test_steps_a_thousand_times_smaller_are_tried_where_something_may_jump(node, jumps):
    text = "g (float[n, 2, 3] x) => (float[n, m, k] y) { t = Tanh (x) " + node + " }"
    graph = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "own": 1]> {text}').graph
    assert rounded_file.is_continuous(graph) is not jumps
    tried: list[Rounding] = []

    class Moved:
        half, who, continuous = None, "nobody", not jumps

        def oracle(self, inputs, rounding):
            tried.append(rounding)
            return [np.tanh(inputs["x"].astype(float))]

    x = np.linspace(0, 1, 6, dtype=np.float32)
    moves = Roundings(Moved(), {"x": x}, [np.tanh(x.astype(float))])
    assert all(np.isfinite(moves.moves(effort)[0]).all() for effort in ("some", "all"))
    assert {rounding.finer for rounding in tried} == ({0, 10} if jumps else {0})
    assert not any(rounding.merged for rounding in tried)


def test_what_terms_add_up_to_is_measured_once_for_all_roundings(monkeypatch):
    made, weights = embedding()
    session, i, sums = RoundedSession(made, weights), np.array([1, 2, 3]), Sums()
    ways = [Rounding(24, seed, mirrored=mirrored, sums=sums) for seed in range(2) for mirrored in (False, True)]
    anew = [session.run({"i": i}, Rounding(24, way.seed, mirrored=way.mirrored))[0] for way in ways]
    counted: list[str] = []
    measure = rounded_file._size_of_terms
    monkeypatch.setattr(
        rounded_file, "_size_of_terms", lambda node, *more: counted.append(node.op_type) or measure(node, *more)
    )
    kept = [session.run({"i": i}, way)[0] for way in ways]
    assert counted == ["MatMul"]
    (exact,) = session.run({"i": i})
    for one, other in zip(anew, kept, strict=True):  # the terms differ in their last bits
        np.testing.assert_allclose(one - exact, other - exact, rtol=1e-4, atol=1e-12)


def test_what_is_kept_of_sums_has_a_limit(monkeypatch):
    monkeypatch.setattr("conformance.models.otherwise.rounding.MOST_SUMS", 100)
    sums, measured = Sums(), list[int]()

    def measure(count: int):
        return lambda: measured.append(count) or (np.zeros(count),)

    for count in (5, 10, 5, 10):
        sums.of((count, "MatMul", (count,)), np.ones(1), measure(count))
    assert measured == [5, 10, 10]


@pytest.mark.parametrize("other", [[-1e-6, 1.0], [0.4, 1.0], [np.nan, 1.0]])
def test_sums_of_another_result_are_measured_anew(other):
    sums, call = Sums(), (1, "MatMul", (2,))
    assert sums.of(call, np.array([1e-6, 1.0]), lambda: (1,)) == sums.of(call, np.array([1.01e-6, 1.0]), lambda: (2,))
    assert sums.of(call, np.array(other), lambda: (3,)) == (3,)
