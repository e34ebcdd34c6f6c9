"""Work that takes long says after two seconds how far it is, and Ctrl-C leaves the verdicts that there are."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, save

from conformance.cells.runner import Runner
from conformance.front.cli import main
from conformance.front.commands import file_cases
from conformance.front.commands.file_cases import LONG
from conformance.front.commands.progress_lines import FIRST, MOST, ProgressLines
from conformance.models.precision.int8 import expected_seconds
from tests.cells.test_many_dims import decoder
from tests.kit.models import model_of


def product(count: int = 1) -> ModelProto:
    """So many products by one matrix, one behind the other, of which no processor's sums in 16 bits saturate."""
    matrix = np.eye(4, dtype=np.float32)
    steps = (f"x{number + 1} = MatMul (x{number}, matrix)" for number in range(count))
    return model_of(f"net (float[n, 4] x0) => (float[n, 4] x{count}) {{ {' '.join(steps)} }}", 17, matrix=matrix)


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


def test_it_is_said_how_long_a_stage_takes_that_is_known_to_take_long(capsys):
    told = [lines_of(capsys, [{"stage": "convert", "expect": seconds}] * 12, 1.0) for seconds in (40, 1)]
    assert [lines[-1] for lines in told] == [
        "  accuracy[net]: convert, which takes about 40 s, 8 s", "  accuracy[net]: convert, 8 s",
    ]  # fmt: skip


def test_what_nobody_asked_for_and_takes_long_is_left_out(tmp_path, monkeypatch, capsys):
    """ONNX Runtime's quantizer takes time with the square of the nodes."""
    file = tmp_path / "net.onnx"
    save(product(), file)
    words = ["check", str(file), "--runtime", "onnxruntime", "--examples", "1", "--store", str(tmp_path / "store")]
    said = {}
    for longest in (LONG, 0.0):
        monkeypatch.setattr(file_cases, "LONG", longest)
        for more in ([], ["--precision", "int8"]):
            assert main([*words, *more]) == 0
            said[longest, bool(more)] = capsys.readouterr().out
    assert "quantizer" not in said[LONG, False] + said[LONG, True]
    assert "int8: left out, as ONNX Runtime's quantizer takes time with the square of the nodes" in said[0.0, False]
    assert "(--precision int8 converts it)" in said[0.0, False]
    converted = "passed  fidelity[net-onnx-op17-int8]"
    assert converted not in said[0.0, False] and converted in said[0.0, True] and "left out" not in said[0.0, True]


def test_four_times_the_nodes_take_sixteen_times_as_long():
    few, many = (expected_seconds(product(count).graph) for count in (500, 2000))
    assert many / few == pytest.approx(16) and few > 1 and many > LONG


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
