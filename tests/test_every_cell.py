"""Whatever a cell does to the processes of a run, each cell that was run has one record, and it is its own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from conformance.checks.runner import Ran, Runner
from conformance.plan.settings import Settings
from conformance.records.record import Record
from conformance.worker.isolation import Death, WorkerError
from tests.support import Bench, Outcome, run_suite

BODY = """
module: beside.{name}
inputs: {{x: "float32[batch, 3]"}}
dims: {{batch: 1..9}}
export: {{torchscript: [17]}}
runtimes: onnxruntime
specials: false
"""
HOSTILE = """
import os, signal, subprocess, sys, time
import torch

class Hostile(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 9 and not torch.jit.is_tracing():
            self.act()
        return torch.sin(x)

class Exits(Hostile):
    def act(self):
        if os.fork() == 0:
            sys.exit(0)

class Returns(Hostile):
    def act(self):
        os.fork()

class Writes(Hostile):
    def act(self):
        for fd in range(3, 4096):
            try:
                os.write(fd, b"\\0\\0\\0\\x10garbage!")
            except OSError:
                pass

class Closes(Hostile):
    def act(self):
        os.closerange(3, 4096)

class Leaves(Hostile):
    def act(self):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "SECONDS"])
            os._exit(0)

class Kills(Hostile):
    def act(self):
        parent = os.getppid()
        if "forkserver" in open(f"/proc/{parent}/cmdline").read():
            os.kill(parent, signal.SIGKILL)
"""
SECONDS = f"5417.{os.getpid()}"  # by which a process is known to be of this run of the tests
NAMES = ("Exits", "Returns", "Writes", "Closes", "Leaves", "Kills")


def write(folder: Path) -> Path:
    """A folder with cases that are hostile, and sound ones between them."""
    cases = folder / "cases"
    cases.mkdir(parents=True)
    (cases / "beside.py").write_text(HOSTILE.replace("SECONDS", SECONDS))
    for number, name in enumerate(NAMES):
        for case, module in ((f"c{number}_{name.lower()}", f"module: beside.{name}"),
                             (f"c{number}_sound", "forward: torch.cos(x)")):  # fmt: skip
            body = BODY.format(name=name).replace(f"module: beside.{name}", module)
            text = "\n".join(f"  {line}" for line in body.strip().splitlines())
            (cases / f"{case}.yaml").write_text(f"{case}:\n  about: a test of the harness\n{text}\n")
    return folder


@pytest.fixture(scope="module", params=["one process", "xdist"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = write(tmp_path_factory.mktemp("hostile"))
    return run_suite(folder, "--examples", "1", *(["-n", "2"] if request.param == "xdist" else []))


def test_every_cell_has_one_record_and_it_is_its_own(run: Outcome) -> None:
    labels = [f"c{n}_{what}-torchscript-op17" for n, name in enumerate(NAMES) for what in (name.lower(), "sound")]
    wanted = {f"export[{label}]" for label in labels} | {f"accuracy[{label}-onnxruntime-fp32]" for label in labels}
    assert run.records.keys() == wanted, run.text
    for id, record in run.records.items():
        assert record["case"] in id
        nodes = (record["graph"] or {}).get("nodes")
        assert nodes in (None, {"Cos": 1} if "sound" in id else {"Sin": 1}), id


def test_a_sound_cell_beside_hostile_ones_passes(run: Outcome) -> None:
    assert {record["status"] for id, record in run.records.items() if "sound" in id} == {"passed"}, run.text
    assert "INTERNALERROR" not in run.text


def test_what_a_cell_started_does_not_outlive_the_run(run: Outcome) -> None:
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            lines.append(file.read_bytes())
    assert lines
    assert not any(SECONDS.encode() in line for line in lines)


# ---- what the harness itself could not run -------------------------------------------------------------------

SOUND = """
sound:
  about: passes everywhere
  forward: torch.sin(x)
  inputs: {x: "float32[batch, 3]"}
  dims: {batch: 1..4}
  export: {torchscript: [17]}
  runtimes: onnxruntime
  specials: false
"""
ID = "accuracy[sound-torchscript-op17-onnxruntime-fp32]"


def run_spied(folder: Path, spy: str, *arguments: str) -> Outcome:
    (folder / "cases").mkdir(parents=True)
    (folder / "cases/sound.yaml").write_text(SOUND)
    (folder / "spy.py").write_text(spy)
    return run_suite(folder, "-p", "spy", *arguments, PYTHONPATH=f"{folder}:{Path(__file__).parents[1]}")


def test_a_cell_whose_process_of_xdist_ended_has_a_record(tmp_path: Path) -> None:
    spy = """
import os

def pytest_runtest_call(item):
    if "test_accuracy[sound-" in item.nodeid:
        os._exit(9)
