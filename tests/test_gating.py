"""--baseline, --shard and the commands diff, accept, merge, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conformance.records.run_file import read_run
from tests.support import Outcome, run_suite

CASES = """
defaults:
  runtimes: onnxruntime
  export: {torchscript: [17]}
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  specials: false

one:
  about: sound
  forward: torch.sin(x)

two:
  about: sound too
  forward: torch.cos(x)
"""
BROKEN = """
three:
  about: declared to fail, and does not
  forward: torch.tanh(x)
  fails: [{when: {check: accuracy}, stage: compare, because: a mistake}]
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "all.yaml").write_text(CASES)
    return tmp_path


def conformance(folder: Path, *arguments: str) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "conformance", *arguments], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip
    return Outcome(folder, done.returncode, done.stdout + done.stderr)


def baseline(folder: Path) -> None:
    assert run_suite(folder).code == 0
    made = conformance(folder, "accept", "reports/latest", "--baseline", "baseline.jsonl", "*")
    assert made.code == 0, made.text


def test_the_same_run_again_is_no_change(folder):
    baseline(folder)
    done = run_suite(folder, "--baseline", "baseline.jsonl")
    assert done.code == 0, done.text
    assert "no change" in done.text
    assert conformance(folder, "diff", "baseline.jsonl", "reports/latest").code == 0


def test_a_case_that_vanished_fails_the_run_until_that_is_accepted(folder):
    baseline(folder)
    (folder / "cases" / "all.yaml").write_text(CASES.partition("two:")[0])
    done = run_suite(folder, "--baseline", "baseline.jsonl")
    assert done.code == 1
    assert "vanished" in done.text
    changes = json.loads((folder / "reports/latest/changes.json").read_text())
    assert {change["kind"] for change in changes} == {"vanished"}
    assert conformance(folder, "diff", "baseline.jsonl", "reports/latest").code == 1
    refused = conformance(folder, "accept", "reports/latest", "--baseline", "baseline.jsonl", "*two*")
    assert refused.code == 2
    assert "because" in refused.text
    words = ("accept", "reports/latest", "--baseline", "baseline.jsonl", "--because", "it was taken out", "*two*")
    assert conformance(folder, *words).code == 0
    assert run_suite(folder, "--baseline", "baseline.jsonl").code == 0


def test_a_cell_that_newly_fails_is_a_regression(folder):
    baseline(folder)
    (folder / "cases" / "all.yaml").write_text(CASES + BROKEN)
    done = run_suite(folder, "--baseline", "baseline.jsonl")
    assert done.code == 1
    assert "passing though declared to fail: 1" in done.text


def test_a_part_of_the_cells_is_compared_for_that_part(folder):
    baseline(folder)
    assert run_suite(folder, "--baseline", "baseline.jsonl", "--runtime", "onnxruntime").code == 0
    done = run_suite(folder, "--baseline", "baseline.jsonl", "-k", "one")
    assert done.code == 0, done.text
    assert "not told as vanished" in done.text


@pytest.mark.parametrize("content, words", [
    (None, "there is no"), ("", "first line"), ("{}\n", "baseline"), ("<<<<<<< ours\n", "conflict"),
])  # fmt: skip
def test_a_broken_baseline_is_a_usage_error_before_anything_runs(folder, content, words):
    if content is not None:
        (folder / "baseline.jsonl").write_text(content)
    done = run_suite(folder, "--baseline", "baseline.jsonl")
    assert done.code == 4
    assert words in done.text
    assert "Traceback" not in done.text
    assert not (folder / "reports").exists()


def test_shards_together_are_the_whole_run(folder):
    whole = run_suite(folder, "--report", "whole")
    assert whole.code == 0
    for part in (1, 2, 3):
        done = run_suite(folder, "--shard", f"{part}/3", "--report", f"part{part}")
        assert done.code == 0, done.text  # a job that gets no cell has done its part
        assert (folder / f"part{part}" / "run.json").is_file()
    merged = conformance(folder, "merge", "merged", "part1", "part2", "part3")
    assert merged.code == 0, merged.text
    _, together = read_run(folder / "merged")
    _, alone = read_run(folder / "whole")
    assert {(one["id"], one["status"]) for one in together} == {(one["id"], one["status"]) for one in alone}
    assert conformance(folder, "diff", "whole", "merged").code == 0


def test_shards_by_durations_are_the_whole_run_and_belong_together(folder):
    run_suite(folder, "--report", "whole")
    for part, more in ((1, ["-n", "1"]), (2, [])):
        by = ["--shard", f"{part}/2", "--shard-durations", "whole"]
        assert run_suite(folder, *by, "--report", f"part{part}", *more).code == 0
    assert conformance(folder, "merge", "merged", "part1", "part2").code == 0
    (_, together), (_, alone) = read_run(folder / "merged"), read_run(folder / "whole")
    assert {(one["id"], one["status"]) for one in together} == {(one["id"], one["status"]) for one in alone}
    run_suite(folder, "--shard", "2/2", "--report", "part2")
    refused = conformance(folder, "merge", "merged", "part1", "part2")
    assert refused.code == 2 and "give all shards the same cases, options and --shard-durations" in refused.text


