"""Work that takes long says after two seconds how far it is, and Ctrl-C leaves the verdicts that there are."""

import itertools
from pathlib import Path

import pytest
from onnx import save

from conformance.cells.runner import Runner
from conformance.front.cli import main
from conformance.front.commands.progress_lines import FIRST, MOST, ProgressLines
from tests.cells.test_many_dims import decoder


def written(file: Path) -> str:
    """The path of a small model that is written there."""
    save(decoder(1), file)
    return str(file)


def lines_of(capsys: pytest.CaptureFixture[str], notes: list[dict[str, object]], step: float) -> list[str]:
    """The lines that are told of notes that come in these steps of seconds."""
    clock = itertools.count(0.0, step)
    telling = ProgressLines("accuracy[net]", budget=20.0, clock=lambda: next(clock))
    for note in notes:
        telling(note)
    told = capsys.readouterr()
    assert not told.out
    return told.err.splitlines()


def test_nothing_is_said_of_what_takes_less_than_two_seconds(capsys):
    assert not lines_of(capsys, [{"stage": "export"}] * 19, FIRST / 20)


def test_a_line_says_what_is_done_of_how_much_and_how_long_it_may_take(capsys):
    notes = [{"stage": "run", "draw": {"dims": {"batch": 3}}, "examples": done, "of": 20} for done in range(1, 12)]
    *_, last = lines_of(capsys, notes, 1.0)
    assert last == "  accuracy[net]: run at batch=3, 8 of 20 examples, 8 s, about 12 s left"


def test_the_rest_takes_no_longer_than_the_budget(capsys):
    notes = [{"stage": "run", "examples": done, "of": 10_000} for done in range(1, 9)]
    *_, last = lines_of(capsys, notes, 2.0)
    assert last.endswith("8 of 10000 examples, 16 s, about 6 s left")


def test_lines_become_rarer_but_never_stop(capsys):
    count = 10_000
    told = lines_of(capsys, [{"stage": "run"}] * count, 0.1)
    assert count * 0.1 / MOST <= len(told) < 30


def test_ctrl_c_leaves_the_verdicts_that_there_are(tmp_path, monkeypatch, capsys):
    file = written(tmp_path / "net.onnx")
    run = Runner.__call__

    def broken_off(self, cell, *more, **how):
        if cell.check == "accuracy":
            raise KeyboardInterrupt
        return run(self, cell, *more, **how)

    monkeypatch.setattr(Runner, "__call__", broken_off)
    report = tmp_path / "report.json"
    words = ["check", file, "--precision", "fp32", "--runtime", "onnxruntime", "--output", f"json={report}"]
    assert main([*words, "--store", str(tmp_path / "store")]) == 130
    told = capsys.readouterr().out
    assert "passed  export[net-onnx-op17]" in told
    assert "interrupted: no verdict on accuracy[net-onnx-op17-onnxruntime-fp32]" in told
    assert "right:" not in told and report.is_file()


def test_ctrl_c_among_many_models_leaves_those_that_are_done(tmp_path, monkeypatch, capsys):
    files = [written(tmp_path / f"net{number}.onnx") for number in range(3)]

    def broken_off(models, *more):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("conformance.cells.check_models.check_models", broken_off)
    assert main(["check", *files, "--store", str(tmp_path / "store")]) == 130
    assert "interrupted: no verdict on net0, net1, net2" in capsys.readouterr().out
