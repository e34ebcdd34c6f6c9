"""What a watch writes to a terminal, and what to a pipe."""

import io
import time
from contextlib import redirect_stdout

import pytest

from conformance.front.commands.screen import Screen


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


LONG_AGO = time.monotonic() - 60


def test_a_terminal_has_colours_and_a_line_that_goes_again(terminal):
    with redirect_stdout(terminal):
        screen = Screen()
        screen.doing("export[one]", {"stage": "export", "draw": {"dims": {"batch": 3}}}, LONG_AGO)
        assert "\r\x1b[K  export[one]: export at batch=3, " in terminal.getvalue()
        screen.line("done", "green")
    assert terminal.getvalue().endswith("\r\x1b[K\x1b[32mdone\x1b[0m\n")


def test_a_cell_that_is_soon_done_shows_no_such_line(terminal):
    with redirect_stdout(terminal):
        Screen().doing("export[one]", {}, time.monotonic())
    assert terminal.getvalue() == ""


def test_no_colours_where_they_are_not_wanted(terminal, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(terminal):
        Screen().line("done", "green")
    assert terminal.getvalue() == "done\n"


def test_a_pipe_has_lines_alone(capsys):
    screen = Screen()
    screen.doing("export[one]", {"stage": "export"}, LONG_AGO)
    screen.line("done", "green")
    screen.heading("a.py changed")
    done, empty, heading = capsys.readouterr().out.splitlines()
    assert (done, empty) == ("done", "")
    assert heading[8:] == "  a.py changed"


def test_text_of_others_does_nothing_in_a_terminal(terminal):
    with redirect_stdout(terminal):
        screen = Screen()
        screen.line("\x1b[2Jgone", "red")
        screen.doing("\x1b[2Jgone", {"stage": "\x1b[2J"}, LONG_AGO)
    assert "\x1b[2J" not in terminal.getvalue() and "␛[2Jgone" in terminal.getvalue()
