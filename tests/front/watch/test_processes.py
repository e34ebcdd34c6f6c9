"""``conformance watch`` as it is typed: a worker, cells that end it, files that are saved while it runs, Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.processes import PLENTY, TYPED, gone, waited_for

CASE = """
planted:
  about: a test of the harness
  module: beside.Planted
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..2}
  export: {torchscript: [17]}
  runtimes: onnxruntime
  specials: false
"""
MODULE = """
import os, time, torch
class Planted(torch.nn.Module):
    def forward(self, x):
        return x * 1.0 + x.sin()
"""


class Typed:
    """A watch in a process of its own, and what it has said."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "said.txt"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self.log.open("wb") as log:
            program = f"{TYPED}from conformance.front.cli import main\nsys.exit(main())"
            command = [sys.executable, "-c", program, "watch", *arguments]
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
        self._told = 0

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")[self._told :]

    def until(self, words: str) -> str:
        """What it has said since the last time, once that is among it."""
        waited_for(lambda: words in self.said() or self.process.poll() is not None, self.said)
        said = self.said()
        assert words in said
        self._told += len(said)
        return said

    def interrupt(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PLENTY), self.said()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases/planted.yaml").write_text(CASE)
    (tmp_path / "cases/beside.py").write_text(MODULE)
    return tmp_path


@pytest.fixture
def typed(folder: Path) -> Iterator[Typed]:
    watch = Typed(folder)
    yield watch
    if watch.process.poll() is None:
        watch.process.kill()
        watch.process.wait()


REST = "Ctrl-C ends"


def test_edits_reach_the_cells_whatever_the_last_one_did(folder, typed):
    beside = folder / "cases/beside.py"
    first = typed.until(REST)
    assert re.search(r"2 cells: 2 passed; \d+ examples verified", first), first

    old, new = beside.stat(), folder / "new.py"
    new.write_text(MODULE.replace("x.sin()", "x.nix()"))
    os.utime(new, ns=(old.st_atime_ns, old.st_mtime_ns + 1))  # in the same second and as long: to Python the old file
    new.replace(beside)
    assert "2 cells: 2 failed" in typed.until(REST)

    beside.write_text(MODULE.replace("x * 1.0", "x / int(x.shape[0])"))
    wrong = typed.until(REST)
    assert "cases/beside.py changed: 2 of 2 cells to run" in wrong and "FAILED" in wrong
    assert "reproduce: conformance run -k" in wrong

    beside.write_text(MODULE.replace("return x", "os.abort(); return x"))
    dead = typed.until(REST)
    assert "SIGABRT" in dead and "2 cells: 2 failed" in dead

    beside.write_text("import nothing_of_that_name\n" + MODULE)
    missing = typed.until(REST)
    assert "beside.py does not import: ModuleNotFoundError" in missing and "(beside.py:1)" in missing

    (folder / ".conformance").rename(folder / "elsewhere")  # at once, as a cell may still be writing to it
    beside.write_text(MODULE)
    assert "2 cells: 2 passed" in typed.until(REST)
    assert (folder / ".conformance/.gitignore").is_file()

    code, end = typed.interrupt()
    assert code == 0
    assert end.splitlines()[-1].startswith("2 cells: 2 passed")


def save_a_cell_that_hangs(folder: Path, typed: Typed) -> int:
    """Wait until it runs; give its process."""
    mark = folder / "running"
    mark.unlink(missing_ok=True)
    hangs = f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(999)"
    (folder / "cases/beside.py").write_text(MODULE.replace("        return", f"        {hangs}\n        return"))
    return int(waited_for(mark.read_text, typed.said))


def test_a_cell_that_hangs_gives_way_to_the_next_save_and_ends_with_ctrl_c(folder, typed):
    typed.until(REST)
    first = save_a_cell_that_hangs(folder, typed)
    (folder / "cases/beside.py").write_text(MODULE.replace("1.0", "2.0"))
    assert "2 cells: 2 passed" in typed.until(REST)
    second = save_a_cell_that_hangs(folder, typed)
    code, end = typed.interrupt()
    assert "Traceback" not in end and "2 cells without a verdict on the files as they are" in end
    assert code == 0 and gone(first) and gone(second)
