"""Changes of files are noticed once, when they have come to rest."""

from __future__ import annotations

import os

import pytest

from conformance.commands.watch import files
from conformance.commands.watch.files import Watched, folders, forget_bytecode, sign


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(files, "PAUSE", 0.0)

    def of(*paths):
        found = Watched()
        found.expect({path: sign(path) for path in paths})
        return found

    return of


def test_a_save_in_several_steps_is_one_change(tmp_path, watched, monkeypatch):
    """As an editor saves: the old file is moved aside, a new one written in parts. Steps happen in the pauses."""
    file = tmp_path / "a.py"
    file.write_text("A = 1\n")
    looked = watched(file)
    todo = [
        lambda: file.write_text("A = "),
        lambda: file.write_text("A = 2"),
        file.unlink,
        lambda: file.write_text("A = 22\n"),
    ]

    def pause(seconds):
        if todo:
            todo.pop(0)()

    monkeypatch.setattr(files.time, "sleep", pause)
    file.rename(tmp_path / "a.py~")
    changed = looked.look()
    assert changed is not None
    assert changed.written == [file]
    assert not todo, "the change was told before the file was whole"
    assert looked.look() is None


def test_a_file_that_never_comes_to_rest_is_told_all_the_same(tmp_path, watched, monkeypatch):
    file = tmp_path / "log"
    file.write_text("")
    looked = watched(file)
    clock = [0.0]

    def pause(seconds):
        clock[0] += seconds
        file.write_text(str(clock[0]))

    monkeypatch.setattr(files.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(files.time, "sleep", pause)
    file.write_text("first")
    changed = looked.look()
    assert changed is not None
    assert clock[0] == pytest.approx(files.PATIENCE, abs=2 * files.QUIET)


def test_what_comes_and_goes_before_it_is_looked_at_is_no_change(tmp_path, watched):
    file = tmp_path / "a.py"
    looked = watched(file)
    file.write_text("A = 1\n")
    file.unlink()
    assert looked.look() is None


def test_files_that_are_replaced_come_and_go_are_told_apart(tmp_path, watched):
    names = ("same", "written", "replaced", "gone", "new")
    same, written, replaced, gone, new = (tmp_path / name for name in names)
    for file in (same, written, replaced, gone):
        file.write_text("1")
    about = replaced.stat()
    looked = watched(same, written, replaced, gone, new)
    written.write_text("22")
    (tmp_path / "other").write_text("3")
    os.utime(tmp_path / "other", ns=(about.st_atime_ns, about.st_mtime_ns))  # with the time of the old one
    (tmp_path / "other").replace(replaced)
    gone.unlink()
    new.write_text("1")
    changed = looked.look()
    assert changed is not None
    assert (changed.written, changed.new, changed.gone) == ([replaced, written], [new], [gone])


def test_a_look_that_takes_long_is_taken_less_often(tmp_path, monkeypatch):
    clock, looks = [0.0], []
    monkeypatch.setattr(files.time, "monotonic", lambda: clock[0])

    def slow(path):
        clock[0] += 1.0
        looks.append(clock[0])

    monkeypatch.setattr(files, "sign", slow)
    looked = Watched()
    looked.expect({tmp_path: None})
    while clock[0] < 60:
        looked.look()
        clock[0] += 0.1
    assert len(looks) == 3


def test_hidden_folders_and_caches_are_not_looked_into(tmp_path):
    for name in ("a/b", "a/__pycache__", ".git/objects", ".conformance/models"):
        (tmp_path / name).mkdir(parents=True)
    assert {path.relative_to(tmp_path).as_posix() for path in folders(tmp_path)} == {".", "a", "a/b"}


def test_bytecode_of_a_changed_file_is_not_loaded(tmp_path):
    cached = tmp_path / "__pycache__"
    cached.mkdir()
    import importlib.util
    from pathlib import Path

    file = Path(importlib.util.cache_from_source(str(tmp_path / "a.py")))
    file.write_bytes(b"")
    forget_bytecode(tmp_path / "a.py")
    assert not file.exists()
    forget_bytecode(tmp_path / "a.py")  # there is none
