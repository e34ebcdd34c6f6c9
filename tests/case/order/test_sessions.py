"""The order of whole sessions, with and without pytest-xdist, and what they say while they run.

Cells pass here without being run: who runs what when is all the same."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from conformance.front.plugin.ordering import id_of
from conformance.results.records.words import Check
from tests.kit.runs import Outcome, run_suite
from tests.kit.unrun import UNRUN

CASE = """
{name}:
  about: a test of the harness
  {what}
  inputs: {{x: "float32[batch, {size}]"}}
  dims: {{batch: 1..4}}
  export: {{torchscript: [13, 17], dynamo: [20]}}
  specials: false
"""
CASES = (
    ("network", "module: beside.Network", 30_000), ("small", "forward: torch.sin(x)", 3),
    ("middle", "forward: torch.cos(x)", 20_000), ("network_again", "module: beside.Network", 30_001),
    ("tiny", "forward: torch.tan(x)", 2),
)  # fmt: skip
OTHERS = """
def test_before_suite(): pass
def test_behind_it(): pass
"""
REVERSES = "def pytest_collection_modifyitems(items):\n    items.reverse()\n"
OFTEN = """
from conformance.front.plugin import progress
usual = progress.IN_LOG, progress.IN_TERMINAL
def pytest_configure():
    progress.IN_LOG = progress.IN_TERMINAL = 0.0
def pytest_unconfigure():
    progress.IN_LOG, progress.IN_TERMINAL = usual
"""
"""How far the run is is told after each cell."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cases = tmp_path / "cases"
    cases.mkdir()
    for name, what, size in CASES:
        (cases / f"{name}.yaml").write_text(CASE.format(name=name, what=what, size=size))
    (tmp_path / "test_others.py").write_text(OTHERS)
    return tmp_path


def run(folder: Path, *arguments: str | Path, plugin: str = "") -> Outcome:
    return run_suite(folder, *UNRUN, *arguments, plugin=plugin)


def cases_of(ids) -> list[str]:
    """The cases in their order; one that was interrupted is there twice."""
    names = [re.sub(r"^.*\[(.*?)-(torchscript|dynamo)-.*$", r"\1", id) for id in ids]
    return [name for index, name in enumerate(names) if name != names[index - 1] or not index]


def models_of(ids) -> list[str]:
    names = [re.sub(r"^.*\[(.*?-op\d+).*$", r"\1", id) for id in ids]
    return [name for index, name in enumerate(names) if name != names[index - 1] or not index]


def listed(text: str) -> list[str]:
    return [line.split("::test_")[1] for line in text.splitlines() if "test_suite.py::test_" in line]


def earlier(folder: Path, seconds: dict[str, float]) -> None:
    """Makes the last run one in which each cell of a case took that long."""
    lines = (folder / "reports/latest/records.jsonl").read_text().splitlines()
    for index, line in enumerate(lines[1:], 1):
        record = json.loads(line)
        record["seconds"] = {"run": seconds[record["case"]]}
        lines[index] = json.dumps(record, separators=(",", ":"))
    (folder / "reports/latest/records.jsonl").write_text("\n".join(lines) + "\n")


SMALL_FIRST = ["tiny", "small", "middle", "network", "network_again"]


def test_small_cases_come_first_and_each_model_is_used_as_soon_as_it_is_made(folder):
    ids = [id for id in listed(run(folder, "--collect-only", "-q").text) if not id.startswith("case_file")]
    assert cases_of(ids) == SMALL_FIRST
    models = models_of(ids)
    assert len(models) == len(set(models)) == 3 * len(CASES)
    checks = [id.partition("[")[0] for id in ids]
    assert checks == ["export", "accuracy", "accuracy"] * 3 * len(CASES)


def test_an_earlier_run_says_what_is_small(folder):
    first = run(folder)
    assert cases_of(first.records) == SMALL_FIRST
    earlier(folder, {"tiny": 9.0, "small": 0.1, "middle": 0.2, "network": 0.01, "network_again": 0.02})
    assert cases_of(run(folder).records) == ["network", "network_again", "small", "middle", "tiny"]
    (folder / "reports/latest/records.jsonl").write_bytes(b'{"schema":9}\n{"id":"export[tiny-\xff')
    assert cases_of(run(folder).records) == SMALL_FIRST
    earlier(folder, dict.fromkeys([case[0] for case in CASES], 1.0))
    selected = run(folder, "-k", "network_again or small", "--baseline", "reports/latest")
    assert cases_of(selected.records) == ["small", "network_again"], selected.text


