"""Exit codes of the command: what the user has to correct is told in a line, a mistake of ours with its traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance import cli

pytestmark = pytest.mark.smoke


def test_what_the_user_has_to_correct_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("conformance diff: ")
    assert "there is no run" in line


@pytest.mark.parametrize("error", [ValueError("planted"), KeyError("planted"), AssertionError("planted")])
def test_a_mistake_in_the_harness_is_not_called_the_users(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def run(given: object) -> int:
        raise error

    command = SimpleNamespace(arguments=lambda parser: None, run=run)
    monkeypatch.setitem(cli.COMMANDS, "planted", "has a mistake")
    monkeypatch.setitem(sys.modules, "conformance.commands.planted", command)
    assert cli.main(["planted"]) == 3
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == "conformance planted: this is a mistake in the harness; please report it with the lines above"
    assert any("test_cli.py" in line for line in trace)


@pytest.mark.parametrize(
    ("file", "content", "command"), [("records.jsonl", b"\xff\xfe", "report"), ("bundle.json", b"{", "replay")]
)
def test_a_damaged_file_is_the_users_to_correct(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: bytes, command: str
) -> None:
    (tmp_path / file).write_bytes(content)
    assert cli.main([command, str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
