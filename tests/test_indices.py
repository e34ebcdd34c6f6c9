"""Outputs of indices: what stands at them is compared. Planted are runtimes that choose other ties, which is right,
and runtimes whose indices are wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conformance.bundle.layout import Bundle
from conformance.bundle.replay import run_entry
from conformance.bundle.shape import check_entry
from conformance.compare.indices import Indices
from conformance.compare.judges import NoiseLimits, Right, Tolerances, judge_from
from conformance.compare.noise import NOISE_LIMITS
from conformance.compare.reading import Reading
from conformance.compare.tolerance import DEFAULTS
from conformance.errors import Stopped, UserError
from conformance.records import text
from conformance.runtimes import onnxruntime
from conformance.worker.progress import Progress
from tests.support import PASSED, altered, problems_of, verdict
from tests.test_bundle import pack


def body(forward, outputs, more=""):
    return f"""
forward: "{forward}"
inputs: {{x: {{type: "float32[batch, 6]", values: {{choice: [0, 1, 2]}}}}}}
dims: {{batch: 1..8}}
outputs: {outputs}
specials: false
{more}
"""


def last(x, axis=-1):
    """Positions of all values from the largest down, of equal ones the last first."""
    return np.flip(np.argsort(x, axis=axis, kind="stable"), axis=axis)


def first_last(x, axis=-1):
    """Positions of all values from the smallest up, of equal ones the last first."""
    return np.argsort(np.flip(x, axis), axis=axis, kind="stable") * -1 + x.shape[axis] - 1


OPERATORS = {
    "topk": ("torch.topk(x, 4)", "[values, {name: i, indices_of: x}]", lambda x: last(x)[:, :4]),
    "topk of an output": (
        "(lambda y: (y, torch.topk(y, 4)[1]))(x + 1)", "[y, {name: i, indices_of: y}]", lambda x: last(x)[:, :4],
    ),
    "sort": ("torch.sort(x)", "[values, {name: i, indices_of: x, axis: 1}]", first_last),
    "argsort": ("torch.argsort(x)", "[{name: i, indices_of: x}]", first_last),
    "argmax": ("torch.argmax(x, 1)", "[{name: i, indices_of: x}]", lambda x: last(x)[:, 0]),
    "argmax, dim kept": ("torch.argmax(x, 1, keepdim=True)", "[{name: i, indices_of: x}]", lambda x: last(x)[:, :1]),
    "argmax of all": ("torch.argmax(x)", "[{name: i, indices_of: x, axis: [0, 1]}]", lambda x: last(x.ravel())[0]),
    "argmin": ("torch.argmin(x, 1)", "[{name: i, indices_of: x}]", lambda x: first_last(x)[:, 0]),
    "max": ("tuple(torch.max(x, 0))", "[values, {name: i, indices_of: x, axis: 0}]", lambda x: last(x, 0)[0]),
    "min": ("tuple(torch.min(x, 1))", "[values, {name: i, indices_of: x}]", lambda x: first_last(x)[:, 0]),
}  # fmt: skip


def run(bench, monkeypatch, forward, outputs, indices=None, more=""):
    """The record of a case whose runtime, if ``indices`` is given, has them for its last output."""
    if indices is not None:
        sound = onnxruntime.open_optimized
        wrong = altered(sound, lambda inputs, got: [*got[:-1], np.asarray(indices(inputs["x"], got[-1]))])
        monkeypatch.setattr(onnxruntime, "open_optimized", wrong)
    return bench.run(body(forward, outputs, more), opset=17)


@pytest.mark.parametrize("operator", OPERATORS)
def test_another_of_equal_values_is_right(bench, monkeypatch, operator):
    forward, outputs, other = OPERATORS[operator]
    plain = outputs.replace(", axis: [0, 1]", "").replace(", axis: 0", "").replace(", axis: 1", "")
    plain = plain.replace(", indices_of: x", "").replace(", indices_of: y", "")

    def indices(x, right):
        return np.asarray(other(x), right.dtype)

    assert run(bench, monkeypatch, forward, plain, indices).error == "WrongValue"
    assert verdict(run(bench, monkeypatch, forward, outputs, indices)) == PASSED


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_index_of_another_value_is_wrong(bench, monkeypatch, operator):
    forward, outputs, _ = OPERATORS[operator]

    def indices(x, right):  # a rotation: all are in range, and as distinct as before
        size = x.size if "[0, 1]" in outputs else x.shape[0] if "axis: 0" in outputs else x.shape[1]
        return (right + 1) % size

    record = run(bench, monkeypatch, forward, outputs, indices)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    known = record.worst["looked_up"]
    assert known["got"] != known["wanted"]
    assert known["in"] in ("x", "output y")
    line = text.failure(record.as_dict()).split("\n")[1]
    assert line.startswith("output i[")
    assert f"got index {record.worst['got']}, where {known['in']} has {known['got']:.9g}; wanted index" in line


def doubled(x, right):
    """The best index in all places that hold a value equal to it."""
    order = last(x)
    best = np.take_along_axis(x, order, 1) == x.max(1, keepdims=True)
    return np.where(best, order[:, :1], order)[:, : right.shape[1]].astype(right.dtype)


@pytest.mark.parametrize(
    ("indices", "error", "says"),
    [
        (lambda x, right: right + 6, "WrongIndex", "are out of range: x has 6 values there"),
        (lambda x, right: right - 6, "WrongIndex", "are out of range: x has 6 values there"),
        (doubled, "WrongIndex", "stand there a second time, and each may only once"),
        (lambda x, right: right.astype("int32"), "WrongDtype", "output i is int32 instead of int64"),
        (lambda x, right: right[..., None], "WrongShape", "output i has shape"),
        (lambda x, right: right * 0, "WrongIndex", "a second time"),
        (lambda x, right: right[:, ::-1].copy(), "WrongValue", "output i, looked up in x: "),
    ],
)
def test_what_no_ties_explain_is_wrong(bench, monkeypatch, indices, error, says):
    forward, outputs, _ = OPERATORS["topk"]
    record = run(bench, monkeypatch, forward, outputs, indices)
    assert verdict(record) == ("failed", "compare", error, "runtime")
    assert says in record.reason
    if error == "WrongIndex":
        assert "output i[" in text.failure(record.as_dict())


def test_negative_indices_are_right_where_pytorchs_are(bench, monkeypatch):
    forward = "(torch.topk(x, 4)[1] - 6,)"
    record = run(bench, monkeypatch, forward, "[{name: i, indices_of: x}]", lambda x, right: right + 6)
    assert verdict(record) == PASSED


def test_float64_does_not_excuse_a_wrong_index(bench, monkeypatch):
    """float64 chooses the other of two values that only float32 rounds to the same, and so might a wrong runtime
    choose any: indices of 0 and 1 would be excused, were float64's own looked up."""
    forward = "torch.argmax(x * 0 + torch.arange(6) + (x + 16777216.0 - x - 16777216.0) * 100, 1)"
    outputs = "[{name: i, indices_of: x}]"
    record = run(bench, monkeypatch, forward, outputs, lambda x, right: (right + 1) % 6)
    assert record.error == "WrongValue"


