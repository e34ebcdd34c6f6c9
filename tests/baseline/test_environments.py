"""What the hosts of two runs explain of the differences between them."""

from __future__ import annotations

import pytest

from conformance.baseline import compare_runs, environment_changes
from tests.baseline.support import HEADER, environment, record, run, worst


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"versions": {"torch": "2.16.0", "onnx": "1.23.2"}}, "torch 2.15.0 -> 2.16.0"),
        ({"versions": {**HEADER["environment"]["versions"], "tensorrt": "8.6.0"}}, "tensorrt not installed -> 8.6.0"),
        ({"cpu": {"name": "B", "instructions": ["avx2", "avx512f"]}}, "cpu A -> B"),
        ({"cpu": {"name": "A", "instructions": ["avx2"]}}, "cpu instructions: now without avx512f"),
        ({"gpu": {"name": "H200"}}, "gpu none -> H200"),
        ({"python": "3.12.1"}, "python 3.11.7 -> 3.12.1"),
        ({"flags": ["conformance", "--examples", "2"]}, "arguments: conformance -> conformance --examples 2"),
    ],
)
def test_what_explains_changes_is_told(changes, said):
    assert said in environment_changes(run(), run(environment=environment(**changes)))


def test_equal_environments_have_nothing_to_tell():
    assert environment_changes(run(), run()) == []


def test_a_run_that_did_not_finish_says_why_cells_are_missing():
    header, records = run()
    del header["seconds"]
    (line,) = environment_changes(run(), (header, records))
    assert "did not finish" in line


def test_on_another_processor_an_error_that_is_larger_by_rounding_is_told_and_gates_nothing():
    """Its kernels sum in another order; a cell that then fails is a regression all the same."""
    other = environment(cpu={"name": "another", "instructions": ["avx2"]})
    before = run(record(**worst(0.2)), environment=environment(cpu={"name": "one", "instructions": ["avx512f"]}))
    rounded = {"worst": {"output": 0, "ratio": 0.6, "rounding": 0.2}}
    (change,) = compare_runs(before, run(record(**rounded), environment=other))
    assert (change.kind, change.regression) == ("accuracy worse", False)
    assert "another processor" in change.text
    (change,) = compare_runs(before, run(record(status="failed"), environment=other))
    assert (change.kind, change.regression) == ("newly failing", True)
