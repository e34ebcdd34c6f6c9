"""Changes of files are noticed once, when they have come to rest."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.front.commands.watch import file_watcher
from conformance.front.commands.watch.file_watcher import WatchedFiles, folders, sign

pytestmark = pytest.mark.smoke


class Clock:
    """A clock that stands still but for ``sleep``, in whose pauses something happens."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now, self.meanwhile = 0.0, meanwhile

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


def watched(*paths: Path, clock: Clock | None = None) -> WatchedFiles:
    found = WatchedFiles(pause=0.0, clock=clock or Clock())
    found.expect({path: sign(path) for path in paths})
    return found


def test_a_save_in_several_steps_is_one_change(tmp_path):
    """As an editor saves: the old file is moved aside, a new one written in parts."""
    file = tmp_path / "a.py"
    file.write_text("A = 1\n")
    todo = [
        lambda: file.write_text("A = "), lambda: file.write_text("A = 2"), file.unlink,
        lambda: file.write_text("A = 22\n"),
    ]  # fmt: skip
    looked = watched(file, clock=Clock(lambda: todo and todo.pop(0)()))
    file.rename(tmp_path / "a.py~")
    changed = looked.look()
    assert changed is not None and changed.written == [file]
    assert not todo, "the change was told before the file was whole"
    assert looked.look() is None


def test_a_file_that_never_comes_to_rest_is_told_all_the_same(tmp_path):
    file = tmp_path / "log"
    file.write_text("")
    clock = Clock(lambda: file.write_text(str(clock.now)))
    looked = watched(file, clock=clock)
    file.write_text("first")
    changed = looked.look()
    assert changed is not None
    assert clock.now == pytest.approx(file_watcher.PATIENCE, abs=2 * file_watcher.QUIET)


def test_files_that_are_replaced_come_and_go_are_told_apart(tmp_path):
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


def test_hidden_folders_and_caches_are_not_looked_into(tmp_path):
    for name in ("a/b", "a/__pycache__", ".git/objects", ".conformance/models"):
        (tmp_path / name).mkdir(parents=True)
    assert {path.relative_to(tmp_path).as_posix() for path in folders(tmp_path)} == {".", "a", "a/b"}