@pytest.mark.parametrize(
    ("forward", "outputs", "passes"),
    [
        ("torch.topk(x[:, :1], 1)", "[v, {name: i, indices_of: x}]", "zeros"),  # there is one class only
        ("torch.argmax(x, 1)", "[{name: i, indices_of: x}]", None),
        ("torch.argmax(x, 1) * 0 + 5", "[{name: i, indices_of: x}]", "shuffled rows"),
        (
            "(lambda c: (c, torch.argmax(c, 1)))(x * 0 + 3)", "[{name: c, vacuous: so}, {name: i, indices_of: c}]",
            "zeros",
        ),
    ],
)  # fmt: skip
def test_indices_prove_something_where_wrong_ones_would_be_refused(bench, monkeypatch, forward, outputs, passes):
    record = run(bench, monkeypatch, forward, outputs)
    if passes is None:
        assert verdict(record) == PASSED
    else:
        assert verdict(record) == ("failed", "compare", "Vacuous", "case")
        assert record.reason.startswith("output i: ")
        assert passes in record.reason


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ("[{name: v, indices_of: x}, i]", "output v does not hold indices of x: it is float32"),
        ("[v, {name: i, indices_of: x, axis: 0}]", "its shape [1, 4] is not [..., 6]"),
        ("[v, {name: i, indices_of: v}]", "and there are 4 values to index"),
        ("[v, {name: i, indices_of: v, axis: 2}]", "axis 2 is out of range for the shape"),
    ],
)
def test_what_are_no_indices_is_the_cases_fault(bench, monkeypatch, outputs, says):
    record = run(bench, monkeypatch, "torch.topk(x, 4)", outputs)
    assert verdict(record) == ("failed", "declare", "BadIndices", "case")
    assert says in record.reason


