"""What every result depends on selects a cell where it is not as it was in the cell's last run."""

import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from conformance.case.plan.catalogue import Selection, read_suite
from conformance.case.plan.cell import Cell
from conformance.front.commands import explain
from conformance.models.kept.changed import changed_since
from conformance.models.kept.fingerprint import OWN_CODE, PROCESSOR, UNKNOWN, conditions, conditions_hash, says
from conformance.models.kept.observed_dependencies import Now, Observed
from conformance.models.kept.results import Last, last, note_conditions, note_last
from tests.kit import runs
from tests.models.changed.support import commit, edit
from tests.results.baseline.support import record as recorded


def plain(repository: Path) -> list[Cell]:
    return read_suite([repository / "cases" / "plain.yaml"], Selection())[0]


def selected(repository: Path, runs: Callable[[Cell], Last | None]) -> dict[str, list[str]]:
    """The cells that are selected, and why, where ``runs`` says of each what its last run was."""
    cells = plain(repository)
    known = {cell.id: run for cell in cells if (run := runs(cell)) is not None}
    return changed_since("HEAD", [repository / "cases" / "plain.yaml"], cells, Selection(), known).reasons


def as_now(cell: Cell) -> Last:
    return Last(Observed(), says(cell), conditions_hash(), conditions())


def under(**were: str | None) -> Last:
    """A last run under other conditions than those of now."""
    before = {name: value for name, value in {**conditions(), **were}.items() if value is not None}
    return Last(Observed(), "", "another", before)


def test_a_cell_whose_last_run_was_under_the_conditions_of_now_is_not_selected(repository):
    assert selected(repository, as_now) == {}


@pytest.mark.parametrize("was, reason", [
    ({"the package onnxruntime": "1.0 abc"}, "the package onnxruntime: 1.0 -> "),
    ({"the package numpy": "files"}, "the package numpy: "),
    ({"the package numpy": f"{np.__version__} abc"}, "the package numpy: its files changed"),
    ({"the package onnx": None}, "the package onnx is new"),
    ({"the package gone": "1.0 abc"}, "the package gone is gone"),
    ({"the variable OMP_PLANTED": "abc"}, "the variable OMP_PLANTED is gone"),
    ({"Python": "3.9.1"}, "Python: 3.9.1 -> 3."), ({OWN_CODE: "abc"}, "this package's own code changed"),
    ({PROCESSOR: "abc"}, "the processor changed"), ({}, UNKNOWN),
])  # fmt: skip
def test_a_condition_that_changed_since_the_last_run_selects_the_cell(repository, was, reason):
    found = selected(repository, lambda cell: dataclasses.replace(under(**was), says=says(cell)))
    assert found.keys() == {cell.id for cell in plain(repository)}
    assert all(told.startswith(reason) for (told,) in found.values())


def test_what_the_case_says_is_compared_with_the_last_run_too(repository):
    edit(repository / "cases" / "plain.yaml", "1..4", "1..5")
    edited = {cell.id: says(cell) for cell in plain(repository)}
    edit(repository / "cases" / "plain.yaml", "1..5", "1..4")
    found = selected(repository, lambda cell: dataclasses.replace(as_now(cell), says=edited[cell.id]))
    assert set(map(tuple, found.values())) == {("what the case says changed since its last run",)}


def test_words_for_the_reader_do_not_count(repository):
    before = {cell.id: as_now(cell) for cell in plain(repository)}
    edit(repository / "cases" / "plain.yaml", "one with", "now with")
    assert selected(repository, lambda cell: before[cell.id]) == {}


def test_a_file_that_is_as_in_the_revision_but_not_as_in_the_last_run_selects_the_cell(repository):
    home = (repository / "cases").resolve()
    edit(home / "modules.py", "FACTOR = 2.0", "FACTOR = 3.0")
    edited = Observed(files={"modules.py": Now(home).file("modules.py")})
    edit(home / "modules.py", "FACTOR = 3.0", "FACTOR = 2.0")
    found = selected(repository, lambda cell: dataclasses.replace(as_now(cell), observed=edited))
    assert set(map(tuple, found.values())) == {("modules.py changed since its last run",)}


@pytest.mark.parametrize("kept", [None, {"files": {}}, {"files": 5, "says": "", "conditions": ""}, {}])
def test_an_entry_that_cannot_be_read_or_is_of_an_earlier_version_selects_the_cell(repository, tmp_path, kept):
    for cell in plain(repository):
        note_last(tmp_path / "index", cell, kept)
    found = selected(repository, lambda cell: last(tmp_path / "index", cell))
    assert found.keys() == {cell.id for cell in plain(repository)}
    assert set(map(tuple, found.values())) == {("what its last run used is not known",)}


def test_the_conditions_of_a_last_run_are_kept_one_by_one(repository, tmp_path):
    cell = plain(repository)[0]
    note_last(tmp_path, cell, {"says": "", "conditions": conditions_hash()})
    assert last(tmp_path, cell) == Last(Observed(), "", conditions_hash())
    note_conditions(tmp_path)
    assert last(tmp_path, cell) == Last(Observed(), "", conditions_hash(), conditions())


def test_whole_runs_select_and_explain_what_changed_around_a_cell(repository):
    # in processes of their own: one that has run cells takes variables for what they were as it began
    run_suite = partial(runs.run_suite, own_process=True)
    run_command = partial(runs.run_command, own_process=True)
    only = ("-k", "plain and torchscript and export")
    changed = (*only, "--changed-since", "HEAD", "--report", "reports/changed")
    assert run_suite(repository, *only).code == 0
    told = run_suite(repository, *changed, "--collect-only")
    assert re.search(r"^0 of \d+ cells depend on what changed", told.text, re.M), told.text
    explained = run_command(repository, "explain", "export*")
    assert (explained.code, "all that it used is as it was" in explained.text) == (0, True)

    planted = {"ORT_PLANTED_FOR_A_TEST": "1"}
    told = run_suite(repository, *changed, **planted)
    assert re.search(r"^1 of \d+ cells depend on what changed", told.text, re.M), told.text
    assert "the variable ORT_PLANTED_FOR_A_TEST is new" in told.text
    explained = run_command(repository, "explain", "export*", **planted)
    assert (explained.code, "the variable ORT_PLANTED_FOR_A_TEST is new" in explained.text) == (1, True)

    edit(repository / "cases" / "plain.yaml", "1..4", "1..5")
    commit(repository)
    told = run_suite(repository, *changed)
    assert "what the case says changed since its last run" in told.text
    explained = run_command(repository, "explain", "export*")
    assert "what the case says changed since its last run" in explained.text

    edit(repository / "cases" / "plain.yaml", "module:", "modlue:")
    explained = run_command(repository, "explain", "export*")
    assert "the case is gone, or its file has a mistake there" in explained.text


BOTH = """
one: {about: first, forward: torch.sin(x), inputs: {x: "float32[3]"}, export: {torchscript: [17]}}
two: {about: second, forward: x * 2, inputs: {x: "float32[3]"}, export: {torchscript: [17]}}
"""


def test_a_mistake_in_another_case_of_the_file_is_no_change_of_this_one(tmp_path):
    file = tmp_path / "cases.yaml"
    file.write_text(BOTH)
    record = recorded("export[one-torchscript-op17]", source={"file": str(file)})
    before = explain._says(record)
    file.write_text(BOTH.replace("forward: x * 2", "froward: x * 2"))
    assert explain._says(record) == before is not None
    file.write_text(BOTH.replace("torch.sin", "torch.cos"))
    assert explain._says(record) not in (None, before)
