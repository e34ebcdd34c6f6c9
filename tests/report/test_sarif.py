"""Findings as SARIF: one result for each, where it can be mended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.report.sarif import sarif
from tests.kit.runs import run_command
from tests.report.support import HOSTILE, failed, hostile, record
from tests.report.test_command import write_run

PLACED = {"operator": {"operator": "aten.index_add", "line": "cases/net.py:16"}, "fault": "exporter"}


def test_a_finding_is_one_result_at_the_line_of_python_and_names_its_cells() -> None:
    log = sarif([record("sound"), failed(**PLACED), failed(opset=18, **PLACED)], "0.2.0")
    (run,) = log["runs"]
    (result,) = run["results"]
    (place,) = (one["physicalLocation"] for one in result["locations"])
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("cases/net.py", 16)
    related = [one["physicalLocation"]["artifactLocation"]["uri"] for one in result["relatedLocations"]]
    assert related == ["cases/asinh.yaml"]
    assert len(result["properties"]["cells"]) == 2
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [result["ruleId"]]


def test_without_a_line_of_python_it_is_at_its_case() -> None:
    (result,) = sarif([failed()], "0.2.0")["runs"][0]["results"]
    (place,) = (one["physicalLocation"] for one in result["locations"])
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("cases/asinh.yaml", 7)


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_records_say_the_log_is_json_without_controls(name: str) -> None:
    text = json.dumps(sarif([hostile(HOSTILE[name])], "0.2.0"))
    assert json.loads(text)["version"] == "2.1.0"
    assert not any(ord(character) < 32 and character not in "\n\t" for character in text)


def test_the_command_writes_it(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [record("sound"), failed(**PLACED)])
    done = run_command(tmp_path, "report", "run", "--sarif", "out.sarif")
    assert done.code == 0, done.text
    assert json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
