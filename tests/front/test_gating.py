"""--baseline, --shard and the commands diff, accept, merge, as a user types them."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conformance.results.records.run_file import read_run
from tests.kit.runs import Outcome, run_command, run_suite
from tests.kit.unrun import UNRUN

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
FAILING = """
four: {about: fails where cells are not run, tags: fails, forward: torch.tanh(x)}
"""


def write(folder: Path, text: str = CASES) -> Path:
    (folder / "cases").mkdir(exist_ok=True)
    (folder / "cases" / "all.yaml").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path)


def run(folder: Path, *arguments: str, **environment: str) -> Outcome:
    """A run in which every cell passes at once."""
    return run_suite(folder, *UNRUN, *arguments, **environment)


def baseline(folder: Path, started: Callable[..., Outcome] = run) -> None:
    assert started(folder).code == 0
    made = run_command(folder, "accept", "reports/latest", "--baseline", "baseline.jsonl", "*")
    assert made.code == 0, made.text


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["alone", "under xdist"])
def test_a_case_that_vanished_fails_the_run_until_that_is_accepted(folder, more):
    baseline(folder)
    write(folder, CASES.partition("two:")[0])
    done = run(folder, "--baseline", "baseline.jsonl", *more)
    assert done.code == 1 and done.text.count("since the baseline") == 1 and "vanished" in done.text
    changes = json.loads((folder / "reports/latest/changes.json").read_text())
    assert {change["kind"] for change in changes} == {"vanished"}
    assert run_command(folder, "diff", "baseline.jsonl", "reports/latest").code == 1
    refused = run_command(folder, "accept", "reports/latest", "--baseline", "baseline.jsonl", "*two*")
    assert refused.code == 2 and "because" in refused.text
    words = ("accept", "reports/latest", "--baseline", "baseline.jsonl", "--because", "it was taken out", "*two*")
    assert run_command(folder, *words).code == 0 and run(folder, "--baseline", "baseline.jsonl").code == 0


def test_a_part_of_the_cells_is_compared_for_that_part(folder):
    baseline(folder)
    assert run(folder, "--baseline", "baseline.jsonl", "--runtime", "onnxruntime").code == 0
    for words, environment in ((["-k", "one"], {}), ([], {"PYTEST_ADDOPTS": "-k one"})):
        done = run(folder, "--baseline", "baseline.jsonl", *words, **environment)
        assert done.code == 0, done.text
        assert "not told as vanished" in done.text and "limited by -k one" in done.text


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run of real cells, of which one passes though it is declared to fail, since a baseline without that one."""
    folder = write(tmp_path_factory.mktemp("worse"))
    baseline(folder, run_suite)
    write(folder, CASES + BROKEN)
    return run_suite(folder, "--baseline", "baseline.jsonl", "--junit-xml", "junit.xml")


def test_junit_files_have_the_properties_of_a_cell_that_newly_fails(worse):
    assert worse.code == 1 and "passing though declared to fail: 1" in worse.text
    cases = [*ElementTree.parse(worse.folder / "junit.xml").getroot().iter("testcase")]
    of = {case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")} for case in cases}
    failed = of["test_accuracy[three-torchscript-op17-onnxruntime-fp32]"]
    assert [of[case.get("name")] for case in cases if case.find("failure") is not None] == [failed]
    assert (failed["fault"], failed["status"]) == ("case", "xpassed")
    assert failed["source"].startswith("cases/all.yaml:") and failed["command"].startswith("conformance run ")
    passed = of["test_accuracy[one-torchscript-op17-onnxruntime-fp32]"]
    assert float(passed["ratio"]) < 1 and int(passed["examples"]) > 10


def test_the_page_of_a_run_is_written_beside_it_with_what_changed(worse):
    done = run_command(worse.folder, "report")
    assert done.code == 0, done.text
    text = (worse.folder / "reports/latest/report.html").read_text()
    assert all(words in text for words in ("accuracy[three", "newly added", "xpassed"))
    summary = run_command(worse.folder, "report", "--markdown")
    assert summary.code == 0 and "three" in summary.text
    annotations = run_command(worse.folder, "report", "--github")
    assert "::error file=cases/all.yaml,line=" in annotations.text


def test_on_a_host_without_jinja2_the_page_is_refused_in_one_line(worse, tmp_path):
    (tmp_path / "jinja2.py").write_text("raise ModuleNotFoundError('planted', name='jinja2')")
    refused = run_command(tmp_path, "report", worse.folder / "reports/latest", own_process=True)
    assert (refused.code, "Traceback" in refused.text) == (2, False) and "pip install jinja2" in refused.text


@pytest.mark.parametrize("content, words", [
    (None, "there is no"), ("{}\n", "baseline"), ("<<<<<<< ours\n", "conflict"),
])  # fmt: skip
def test_a_broken_baseline_is_a_usage_error_before_anything_runs(folder, content, words):
    if content is not None:
        (folder / "baseline.jsonl").write_text(content)
    done = run(folder, "--baseline", "baseline.jsonl")
    assert done.code == 4 and words in done.text and "Traceback" not in done.text
    assert not (folder / "reports").exists()


def test_a_run_that_was_broken_off_is_not_taken_for_a_whole_one(folder):
    write(folder, CASES + FAILING)
    assert run(folder, "-x", "-k", "four").code == 1 and not (folder / "reports/latest/run.json").exists()
    refused = run_command(folder, "accept", "reports/latest", "--baseline", "new.jsonl", "*", "--because", "planted")
    assert refused.code == 2 and "did not finish" in refused.text
    assert run(folder, "-k", "four").code == 1 and (folder / "reports/latest/run.json").exists()


@pytest.mark.needs("git")
def test_where_nothing_changed_no_earlier_run_is_left_to_be_taken_for_this_one(folder):
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    for command in (["init", "-q"], ["add", "cases"], ["commit", "-q", "-m", "cases"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    assert run_suite(folder).records
    again = run_suite(folder, "--changed-since", "HEAD")
    assert again.code == 0, again.text
    assert read_run(folder / "reports/latest")[1] == []


def assert_are_together(folder: Path, *parts: str) -> None:
    merged = run_command(folder, "merge", "merged", *parts)
    assert merged.code == 0, merged.text
    (_, together), (_, alone) = read_run(folder / "merged"), read_run(folder / "whole")
    assert {(one.id, one.status) for one in together} == {(one.id, one.status) for one in alone}


def test_shards_by_durations_are_the_whole_run_and_belong_together(folder):
    assert run_suite(folder, "--report", "whole").code == 0
    for part, more in ((1, ["-n", "1"]), (2, [])):
        by = ["--shard", f"{part}/2", "--shard-durations", "whole"]
        assert run(folder, *by, "--report", f"part{part}", *more).code == 0
    assert_are_together(folder, "part1", "part2")
    run(folder, "--shard", "2/2", "--report", "part2")
    refused = run_command(folder, "merge", "merged", "part1", "part2")
    assert refused.code == 2 and "give all shards the same cases, options and --shard-durations" in refused.text


@pytest.mark.parametrize("arguments, told", [
    (["--shard-durations", "whole"], "give --shard I/N with it"),
    (["--shard", "1/2", "--shard-durations", "nowhere"], "there is no such run"),
    (["--shard", "1/2", "--shard-durations", "cases"], "there are no durations of these cells"),
    *((["--shard", shard], "such as 2/4") for shard in ("0/2", "3/2", "x", "1")),
])  # fmt: skip
def test_a_shard_that_makes_no_sense_is_a_usage_error(folder, arguments, told):
    done = run(folder, *arguments)
    assert done.code != 0 and told in done.text and "Traceback" not in done.text
