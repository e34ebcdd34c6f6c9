"""Outputs of indices: the values at them are compared. Planted are runtimes that choose other ties, which is right,
and runtimes whose indices are wrong."""

import json

import numpy as np
import pytest

from conformance.cells.replay.replay_bundle import run_entry
from conformance.compare.compared_values import Reading
from conformance.compare.indices import Indices
from conformance.compare.judges import NoiseLimits, Right, Tolerances, judge_from
from conformance.compare.noise import NOISE_LIMITS
from conformance.compare.tolerance import DEFAULTS
from conformance.models.bundle.bundle_layout import Bundle
from conformance.models.bundle.entry import entry_of
from conformance.process.errors import Stopped, UserError
from conformance.process.worker.progress_note import Progress
from conformance.results.records import text
from tests.cells.test_bundle import pack
from tests.cells.test_bundle_fuzz import TOLERANCE, entry
from tests.kit.cases import PASSED, verdict
from tests.kit.modules import net_of
from tests.kit.runtimes import wrong_runtime


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
    "argmax of all": ("torch.argmax(x)", "[{name: i, indices_of: x, axis: [0, 1]}]", lambda x: last(x.ravel())[0]),
    "argmin": ("torch.argmin(x, 1)", "[{name: i, indices_of: x}]", lambda x: first_last(x)[:, 0]),
    "max": ("tuple(torch.max(x, 0))", "[values, {name: i, indices_of: x, axis: 0}]", lambda x: last(x, 0)[0]),
}  # fmt: skip


def run(bench, forward, outputs, indices=None, **how):
    """The record of a case whose runtime, if ``indices`` is given, has them for its last output."""
    case = body(forward, outputs)
    if indices is None:
        return bench.run(case, opset=17, **how)
    with wrong_runtime(lambda inputs, got: [*got[:-1], np.asarray(indices(inputs["x"], got[-1]))]):
        return bench.run(case, opset=17, **how)


@pytest.mark.parametrize("operator", OPERATORS)
def test_another_of_equal_values_is_right(bench, operator):
    forward, outputs, other = OPERATORS[operator]
    record = run(bench, forward, outputs, lambda x, right: np.asarray(other(x), right.dtype), examples=2)
    assert verdict(record) == PASSED


def test_another_of_equal_values_is_wrong_where_nothing_says_that_they_are_indices(bench):
    forward, _, other = OPERATORS["argmin"]
    assert run(bench, forward, "[i]", lambda x, right: np.asarray(other(x), right.dtype)).error == "WrongValue"


@pytest.mark.parametrize("operator", ["topk", "topk of an output", "max", "argmax of all"])
def test_an_index_of_another_value_is_wrong(bench, operator):
    forward, outputs, _ = OPERATORS[operator]

    def indices(x, right):  # a rotation: all are in range, and as distinct as before
        size = x.size if "[0, 1]" in outputs else x.shape[0] if "axis: 0" in outputs else x.shape[1]
        return (right + 1) % size

    record = run(bench, forward, outputs, indices)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    known = record.worst["looked_up"]
    assert known["got"] != known["wanted"]
    assert known["in"] == ("output y" if operator == "topk of an output" else "x")
    line = text.failure(record).split("\n")[1]
    assert line.startswith("output i[")
    assert f"got index {record.worst['got']}, where {known['in']} has {known['got']:.9g}; wanted index" in line


def doubled(x, right):
    """The best index in all places that hold a value equal to it."""
    order = last(x)
    best = np.take_along_axis(x, order, 1) == x.max(1, keepdims=True)
    return np.where(best, order[:, :1], order)[:, : right.shape[1]].astype(right.dtype)