@pytest.mark.parametrize(
    ("outputs", "line", "message"),
    [
        ("[v, {name: i, indices_of: valeus}]", 6, "no input or output 'valeus'; did you mean 'values'?"),
        ("[values, {name: i, indices_of: i}]", 6, "'i' would hold indices of itself"),
        ("[values, {name: i, axis: 0}]", 6, "axis says along which axis indices count; indices_of says of what"),
        ("[values, {name: i, indices_of: x, axis: 2}]", 6, "axis 2 is out of range: 'x' has 2 dims"),
        ("[values, {name: i, indices_of: x, axis: [0, 0]}]", 6, "0 stands here twice"),
        ("[values, {name: i, indices_of: x, axis: [1, -1]}]", 6, "lie side by side, each once"),
        ("[{name: a, indices_of: x}, {name: b, indices_of: a}]", 6, "'a' holds indices itself"),
        ("[x, {name: i, indices_of: x}]", 6, "both an input and an output are called 'x'"),
    ],
)
def test_mistakes_that_a_file_shows_are_told_at_their_line(tmp_path, outputs, line, message):
    outputs = outputs.replace("[v,", "[values,")
    file = f"""\
planted:
  about: a test
  forward: torch.topk(x, 4)
  inputs: {{x: "float32[batch, 6]"}}
  dims: {{batch: 1..8}}
  outputs: {outputs}
"""
    (problem,) = problems_of(tmp_path, file)
    assert problem.line == line
    assert message in problem.message


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_at_a_reduced_precision_the_values_at_indices_have_its_limits(bench, monkeypatch, precision):
    case = """
module: beside.Net
inputs: {x: {type: "float32[batch, 16]"}}
dims: {batch: 4..8}
outputs: [y, {name: i, indices_of: y}]
export: {torchscript: [17]}
precisions: {fp16: {}, int8: {}}
"""
    net = (
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = torch.nn.Linear(16, 24)\n"
        "    def forward(self, x):\n        y = self.a(x)\n        return y, torch.sort(y)[1]\n"
    )

    def record(check, body):
        (cell,) = (
            cell for cell in bench.cells(body, net)
            if (cell.check, cell.precision) == (check, precision) and cell.runtime in (None, "onnxruntime")
        )  # fmt: skip
        return bench.run_cell(cell, examples=8)

    counted = case.replace(", indices_of: y", "")
    # Sorting what is rounded gives other indices, of values that are as near to one another as the rounding.
    assert (record("fidelity", counted).status == "passed") == (precision == "fp16")
    assert verdict(record("fidelity", case)) == PASSED
    assert verdict(record("accuracy", case)) == PASSED

    for name in ("open_optimized", "open_literal"):
        sound = getattr(onnxruntime, name)
        monkeypatch.setattr(onnxruntime, name, altered(sound, lambda _, got: [got[0], got[1][:, ::-1].copy()]))
        wrong = record("fidelity" if name == "open_literal" else "accuracy", case)
        assert wrong.error == ("LowFidelity" if name == "open_literal" else "WrongValue")
        assert wrong.reason.startswith("output i, looked up in output y: ")
        assert wrong.worst["looked_up"]["in"] == "output y"
        monkeypatch.setattr(onnxruntime, name, sound)
    monkeypatch.setattr(
        onnxruntime, "open_literal", altered(onnxruntime.open_literal, lambda _, got: [got[0], got[1] + 100])
    )
    assert verdict(record("accuracy", case)) == ("failed", "compare", "BadIndices", "precision")


def test_a_bundle_looks_indices_up(tmp_path, monkeypatch):
    forward, outputs, other = OPERATORS["topk"]
    code, place = pack(
        tmp_path, body(forward, outputs, "export: {torchscript: [17]}"), "", "--runtime", "onnxruntime"
    )
    assert code == 0
    sound = onnxruntime.open_optimized

    def replayed(indices):
        wrong = altered(sound, lambda inputs, got: [got[0], indices(inputs["x"], got[1])])
        monkeypatch.setattr(onnxruntime, "open_optimized", wrong)
        (entry,) = Bundle(place).entries
        return run_entry(Progress(), place, entry, "onnxruntime", tmp_path / "store").as_dict()

    passed = replayed(lambda x, right: other(x).astype("int64"))
    assert (passed["status"], passed["examples"]) == ("passed", 16)
    wrong = replayed(lambda x, right: (right + 1) % 6)
    assert (wrong["error"], wrong["outputs"]) == ("WrongValue", ["values", "i"])
    assert "output i[" in text.failure(wrong)
    assert replayed(lambda x, right: right + 6)["error"] == "WrongIndex"


