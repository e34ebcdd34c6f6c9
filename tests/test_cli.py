"""What the user has to correct is told in a line, with its exit code; a mistake of ours with its traceback."""

import sys
from types import SimpleNamespace

import pytest

from conformance import cli
from tests.kit.runs import run_command, run_suite

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize("error", [ValueError("planted"), KeyError("planted"), AssertionError("planted")])
def test_a_mistake_in_the_harness_is_not_called_the_users(monkeypatch, capsys, error):
    def run(given: object) -> int:
        raise error

    command = SimpleNamespace(arguments=lambda parser: None, run=run)
    monkeypatch.setitem(cli.COMMANDS, "planted", "has a mistake")
    monkeypatch.setitem(sys.modules, "conformance.commands.planted", command)
    assert cli.main(["planted"]) == 3
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == "conformance planted: this is a mistake in the harness; please report it with the lines above"
    assert any("test_cli.py" in line for line in trace)


@pytest.mark.parametrize("option, value", [
    *(("--cell-timeout", value) for value in ("nan", "0", "-5", "inf", "soon")),
    *(("--examples", value) for value in ("-1", "1.5")), *(("--cell-workers", value) for value in ("0", "two")),
    *(("--cell-memory", value) for value in ("0", "-1", "nan", "plenty")), ("--cluster-timeout", "0"),
])  # fmt: skip
def test_the_suite_refuses_a_number_that_cannot_be(tmp_path, option, value):
    outcome = run_suite(tmp_path, f"{option}={value}")
    assert outcome.code == 4 and f"{option.removeprefix('-')}: '{value}' is not a" in outcome.text
    assert "Traceback" not in outcome.text


@pytest.mark.parametrize("words", [
    ("check", "model.onnx", "--examples=-1"), ("replay", "bundle", "--cell-timeout=nan"),
    ("pack", "--bundle", "out", "--cell-timeout=0"), ("watch", "--cell-timeout=-5"),
    ("sensitivity", "case", "--samples=0"), ("diff", "one", "two", "--slower-factor=nan"),
], ids=lambda words: words[0])  # fmt: skip
def test_a_command_refuses_a_number_that_cannot_be(tmp_path, words):
    outcome = run_command(tmp_path, *words)
    assert outcome.code == 2 and f"argument {words[-1].partition('=')[0]}: " in outcome.text
