"""--changed-since: exactly the cells that depend on what changed, and why; in a repository with hundreds of cases."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.changed import changed_since
from conformance.plan import Selection
from conformance.slices import Slices
from conformance.suite import read_suite
from tests.support import run_suite

COUNT = 120
"""Cases with a symbolic of their own, all of which stand in one file."""

SYMBOLICS = """
from helpers import rounded

def shared(g, x):
    return g.op("Identity", x)

def unused(g, x):
    return g.op("Neg", x)
"""
CASES = """
defaults:
  runtimes: onnxruntime
  export: {torchscript: [17], dynamo: [20]}
"""
ONE = """
op{n}:
  about: one of many
  forward: torch.asinh(x)
  inputs: {{x: "float32[batch, 5]"}}
  dims: {{batch: 1..4}}
  export: {{torchscript: {{opsets: [17], symbolics: {{"aten::asinh": symbolics.op{n}}}}}, dynamo: [20]}}
"""
PLAIN = """
plain:
  about: one with a module
  module: modules.Plain
  inputs: {x: "float32[batch, 5]"}
  dims: {batch: 1..4}
  draw: modules.draw
"""
MODULES = """
import torch
import numpy as np

FACTOR = 2.0

class Base(torch.nn.Module):
    pass

class Plain(Base):
    def forward(self, x):
        return x * FACTOR

class Other(torch.nn.Module):
    def forward(self, x):
        return x

def draw(dims, rng):
    return {"x": rng.normal(size=(dims["batch"], 5)).astype(np.float32)}
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    cases = folder / "cases"
    cases.mkdir()
    symbolics = SYMBOLICS + "".join(
        f"\ndef op{n}(g, x):\n    return g.op('Asinh', rounded(g, x) if {n} == 7 else x)\n" for n in range(COUNT)
    )
    (cases / "symbolics.py").write_text(symbolics)
    (cases / "helpers.py").write_text("def rounded(g, x):\n    return x\n\ndef other(g, x):\n    return x\n")
    (cases / "modules.py").write_text(MODULES)
    (cases / "many.yaml").write_text(CASES + "".join(ONE.format(n=n) for n in range(COUNT)))
    (cases / "plain.yaml").write_text(PLAIN)
    (folder / "constraints.txt").write_text("torch==2.15.0\nonnx==1.23.2\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "as it was")
    return folder


@pytest.fixture
def repository(original, tmp_path) -> Path:
    subprocess.run(["cp", "-r", str(original), str(tmp_path / "r")], check=True)
    return tmp_path / "r"


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, text.count(old)
    file.write_text(text.replace(old, new))


def changes(repository: Path, selection: Selection | None = None) -> dict[str, list[str]]:
    selection = selection or Selection()
    cells, files = read_suite([repository / "cases"], selection)
    assert not any(files.values())
    return changed_since("HEAD", [repository / "cases"], cells, selection).reasons


def cases_of(found: dict[str, list[str]]) -> set[str]:
    return {name.split("[")[1].split("-")[0] for name in found}


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


@pytest.mark.parametrize("revision, words", [("nowhere", "git knows no revision 'nowhere'"), ("", "no revision")])
def test_a_revision_that_is_not_there_is_one_clear_line(repository, revision, words):
    done = run_suite(repository, "--changed-since", revision)
    assert done.code == 4
    assert words in done.text
    assert "Traceback" not in done.text


def test_outside_of_a_repository_that_is_said(repository):
    subprocess.run(["rm", "-rf", str(repository / ".git")], check=True)
    done = run_suite(repository, "--changed-since", "HEAD", GIT_CEILING_DIRECTORIES=str(repository.parent))
    assert done.code == 4
    assert "is in no git repository" in done.text


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


def test_names_that_are_computed_make_the_whole_file_count(tmp_path):
    (tmp_path / "one.py").write_text("def a(x):\n    return globals()['b'](x)\n\ndef b(x):\n    return x\n")
    before = Slices([]).parts(tmp_path, "one.a")
    edit(tmp_path / "one.py", "    return x\n", "    return -x\n")
    assert Slices([]).parts(tmp_path, "one.a") != before


def test_a_function_that_is_registered_when_loaded_counts_for_the_whole_file(tmp_path):
    text = textwrap.dedent(
        """
        import torch

        @torch.library.custom_op("own::op", mutates_args=())
        def op(x: torch.Tensor) -> torch.Tensor:
            return x

        def module():
            return torch.nn.Identity()
        """
    )
    (tmp_path / "one.py").write_text(text)
    before = Slices([]).parts(tmp_path, "one.module")
    edit(tmp_path / "one.py", "    return x\n", "    return -x\n")
    assert Slices([]).parts(tmp_path, "one.module") != before
