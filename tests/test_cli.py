"""Exit codes of the command: what the user has to correct is told in a line, a mistake of ours with its traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import cli
from conformance.commands import diff


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

    monkeypatch.setattr(diff, "run", run)
    assert cli.main(["diff", "a", "b"]) == 3
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == "conformance diff: this is a mistake in the harness; please report it with the lines above"
    assert any("test_cli.py" in line for line in trace)


@pytest.mark.parametrize(
    ("file", "content", "command"),
    [
        ("records.jsonl", b"\xff\xfe", ["report", "."]),
        ("records.jsonl", b"\xff\xfe", ["diff", ".", "."]),
        ("changes.json", b"{", ["report", "."]),
        ("bundle.json", b"{", ["replay", "."]),
    ],
)
def test_a_damaged_file_is_the_users_to_correct(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: str,
    content: bytes,
    command: list[str],
) -> None:
    (tmp_path / file).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert cli.main(command) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
