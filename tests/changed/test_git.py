"""Revisions and repositories of every kind, and what is said where git cannot help."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conformance.depends.changed import changed_since
from conformance.plan.catalogue import Selection, read_suite
from tests.changed.support import cases_of, changes, edit, git
from tests.kit.runs import run_suite


@pytest.mark.parametrize("revision, words", [
    ("nowhere", "git knows no revision 'nowhere'"), ("", "no revision"), ("HEAD", "is in no git repository"),
])  # fmt: skip
def test_a_revision_or_a_repository_that_is_not_there_is_one_clear_line(repository, revision, words):
    if revision == "HEAD":
        shutil.rmtree(repository / ".git")
    done = run_suite(repository, "--changed-since", revision, GIT_CEILING_DIRECTORIES=str(repository.parent))
    assert done.code == 4
    assert words in done.text
    assert "Traceback" not in done.text


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
    assert cases_of(found.reasons) == {"plain"}
    assert found.gone == []
