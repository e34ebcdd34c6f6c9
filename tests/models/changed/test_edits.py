"""Exactly the cells that depend on an edit are selected, with the reason; and what is said where git cannot help."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.case.plan.catalogue import Selection, read_suite
from conformance.models.kept.changed import changed_since
from tests.kit.runs import run_suite
from tests.models.changed.support import COUNT, MODULES, PLAIN, cases_of, changes, commit, edit, git, put

EDITS: dict[str, tuple[str, Callable[[str], str], set[str], str]] = {
    "a helper in another file": ("helpers.py", lambda t: t.replace("return x", "return g.op('Neg', x)", 1),
        {f"op{n}" for n in range(COUNT)}, "helpers.py changed"),
    "a symbolic that nobody uses": ("symbolics.py", lambda t: t.replace('"Neg"', '"Abs"'), set(), ""),
    "something that is done when the file is loaded": (
        "symbolics.py", lambda t: t + "\nprint('hello')\n", {f"op{n}" for n in range(COUNT)},
        "symbolics.py, when loaded changed",
    ),
    "a constant that a module uses": (
        "modules.py", lambda t: t.replace("2.0", "2.5"), {"plain"}, "modules.py: FACTOR changed",
    ),
    "a base class": (
        "modules.py", lambda t: t.replace("    pass", "    x = 1"), {"plain"}, "modules.py: Base changed",
    ),
    "what draws inputs": (
        "modules.py", lambda t: t.replace("rng.normal", "3 + rng.normal"), {"plain"}, "modules.py: draw changed",
    ),
    "a dim": ("plain.yaml", lambda t: t.replace("1..4", "1..5"), {"plain"}, "the case's dims changed"),
    "words for the reader": ("plain.yaml", lambda t: t.replace("one with", "now with"), set(), ""),
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
    assert {reason} <= {text for reasons in found.values() for text in reasons} or not reason


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
    assert all("[plain-" in name for name in found.gone) and found.gone
    assert "are no longer there" in "\n".join(found.lines(100))


def test_a_selection_is_held_against_the_same_selection(repository):
    edit(repository / "cases" / "plain.yaml", "1..4", "1..5")
    selection = Selection(exporters=["dynamo"])
    cells, _ = read_suite([repository / "cases"], selection)
    found = changed_since("HEAD", [repository / "cases"], cells, selection)
    assert found.gone == [] and all("-dynamo-" in name for name in found.reasons)


def test_a_run_of_what_changed_says_what_and_why(repository):
    edit(repository / "cases" / "symbolics.py", "rounded(g, x) if 5 == 7 else x", "x + x if 5 == 7 else x")
    done = run_suite(repository, "--changed-since", "HEAD")
    assert done.code == 0, done.text
    assert {(record["case"], record["exporter"]) for record in done.records.values()} == {("op5", "torchscript")}
    assert {record["check"] for record in done.records.values()} == {"export", "registration", "accuracy", "specials"}
    assert re.search(r"^4 of \d+ cells depend on what changed since HEAD", done.text, re.M)
    assert "symbolics.py: op5 changed" in done.text


def test_a_renamed_function_and_a_new_untracked_file_are_changes(repository):
    edit(repository / "cases/modules.py", "class Plain(Base)", "class Plainer(Base)")
    assert cases_of(changes(repository)) == {"plain"}
    git(repository, "checkout", "-q", "cases/modules.py")
    put(repository, {"cases/more/more.yaml": PLAIN.replace("plain:", "more:"), "cases/more/modules.py": MODULES})
    assert cases_of(changes(repository)) == {"more"}


def test_a_data_file_that_the_case_depends_on_is_a_change(repository):
    edit(repository / "cases/plain.yaml", "  draw: modules.draw", "  draw: modules.draw\n  depends: data/*.txt")
    put(repository, {"cases/data/one.txt": "1"})
    commit(repository)
    assert changes(repository) == {}
    put(repository, {"cases/data/two.txt": "2"})
    (found,) = set(map(tuple, changes(repository).values()))
    assert found == ("data/two.txt is new",)
    (repository / "cases/data/one.txt").unlink()
    (found,) = set(map(tuple, changes(repository).values()))
    assert found == ("data/one.txt was taken out", "data/two.txt is new")


LATER = "import sys; sys.path.insert(0, __file__.removesuffix('cases/modules.py') + 'lib'); import way_of_factor"


def test_what_the_last_run_observed_selects_what_source_text_does_not_show(repository):
    edit(repository / "cases/modules.py", "FACTOR = 2.0", LATER)
    edit(repository / "cases/modules.py", "x * FACTOR", "x * way_of_factor.FACTOR")
    put(repository, {"lib/way_of_factor.py": "FACTOR = 2.0\n", "lib/other.py": ""})
    commit(repository)
    only = ("-k", "plain and torchscript and export")
    assert run_suite(repository, *only).code == 0
    assert run_suite(repository, *only, "--changed-since", "HEAD").code in (0, 5)
    edit(repository / "lib/way_of_factor.py", "2.0", "3.0")
    done = run_suite(repository, *only, "--changed-since", "HEAD", "--report", "reports/elsewhere")
    assert re.search(r"^1 of \d+ cells depend", done.text, re.M) and "lib/way_of_factor.py changed" in done.text


@pytest.mark.parametrize("revision, words", [
    ("nowhere", "git knows no revision 'nowhere'"), ("", "no revision"), ("HEAD", "is in no git repository"),
])  # fmt: skip
def test_a_revision_or_a_repository_that_is_not_there_is_one_clear_line(repository, revision, words):
    if revision == "HEAD":
        shutil.rmtree(repository / ".git")
    done = run_suite(repository, "--changed-since", revision, GIT_CEILING_DIRECTORIES=str(repository.parent))
    assert done.code == 4 and words in done.text and "Traceback" not in done.text


def test_without_git_that_is_said(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(ValueError, match=r"git cannot be run \(No such file or directory\)"):
        changes(repository)


def test_a_shallow_clone_is_told_how_to_get_the_rest(repository, tmp_path):
    git(repository, "commit", "-qm", "a second one", "--allow-empty")
    there = tmp_path / "a clone"
    git(tmp_path, "clone", "-q", "--depth=1", repository.as_uri(), str(there))
    cells, _ = read_suite([there / "cases"], Selection())
    assert changed_since("HEAD", [there / "cases"], cells, Selection()).reasons == {}
    with pytest.raises(ValueError, match=r"no revision 'HEAD~1'; this is a shallow clone.*fetch-depth: 0"):
        changed_since("HEAD~1", [there / "cases"], cells, Selection())


def test_a_detached_head_in_a_folder_with_spaces_and_from_a_folder_below(repository, tmp_path, monkeypatch):
    there = tmp_path / "a folder, as it is"
    repository.rename(there)
    git(there, "checkout", "-q", "--detach")
    edit(there / "cases/plain.yaml", "1..4", "1..5")
    monkeypatch.chdir(there / "cases")
    cells, _ = read_suite([Path("plain.yaml")], Selection())
    found = changed_since("HEAD", [Path("plain.yaml")], cells, Selection())
    assert cases_of(found.reasons) == {"plain"} and found.gone == []