@pytest.mark.parametrize(
    "change",
    [
        {"of": "z", "axis": [-1]}, {"of": 1, "axis": [-1]}, {"of": 2, "axis": [-1]}, {"of": 0.5, "axis": [0]},
        {"of": "x", "axis": []}, {"of": "x", "axis": ["a"]}, {"of": "x"}, {"of": "x", "axis": [0], "more": 1},
        {"of": -1, "axis": [0]}, {"of": True, "axis": [0]}, "x",
    ],
)  # fmt: skip
def test_a_bundle_may_say_of_indices_only_what_can_be(tmp_path, change):
    forward, outputs, _ = OPERATORS["topk"]
    _, place = pack(tmp_path, body(forward, outputs, "export: {torchscript: [17]}"), "", "--runtime", "onnxruntime")
    (entry,) = json.loads((place / "bundle.json").read_text())["entries"]
    check_entry(entry, "entry")
    entry["judge"]["indices"] = [None, change]
    with pytest.raises(UserError, match=r"indices\[1\]"):
        check_entry(entry, "entry")
    entry["judge"]["indices"] = [None]
    with pytest.raises(UserError, match="unequal length"):
        check_entry(entry, "entry")


X = np.array([[1, 3, 2, 3], [5, 4, 5, 0]], "float32")


def judged(judge, got, wanted, **more):
    return judge.compare([np.asarray(got)], Right([np.asarray(wanted)], inputs={"x": X}, **more))


@pytest.mark.parametrize(
    "judge",
    [
        Tolerances((DEFAULTS["float32"],), (False,), Reading(("i",), (Indices("x", (-1,)),))),
        NoiseLimits((NOISE_LIMITS["int8"],), (False,), Reading((), (Indices("x", (1,)),))),
    ],
)
def test_judges_are_the_same_after_they_were_stored(judge):
    again = judge_from(json.loads(json.dumps(judge.as_dict())))
    assert again == judge
    assert judged(again, [1, 0], [3, 2]).verdict == "verified"
    wrong = judged(again, [1, 1], [3, 2])
    assert wrong.error == "WrongValue"
    assert (wrong.worst.got, wrong.worst.wanted) == (1, 2)
    assert judged(again, [1, 4], [3, 2]).error == "WrongIndex"
    assert judged(again, [1, -2], [3, 2]).error == "WrongIndex"
    assert judged(again, [-3, 0], [3, -2]).verdict == "verified"
    with pytest.raises(Stopped, match="4 values to index"):
        judged(again, [1, 0], [3, 4])


def test_rows_of_indices_may_come_in_any_order():
    reading = Reading((), (Indices("x", (0,)),))
    judge = Tolerances((None,), (True,), reading)
    x = {"x": np.array([7, 5, 7, 2], "int64")}

    def compared(got):
        return judge.compare([np.array(got)], Right([np.array([0, 1, 2])], inputs=x))

    assert compared([1, 2, 0]).verdict == "verified"
    assert compared([1, 2, 3]).error == "WrongValue"
    assert compared([1, 2, 2]).error == "WrongIndex"


@pytest.mark.parametrize(
    ("shape", "axis", "indices"),
    [((2, 3, 4, 4), (-2, -1), (2, 3, 2, 2)), ((2, 3, 4), (1,), (2, 4)), ((2, 3), (0, 1), ()), ((0, 3), (1,), (0, 2))],
)
def test_indices_have_the_dims_of_what_they_index_but_for_the_axis(shape, axis, indices):
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    known = Indices("x", axis)
    right = np.ones(indices, "int64")
    known.check(right, x)
    flat = x.reshape(2, 3, 16) if len(shape) == 4 else x
    expected = {
        4: lambda: np.broadcast_to(flat[..., 1:2, None], indices),
        3: lambda: x[:, 1],
        2: lambda: x.ravel()[1:2],
    }
    if x.size:
        np.testing.assert_array_equal(known.values_at(right, x), expected[len(shape)]().reshape(indices))
    else:
        assert known.values_at(right, x).shape == indices


def test_max_pooling_counts_over_a_plane(bench, monkeypatch):
    case = """
forward: "F.max_pool2d(x, 2, return_indices=True)"
inputs: {x: {type: "float32[batch, 3, 4, 6]", values: {choice: [0, 1, 2]}}}
dims: {batch: 1..4}
outputs: [values, {name: i, indices_of: x, axis: [-2, -1]}]
"""
    assert verdict(bench.run(case)) == PASSED
    sound = onnxruntime.open_optimized
    monkeypatch.setattr(onnxruntime, "open_optimized", altered(sound, lambda _, got: [got[0], got[1] ^ 1]))
    record = bench.run(case)  # the other value of the same row of the window
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.worst["looked_up"]["in"] == "x"