def test_others_have_the_last_word(folder):
    outcome = run(folder, "test_others.py", "-v", plugin=REVERSES)
    assert cases_of(outcome.records) == SMALL_FIRST[::-1]
    assert next(iter(outcome.records)).startswith("accuracy[network_again-dynamo")
    assert outcome.text.index("test_behind_it PASSED") < outcome.text.index("test_before_suite PASSED")


def test_failed_cells_first(folder):
    with (folder / "cases/middle.yaml").open("a") as case:
        case.write("  tags: fails\n")
    cached = ("-p", "cacheprovider", "--ff", "-k", "tiny or middle or small")
    assert cases_of(run(folder, *cached).records) == ["tiny", "small", "middle"]
    again = run(folder, *cached)
    assert cases_of(again.records) == ["middle", "tiny", "small"], again.text
    only = run(folder, *cached, "--lf")
    assert cases_of(only.records) == ["middle"]


RAN = re.compile(r"^\[(gw\d+)\] \[ *\d+%\] \w+ \S*?(test_\w+\.py)::test_(\S+)", re.MULTILINE)


def test_processes_of_xdist_share_the_cells(folder):
    outcome = run(folder, "-n", "2", "-v", "test_others.py", plugin=OFTEN)
    assert outcome.records.keys() == set(listed_cells(folder)), outcome.text
    ran = Counter(test for _, _, test in RAN.findall(outcome.text))
    assert len(ran) == 9 * len(CASES) + len(CASES) + 2  # cells, case files, others
    assert {*ran.values()} == {1}
    told = re.findall(r"^  ([\d,]+) of 45 cells", outcome.text, re.MULTILINE)
    assert [int(count) for count in told] == sorted(map(int, told)) and told[-1] == "45"


def listed_cells(folder: Path) -> list[str]:
    return [id for id in listed(run(folder, "--collect-only", "-q").text) if not id.startswith("case_file")]


@pytest.mark.parametrize("check", get_args(Check))
def test_the_cells_of_every_check_are_known_by_the_ids_of_their_tests(check):
    assert id_of(f"conformance/test_suite.py::test_{check}[a-onnx-op17]@group") == f"{check}[a-onnx-op17]"
    assert id_of(f"mine/test_own.py::test_{check}[a-onnx-op17]") is None


ENDS = """
import os
def pytest_runtest_call(item):
    if item.nodeid.endswith(("test_export[small-torchscript-op17]", "[small-dynamo-op20-onnxruntime-fp32]")):
        os._exit(9)
"""


def test_processes_that_end_lose_no_cell_and_double_none(folder):
    outcome = run(folder, "-n", "2", plugin=ENDS)
    assert outcome.records.keys() == set(listed_cells(folder)), outcome.text  # records has each once
    lost = {id for id, record in outcome.records.items() if record["error"] == "ProcessLost"}
    assert lost == {"export[small-torchscript-op17]", "accuracy[small-dynamo-op20-onnxruntime-fp32]"}
    for record in map(outcome.records.get, lost):
        assert (record["status"], record["fault"]) == ("failed", "harness")
        assert "crashed while running" in record["reason"] and record["command"].startswith("conformance run ")
    assert "INTERNALERROR" not in outcome.text


FAILS = "def pytest_runtest_call(item):\n    assert 'small-torchscript-op17' not in item.nodeid\n"


@pytest.mark.thorough
def test_a_run_that_stops_at_a_failure_ends(folder):
    outcome = run(folder, "-n", "2", "-x", plugin=FAILS)
    assert outcome.code in (1, 2) and "stopping after 1 failures" in outcome.text and len(outcome.records) < 45


PROGRESS = re.compile(r"^  \d+ of 9 cells", re.MULTILINE)


@pytest.mark.parametrize("options", [(), ("-v",)])
def test_a_run_says_now_and_then_how_far_it_is(folder, options):
    outcome = run(folder, "-k", "tiny", *options, plugin=OFTEN)
    told = PROGRESS.findall(outcome.text)
    assert told[-1] == "  9 of 9 cells"
    assert "\n\n  9 of 9 cells" not in outcome.text


def test_a_quiet_or_a_short_run_does_not(folder):
    assert not PROGRESS.search(run(folder, "-k", "tiny", "-q", plugin=OFTEN).text)
    assert not PROGRESS.search(run(folder, "-k", "tiny").text)
