"""The benchmarks run, and their table has its form. Nothing here looks at a time."""

from benchmarks import published, whole_run
from benchmarks.common import Row, Spread
from evidence.depends.page import rows_of
from evidence.depends.run import Outcome
from tests.plants.depends.way import Way


def cells(line: str) -> list[str]:
    assert line.startswith("| ") and line.endswith(" |")
    return [cell.strip() for cell in line[1:-1].split("|")]


def test_a_group_that_is_measured_again_leaves_the_sections_of_others(tmp_path):
    page = tmp_path / "benchmarks.md"
    groups = ("whole_run", "examples", "dynamo")
    for group, what in (("examples", "old"), ("dynamo", "kept"), ("whole_run", "first"), ("examples", "new")):
        published.write(group, whole_run, [Row(what, "1 s")], "on a host", groups, page)
    text = page.read_text(encoding="utf-8")
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert heads == ["whole_run", "examples", "dynamo", "Notes"]
    assert text.index("| first |") < text.index("| new |") < text.index("| kept |") and "| old |" not in text
    assert text.count("on a host") == 3 and text.count("Whole runs, process start included") == 3
    published.write("dynamo", whole_run, [Row("kept", "1 s")], "on a host", groups, page)
    assert page.read_text(encoding="utf-8") == text


def test_a_target_that_only_some_repeats_meet_is_unclear():
    assert Spread([1.3, 1.4]).meets(1.5) is True and Spread([1.6, 1.7]).meets(1.5) is False
    assert Spread([1.4, 1.6]).meets(1.5) == "unclear" and Spread([3.1, 3.5]).meets(3, at_least=True) is True
    assert Spread([2.9, 3.5]).meets(3, at_least=True) == "unclear"
    assert cells(Row("a", "1 s", target="x", met="unclear").line())[-1] == "unclear"


def test_a_way_to_depend_counts_only_where_it_was_green_and_a_fresh_store_is_red():
    said = [
        ("passed", "failed", []), ("passed", "failed", ["a"]), ("passed", "passed", []),
        ("failed", "failed", ["a"]),
    ]  # fmt: skip
    found = [
        Outcome(Way("w", "w"), {"a": (a, "")}, {"a": (b, "")}, {"plain": stale}, {"unchanged": True})
        for a, b, stale in said
    ]
    unseen = Way("u", "u", unobservable="C code reads it")
    found += [Outcome(unseen, {"a": ("passed", "")}, {"a": ("failed", "")}, {"plain": ["a"]}, {"unchanged": True})]
    measured = {row.what: row.measured for row in rows_of(found)}
    assert measured["of them not to be observed"] == measured["of these not seen as they are declared"] == "1"
    assert measured["ways to depend on something"] == "3" and measured["ways that prove nothing"] == "2"
    assert measured["stale greens, plain"] == "1"
