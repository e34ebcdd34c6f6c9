"""Whatever a cell does to the processes of a run, each cell that was run has one record, and it is its own."""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from conformance.case.plan.settings import Settings
from conformance.cells.runner import Ran, Runner, died
from conformance.process.worker.isolation import Death, WorkerError
from conformance.results.records.record import Record
from tests.kit.cases import QUICK, say, write_case
from tests.kit.runs import Outcome, run_suite

HEAD = say('inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..9}", QUICK)
HOSTILE = """
import os, signal
import torch
class Hostile(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 9 and not torch.jit.is_tracing():
            self.act()
        return torch.sin(x)
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
NAMES = ("Returns", "Writes", "Leaves", "Kills")


def write(folder: Path) -> Path:
    """A folder with cases that are hostile, and sound ones between them."""
    for number, name in enumerate(NAMES):
        hostile = say(HEAD, f"module: beside.{name}")
        write_case(folder / "cases", hostile, HOSTILE.replace("SECONDS", SECONDS), name=f"c{number}_{name.lower()}")
        write_case(folder / "cases", say(HEAD, "forward: torch.cos(x)"), name=f"c{number}_sound")
    return folder


@pytest.fixture(scope="module", params=["one process", pytest.param("xdist", marks=pytest.mark.thorough)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = write(tmp_path_factory.mktemp("hostile"))
    more = ["-n", "2"] if request.param == "xdist" else []
    return run_suite(folder, "--examples", "1", *more, own_process=True)


def test_every_cell_has_one_record_and_it_is_its_own(run):
    labels = [f"c{n}_{what}-torchscript-op17" for n, name in enumerate(NAMES) for what in (name.lower(), "sound")]
    wanted = {f"export[{label}]" for label in labels} | {f"accuracy[{label}-onnxruntime-fp32]" for label in labels}
    assert run.records.keys() == wanted, run.text
    for id, record in run.records.items():
        assert record["case"] in id
        nodes = (record["graph"] or {}).get("nodes")
        assert nodes in (None, {"Cos": 1} if "sound" in id else {"Sin": 1}), id


def test_a_sound_cell_beside_hostile_ones_passes(run):
    assert {record["status"] for id, record in run.records.items() if "sound" in id} == {"passed"}, run.text
    assert "INTERNALERROR" not in run.text


def test_what_a_cell_started_does_not_outlive_the_run(run):
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            lines.append(file.read_bytes())
    assert lines and not any(SECONDS.encode() in line for line in lines)


FAILS = """
import pytest
from conformance.runtimes import registry
asked = registry.absence
def fail(runtime):
    raise LookupError("planted")
@pytest.hookimpl(trylast=True)  # when the tests are known and none has run
def pytest_collection_finish():
    registry.absence = fail
def pytest_unconfigure():
    registry.absence = asked
"""


def test_a_cell_at_which_the_harness_fails_has_a_record(tmp_path):
    write_case(tmp_path / "cases", say(HEAD, "forward: torch.sin(x)"), name="sound")
    outcome = run_suite(tmp_path, plugin=FAILS)
    assert outcome.code == 1 and len(outcome.records) == 2, outcome.text
    for record in outcome.records.values():
        assert (record["status"], record["error"], record["fault"]) == ("failed", "LookupError", "harness")


class Answers:
    """A worker that gives these answers in turn, and raises those that are exceptions."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.replaced, self.running = list(answers), 0, False
        self.left: tuple[str, ...] = ()
        self.patched: tuple[str, ...] = ()

    def begin(self, *call: object) -> None:
        self.running = True

    def finish(self, **_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def replace(self) -> None:
        self.replaced += 1


@pytest.mark.parametrize("answer, error, reason", [
    ("another", "BadAnswer", "the worker answered with accuracy[another-torchscript-op17-onnxruntime-fp32]"),
    (17, "BadAnswer", "the worker answered with int"),
    (WorkerError("no room"), "WorkerError", "the cell could not be run: no room"),
    (OSError("planted"), "OSError", "the cell could not be run: planted"),
])  # fmt: skip
def test_what_is_no_answer_becomes_a_record_and_ends_the_worker(bench, answer, error, reason):
    cell = bench.cells("forward: x\ninputs: {x: 'float32[3]'}\nexport: {torchscript: [17]}")[-1]
    if answer == "another":
        answer = Ran(Record.from_dict({**cell.record().as_dict(), "id": reason.split()[-1]}), False)
    death = Death("SIGSEGV", {}, "")
    worker: Any = Answers(answer, Ran(cell.record(), False), death, death)  # one after another cell, one alone
    run = Runner(Settings(store=bench.store), 60, worker)
    record = run(cell)
    assert (record.id, record.status, record.stage) == (cell.id, "failed", "declare")
    assert (record.error, record.reason, record.fault) == (error, reason, "harness")
    assert worker.replaced == 1
    assert run(cell).status == "passed" and run(cell).error == "SIGSEGV"


@pytest.mark.parametrize("says, check, status", [
    ("", "specials", "skipped"), ("specials: true", "specials", "failed"), ("", "accuracy", "failed"),
    ("fails: [{stage: declare, error: SIGSEGV, because: planted}]", "specials", "xfailed"),
])  # fmt: skip
def test_a_module_that_ends_its_process_for_nan_gives_no_verdict_unless_it_was_asked_for(bench, says, check, status):
    """As torchvision's roi_align does for boxes that are NaN."""
    inputs = "inputs: {x: 'float32[batch, 3]'}\ndims: {batch: 1..3}\nexport: {torchscript: [17]}"
    cells = bench.cells(say("forward: x", inputs, says))
    cell = next(cell for cell in cells if (cell.check, cell.runtime) == (check, "onnxruntime"))
    draw = {"dims": {"batch": 3}, "regime": "nan", "seed": 1, "index": 0}
    record = died(cell, Death("SIGSEGV", {"stage": "declare", "draw": draw, "examples": 2}, ""), frozenset())
    assert (record.status, record.undecided) == (status, status == "skipped")
    assert (record.signal, record.fault) == (None, None) if status == "skipped" else record.signal == "SIGSEGV"
    before = died(cell, Death("SIGSEGV", {"stage": "declare", "examples": 0}, ""), frozenset())
    assert before.status == ("xfailed" if status == "xfailed" else "failed"), "no input was drawn yet"


MEMORY = """
import mmap, time
import torch
class Takes(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] == 9 and not torch.jit.is_tracing():
            memory = mmap.mmap(-1, 2**30)
            for start in range(0, len(memory), 2**20):
                memory[start : start + 2**20] = b"x" * 2**20
            time.sleep(600)
        return torch.sin(x)
"""


def test_a_cell_that_takes_more_memory_than_it_may_says_so(tmp_path):
    write_case(tmp_path / "cases", say(HEAD, "module: beside.Takes"), MEMORY, name="takes")
    outcome = run_suite(tmp_path, "--examples", "1", "--cell-memory", "0.5", "-k", "accuracy")
    record = outcome.records["accuracy[takes-torchscript-op17-onnxruntime-fp32]"]
    assert (record["status"], record["error"], record["fault"]) == ("failed", "OutOfMemory", "case")
    assert any("beside.py" in line and "in forward" in line for line in record["output"])
    assert record["signal"].endswith(" GiB of memory taken, 0.5 GiB allowed")
    assert record["draw"]["dims"] == {"batch": 9}
