"""Plants deaths in a worker and checks that each one is told, and that the next call works."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from conformance.process.worker import aside, scratch
from conformance.process.worker.isolation import Death, Worker, WorkerError
from conformance.process.worker.progress_note import Progress
from tests.kit import fatal
from tests.kit.processes import PLENTY, TYPED, gone
from tests.kit.runs import ROOT
from tests.kit.servers import WARM

SOON = 5.0  # seconds for what takes a tenth of one, on a busy host too


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(WARM, memory_gib=0.5) as worker:
        yield worker


@pytest.mark.parametrize("plant, how", [
    ("segv", "SIGSEGV"), ("sigkill", "SIGKILL"), ("exit_3", "exit 3"), ("system_exit", "SystemExit: 3"),
    ("keyboard_interrupt", "KeyboardInterrupt: planted"),
])  # fmt: skip
def test_death_is_told_and_the_next_call_works(worker, plant, how):
    death = worker.call(fatal.noted, plant, timeout=PLENTY)
    assert isinstance(death, Death) and death.how == how and death.last.pop("pid") != os.getpid()
    assert death.last == {"stage": "run", "draw": {"dims": {"batch": 3}, "index": 2}, "plant": plant}
    assert isinstance(worker.call(fatal.pid, timeout=PLENTY), int)


def test_a_worker_that_is_stopped_ends_at_its_time_limit_and_the_next_call_works(worker):
    worker.call(fatal.pid, timeout=PLENTY)
    death = worker.call(fatal.noted, "stop", timeout=0.25)
    assert isinstance(death, Death) and death.how == "timeout after 0.25 s" and gone(death.last["pid"])
    assert isinstance(worker.call(fatal.pid, timeout=PLENTY), int)


def test_a_fork_that_is_asked_and_stopped_is_lost_at_its_time_limit_and_the_next_answers():
    with pytest.raises(aside.Lost, match=r"timeout after 0\.25 s"):
        aside.ask(fatal.stop, 0.25)
    assert aside.ask(os.getpid, PLENTY) != os.getpid()


class Own:
    """An object that is part of a cycle, and notes the process in which it ends."""

    held: ClassVar[list["Own"]] = []
    ended: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        self.ended.append(os.getpid())


def let_go() -> None:
    if Own.held:
        Own.held.clear()
        assert [[] for _ in range(10 * gc.get_threshold()[0])]  # as many as start a collection


os.register_at_fork(after_in_child=let_go)


def ended_here() -> list[int]:
    gc.collect()
    return Own.ended


def test_a_question_ends_no_object_of_the_process_that_asks():
    """It may wait for a thread that a fork does not have, as a model of OpenVINO does."""
    Own.held.append(Own())
    assert gc.isenabled() and aside.ask(ended_here, PLENTY) == []
    assert gc.isenabled()
    Own.held.clear()
    assert ended_here() == [os.getpid()]


def test_hang_that_holds_the_gil_is_ended_in_time_and_says_where(worker):
    worker.call(fatal.pid, timeout=PLENTY)
    start = time.monotonic()
    death = worker.call(fatal.noted, "hang", timeout=0.25)
    assert time.monotonic() - start < SOON
    assert isinstance(death, Death) and death.how == "timeout after 0.25 s"
    assert death.last["plant"] == "hang" and "in hang" in death.output and gone(death.last["pid"])
    assert isinstance(worker.call(fatal.pid, timeout=PLENTY), int)


def test_what_is_only_reserved_does_not_count_as_memory(worker):
    assert worker.call(fatal.reserved, 2**40, timeout=PLENTY) == 2**40


@pytest.mark.parametrize("plant, error, text", [
    ("value_error", ValueError, "^planted 17$"), ("flood", MemoryError, None),
    ("recurse", RecursionError, "maximum recursion depth"), ("unfamiliar", WorkerError, "Unfamiliar: one and two$"),
    ("of_a_hidden_type", WorkerError, "^nowhere.Hidden: planted$"),
])  # fmt: skip
def test_exception_is_raised_here_and_the_worker_lives(worker, plant, error, text):
    before = worker.call(fatal.pid, timeout=PLENTY)
    with pytest.raises(error, match=text) as caught:
        worker.call(fatal.noted, plant, timeout=PLENTY)
    assert f"in {plant}" in str(caught.value.__cause__)
    assert worker.call(fatal.pid, timeout=PLENTY) == before


def test_what_cannot_be_pickled_is_said(worker):
    before = worker.call(fatal.pid, timeout=PLENTY)
    with pytest.raises(TypeError, match=r"the result of .*unpicklable.* cannot be pickled"):
        worker.call(fatal.unpicklable, timeout=PLENTY)
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        worker.call(fatal.noted, lambda: None, timeout=PLENTY)
    assert worker.call(fatal.pid, timeout=PLENTY) == before


def test_output_is_kept_from_the_terminal_and_bounded(worker, capfd):
    output = worker.call(fatal.write, "x", 20_000_000, timeout=PLENTY)
    assert isinstance(output, str) and len(output) < 10_000 and output.endswith("xx the end")
    output = worker.call(fatal.write, "y", 1, timeout=PLENTY)
    assert output == "y python y error y c y the end"
    assert capfd.readouterr() == ("", "")


def test_death_carries_the_output_and_the_stack(worker):
    death = worker.call(fatal.print_then_segv, timeout=PLENTY)
    assert isinstance(death, Death) and "puts before the crash\n" in death.output
    assert "print before the crash\n" in death.output and "in print_then_segv" in death.output
    again = worker.call(fatal.noted, "exit_3", timeout=PLENTY)
    assert isinstance(again, Death) and again.output == ""


def test_worker_that_died_between_calls_is_replaced(worker):
    before = worker.call(fatal.pid, timeout=PLENTY)
    assert isinstance(before, int)
    os.kill(before, signal.SIGKILL)
    assert gone(before) and worker.call(fatal.pid, timeout=PLENTY) not in (before, None)


def test_interruption_while_waiting_ends_a_hung_worker_at_once(worker):
    seen: list[dict[str, Any]] = []

    def interrupt(note: dict[str, Any]) -> None:
        if note:
            seen.append({**note, "at": time.monotonic()})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.call(fatal.noted, "hang", timeout=PLENTY, on_wait=interrupt)
    assert time.monotonic() - seen[0]["at"] < SOON and gone(seen[0]["pid"])
    assert isinstance(worker.call(fatal.pid, timeout=PLENTY), int)


def test_initializer_runs_in_each_worker_and_its_failure_is_raised():
    with Worker(WARM, initializer=fatal.mark) as worker:
        for _ in range(2):
            assert worker.call(fatal.read_mark, timeout=PLENTY) == "set by the initializer"
            worker.call(fatal.noted, "exit_3", timeout=PLENTY)
    with (
        Worker(WARM, initializer=fatal.broken_initializer) as worker,
        pytest.raises(RuntimeError, match="planted in the initializer"),
    ):
        worker.call(fatal.pid, timeout=PLENTY)
    with (
        Worker(WARM, initializer=fatal.fatal_initializer) as worker,
        pytest.raises(WorkerError, match="could not be prepared: exit 4"),
    ):
        worker.call(fatal.pid, timeout=PLENTY)


HANGS = f"""{TYPED}
from conformance.process.worker.isolation import Worker
from tests.kit import fatal
def tell(note):
    if note:
        print(note["pid"], flush=True)
