"""Large files: what is measured of a command, how it is judged, and what is planted. Nothing here looks at a time."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks import __main__ as command
from benchmarks import scale
from benchmarks.common import HEAD, ROOT, Row
from benchmarks.scale import ALL, BARE, OURS, POLYGRAPHY, bare_file, models
from benchmarks.scale.measured import Cost, measure
from benchmarks.scale.subjects import subjects
from evidence.scale import page, run
from evidence.scale.run import Outcome
from tests.kit.processes import gone, spawned, waited_for
from tests.plants import large_files
from tests.plants.large_files import Change
from tests.project.test_docs import BEFORE_A_TABLE

MB = 10**6
TREE = """
import mmap, os, sys, time
shared = mmap.mmap(-1, 80_000_000)  # which both processes have
shared.write(b"x" * 80_000_000)
child = os.fork()
shared[::4096]
own = bytearray(b"x") * (60_000_000 if child == 0 else 10_000_000)
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
time.sleep(1.0)
if child:
    os.waitpid(child, 0)
    sys.exit(3)
"""
ORPHAN = """
import os, time
if os.fork() == 0:
    time.sleep(600)
time.sleep(600)
"""


def test_what_a_command_took_is_that_of_all_its_processes_and_shared_pages_count_once(tmp_path):
    cost = measure([sys.executable, "-c", TREE], tmp_path, 60)
    assert cost.code == 3 and not cost.cut and cost.cores >= 0.6
    assert 150 * MB <= cost.peak < 220 * MB  # and not 230, which the parts of both are with shared pages in each


def test_what_does_not_end_in_time_is_ended_with_all_below_it(tmp_path):
    cost = measure([sys.executable, "-c", ORPHAN], tmp_path, 0.5)
    assert cost.code is None and cost.cut == "not within 0.5 s" and cost.seconds < 30


def test_what_takes_too_much_memory_is_ended_before_the_host_has_none_left():
    grows = "import time; kept = bytearray(b'x') * 90_000_000; time.sleep(600)"
    call = f"print(run([sys.executable, '-c', {grows!r}], 60, 8e7))"
    script = f"import sys; from benchmarks.scale.measured import run; {call}"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "code=None" in done.stdout and "cut='ended as it took" in done.stdout


def test_nothing_is_left_running_where_the_benchmark_itself_is_ended(tmp_path):
    call = f"measure([sys.executable, '-c', {ORPHAN!r}], Path({str(tmp_path)!r}), 600)"
    script = f"import sys; from pathlib import Path; from benchmarks.scale.measured import measure; {call}"
    outer = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    three = waited_for(lambda: (found := spawned(outer.pid)) and len(found) == 3 and found)
    outer.kill()
    outer.wait()
    assert all(gone(pid) for pid in three)


def of(cores: float, code: int | None = 0, peak: int = MB, seconds: float = 2.0) -> Cost:
    return Cost(seconds, cores, peak, code, "" if code is not None else "not within 600 s")


def judged(ours: Cost, bare: float = 2.0, polygraphy: float = 4.0, size: int = 100 * MB, **more: Any) -> list[Row]:
    costs = {OURS: [ours], BARE: [of(bare)], POLYGRAPHY: [of(polygraphy)], ALL: [of(30)]}
    return list(scale.rows_of("net", size, costs, {OURS: 52}, **more))


def test_a_check_is_judged_beside_a_script_and_beside_polygraphy():
    rows = judged(of(9))
    assert [row.met for row in rows] == [True, False, True, True]
    assert [row.ratio for row in rows[:3]] == ["4.5 ×", "2.2 ×", "15.0 ×"]
    assert "52 examples" in rows[0].measured and rows[0].target == "at most 8 ×"
    assert [row.met for row in judged(of(17))][:2] == [False, False]


def test_where_a_script_takes_no_second_ratios_have_no_target():
    assert [row.met for row in judged(of(9), bare=0.9)] == [None, None, None, True]


def test_memory_is_allowed_by_the_size_of_the_file():
    most = 1_250 * MB
    assert [judged(of(9, peak=peak))[3].met for peak in (most, most + 1)] == [True, False]


def test_what_did_not_end_is_no_success_and_says_so():
    ours, *_, memory, clock = judged(of(20, code=None), most=60.0)
    assert ours.met is False and ours.ratio == "more than 10.0 ×" and "not within 600 s" in ours.measured
    assert memory.met == "unclear" and clock.met is False
    assert judged(of(10, code=None))[0].met == "unclear"  # it may have been about to end


def test_nothing_is_met_where_a_side_failed():
    wrong = judged(of(9, code=1))
    assert "exit code 1" in wrong[0].measured and [row.met for row in wrong][:2] == ["unclear", False]
    costs = {OURS: [of(9)], BARE: [of(2, code=1)]}
    row = next(iter(scale.rows_of("net", MB, costs, {})))
    assert row.met == "unclear" and row.ratio == "" and "exit code 1" in row.compared_with


@pytest.mark.parametrize(
    "seconds, code, met", [(20, 0, True), (40, 0, False), (20, None, "unclear"), (40, None, False)]
)
def test_the_exponent_is_the_power_of_the_size_by_which_seconds_grow(seconds, code, met):
    small, large = ({OURS: [one], BARE: [of(1)]} for one in (of(2), of(seconds, code)))
    row = scale.growth((100 * MB, small), (1000 * MB, large))
    assert row.met == met and {20: "1.00", 40: "1.30"}[seconds] in row.measured


def test_every_subject_has_a_name_of_its_own_and_what_is_named_alone_is_one_of_them(monkeypatch, capsys):
    for quick in (True, False):
        assert {*Counter(scale.names(quick)).values()} == {1}
    assert {scale.SMALLER, scale.LARGER} <= {*scale.names(False)} and len(scale.names(False)) == 17
    for words, said in (
        (["scale", "--only", "mlp"], "write one of mlp-100,"),
        (["size", "--only", "mlp-100"], "scale"),
    ):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        with pytest.raises(SystemExit):
            command.main()
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("subject", subjects(True)[:-1], ids=lambda one: one.name)
def test_a_file_is_sound_and_the_bare_script_runs_it(subject, tmp_path):
    size = subject.prepare(tmp_path)
    file = tmp_path / "net.onnx"
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    assert size == file.stat().st_size and len(model.graph.input) == max(1, len(subject.shapes))
    bare_file.main(str(file))


def test_weights_beside_a_file_count_and_are_those_within(tmp_path):
    for name, external in (("within", False), ("net", True)):
        models.mlp(tmp_path / f"{name}.onnx", 8, external=external)
    within, beside = (onnx.load(tmp_path / f"{name}.onnx") for name in ("within", "net"))
    assert [one.raw_data for one in within.graph.initializer] == [one.raw_data for one in beside.graph.initializer]
    assert (tmp_path / "net.onnx").stat().st_size < 10_000
    assert (tmp_path / "net.data").stat().st_size > 8 * MB
    bare_file.main(str(tmp_path / "net.onnx"))


def test_there_are_five_plants_of_each_kind_and_ten_sound_changes():
    planted = Counter(change.kind for change in large_files.plants())
    assert planted.total() == page.PLANTS and {*planted.values()} == {5} and len(planted) == 6
    every = [*large_files.plants(), *large_files.sound()]
    assert len({(change.subject, change.name) for change in every}) == len(every) >= page.PLANTS + page.SOUND


@pytest.mark.parametrize("subject", run.SMALL)
def test_every_plant_moves_an_output_and_no_sound_change_does(subject, tmp_path):
    run.SMALL[subject](tmp_path / "original.onnx")
    changes = [change for change in (*large_files.plants(), *large_files.sound()) if change.subject == subject]
    outcomes = [Outcome(change, run.planted(change, tmp_path), None) for change in changes]
    assert outcomes and [one.change.name for one in outcomes if not one.counts] == []


@pytest.mark.thorough
def test_a_wrong_head_is_found_and_the_same_file_with_other_names_is_not_called_wrong(tmp_path):
    run.SMALL["decoder"](tmp_path / "original.onnx")
    every = [change for change in (*large_files.plants(), *large_files.sound()) if change.subject == "decoder"]
    first = [next(one for one in every if one.kind == kind) for kind in ("one head", "sound")]
    wrong, sound = (run.outcome_of(one, tmp_path / "original.onnx", tmp_path / "one") for one in first)
    assert wrong.found and wrong.said == "WrongValue" and not wrong.passed
    assert sound.passed and sound.said == "right" and not sound.found and sound.examples > 1


def told(kind: str, code: int | None, *errors: str, moved: float | None = None) -> Outcome:
    change = Change(kind, "mlp", f"{kind}, {code}", lambda model, strength: None)
    return Outcome(change, (0.0 if kind == "sound" else 0.5) if moved is None else moved, code, errors)


OUTCOMES = [
    told("one weight", 1, "WrongValue"), told("one weight", 0), told("one weight", None),
    told("one weight", 1, "Timeout"), told("one head", 1, "WrongNaN"), told("one head", 5, moved=1e-9),
    told("sound", 0), told("sound", 1, "WrongValue"), told("sound", 5),
]  # fmt: skip


def test_what_is_not_called_wrong_is_not_found_and_what_proves_nothing_counts_nowhere():
    measured = {row.what: (row.measured, row.met) for row in page.rows_of(OUTCOMES)}
    assert measured["wrong values planted"] == ("5", False)
    assert measured["one weight: found"] == ("1", None) and measured["one head: found"] == ("1", None)
    assert measured["not found"] == ("3", False)
    assert measured["sound changes that pass"] == ("1", False)
    assert measured["sound changes that are called wrong"] == ("1", False)
    assert measured["changes that prove nothing"] == ("1", False)


def test_the_page_has_a_line_for_each_change(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(page, "study", lambda quick: OUTCOMES)
    page.write("on a host")
    text = Path(tmp_path / "page.md").read_text(encoding="utf-8")
    assert HEAD in text and text.endswith("\non a host\n")
    assert len(text.partition("\n|")[0].split()) <= BEFORE_A_TABLE
    assert "| mlp | one weight | one weight, None | 0.5 | not within 600 s | 0 | 0 |" in text
    assert text.count("| void |") == 1 and text.count("| mlp |") == len(OUTCOMES)