@pytest.mark.parametrize("arguments, told", [
    (["--shard-durations", "whole"], "give --shard I/N with it"),
    (["--shard", "1/2", "--shard-durations", "nowhere"], "there is no such run"),
    (["--shard", "1/2", "--shard-durations", "cases"], "there are no durations of these cells"),
])  # fmt: skip
def test_durations_that_say_nothing_are_a_usage_error(folder, arguments, told):
    done = run_suite(folder, *arguments)
    assert done.code != 0 and told in done.text
    assert "Traceback" not in done.text


def test_a_missing_shard_is_refused(folder):
    run_suite(folder, "--shard", "1/2", "--report", "part1")
    merged = conformance(folder, "merge", "merged", "part1")
    assert merged.code == 2
    assert "2/2" in merged.text


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1"])
def test_a_shard_that_makes_no_sense_is_a_usage_error(folder, shard):
    done = run_suite(folder, "--shard", shard)
    assert done.code == 4
    assert "such as 2/4" in done.text


def test_under_xdist_the_gate_is_the_same(folder):
    baseline(folder)
    (folder / "cases" / "all.yaml").write_text(CASES + BROKEN)
    done = run_suite(folder, "--baseline", "baseline.jsonl", "-n", "2")
    assert done.code == 1
    assert done.text.count("since the baseline") == 1
    assert "passing though declared to fail: 1" in done.text


def test_junit_files_have_the_properties_of_a_cell(folder):
    (folder / "cases" / "all.yaml").write_text(CASES + BROKEN)
    run_suite(folder, "--junit-xml", "junit.xml")
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    properties = {
        case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in suite.iter("testcase")
    }
    failed = properties["test_accuracy[three-torchscript-op17-onnxruntime-fp32]"]
    assert failed["fault"] == "case"
    assert failed["source"].startswith("cases/all.yaml:")
    assert failed["status"] == "xpassed"
    assert failed["command"].startswith("pytest ")
    passed = properties["test_accuracy[one-torchscript-op17-onnxruntime-fp32]"]
    assert float(passed["ratio"]) < 1
    assert int(passed["examples"]) > 10


def test_the_page_of_a_run_is_written_beside_it_with_what_changed(folder):
    baseline(folder)
    (folder / "cases" / "all.yaml").write_text(CASES + BROKEN)
    run_suite(folder, "--baseline", "baseline.jsonl")
    done = conformance(folder, "report")
    assert done.code == 0, done.text
    text = (folder / "reports/latest/report.html").read_text()
    assert all(words in text for words in ("accuracy[three", "newly added", "xpassed"))
    summary = conformance(folder, "report", "--markdown")
    assert summary.code == 0
    assert "three" in summary.text
    annotations = conformance(folder, "report", "--github")
    assert "::error file=cases/all.yaml,line=" in annotations.text


@pytest.mark.parametrize(
    "arguments", [["report", "nowhere"], ["diff", "nowhere", "nowhere"], ["merge", "out", "nowhere"]]
)
def test_a_run_that_is_not_there_is_one_clear_line(folder, arguments):
    done = conformance(folder, *arguments)
    assert done.code == 2
    assert "nowhere" in done.text
    assert "Traceback" not in done.text


def test_options_in_the_environment_select_cells_like_those_of_the_command(folder):
    baseline(folder)
    again = run_suite(folder, "--baseline", "baseline.jsonl", PYTEST_ADDOPTS="-k one")
    assert again.code == 0, again.text
    assert "limited by -k one" in again.text


def test_a_run_that_was_broken_off_is_not_taken_for_a_whole_one(folder):
    (folder / "cases" / "all.yaml").write_text(CASES + BROKEN)
    assert run_suite(folder, "-x", "-k", "three").code == 1
    assert not (folder / "reports/latest/run.json").exists()
    refused = conformance(folder, "accept", "reports/latest", "--baseline", "new.jsonl", "*", "--because", "planted")
    assert refused.code == 2
    assert "did not finish" in refused.text
    assert run_suite(folder, "-k", "three").code == 1
    assert (folder / "reports/latest/run.json").exists()


def test_where_nothing_changed_no_earlier_run_is_left_to_be_taken_for_this_one(folder):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for command in (["init", "-q"], ["add", "cases"], ["commit", "-q", "-m", "cases"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    assert run_suite(folder).records
    again = run_suite(folder, "--changed-since", "HEAD")
    assert again.code == 0, again.text
    assert read_run(folder / "reports/latest")[1] == []


def test_on_a_host_without_jinja2_the_page_is_refused_in_one_line(folder):
    assert run_suite(folder, "-k", "one and export").code == 0
    (folder / "jinja2.py").write_text("raise ModuleNotFoundError('planted', name='jinja2')")
    refused = conformance(folder, "report", "reports/latest")
    assert (refused.code, "Traceback" in refused.text) == (2, False)
    assert "pip install jinja2" in refused.text
