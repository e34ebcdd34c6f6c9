"""Runs of a selection: only a cell that was to run can vanish."""

from pathlib import Path

import pytest

from conformance.results.baseline.run_comparison import compare_runs
from conformance.results.baseline.selection import selection_of
from tests.results.baseline.support import environment, kinds, record, run


def test_only_what_was_selected_can_vanish():
    cells = [record(f"accuracy[{case}-dynamo-op{opset}-onnxruntime-fp32]") for case in "ab" for opset in (18, 20)]
    before, after = run(*cells), run(cells[0])
    assert kinds(before, after) == ["vanished"] * 3
    (gone,) = compare_runs(before, after, selected=lambda one: one.opset == 18)
    assert gone.id == cells[2].id
    (gone,) = compare_runs(before, after, selected={cells[0].id, cells[3].id})
    assert gone.id == cells[3].id


@pytest.mark.parametrize("flags, kept", [
    (["--opset", "20"], "a20 b20"), (["--opset=18,20", "--exporter", "dynamo"], "a18 a20 b18 b20"),
    (["--runtime", "tensorrt"], ""), (["--cases", "./cases/a.yaml"], "a18 a20"),
    (["--cases", "cases/b.yaml", "--opset", "18"], "b18"),
    (["-n", "2", "--report", "there", "--examples", "3", "-q"], "a18 a20 b18 b20"),
    (["--cases", f"{Path.cwd()}/cases/a.yaml"], "a18 a20"),
    (["--cases", "/checked/out/on/another/host/cases/b.yaml"], "b18 b20"), (["tests"], "a18 a20 b18 b20"),
])  # fmt: skip
def test_the_arguments_of_a_run_say_what_it_was_to_run(flags, kept):
    cells = [record(f"accuracy[{case}-dynamo-op{opset}-onnxruntime-fp32]") for case in "ab" for opset in (18, 20)]
    predicate, note = selection_of(run(environment=environment(flags=["conformance", *flags]))[0])
    found = [f"{one.case}{one.opset}" for one in cells if predicate is None or predicate(one)]
    assert (" ".join(found), note) == (kept, None)


def test_a_variant_of_a_precision_is_selected_by_what_it_is_a_variant_of():
    predicate, _ = selection_of(run(environment=environment(flags=["conformance", "--precision", "int8"]))[0])
    assert predicate is not None
    assert predicate(record("fidelity[one-dynamo-op20-int8-entropy]")) and not predicate(record())


@pytest.mark.parametrize("flags", [
    ["-k", "asinh", "conformance"], ["-kasinh", "conformance"], ["conformance/test_suite.py"],
    ["--shard=1/2", "conformance"], ["--random", "conformance/test_suite.py"],
    ["--pyargs", "conformance.test_suite"],
    ["conformance/test_suite.py::test_export[one-dynamo-op20]"], ["-x", "tests"],
])  # fmt: skip
def test_a_selection_that_records_do_not_show_says_that_nothing_vanishes(flags):
    predicate, note = selection_of(run(environment=environment(flags=flags))[0])
    assert predicate is not None and not predicate(record())
    assert note is not None and any(word[:2] in note for word in flags if word != "conformance")
