"""The benchmarks run, and their table has its form. Nothing here looks at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import published, whole_run
from benchmarks.common import HEAD, Row, Spread, in_turn, interleaved, table

ROOT = Path(__file__).parent.parent


def cells(line: str) -> list[str]:
    assert line.startswith("| ") and line.endswith(" |")
    return [cell.strip() for cell in line[1:-1].split("|")]


def test_cheapest_group_prints_a_table_and_writes_nothing() -> None:
    page = ROOT / "docs" / "benchmarks.md"
    before = page.read_bytes()
    command = [sys.executable, "-m", "benchmarks", "--quick", "isolation"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    head, rule, *rows = run.stdout.splitlines()
    assert f"{head}\n{rule}" == HEAD
    assert [cells(row)[0] for row in rows] == [
        "a cell in a worker process",
        "looking at the process after a cell",
        "an empty call of a worker",
        "a worker dies and is replaced",
    ]
    for row in rows:
        assert len(cells(row)) == len(cells(head))
        what, measured, *_, repeats, target, verdict = cells(row)
        number, _, unit = measured.partition(" ")
        assert unit in ("ms", "ms of a processor") and float(number) > 0, what
        assert int(repeats) >= 1
        assert (target == "") == (verdict == ""), what
    assert "×" in cells(rows[0])[3]
    assert page.read_bytes() == before


def test_written_table_has_the_form_of_this_code() -> None:
    """What is committed was made by these columns, and every row with a target says how it went."""
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert HEAD in text
    rows = [cells(line) for line in text[text.index(HEAD) + len(HEAD) :].splitlines() if line.startswith("| ")]
    assert len(rows) >= 15
    for row in rows:
        assert len(row) == 7
        assert row[6] in ("met", "not met", "unclear", "")
        assert row[6] or not row[5].startswith("at "), row


def test_a_group_that_is_measured_again_leaves_the_sections_of_others(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(published, "PAGE", tmp_path / "docs" / "benchmarks.md")
    (tmp_path / "docs" / "evidence").mkdir(parents=True)
    (tmp_path / "docs" / "evidence" / "size.md").touch()
    groups = ("whole_run", "examples", "dynamo")
    for group, what in (("examples", "old"), ("dynamo", "kept"), ("whole_run", "first"), ("examples", "new")):
        published.write(group, whole_run, [Row(what, "1 s")], "on a host", groups)
    text = published.PAGE.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## whole_run", "## examples", "## dynamo", "## Notes",
    ]  # fmt: skip
    assert text.index("| first |") < text.index("| new |") < text.index("| kept |") and "| old |" not in text
    assert text.count("on a host") == 3 and text.count("Whole runs, process start included") == 3
    assert "[size](evidence/size.md), made by `python -m benchmarks size`" in text and "passes.md" not in text
    published.write("dynamo", whole_run, [Row("kept", "1 s")], "on a host", groups)
    assert published.PAGE.read_text(encoding="utf-8") == text


def test_a_target_that_is_missed_shows_as_not_met() -> None:
    lines = table([Row("a", "1 s", target="at most 0 s", met=False), Row("b", "1 s", target="2 s", met=True)])
    assert [cells(line)[-1] for line in lines.splitlines()[2:]] == ["not met", "met"]


def test_a_target_that_only_some_repeats_meet_is_unclear() -> None:
    assert Spread([1.3, 1.4]).meets(1.5) is True
    assert Spread([1.6, 1.7]).meets(1.5) is False
    assert Spread([1.4, 1.6]).meets(1.5) == "unclear"
    assert Spread([3.1, 3.5]).meets(3, at_least=True) is True
    assert Spread([2.9, 3.5]).meets(3, at_least=True) == "unclear"
    assert cells(Row("a", "1 s", target="x", met="unclear").line())[-1] == "unclear"


def test_sides_take_turns_and_medians_decide() -> None:
    said = {"one": iter([1.0, 9.0, 2.0]), "other": iter([2.0, 3.0, 1.0])}
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return next(said[name])

    found = in_turn({"one": lambda: side("one"), "other": lambda: side("other")}, 3)
    assert order == ["one", "other"] * 3
    assert (found["one"], found["other"], found.repeats) == (2.0, 2.0, 3)
    assert f"{found.ratio('one', 'other'):.1f}" == "2.0 × (0.5 to 3.0)"
    assert f"{Spread([1.5]):.2f}" == "1.50 ×"


def test_seconds_are_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 13.0])
    monkeypatch.setattr("benchmarks.common.time.perf_counter", lambda: next(clock))
    assert interleaved({"a": lambda: None}, 1)["a"] == 3.0
