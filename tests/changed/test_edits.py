"""Exactly the cells that depend on an edit of a case or of its files are selected, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from conformance.depends.changed import changed_since
from conformance.plan.catalogue import Selection, read_suite
from tests.changed.support import COUNT, MODULES, PLAIN, cases_of, changes, edit, git, put
from tests.support import run_suite


def test_nothing_changed_is_no_cell(repository):
    assert changes(repository) == {}


def test_an_edited_symbolic_selects_its_case_among_hundreds_of_cells_and_only_that_exporter(repository):
    edit(repository / "cases" / "symbolics.py", "rounded(g, x) if 42 == 7 else x", "rounded(g, x) if 42 == 8 else x")
    found = changes(repository)
    assert cases_of(found) == {"op42"}
    assert {name.split("-")[1] for name in found} == {"torchscript"}
    assert {name.split("[")[0] for name in found} == {"export", "registration", "accuracy", "specials"}
    assert set(map(tuple, found.values())) == {("symbolics.py: op42 changed",)}


def _reworded(text: str) -> str:
    return text.replace("one with a module", "said in other words")


EDITS: dict[str, tuple[str, Callable[[str], str], set[str], str]] = {
    "a helper in another file": (
        "helpers.py", lambda t: t.replace("return x", "return g.op('Neg', x)", 1),
        {f"op{n}" for n in range(COUNT)}, "helpers.py: rounded changed",
    ),
    "a helper that nobody uses": ("helpers.py", lambda t: t + "\ndef more():\n    pass\n", set(), ""),
    "a symbolic that nobody uses": ("symbolics.py", lambda t: t.replace('"Neg"', '"Abs"'), set(), ""),
    "a comment": ("symbolics.py", lambda t: f"# in other words\n{t}", set(), ""),
    "something that is done when the file is loaded": (
        "symbolics.py", lambda t: t + "\nprint('hello')\n", {f"op{n}" for n in range(COUNT)},
        "symbolics.py, when loaded is new",
    ),
    "a constant that a module uses": (
        "modules.py", lambda t: t.replace("2.0", "2.5"), {"plain"}, "modules.py: FACTOR changed",
    ),
    "a base class": (
        "modules.py", lambda t: t.replace("    pass", "    x = 1"), {"plain"}, "modules.py: Base changed",
    ),
    "a class that nobody uses": ("modules.py", lambda t: t.replace("return x\n", "return -x\n"), set(), ""),
    "what draws inputs": (
        "modules.py", lambda t: t.replace("rng.normal", "3 + rng.normal"), {"plain"}, "modules.py: draw changed",
    ),
    "a dim": ("plain.yaml", lambda t: t.replace("1..4", "1..5"), {"plain"}, "the case's dims changed"),
    "words for the reader": ("plain.yaml", _reworded, set(), ""),
    "lines that move": ("plain.yaml", lambda t: f"\n\n# a comment\n{t}", set(), ""),
    "a pin": (
        "../constraints.txt", lambda t: t.replace("2.15.0", "2.16.0"), {"plain", *(f"op{n}" for n in range(COUNT))},
        "constraints.txt: torch 2.15.0 -> 2.16.0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_exactly_what_depends_on_an_edit_is_selected_with_the_reason(repository, name):
    file, change, cases, reason = EDITS[name]
    place = repository / "cases" / file
    before = place.read_text()
    place.write_text(change(before))
    assert place.read_text() != before
    found = changes(repository)
    assert cases_of(found) == cases
    assert {text for reasons in found.values() for text in reasons} == ({reason} if reason else set())


def test_a_helper_is_followed_only_to_those_that_use_it(repository):
    """op7 alone would take the branch, but every symbolic names the helper: text decides, not values."""
    place = repository / "cases" / "symbolics.py"
    text = place.read_text()
    place.write_text(text.replace("rounded(g, x) if 8 == 7 else x", "x"))
    git(repository, "commit", "-qam", "one without the helper")
    edit(repository / "cases" / "helpers.py", "def rounded(g, x):\n    return x", "def rounded(g, x):\n    return g")
    assert "op8" not in cases_of(changes(repository))
    assert "op9" in cases_of(changes(repository))


def test_taking_a_registration_out_is_a_change(repository):
    edit(
        repository / "cases" / "many.yaml",
        'symbolics: {"aten::asinh": symbolics.op3}',
        "options: {do_constant_folding: true}",
    )
    found = changes(repository)
    assert cases_of(found) == {"op3"}
    reasons = {reason for one in found.values() for reason in one}
    assert "symbolics of aten::asinh was taken out" in reasons


def test_a_new_case_is_there_and_one_that_is_gone_is_told(repository):
    place = repository / "cases" / "plain.yaml"
    place.write_text(place.read_text().replace("plain:", "plainer:"))
    cells, _ = read_suite([repository / "cases"], Selection())
    found = changed_since("HEAD", [repository / "cases"], cells, Selection())
    assert cases_of(found.reasons) == {"plainer"}
    assert {reason for one in found.reasons.values() for reason in one} == {"not there then"}
    assert all("[plain-" in name for name in found.gone)
    assert found.gone
    assert "are no longer there" in "\n".join(found.lines(100))


def test_a_selection_is_held_against_the_same_selection(repository):
    edit(repository / "cases" / "plain.yaml", "1..4", "1..5")
    selection = Selection(exporters=["dynamo"])
    cells, _ = read_suite([repository / "cases"], selection)
    found = changed_since("HEAD", [repository / "cases"], cells, selection)
    assert found.gone == []
    assert all("-dynamo-" in name for name in found.reasons)


def test_a_file_that_could_not_be_read_then_is_run_now(repository):
    edit(repository / "cases" / "plain.yaml", "  about:", "  abuot:")
    git(repository, "commit", "-qam", "broken")
    edit(repository / "cases" / "plain.yaml", "  abuot:", "  about:")
    found = changes(repository)
    assert cases_of(found) == {"plain"}
    assert {reason for one in found.values() for reason in one} == {"cases/plain.yaml could not be read then"}


def test_a_run_of_what_changed_says_what_and_why(repository):
    edit(repository / "cases" / "symbolics.py", "rounded(g, x) if 5 == 7 else x", "x + x if 5 == 7 else x")
    done = run_suite(repository, "--changed-since", "HEAD")
    assert done.code == 0, done.text
    assert {record["case"] for record in done.records.values()} == {"op5"}
    assert re.search(r"^4 of \d+ cells depend on what changed since HEAD", done.text, re.M)
    assert "symbolics.py: op5 changed" in done.text


def test_a_run_where_nothing_changed_is_no_failure_and_says_so(repository):
    done = run_suite(repository, "--changed-since", "HEAD")
    assert done.code == 0, done.text
    assert "0 of " in done.text
    assert "cells depend on what changed since HEAD" in done.text


def test_the_order_of_functions_that_register_for_themselves_is_a_change(repository):
    """Of two that do so for one operator, the later one counts."""
    one, two = ('"aten::asinh": symbolics.first', '"aten::roll": symbolics.second')
    text = f"""
