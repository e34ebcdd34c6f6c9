"""What counts as a difference between two runs, and which differences are regressions."""

import pytest

from conformance.front import cli
from conformance.results.baseline.change import blocking
from conformance.results.baseline.run_comparison import compare_runs
from tests.results.baseline.support import (
    CRASHED,
    FAILED,
    GRAPH,
    SKIPPED,
    XFAILED,
    XPASSED,
    beside,
    environment,
    kinds,
    latency,
    of_one,
    put,
    record,
    run,
    worst,
)

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("before, after, kind, regression, said", [
    ({}, FAILED, "newly failing", True, "passed, now fails at compare (WrongValue: output 0); at fault: runtime"),
    (XFAILED, FAILED, "newly failing", True, "fails as declared at export"),
    (FAILED, {}, "newly passing", False, "fails at compare (WrongValue: output 0), now passed"),
    ({}, XPASSED, "xpassed", True, "now passes though declared to fail"),
    ({}, XFAILED, "newly expected to fail", True, "now fails as declared at export"),
    (FAILED, XFAILED, "expected failure changed", False, "now fails as declared at export"),
    (XFAILED, {**XFAILED, "stage": "run"}, "expected failure changed", False, "fails as declared at run"),
    (XFAILED, {**XFAILED, "fault": "runtime"}, "expected failure changed", False, "at fault: runtime"),
    ({}, SKIPPED, "newly skipped", True, "passed, now skipped (no GPU)"),
    (FAILED, CRASHED, "failing otherwise", False, "now fails at run (Crash: SIGSEGV)"),
    (worst(0.2), worst(0.4), "accuracy worse", True, "0.4 of what is allowed, was 0.2 (2 times)"),
    ({"worst": None}, worst(0.5), "accuracy worse", True, "was 0"),
    (worst(0.8), worst(0.3), "accuracy better", False, "0.3 of what is allowed, was 0.8"),
    ({}, {"examples": 23}, "examples fewer", True, "23 examples verified, were 48"),
    (latency(1e-3, 0.9e-3, 1.1e-3), latency(1.3e-3, 1.2e-3, 1.4e-3), "slower", True,
        "median 1.3 ms, was 1 ms (1.30 times)"),
    (latency(2e-3, 1.9e-3, 2.1e-3), latency(1e-3, 0.9e-3, 1.1e-3), "faster", False, "median 1 ms, was 2 ms"),
])  # fmt: skip
def test_a_difference_is_told(before, after, kind, regression, said):
    change = of_one(before, after)
    assert (change.kind, change.regression, change.accepted) == (kind, regression, False)
    assert said in change.text and "\n" not in change.text
    assert change.source == {"file": "cases/one.yaml", "line": 3} and bool(blocking([change])) == regression


def test_a_budget_that_could_not_be_decided_is_told_and_gates_nothing():
    """Only --require latency fails it; one that was not measured at all is newly skipped."""
    budgets = [{"text": "1.2 x pytorch", "verdict": "inconclusive"}]
    undecided = {**SKIPPED, "stage": "latency", "reason": "inconclusive: 1.2 x", "latency": {"budgets": budgets}}
    change = of_one(beside(1e-3, 2e-3), undecided)
    assert (change.kind, change.regression) == ("newly skipped", False) and "inconclusive" in change.text
    assert of_one(beside(1e-3, 2e-3), {**undecided, "latency": None}).regression
    failed = of_one({}, {**undecided, "status": "failed", "error": "Inconclusive"})
    assert (failed.kind, failed.regression) == ("newly failing", True)


@pytest.mark.parametrize("before, after", [
    (FAILED, {**FAILED, "reason": "output 0, other values"}), (XPASSED, XPASSED), (worst(0.2), worst(0.39)),
    (XFAILED, {**XFAILED, "fault": None}), ({**XFAILED, "fault": None}, XFAILED),
    (worst(0.001), worst(0.09)), ({}, {"examples": 24}),
    (latency(1e-3, 0.9e-3, 1.1e-3), latency(1.2e-3, 1.15e-3, 1.3e-3)),
    (latency(1e-3, 0.9e-3, 1.3e-3), latency(1.4e-3, 1.2e-3, 1.9e-3)),
    (latency(1e-3, 0.9e-3, 1.1e-3), {"latency": None}), ({}, latency(1.4e-3, 1.2e-3, 1.9e-3)),
    ({"graph": GRAPH}, {"graph": {**GRAPH, "opset": 18}}),
    ({}, {"seconds": {}, "command": "other", "fingerprint": "other", "details": ["x"], "reused": True}),
])  # fmt: skip
def test_what_is_no_difference_is_not_told(before, after):
    assert compare_runs(run(record(**before)), run(record(**after))) == []


WORSE = "accuracy worse"


