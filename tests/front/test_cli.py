"""What the user has to correct is told in a line, with its exit code; a mistake of ours with its traceback."""

import errno
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.front import cli
from tests.kit.runs import run_command, run_suite

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("error", [ValueError("planted"), KeyError("planted"), AssertionError("planted")])
def test_a_mistake_in_the_harness_is_not_called_the_users(monkeypatch, capsys, error):
    def run(given: object) -> int:
        raise error

    command = SimpleNamespace(arguments=lambda parser: None, run=run)
    monkeypatch.setitem(cli.COMMANDS, "planted", cli.Command("has a mistake", "conformance planted"))
    monkeypatch.setitem(sys.modules, "conformance.front.commands.planted", command)
    assert cli.main(["planted"]) == 3
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == "conformance planted: this is a mistake in the harness; please report it with the lines above"
    assert any("test_cli.py" in line for line in trace)


@pytest.mark.parametrize("option, value", [
    *(("--cell-timeout", value) for value in ("nan", "0", "-5", "inf", "soon")),
    *(("--examples", value) for value in ("-1", "1.5")), *(("--cell-workers", value) for value in ("0", "two")),
    *(("--cell-memory", value) for value in ("0", "-1", "nan", "plenty")), ("--cluster-timeout", "0"),
    *(("--budget", value) for value in ("0", "-1", "nan", "soon")),
])  # fmt: skip
def test_the_suite_refuses_a_number_that_cannot_be(tmp_path, option, value):
    outcome = run_suite(tmp_path, f"{option}={value}")
    assert outcome.code == 4 and f"{option.removeprefix('-')}: '{value}' is not a" in outcome.text
    assert "Traceback" not in outcome.text


@pytest.mark.parametrize("words", [
    ("check", "model.onnx", "--examples=-1"), ("check", "model.onnx", "--budget=0"),
    ("replay", "bundle", "--cell-timeout=nan"),
    ("pack", "--bundle", "out", "--cell-timeout=0"), ("watch", "--cell-timeout=-5"),
    ("sensitivity", "case", "--samples=0"), ("diff", "one", "two", "--slower-factor=nan"),
], ids=lambda words: words[0])  # fmt: skip
def test_a_command_refuses_a_number_that_cannot_be(tmp_path, words):
    outcome = run_command(tmp_path, *words)
    assert outcome.code == 2 and f"argument {words[-1].partition('=')[0]}: " in outcome.text


def test_all_commands_are_shown_by_what_one_wants_in_80_columns(capsys):
    assert cli.main([]) == 2
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert capsys.readouterr().out == alone
    lines = alone.splitlines()
    assert [line for line in lines if len(line) > 80] == [] and len(lines) <= 45
    assert re.findall(r"^  (\w+)  ", alone, re.M) == [*cli.COMMANDS]
    assert all(f"\n{title}:\n" in alone for title in cli.GROUPS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_a_plain_line_and_an_example_that_its_parser_takes(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    about, example = cli.COMMANDS[name]
    words = shlex.split(example.partition(" > ")[0])
    given, _ = cli.parser().parse_known_args(words[1:])  # `run` leaves options to pytest
    assert words[:2] == ["conformance", name] and given.command == name
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    assert f"{about[0].upper()}{about[1:]}." in (said := capsys.readouterr().out) and f"example:\n  {example}" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_completes_the_command(capsys, shell):
    pytest.importorskip("argcomplete")
    assert cli.main(["completion", shell]) == 0
    assert "conformance" in capsys.readouterr().out


def test_what_a_shell_asks_is_answered_with_commands_and_options(tmp_path):
    pytest.importorskip("argcomplete")
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answer"), "_ARGCOMPLETE_IFS": " "}
    for line, answer in {"conformance ver": "versions", "conformance check --sp": "--specials"}.items():
        run_command(tmp_path, own_process=True, COMP_LINE=line, COMP_POINT=str(len(line)), **asked)
        assert (tmp_path / "answer").read_text().split() == [answer]


def test_completion_without_its_library_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert cli.main(["completion", "bash"]) == 2
    assert (
        capsys.readouterr().err == "conformance completion: completion needs argcomplete: pip install argcomplete\n"
    )


def test_a_folder_that_cannot_be_written_to_is_named_with_what_to_do(tmp_path, monkeypatch, capsys):
    """Beside a file in the place of the folder, where another folder does not help."""
    monkeypatch.chdir(tmp_path)

    def refuse(self: Path, *more: object, **named: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        assert cli.main(["new", "planted"]) == 2
    said = capsys.readouterr().err
    assert said == "conformance new: cases: Read-only file system; run it in a folder that you may write to\n"
    Path("cases").write_text("")
    assert cli.main(["new", "planted"]) == 2 and "you may write" not in capsys.readouterr().err