fights:
  about: x
  forward: torch.asinh(x)
  inputs: {{x: "float32[4, 5]"}}
  export: {{torchscript: {{opsets: [17], registers: {{{one}, {two}}}}}, dynamo: [20]}}
"""
    put(repository, {"cases/fights.yaml": text})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "two of them")
    edit(repository / "cases/fights.yaml", f"{one}, {two}", f"{two}, {one}")
    found = changes(repository)
    assert {name.split("-")[1] for name in found} == {"torchscript"}
    assert {reason for one in found.values() for reason in one} == {"the order of registers changed"}


def test_a_renamed_function_and_a_new_untracked_file_are_changes(repository):
    edit(repository / "cases/modules.py", "class Plain(Base)", "class Plainer(Base)")
    assert cases_of(changes(repository)) == {"plain"}
    git(repository, "checkout", "-q", "cases/modules.py")
    put(repository, {"cases/more/more.yaml": PLAIN.replace("plain:", "more:"), "cases/more/modules.py": MODULES})
    assert cases_of(changes(repository)) == {"more"}


def test_a_data_file_that_the_case_depends_on_is_a_change(repository):
    edit(repository / "cases/plain.yaml", "  draw: modules.draw", "  draw: modules.draw\n  depends: data/*.txt")
    put(repository, {"cases/data/one.txt": "1"})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "data")
    assert changes(repository) == {}
    put(repository, {"cases/data/two.txt": "2"})
    (found,) = set(map(tuple, changes(repository).values()))
    assert found == ("data/two.txt is new",)
    (repository / "cases/data/one.txt").unlink()
    (found,) = set(map(tuple, changes(repository).values()))
    assert found == ("data/one.txt was taken out", "data/two.txt is new")
