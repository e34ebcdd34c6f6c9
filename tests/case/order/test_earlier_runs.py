"""Durations of an earlier run, which may be damaged, foreign or no run at all; and what is said of the time left."""

import json
import os

import pytest

from benchmarks.catalogue import write_usual
from conformance.case.plan.order import FILE, read_usual
from conformance.front.plugin.progress import Remaining, describe_expected
from conformance.results.records.durations import durations
from tests.results.report.support import record

pytestmark = pytest.mark.smoke

A, B = "export[a-torchscript-op17]", "export[b-torchscript-op17]"


def line(id, **more):
    return json.dumps({"id": id, "seconds": {"export": 1.5, "check": 0.5}, **more}, separators=(",", ":"))


HEADER = json.dumps({"schema": 1, "environment": {}}, separators=(",", ":"))


def run_of(folder, *lines):
    folder.mkdir(exist_ok=True)
    (folder / "records.jsonl").write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
    return folder


def test_the_cells_that_are_wanted_are_read(tmp_path):
    folder = run_of(tmp_path / "run", HEADER, line(A), line(B), "")
    assert durations(folder, {A}) == {A: 2.0}
    assert durations(folder / "records.jsonl", {A, B, "gone"}) == {A: 2.0, B: 2.0}
    (folder / "run.json").write_text("{}")
    assert durations(folder / "run.json", {A}) == {A: 2.0}


@pytest.mark.parametrize("damaged", [
    line(B)[:-9],  # cut off
    line(B).replace("1.5", "NaN"),
    line(B).replace("1.5", "-3"),
    line(B).replace("1.5", "1" * 5000),
    line(B).replace("1.5", '"soon"'),
    line(B, seconds=[1]),
    line(B, reason=[]).replace("[]", "[" * 100_000),
    line(B).encode()[:-2] + b"\xff\xfe}",
    '{"id":"' + B + '"}',
    "\0" * 1000,
])  # fmt: skip
def test_a_damaged_record_is_left_out_and_the_others_are_read(tmp_path, damaged):
    folder = run_of(tmp_path / "run", HEADER, damaged, line(A))
    assert durations(folder, {A, B}) == {A: 2.0}


def test_what_is_no_run_says_nothing(tmp_path):
    baseline, noise = tmp_path / "baseline.jsonl", tmp_path / "noise"
    baseline.write_text('{"baseline":1,"environment":{}}\n{"id":"' + A + '","file":"a.yaml"}\n')
    noise.write_bytes(os.urandom(5000))
    (tmp_path / "folder/records.jsonl").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    for name in ("nowhere", "", baseline, noise, "folder", "pipe", "with a \0 in it", "x" * 5000):
        assert durations(tmp_path / name, {A}) == {}


def test_as_the_earlier_run_says():
    remaining = Remaining(dict.fromkeys("abcdefgh", 60.0), workers=2, measured=True)
    assert remaining.line(0.0) == "0 of 8 cells, 2 to 6 min left"
    for cell, elapsed in zip("abcd", (60.0, 60.0, 120.0, 120.0), strict=True):
        remaining.end(cell, elapsed)
    assert remaining.seconds(120.0) == pytest.approx(120)
    assert remaining.line(120.0) == "4 of 8 cells, 0.033 a second, 2 to 3 min left"


def test_without_an_earlier_run_the_pace_of_this_one_counts():
    remaining = Remaining({**dict.fromkeys("abcd", 1.0), "long": 4.0}, workers=2, measured=False)
    assert remaining.seconds(5.0) is None and remaining.line(5.0) == "0 of 5 cells"
    for cell, elapsed in zip("abcd", (40.0, 40.0, 80.0, 80.0), strict=True):
        remaining.end(cell, elapsed)
    assert remaining.seconds(80.0) == pytest.approx(80)


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_starting_the_workers_takes_is_not_counted_on_what_is_left(measured, workers):
    cells = [str(number) for number in range(50 * workers)]
    remaining = Remaining(dict.fromkeys(cells, 1.0), workers=workers, measured=measured)
    for number in range(25):  # each worker needs ten seconds until it begins
        for cell in cells[workers * number : workers * (number + 1)]:
            remaining.end(cell, 11.0 + number)
    assert remaining.seconds(35.0) == pytest.approx(25)


def test_a_cell_counts_once_and_what_is_no_cell_does_not_count():
    remaining = Remaining({"a": 1.0, "b": 1.0}, workers=1, measured=True)
    for cell in ("a", "a", "other"):
        remaining.end(cell, 1.0)
    assert remaining.line(1.0).startswith("1 of 2 cells, 1 a second")
    remaining.end("b", 2.0)
    assert remaining.line(2.0) == "2 of 2 cells, 1 a second"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1.0, " 5 s left"), (42.0, " 25 s to 1 min left"), (58.0, " 35 s to 2 min left"),
     (50 * 60.0, " 31 to 80 min left"), (3 * 3600.0, " 1.9 to 4.8 h left")],
)  # fmt: skip
def test_time_is_said_no_more_exactly_than_it_is_known(seconds, words):
    assert Remaining({"a": seconds}, workers=1, measured=True).line(0.0).endswith(words)


def test_what_cases_usually_take_is_read_from_the_folder_of_the_cases(tmp_path):
    spent = [{"export": 1.5, "check": 0.5}, {"run": 1.0}]
    write_usual(tmp_path, [record("a", seconds=seconds) for seconds in spent], "yesterday, 2 cores")
    assert read_usual([tmp_path]) == read_usual([tmp_path / "a.yaml"]) == {"a": 3.0}
    assert json.loads((tmp_path / FILE).read_text())["measured"] == "yesterday, 2 cores"
    assert read_usual([tmp_path / "elsewhere", tmp_path]) == {"a": 3.0}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"seconds": 3}', '{"seconds": {"a": "soon"}}', "\0" * 99])
def test_a_damaged_file_of_what_cases_usually_take_says_nothing(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    assert read_usual([tmp_path]) == {}


@pytest.mark.parametrize(
    ("seconds", "words"), [(20.0, "about 15 to 30 s"), (60.0, "about 50 s to 2 min"), (460.0, "about 6 to 12 min")]
)
def test_what_was_measured_elsewhere_is_told_as_a_range(seconds, words):
    assert describe_expected(2 * seconds, 2, here=False) == words
    assert " to " not in describe_expected(2 * seconds, 2, here=True)
