"""The command that writes every report of a run."""

import json
from pathlib import Path

import pytest

from conformance.results.records.record import Record
from conformance.results.records.run_file import RunWriter
from conformance.results.report import command
from tests.results.report.support import KILLED, failed, record


def write_run(folder: Path, records: list[Record], killed: bool = False) -> Path:
    writer = RunWriter(folder, dict(KILLED))
    for one in records:
        writer.add(one.as_dict())
    writer.close(3.0)
    if killed:
        (folder / "run.json").unlink()
        lines = folder / "records.jsonl"
        lines.write_text(lines.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    return folder


def test_all_reports_of_a_run_with_its_history(tmp_path, capsys):
    places = [write_run(tmp_path / "monday", [record()]), write_run(tmp_path / "tuesday", [failed(), record("new")])]
    out = tmp_path / "a" / "b"
    command.report(places, out / "page.html", out / "summary.md", out / "report.json", github=True)
    assert "1 of 2 cells failed" in (out / "page.html").read_text(encoding="utf-8")
    assert (out / "summary.md").read_text(encoding="utf-8").startswith("### ❌")
    found = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert found["records"] == [failed().as_dict(), record("new").as_dict()] and found["finished"]
    assert found["history"][record().id] == [
        {"run": "monday", "status": "passed", "ratio": None},
        {"run": "tuesday", "status": "failed", "ratio": 125000.0},
    ]
    assert [run["counts"]["failed"] for run in found["runs"]] == [0, 1]
    assert capsys.readouterr().out.count("::error ") == 1


def test_runs_have_names_that_tell_them_apart(tmp_path):
    assert command.names([tmp_path / "a", tmp_path / "b" / "run.json"]) == ["a", "b"]
    assert command.names([tmp_path / "x" / "run", tmp_path / "y" / "run"]) == ["x/run", "y/run"]


def test_mistakes_are_said_in_words(tmp_path):
    place, page = write_run(tmp_path / "run", [record()]), tmp_path / "page.html"
    other, latin = tmp_path / "other.json", tmp_path / "latin.json"
    other.write_text('{"schema": 1, "records": [{"id": "a"}]}', encoding="utf-8")
    latin.write_bytes(b"\xff\xfe")
    for arguments, words in (
        (([], page), "at least one run"), (([place],), "say what to write"),
        (([place], place), "run: cannot be written"), (([tmp_path / "nowhere"], page), "nowhere: there is no run"),
        (([other], page), r"other\.json: record 1 lacks case"), (([latin], page), r"latin\.json"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            command.report(*arguments)
    assert not page.exists()