@pytest.mark.parametrize(("indices", "error", "says"), [
    (lambda x, right: right + 6, "WrongIndex", "are out of range: x has 6 values there"),
    (lambda x, right: right - 6, "WrongIndex", "are out of range: x has 6 values there"),
    (doubled, "WrongIndex", "stand there a second time, and each may only once"),
    (lambda x, right: right.astype("int32"), "WrongDtype", "output i is int32 instead of int64"),
    (lambda x, right: right[..., None], "WrongShape", "output i has shape"),
    (lambda x, right: right[:, ::-1].copy(), "WrongValue", "output i, looked up in x: "),
])  # fmt: skip
def test_what_no_ties_explain_is_wrong(bench, indices, error, says):
    forward, outputs, _ = OPERATORS["topk"]
    record = run(bench, forward, outputs, indices, examples=2)
    assert verdict(record) == ("failed", "compare", error, "runtime") and says in record.reason
    if error == "WrongIndex":
        assert "output i[" in text.failure(record)


def test_float64_does_not_excuse_a_wrong_index(bench):
    """float64 chooses the other of two values that only float32 rounds to the same, and so might a wrong runtime
    choose any: indices of 0 and 1 would be excused, were float64's own looked up."""
    forward = "torch.argmax(x * 0 + torch.arange(6) + (x + 16777216.0 - x - 16777216.0) * 100, 1)"
    outputs = "[{name: i, indices_of: x}]"
    record = run(bench, forward, outputs, lambda x, right: (right + 1) % 6, examples=2)
    assert record.error == "WrongValue"


@pytest.mark.parametrize(("forward", "outputs", "passes"), [
    ("torch.topk(x[:, :1], 1)", "[v, {name: i, indices_of: x}]", "zeros"),  # there is one class only
    ("torch.argmax(x, 1)", "[{name: i, indices_of: x}]", None),
    ("torch.argmax(x, 1) * 0 + 5", "[{name: i, indices_of: x}]", "shuffled rows"),
    ("(lambda c: (c, torch.argmax(c, 1)))(x * 0 + 3)", "[{name: c, vacuous: so}, {name: i, indices_of: c}]", "zeros"),
])  # fmt: skip
def test_indices_prove_something_where_wrong_ones_would_be_refused(bench, forward, outputs, passes):
    record = run(bench, forward, outputs)
    assert verdict(record) == (PASSED if passes is None else ("failed", "compare", "Vacuous", "case"))
    assert passes is None or (record.reason.startswith("output i: ") and passes in record.reason)


@pytest.mark.parametrize(("outputs", "says"), [
    ("[{name: v, indices_of: x}, i]", "output v does not hold indices of x: it is float32"),
    ("[v, {name: i, indices_of: x, axis: 0}]", "its shape [3, 4] is not [..., 6]"),
    ("[v, {name: i, indices_of: v}]", "and there are 4 values to index"),
])  # fmt: skip
def test_what_are_no_indices_is_the_cases_fault(bench, outputs, says):
    record = run(bench, "torch.topk(x, 4)", outputs)
    assert verdict(record) == ("failed", "declare", "BadIndices", "case") and says in record.reason


@pytest.mark.parametrize("precision", ["fp16", pytest.param("int8", marks=pytest.mark.thorough)])
def test_at_a_reduced_precision_the_values_at_indices_have_its_limits(bench, precision):
    case = """
module: beside.Net
inputs: {x: {type: "float32[batch, 16]"}}
dims: {batch: 4..8}
outputs: [y, {name: i, indices_of: y}]
export: {torchscript: [17]}
precisions: {PRECISION: {}}
""".replace("PRECISION", precision)
    net = net_of("y, torch.sort(y)[1]", "y = self.a(x)", a="Linear(16, 24)")

    def record(check, body=case):
        return bench.run(body, net, check=check, precision=precision, examples=2)

    # Sorting what is rounded gives other indices, of values that are as near to one another as the rounding.
    assert (record("fidelity", case.replace(", indices_of: y", "")).status == "passed") == (precision == "fp16")
    assert verdict(record("fidelity")) == verdict(record("accuracy")) == PASSED

    for name, check, error in (
        ("onnxruntime", "accuracy", "WrongValue"), ("onnxruntime-literal", "fidelity", "LowFidelity"),
    ):  # fmt: skip
        with wrong_runtime(lambda _, got: [got[0], got[1][:, ::-1].copy()], name):
            wrong = record(check)
        assert wrong.error == error and wrong.reason.startswith("output i, looked up in output y: ")
        assert wrong.worst["looked_up"]["in"] == "output y"
    with wrong_runtime(lambda _, got: [got[0], got[1] + 100], "onnxruntime-literal"):
        assert verdict(record("accuracy")) == ("failed", "compare", "BadIndices", "precision")