@pytest.mark.parametrize(("before", "after", "expected"), [
    ({"fidelity": {"sqnr": 40.0}}, {"fidelity": {"sqnr": 37.0}}, [WORSE]),
    ({"fidelity": {"sqnr": 40.0}}, {"fidelity": {"sqnr": 37.1}}, []),
    ({"fidelity": {"sqnr": 40.0}}, {"fidelity": {"sqnr": 45.0}}, ["accuracy better"]),
    ({"fidelity": {"sqnr": "inf"}}, {"fidelity": {"sqnr": 60.0}}, [WORSE]),
    # decibels far from what is due are noise
    ({"fidelity": {"sqnr": 90.0}, **worst(0.001)}, {"fidelity": {"sqnr": 80.0}, **worst(0.001)}, []),
    # what is counted is judged by its ratio
    ({"fidelity": {"changed": 0.01}, **worst(0.1)}, {"fidelity": {"changed": 0.05}, **worst(0.5)}, [WORSE]),
])  # fmt: skip
def test_a_precision_is_judged_by_its_decibels_and_by_what_is_allowed(before, after, expected):
    name = "fidelity[one-dynamo-op20-int8]"
    assert kinds(run(record(name, **before)), run(record(name, **after))) == expected


def test_limits_can_be_set():
    before, after = run(record(**worst(0.02))), run(record(**worst(0.05), examples=40))
    assert kinds(before, after) == []
    assert kinds(before, after, accuracy_floor=0.01, examples_factor=0.9) == ["accuracy worse", "examples fewer"]
    assert kinds(before, after, accuracy_floor=0.01, accuracy_factor=3) == []


def test_the_command_takes_each_limit_for_what_it_is_called(tmp_path):
    one, two = (str(put(tmp_path / name, [record(**worst(ratio))])) for name, ratio in (("a", 0.2), ("b", 0.5)))
    assert [cli.main(["diff", one, two, *more]) for more in ((), ["--accuracy-factor=3"])] == [1, 0]


def test_a_cell_that_is_gone_is_a_regression_and_one_that_is_new_is_not():
    one, two = record(), record("export[two-dynamo-op20]")
    (vanished,) = compare_runs(run(one, two), run(one))
    assert (vanished.id, vanished.kind, vanished.regression) == (two.id, "vanished", True)
    assert (vanished.before, vanished.after) == ("passed", None)
    (added,) = compare_runs(run(one), run(one, two))
    assert (added.id, added.kind, added.regression, added.before) == (two.id, "newly added", False, None)


@pytest.mark.parametrize(("how", "kind", "regression", "said"), [
    (FAILED, "newly failing", True, "fails at compare"), (XPASSED, "xpassed", True, "though declared to fail"),
    (SKIPPED, "newly added", False, "new, skipped (no GPU)"),
])  # fmt: skip
def test_a_new_cell_that_fails_is_a_regression_and_one_that_is_skipped_says_so(how, kind, regression, said):
    (change,) = compare_runs(run(), run(record(**how)))
    assert (change.kind, change.regression, change.before) == (kind, regression, None) and said in change.text


def test_a_run_with_a_cell_twice_is_refused():
    with pytest.raises(ValueError, match=r"the later run has accuracy\[one.* twice"):
        compare_runs(run(record()), run(record(), record()))


@pytest.mark.parametrize("graph, said", [
    ({**GRAPH, "opset": 18}, "opset 17 -> 18"),
    ({**GRAPH, "nodes": {"Asinh": 1, "Constant": 3}}, "6 -> 4 nodes (Cast 2 -> 0)"),
    ({**GRAPH, "nodes": {"Asinh": 1, "Cast": 2}}, "(Constant 3 -> 0); constants were folded"),
    ({**GRAPH, "nodes": {**GRAPH["nodes"], "Mul": 1, "Constant": 1}}, "6 -> 5 nodes (Constant 3 -> 1, Mul 0 -> 1)"),
    ({**GRAPH, "sha": "bb"}, "same nodes, but attributes"),
])  # fmt: skip
def test_another_graph_is_told_but_no_regression(graph, said):
    name = "export[one-dynamo-op20]"
    (change,) = compare_runs(run(record(name, graph=GRAPH)), run(record(name, graph=graph)))
    assert (change.kind, change.regression) == ("graph changed", False) and said in change.text
    assert ("folded" in change.text) == ("folded" in said)


def test_other_bytes_are_no_change_where_another_version_exported():
    name = "export[one-dynamo-op20]"
    newer = environment(versions={"torch": "2.16.0", "onnx": "1.23.2", "tensorrt": None})
    before = run(record(name, graph=GRAPH))
    assert compare_runs(before, run(record(name, graph={**GRAPH, "sha": "bb"}), environment=newer)) == []
    other = {**GRAPH, "sha": "bb", "opset": 18}
    assert kinds(before, run(record(name, graph=other), environment=newer)) == ["graph changed"]


def test_a_graph_that_explains_a_failure_is_told_with_it():
    name = "export[one-dynamo-op20]"
    after = record(name, graph={**GRAPH, "opset": 18}, **{**FAILED, "stage": "check"})
    assert kinds(run(record(name, graph=GRAPH)), run(after)) == ["newly failing", "graph changed"]
