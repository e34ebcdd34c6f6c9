"""Accepting changes: they stay told and no longer count, and nothing else changes in the baseline."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from conformance.results.baseline.acceptance import accept
from conformance.results.baseline.baseline_file import load, read_baseline
from conformance.results.baseline.change import blocking
from conformance.results.baseline.change_causes import environment_changes
from conformance.results.baseline.line import case_of
from conformance.results.baseline.run_comparison import compare_runs
from tests.results.baseline.support import (
    CRASHED,
    FAILED,
    SKIPPED,
    XFAILED,
    XPASSED,
    cells,
    environment,
    kinds,
    latency,
    record,
    run,
    worst,
    written,
)


def test_what_is_accepted_stays_told_and_no_longer_counts(tmp_path):
    """Nothing else in the file changes, and it cannot be accepted again."""
    file = written(tmp_path, *cells())
    before = file.read_bytes().split(b"\n")
    name = "accuracy[case1-dynamo-op20-onnxruntime-fp32]"
    run_after = run(*(one if one.id != name else dataclasses.replace(one, **FAILED) for one in cells()))
    assert len(blocking(compare_runs(load(file), run_after))) == 1
    (accepted,) = accept(file, run_after, [name], because="the vendor knows; fixed in\n 1.32")
    assert accepted.kind == "newly failing"
    (change,) = compare_runs(load(file), run_after)
    assert (change.accepted, change.regression, change.before, change.after) == (True, True, "passed", "failed")
    assert change.text.endswith("accepted: the vendor knows; fixed in 1.32") and not blocking([change])
    after = file.read_bytes().split(b"\n")
    (changed,) = (number for number, (one, two) in enumerate(zip(before, after, strict=True)) if one != two)
    because = "the vendor knows; fixed in 1.32"
    assert json.loads(after[changed])["accepted"] == [{"kind": "newly failing", "because": because, "was": {}}]
    with pytest.raises(ValueError, match="is accepted already"):
        accept(file, run_after, [name], because="x")


@pytest.mark.parametrize("patterns, more, said", [
    (["accuracy[case1-dynamo-op19-onnxruntime-fp32]"], {}, "near it:\n  accuracy[case1-dynamo-op20-onnxruntime"),
    (["*zzz*"], {}, "matches no change; what changed:\n  accuracy[case1"),
    (["export[case1-*"], {}, "matches no change; near it"),
    (["*case1*"], {"kinds": ["slower"]}, "has no change of kind slower, but: newly failing"),
    (["*case1*"], {"kinds": ["slow"]}, "there is no kind 'slow'; did you mean 'slower'?"),
    (["*case1*"], {"because": "  "}, "a regression needs a reason: --because"),
    ([], {}, "name what to accept"),
])  # fmt: skip
def test_a_name_that_accepts_nothing_is_an_error(tmp_path, patterns, more, said):
    file = written(tmp_path, *cells())
    before = file.read_bytes()
    after = run(*(dataclasses.replace(one, **FAILED) if "accuracy[case1" in one.id else one for one in cells()))
    with pytest.raises(ValueError) as error:
        accept(file, after, patterns, **{"because": "x", **more})
    assert said in str(error.value)
    assert file.read_bytes() == before


def test_what_is_no_regression_needs_no_reason_and_keeps_none(tmp_path):
    file = written(tmp_path, record(**FAILED))
    accept(file, run(record()), ["*"])
    assert "accepted" not in file.read_text() and compare_runs(load(file), run(record())) == []


def test_kinds_accept_a_part_of_what_changed_in_a_cell(tmp_path):
    after = run(record(**worst(0.9), examples=1))
    file = written(tmp_path, record())
    accept(file, after, ["*"], ["examples fewer"], because="x")
    found = {change.kind: change.accepted for change in compare_runs(load(file), after)}
    assert found == {"accuracy worse": False, "examples fewer": True}
    accept(file, after, ["*"], because="y")
    told = [change for change in compare_runs(load(file), after) if change.accepted]
    assert {change.kind: change.text.rpartition(": ")[2] for change in told} == {
        "accuracy worse": "y",
        "examples fewer": "x",
    }


@pytest.mark.parametrize(
    "worse",
    [FAILED, SKIPPED, XPASSED, XFAILED, worst(0.9), {"examples": 2}, latency(5e-3, 4.9e-3, 5.1e-3)],
    ids=["failing", "skipped", "xpassed", "xfailed", "accuracy", "examples", "slower"],
)
def test_an_acceptance_that_has_become_pointless_is_told(tmp_path, worse):
    fine = latency(1e-3, 0.9e-3, 1.1e-3)
    file = written(tmp_path, record(**fine))
    accept(file, run(record(**{**fine, **worse})), ["*"], because="for now")
    assert "for now" in file.read_text()
    (change,) = compare_runs(load(file), run(record(**fine)))
    assert (change.kind, change.regression, change.accepted) == ("acceptance pointless", False, False)
    assert "for now" in change.text
    accept(file, run(record(**fine)), ["*"])
    assert "for now" not in file.read_text()
    assert file.read_text() == written(tmp_path / "new", record(**fine)).read_text()


def test_more_than_what_was_accepted_is_a_regression_again(tmp_path):
    file = written(tmp_path, record(**worst(0.1)))
    accept(file, run(record(**worst(0.3))), ["*"], because="x")
    (change,) = compare_runs(load(file), run(record(**worst(0.9))))
    assert (change.kind, change.accepted) == ("accuracy worse", False)
    accept(file, run(record(**worst(0.9))), ["*"], because="y")
    (change,) = compare_runs(load(file), run(record(**worst(0.5))))
    assert change.accepted, "still worse than before all that was accepted"
    (change,) = compare_runs(load(file), run(record(**worst(0.12))))
    assert change.kind == "acceptance pointless"


def test_another_failure_than_the_accepted_one_is_a_regression(tmp_path):
    file = written(tmp_path, record())
    accept(file, run(record(**FAILED)), ["*"], because="x")
    found = compare_runs(load(file), run(record(**CRASHED)))
    told = [(one.kind, one.accepted, one.regression) for one in found]
    assert told == [("failing otherwise", False, True), ("newly failing", True, True)]
    # nor is what is declared after it was accepted pointless
    assert kinds(load(file), run(record(**XFAILED))) == ["expected failure changed"]
    accept(file, run(record(**CRASHED)), ["*"], because="y")
    assert not blocking(compare_runs(load(file), run(record(**CRASHED))))


def test_the_first_baseline_is_made_by_accepting_a_run(tmp_path):
    file = tmp_path / "new" / "baseline.jsonl"
    after = run(record(), record("export[two-dynamo-op20]", **FAILED))
    with pytest.raises(ValueError, match=r"newly failing.*needs a reason"):
        accept(file, after, ["*"])
    assert not file.exists()
    accept(file, after, ["*"], because="known since 1.0")
    (change,) = compare_runs(load(file), after)
    assert (change.kind, change.accepted) == ("newly failing", True)
    assert environment_changes(load(file), after) == []
    (change,) = compare_runs(load(file), run(record(), record("export[two-dynamo-op20]")))
    assert change.kind == "acceptance pointless"


def test_a_run_that_did_not_finish_makes_no_baseline_and_no_cell_vanish(tmp_path):
    header, records = run(record())
    killed = ({name: value for name, value in header.items() if name != "seconds"}, records)
    partial = ({**header, "unfinished": ["shard 2/2"]}, records)
    for after in (killed, partial):
        with pytest.raises(ValueError, match="did not finish: a baseline made from it"):
            accept(tmp_path / "new.jsonl", after, ["*"])
    assert not (tmp_path / "new.jsonl").exists()
    file = written(tmp_path, record(**worst(0.9)), record("export[two-dynamo-op20]"))
    with pytest.raises(ValueError, match=r"export\[two-dynamo-op20\]: the run did not finish"):
        accept(file, killed, ["*"], because="x")
    (change,) = accept(file, killed, [record().id])
    assert change.kind == "accuracy better"


def test_the_environment_is_taken_over_on_demand(tmp_path):
    fine, slow = latency(1e-3, 0.9e-3, 1.1e-3), latency(5e-3, 4.9e-3, 5.1e-3)
    file = written(tmp_path, record(**fine), record("export[two-dynamo-op20]"))
    there = environment(cpu={"name": "B", "instructions": []})
    after = run(record(**slow), record("export[two-dynamo-op20]", **FAILED), environment=there)
    accept(file, after, ["*"], because="x")
    assert "cpu A -> B" in environment_changes(load(file), after)
    assert load(file)[1][0].latency["own"]["median"] == 1e-3
    after = run(record(**slow), record("export[two-dynamo-op20]", **CRASHED), environment=there)
    accept(file, after, ["*"], because="x", environment=True)
    assert environment_changes(load(file), after) == [] and load(file)[1][0].latency["own"]["median"] == 5e-3


def merged_by_git(folder: Path, base: bytes, ours: bytes, theirs: bytes) -> tuple[int, Path]:
    files = []
    for name, content in (("ours", ours), ("base", base), ("theirs", theirs)):
        files.append(folder / f"{name}.jsonl")
        files[-1].write_bytes(content)
    done = subprocess.run(["git", "merge-file", *map(str, files)], check=False)
    return done.returncode, files[0]


@pytest.mark.parametrize("pair", [(0, 1), (0, 3)])
@pytest.mark.needs("git")
def test_branches_that_accept_different_cases_merge(tmp_path, pair):
    file = written(tmp_path, *cells())
    base, results = file.read_bytes(), []
    after = run(*(dataclasses.replace(one, **FAILED) for one in cells()))
    for case in pair:
        file.write_bytes(base)
        accept(file, after, [f"*[case{case}-*"], because=f"of branch {case}")
        results.append(file.read_bytes())
    code, merged = merged_by_git(tmp_path, base, *results)
    assert code == 0
    accepted = [one.id for one in read_baseline(merged)[1] if one.accepted]
    assert {case_of(name) for name in accepted} == {f"case{case}" for case in pair} and len(accepted) == 4