"""
    outcome = run_spied(tmp_path, spy, "-n", "1")
    assert outcome.code == 1, outcome.text
    assert len(outcome.records) == 2
    record = outcome.records[ID]
    assert (record["status"], record["error"], record["fault"]) == ("failed", "ProcessLost", "harness")
    assert "crashed while running" in record["reason"]
    assert record["command"].startswith("pytest ")


def test_a_cell_at_which_the_harness_fails_has_a_record(tmp_path: Path) -> None:
    spy = """
from conformance.plugin.running import Running

def fail(self, cell):
    raise LookupError("planted")

Running._absence = fail
"""
    outcome = run_spied(tmp_path, spy)
    assert outcome.code == 1, outcome.text
    assert len(outcome.records) == 2
    for record in outcome.records.values():
        assert (record["status"], record["error"], record["fault"]) == ("failed", "LookupError", "harness")


def test_a_record_of_another_cell_is_not_taken_for_this_one(tmp_path: Path) -> None:
    spy = """
from conformance.plugin.running import Running

made = Running.__call__

def swapped(self, cell):
    record = made(self, cell)
    return {**record, "id": "export[another-torchscript-op17]"} if cell.check == "accuracy" else record

Running.__call__ = swapped
"""
    outcome = run_spied(tmp_path, spy)
    assert outcome.code == 1, outcome.text
    record = outcome.records[ID]
    assert (record["status"], record["error"], record["fault"]) == ("failed", "BadAnswer", "harness")
    assert record["reason"] == "its test came with the record of export[another-torchscript-op17]"


class Answers:
    """A worker that gives these answers in turn, and raises those that are exceptions."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.replaced, self.running = list(answers), 0, True
        self.left: tuple[str, ...] = ()

    def begin(self, *call: object) -> None:
        pass

    def finish(self, **_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def replace(self) -> None:
        self.replaced += 1


@pytest.mark.parametrize(
    "answer, error, reason",
    [
        ("another", "BadAnswer", "the worker answered with accuracy[another-torchscript-op17-onnxruntime-fp32]"),
        (17, "BadAnswer", "the worker answered with int"),
        (WorkerError("no room"), "WorkerError", "the cell could not be run: no room"),
        (OSError("planted"), "OSError", "the cell could not be run: planted"),
    ],
)
def test_what_is_no_answer_becomes_a_record_and_ends_the_worker(
    bench: Bench, answer: Any, error: str, reason: str
) -> None:
    cell = bench.cells("forward: x\ninputs: {x: 'float32[3]'}\nexport: {torchscript: [17]}")[-1]
    if answer == "another":
        answer = Ran(Record.from_dict({**cell.record().as_dict(), "id": reason.split()[-1]}), "any")
    death = Death("SIGSEGV", {}, "")
    worker: Any = Answers(answer, Ran(cell.record(), "any"), death, death)  # one after another cell, one alone
    run = Runner(Settings(store=bench.store), 60, worker)
    record = run(cell)
    assert (record.id, record.status, record.stage) == (cell.id, "failed", "declare")
    assert (record.error, record.reason, record.fault) == (error, reason, "harness")
    assert worker.replaced == 1
    assert run(cell).status == "passed"
    assert run(cell).error == "SIGSEGV"


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "plenty"])
def test_a_limit_of_memory_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    outcome = run_suite(tmp_path, f"--cell-memory={value}")
    assert outcome.code == 4
    assert "--cell-memory" in outcome.text
    assert "Traceback" not in outcome.text


MEMORY = """
import mmap, time
import torch

class Takes(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 9 and not torch.jit.is_tracing():
            memory = mmap.mmap(-1, 3 * 2**29)
            for start in range(0, len(memory), 2**20):
                memory[start : start + 2**20] = b"x" * 2**20
            time.sleep(3)
        return torch.sin(x)
"""


def test_a_cell_that_takes_more_memory_than_it_may_says_so(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    body = "\n".join(f"  {line}" for line in BODY.format(name="Takes").strip().splitlines())
    (tmp_path / "cases/takes.yaml").write_text(f"takes:\n  about: a test of the harness\n{body}\n")
    (tmp_path / "cases/beside.py").write_text(MEMORY)
    outcome = run_suite(tmp_path, "--examples", "1", "--cell-memory", "1", "-k", "accuracy")
    record = outcome.records["accuracy[takes-torchscript-op17-onnxruntime-fp32]"]
    assert (record["status"], record["error"], record["fault"]) == ("failed", "OutOfMemory", "case")
    assert any("beside.py" in line and "in forward" in line for line in record["output"])
    assert record["signal"].endswith(" GiB of memory taken, 1 GiB allowed")
    assert record["draw"]["dims"] == {"batch": 9}