def test_a_bundle_looks_indices_up(tmp_path):
    forward, outputs, _ = OPERATORS["topk"]
    case = body(forward, outputs, "export: {torchscript: [17]}")
    code, place = pack(tmp_path / "packed", case, "", "--runtime", "onnxruntime")
    assert code == 0
    (packed,) = Bundle(place).entries

    def replayed(indices):
        with wrong_runtime(lambda inputs, got: [got[0], indices(inputs["x"], got[1])]):
            return run_entry(Progress(), place, packed, "onnxruntime", tmp_path / "store")

    passed = replayed(lambda x, right: last(x)[:, :4].astype("int64"))
    assert (passed.status, passed.examples) == ("passed", 16)
    wrong = replayed(lambda x, right: (right + 1) % 6)
    assert (wrong.error, wrong.outputs) == ("WrongValue", ["values", "i"])
    assert "output i[" in text.failure(wrong)
    assert replayed(lambda x, right: right + 6).error == "WrongIndex"


@pytest.mark.parametrize("change", [
    {"of": "z", "axis": [-1]}, {"of": 1, "axis": [-1]}, {"of": 2, "axis": [-1]}, {"of": -1, "axis": [0]},
    {"of": True, "axis": [0]}, {"of": "x", "axis": []}, {"of": "x"}, {"of": "x", "axis": [0], "more": 1}, "x",
])  # fmt: skip
def test_a_bundle_may_say_of_indices_only_what_can_be(change):
    entry_of(entry(judge={**TOLERANCE, "indices": [None, {"of": "x", "axis": [-1]}]}))
    for indices, message in (([None, change], r"indices\[1\]"), ([None], "unequal length")):
        with pytest.raises(UserError, match=message):
            entry_of(entry(judge={**TOLERANCE, "indices": indices}))


X = np.array([[1, 3, 2, 3], [5, 4, 5, 0]], "float32")


def judged(judge, got, wanted, **more):
    return judge.compare([np.asarray(got)], Right([np.asarray(wanted)], inputs={"x": X}, **more))


@pytest.mark.parametrize("judge", [
    Tolerances((DEFAULTS["float32"],), (False,), Reading(("i",), (Indices("x", (-1,)),))),
    NoiseLimits((NOISE_LIMITS["int8"],), (False,), Reading((), (Indices("x", (1,)),))),
])  # fmt: skip
def test_judges_are_the_same_after_they_were_stored(judge):
    again = judge_from(json.loads(json.dumps(judge.as_dict())))
    assert again == judge and judged(again, [1, 0], [3, 2]).verdict == "verified"
    wrong = judged(again, [1, 1], [3, 2])
    assert wrong.error == "WrongValue" and (wrong.worst.got, wrong.worst.wanted) == (1, 2)
    assert judged(again, [1, 4], [3, 2]).error == "WrongIndex"
    assert judged(again, [1, -2], [3, 2]).error == "WrongIndex"
    assert judged(again, [-3, 0], [3, -2]).verdict == "verified"
    with pytest.raises(Stopped, match="4 values to index"):
        judged(again, [1, 0], [3, 4])


@pytest.mark.parametrize(("got", "error"), [([1, 2, 0], None), ([1, 2, 3], "WrongValue"), ([1, 2, 2], "WrongIndex")])
def test_rows_of_indices_may_come_in_any_order(got, error):
    judge = Tolerances((None,), (True,), Reading((), (Indices("x", (0,)),)))
    right = Right([np.array([0, 1, 2])], inputs={"x": np.array([7, 5, 7, 2], "int64")})
    assert judge.compare([np.array(got)], right).error == error
