"""The cost of growing models: the exponent, what ends a program's row, and what is measured of a run."""

import sys
from pathlib import Path

import pytest

from benchmarks import growth
from benchmarks.growth import Taken, exponent, row_of, run
from benchmarks.growth.programs import PROGRAMS
from benchmarks.scale import models


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_the_exponent_is_of_the_last_two_sizes(power):
    took = {10: Taken(7.0, 0), 100: Taken(0.1, 0), 500: Taken(0.1 * 5**power, 0)}
    assert exponent(took) == f"exponent {power}"


def test_a_row_says_why_it_ends():
    row = row_of("a", "nodes", {10: Taken(0.5, 2**20), 40: "more than 300 s"})
    assert (row.what, row.measured) == ("a: 10 / 40 nodes", "0.5 s / more than 300 s")
    assert row.compared_with == "1 MiB" and not row.ratio


def test_a_run_takes_what_it_takes_and_says_what_it_raises(tmp_path):
    file, none = tmp_path / "nodes-20.onnx", tmp_path / "none.onnx"
    models.nodes(file, 20)
    taken = run(Path(sys.executable), "onnx.checker, full", file)
    assert isinstance(taken, Taken) and taken.seconds > 0 and taken.bytes >= 0
    assert "Unable to open proto file" in str(run(Path(sys.executable), "onnx.shape_inference", none))


def test_what_takes_too_long_is_given_nothing_larger(tmp_path, monkeypatch):
    files = {size: tmp_path / f"{size}" for size in (10, 100, 1000)}
    asked = []

    def takes(python, program, file):
        asked.append(int(file.name))
        return Taken(growth.LONG * int(file.name) / 50, 0)

    monkeypatch.setattr(growth, "run", takes)
    assert [*growth._grown(Path(), "a", files)] == asked == [10, 100]


def test_programs_that_are_elsewhere_or_export_are_among_all():
    assert {*growth.ELSEWHERE, *growth.EXPORTERS} < {*PROGRAMS}