with Worker(preload=()) as worker:
    worker.call(fatal.noted, "hang", timeout=1000, on_wait=tell)
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A temporary folder whose path leaves room for sockets."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_its_parent(sent, short):
    parent = subprocess.Popen(
        [sys.executable, "-c", HANGS], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "TMPDIR": str(short)},
    )  # fmt: skip
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        scratch.remove_leftovers(short)
        assert list(short.iterdir()), "its folder stays while it lives"
        os.killpg(parent.pid, sent) if sent == signal.SIGINT else parent.send_signal(sent)
        start = time.monotonic()
        # the fork server and the worker hold these pipes too, so this waits for all of them
        parent.communicate(timeout=PLENTY)
        assert time.monotonic() - start < SOON
    assert parent.returncode != 0
    assert gone(pid, 0)
    scratch.remove_leftovers(short)
    assert not list(short.iterdir()), "the next run removes what it had no time for"


def test_what_a_killed_worker_wrote_aside_goes_with_it(worker):
    death = worker.call(fatal.litter, timeout=PLENTY)
    assert isinstance(death, Death) and death.how == "SIGKILL" and not Path(death.last["folder"]).exists()


def python(tmp_path: Path, *arguments: str) -> str:
    """What a Python process prints; every warning in it is an error."""
    (tmp_path / "fails_to_import.py").write_text("raise ValueError('planted')\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments], cwd=tmp_path, timeout=PLENTY, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("preload", ["no_such_module", "fails_to_import"])
def test_preload(tmp_path, preload):
    printed = python(
        tmp_path,
        "-c",
        f"""
import sys
from conformance.process.worker.isolation import Worker
from tests.kit import fatal
with Worker(preload=("colorsys", {preload!r})) as worker:
    print(worker.call(fatal.loaded, "colorsys", timeout=30))
    worker.call(fatal.noted, "exit_3", timeout=30)
    print(worker.call(fatal.loaded, "torch", "numpy", timeout=30))
assert "torch" not in sys.modules
""",
    )
    # ImportError is passed over; any other error is printed, and nothing is preloaded
    broken = preload == "fails_to_import"
    assert ("ValueError: planted" in printed) == broken and ("['colorsys']\n[]\n" in printed) != broken


@pytest.mark.parametrize("front", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_worker_does_not_import_the_test_run(tmp_path, front):
    (tmp_path / "test_inner.py").write_text("""
from conformance.process.worker.isolation import Worker
from tests.kit import fatal
import pytest
@pytest.mark.parametrize("n", [1, 2])
def test_worker(n):
    with Worker(preload=()) as worker:
        assert worker.call(fatal.loaded, "pytest", "_pytest", "test_inner", timeout=30) == []
        assert worker.call(fatal.noted, "segv", timeout=30).how == "SIGSEGV"
        assert worker.call(fatal.loaded, "pytest", "_pytest", "test_inner", timeout=30) == []
""")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "error", "--rootdir", str(tmp_path)]
    assert "2 passed" in python(tmp_path, "-m", "pytest", *front, *options, "test_inner.py")


class TestProgress:
    def test_the_latest_note_is_read(self):
        progress = Progress()
        assert progress.read() == {}
        for count in range(5):
            progress.note(count=count, path=Path("a"), text="ä\0\n")
            assert progress.read() == {"count": count, "path": "a", "text": "ä\0\n"}
        progress.note()
        assert progress.read() == {}

    def test_a_torn_note_reads_as_the_one_before(self):
        memory = bytearray(Progress.SIZE)
        progress = Progress(memory)
        progress.note(count=1)
        before = bytes(memory)
        progress.note(count=2, more="x" * 100)
        after = bytes(memory)
        changed = [at for at in range(1, Progress.SIZE) if before[at] != after[at]]
        for torn in range(len(changed)):
            memory[:] = before
            for at in changed[:torn]:
                memory[at] = after[at]
            assert progress.read() == {"count": 1}

    def test_what_is_read_while_a_worker_writes_is_whole_and_in_order(self, worker):
        notes: list[int] = []

        def look(_: dict[str, Any]) -> None:
            until = time.monotonic() + PLENTY / 2
            while len(set(notes)) < 100 and time.monotonic() < until:
                notes.extend(worker.progress.read().get("count", -1) for _ in range(1000))
            raise InterruptedError

        with pytest.raises(InterruptedError):
            worker.call(fatal.note_forever, timeout=PLENTY, on_wait=look)
        known = [count for count in notes if count >= 0]
        assert known == sorted(known) and len(set(known)) > 90 and len(known) > 0.9 * len(notes)

    def test_garbage_reads_as_unknown(self):
        assert Progress(bytearray(b"\xa5" * Progress.SIZE)).read() == {}

    @pytest.mark.parametrize("text", ["x", "ä", '"', "\0", "😀"])
    def test_a_long_note_is_cut_not_refused(self, text):
        progress = Progress()
        progress.note(stage="run", draw=[text * 100_000], **{f"more{n}": text * 500 for n in range(99)})
        note = progress.read()
        assert note["stage"] == "'run'" and len(note) == 8


def test_a_closed_worker_refuses_calls_and_may_be_closed_again():
    with Worker(WARM) as worker:
        worker.call(fatal.pid, timeout=PLENTY)
        worker.close()
        with pytest.raises(ValueError, match="closed file"):
            worker.call(fatal.pid, timeout=PLENTY)


def test_a_call_may_start_processes(worker):
    assert worker.call(fatal.start_a_process, timeout=PLENTY) == 5


# ---- the end of a process that has run the suite ------------------------------------------------------------------
PROGRAM = """
import atexit, gc, sys, types
from conformance.process import collector
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # runs after what is registered later
if sys.argv[1] == "torch":
    sys.modules["torch"] = types.ModuleType("torch")
collector.leave_out_present()
print(gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize("imported, left_out_at_the_end", [("torch", False), ("nothing", True)])
def test_what_the_collector_left_out_is_returned_to_it_where_torch_is_there(imported, left_out_at_the_end):
    """Bindings that torch imports report their functions as leaked at the very end, unless they are collected."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, imported], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(left_out_at_the_end)]
