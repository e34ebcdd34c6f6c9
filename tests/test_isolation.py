"""Plants deaths in a worker and checks that each one is told, and that the next call works."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.worker.isolation import Death, Worker, WorkerError
from conformance.worker.progress import Progress
from tests import planted

ROOT = Path(__file__).parents[1]
PLENTY = 120.0  # seconds; nothing here comes near it unless it is broken


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(preload=(), memory_gib=0.5) as worker:
        yield worker


def gone(pid: int, seconds: float = PLENTY) -> bool:
    """Whether the process ends within that time; one that ended before counts."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)


@pytest.mark.parametrize(
    "plant, how",
    [
        ("segv", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("sigfpe", "SIGFPE"),
        ("sigkill", "SIGKILL"),
        ("exit_3", "exit 3"),
        ("system_exit", "SystemExit: 3"),
        ("keyboard_interrupt", "KeyboardInterrupt: planted"),
        ("bare_exception", "BaseException: planted"),
    ],
)
def test_death_is_told_and_the_next_call_works(worker: Worker, plant: str, how: str) -> None:
    death = worker.call(planted.noted, plant, timeout=PLENTY)
    assert isinstance(death, Death)
    assert death.how == how
    assert death.last.pop("pid") != os.getpid()
    assert death.last == {
        "stage": "run",
        "draw": {"dims": {"batch": 3}, "index": 2},
        "plant": plant,
    }
    assert isinstance(worker.call(planted.pid, timeout=PLENTY), int)


def test_hang_that_holds_the_gil_is_ended_in_time_and_says_where(worker: Worker) -> None:
    worker.call(planted.pid, timeout=PLENTY)
    start = time.monotonic()
    death = worker.call(planted.noted, "hang", timeout=0.25)
    assert time.monotonic() - start < 1
    assert isinstance(death, Death)
    assert death.how == "timeout after 0.25 s"
    assert death.last["plant"] == "hang"
    assert "in hang" in death.output
    assert gone(death.last["pid"])
    assert isinstance(worker.call(planted.pid, timeout=PLENTY), int)


def test_what_is_only_reserved_does_not_count_as_memory(worker: Worker) -> None:
    assert worker.call(planted.reserved, 2**40, timeout=PLENTY) == 2**40


@pytest.mark.parametrize(
    "plant, error, text",
    [
        ("value_error", ValueError, "^planted 17$"),
        ("flood", MemoryError, None),
        ("recurse", RecursionError, "maximum recursion depth"),
        ("unfamiliar", WorkerError, "Unfamiliar: one and two$"),
        ("of_a_hidden_type", WorkerError, "^nowhere.Hidden: planted$"),
    ],
)
def test_exception_is_raised_here_and_the_worker_lives(
    worker: Worker, plant: str, error: type[Exception], text: str | None
) -> None:
    before = worker.call(planted.pid, timeout=PLENTY)
    with pytest.raises(error, match=text) as caught:
        worker.call(planted.noted, plant, timeout=PLENTY)
    assert f"in {plant}" in str(caught.value.__cause__)
    assert worker.call(planted.pid, timeout=PLENTY) == before


def test_what_cannot_be_pickled_is_said(worker: Worker) -> None:
    before = worker.call(planted.pid, timeout=PLENTY)
    with pytest.raises(TypeError, match=r"the result of .*unpicklable.* cannot be pickled"):
        worker.call(planted.unpicklable, timeout=PLENTY)
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        worker.call(planted.noted, lambda: None, timeout=PLENTY)
    assert worker.call(planted.pid, timeout=PLENTY) == before


def test_output_is_kept_from_the_terminal_and_bounded(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    output = worker.call(planted.write, "x", 20_000_000, timeout=PLENTY)
    assert isinstance(output, str)
    assert len(output) < 10_000
    assert output.endswith("xx the end")
    output = worker.call(planted.write, "y", 1, timeout=PLENTY)
    assert output == "y python y error y c y the end"
    assert capfd.readouterr() == ("", "")


def test_death_carries_the_output_and_the_stack(worker: Worker) -> None:
    death = worker.call(planted.print_then_segv, timeout=PLENTY)
    assert isinstance(death, Death)
    assert "puts before the crash\n" in death.output
    assert "print before the crash\n" in death.output
    assert "in print_then_segv" in death.output
    again = worker.call(planted.noted, "exit_3", timeout=PLENTY)
    assert isinstance(again, Death)
    assert again.output == ""


def test_worker_that_died_between_calls_is_replaced(worker: Worker) -> None:
    before = worker.call(planted.pid, timeout=PLENTY)
    assert isinstance(before, int)
    os.kill(before, signal.SIGKILL)
    assert gone(before)
    assert worker.call(planted.pid, timeout=PLENTY) not in (before, None)


def test_a_worker_is_replaced_when_asked(worker: Worker) -> None:
    before = worker.call(planted.pid, timeout=PLENTY)
    assert isinstance(before, int)
    worker.replace()
    assert gone(before)
    worker.replace()  # where there is none
    assert worker.call(planted.pid, timeout=PLENTY) not in (before, None)


def test_a_call_that_closes_all_descriptors_is_answered_and_its_worker_replaced(worker: Worker) -> None:
    before = worker.call(planted.close_everything, timeout=PLENTY)
    assert isinstance(before, int)
    assert gone(before)
    assert worker.call(planted.pid, timeout=PLENTY) not in (before, None)


def test_interruption_while_waiting_ends_a_hung_worker_at_once(worker: Worker) -> None:
    seen: list[dict[str, Any]] = []

    def interrupt(note: dict[str, Any]) -> None:
        if note:
            seen.append({**note, "at": time.monotonic()})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.call(planted.noted, "hang", timeout=PLENTY, on_wait=interrupt)
    assert time.monotonic() - seen[0]["at"] < 0.5
    assert gone(seen[0]["pid"])
    assert isinstance(worker.call(planted.pid, timeout=PLENTY), int)


def test_several_workers_at_once() -> None:
    with Worker(preload=()) as one, Worker(preload=()) as other:
        first, second = (each.call(planted.pid, timeout=PLENTY) for each in (one, other))
        assert first != second
        death = one.call(planted.noted, "segv", timeout=PLENTY)
        assert isinstance(death, Death)
        assert other.call(planted.pid, timeout=PLENTY) == second


def test_initializer_runs_in_each_worker_and_its_failure_is_raised() -> None:
    with Worker(preload=(), initializer=planted.mark) as worker:
        for _ in range(2):
            assert worker.call(planted.read_mark, timeout=PLENTY) == "set by the initializer"
            worker.call(planted.noted, "exit_3", timeout=PLENTY)
    with (
        Worker(preload=(), initializer=planted.broken_initializer) as worker,
        pytest.raises(RuntimeError, match="planted in the initializer"),
    ):
        worker.call(planted.pid, timeout=PLENTY)
    with (
        Worker(preload=(), initializer=planted.fatal_initializer) as worker,
        pytest.raises(WorkerError, match="could not be prepared: exit 4"),
    ):
        worker.call(planted.pid, timeout=PLENTY)


HANGS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a background job
import sys
from conformance.worker.isolation import Worker
from tests import planted

def tell(note):
    if note:
        print(note["pid"], flush=True)

with Worker(preload=()) as worker:
    worker.call(planted.noted, "hang", timeout=1000, on_wait=tell)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_its_parent(sent: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", HANGS],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.killpg(parent.pid, sent) if sent == signal.SIGINT else parent.send_signal(sent)
        start = time.monotonic()
        # the fork server and the worker hold these pipes too, so this waits for all of them
        parent.communicate(timeout=PLENTY)
        assert time.monotonic() - start < 1.5
    assert parent.returncode != 0
    assert gone(pid, 0)


def python(tmp_path: Path, *arguments: str) -> str:
    """What a Python process prints; every warning in it is an error."""
    (tmp_path / "fails_to_import.py").write_text("raise ValueError('planted')\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PLENTY,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("preload", ["colorsys", "no_such_module", "fails_to_import"])
def test_preload(tmp_path: Path, preload: str) -> None:
    printed = python(
        tmp_path,
        "-c",
        f"""
import sys
from conformance.worker.isolation import Worker
from tests import planted

with Worker(preload=("colorsys", {preload!r})) as worker:
    print(worker.call(planted.loaded, "colorsys", timeout=30))
    worker.call(planted.noted, "exit_3", timeout=30)
    print(worker.call(planted.loaded, "torch", "numpy", timeout=30))
assert "torch" not in sys.modules
""",
    )
    # ImportError is passed over; any other error is printed, and nothing is preloaded
    broken = preload == "fails_to_import"
    assert ("ValueError: planted" in printed) == broken
    assert ("['colorsys']\n[]\n" in printed) != broken


@pytest.mark.parametrize("front", ["module", "script", "xdist"])
def test_worker_does_not_import_the_test_run(tmp_path: Path, front: str) -> None:
    (tmp_path / "test_inner.py").write_text("""
from conformance.worker.isolation import Worker
from tests import planted
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_worker(n):
    with Worker(preload=()) as worker:
        assert worker.call(planted.loaded, "pytest", "_pytest", "test_inner", timeout=30) == []
        assert worker.call(planted.noted, "segv", timeout=30).how == "SIGSEGV"
        assert worker.call(planted.loaded, "pytest", "_pytest", "test_inner", timeout=30) == []
""")
    script = tmp_path / "pytest"
    script.write_text("import sys\nimport pytest\nif __name__ == '__main__':\n    sys.exit(pytest.main())\n")
    start = {"module": ["-m", "pytest"], "script": [str(script)], "xdist": ["-m", "pytest", "-n2"]}
    options = ["-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", str(tmp_path)]
    assert "2 passed" in python(tmp_path, *start[front], *options, "test_inner.py")


class TestProgress:
    def test_the_latest_note_is_read(self) -> None:
        progress = Progress()
        assert progress.read() == {}
        for count in range(5):
            progress.note(count=count, path=Path("a"), text="ä\0\n")
            assert progress.read() == {"count": count, "path": "a", "text": "ä\0\n"}
        progress.note()
        assert progress.read() == {}

    def test_a_torn_note_reads_as_the_one_before(self) -> None:
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

    def test_a_note_that_is_written_during_a_read_and_is_not_yet_the_latest_is_not_read(self) -> None:
        memory = bytearray(Progress.SIZE)
        writer, reader = Progress(memory), Progress(memory)
        writer.note(count=1)

        class Interrupted:
            """The reader's view; the writer goes on after the first byte that is read."""

            view = memoryview(memory)
            writes = True

            def __getitem__(self, at: Any) -> Any:
                value = self.view[at]
                if self.writes:
                    self.writes = False
                    writer.note(count=2)
                    latest = memory[0]
                    writer.note(count=3)
                    memory[0] = latest  # the third note is written, and not yet declared the latest
                return value

        reader._view = Interrupted()  # type: ignore[assignment]
        assert reader.read() == {"count": 2}

    def test_a_note_beside_a_torn_one_is_not_read_before_it_is_the_latest(self) -> None:
        """The writer goes round once during a read: byte 0 is as before, and the other slot has what comes next."""
        memory = bytearray(Progress.SIZE)
        writer, reader = Progress(memory), Progress(memory)
        writer.note(count=1)

        class GoneRound:
            """The reader's view: what the writer does before some of the first bytes that are read."""

            view = memoryview(memory)
            reads = 0

            def __getitem__(self, at: Any) -> Any:
                self.reads += 1
                if self.reads == 2:  # the slot of the latest note is about to be read
                    writer.note(count=2)
                    memory[at.start] ^= 0xFF
                if self.reads == 4:  # it was torn, and the other slot comes next
                    writer.note(count=3)
                    latest = memory[0]
                    writer.note(count=4)
                    memory[0] = latest
                return self.view[at]

        reader._view = GoneRound()  # type: ignore[assignment]
        assert reader.read() == {"count": 3}

    def test_garbage_reads_as_unknown(self) -> None:
        assert Progress(bytearray(b"\xa5" * Progress.SIZE)).read() == {}

    @pytest.mark.parametrize("text", ["x", "ä", '"', "\0", "😀"])
    def test_a_long_note_is_cut_not_refused(self, text: str) -> None:
        progress = Progress()
        progress.note(stage="run", draw=[text * 100_000], **{f"more{n}": text * 500 for n in range(99)})
        note = progress.read()
        assert note["stage"] == "'run'"
        assert len(note) == 8

    def test_what_is_read_while_a_worker_writes_is_whole_and_in_order(self, worker: Worker) -> None:
        notes: list[int] = []

        def look(_: dict[str, Any]) -> None:
            until = time.monotonic() + PLENTY / 2
            while len(set(notes)) < 100 and time.monotonic() < until:
                notes.extend(worker.progress.read().get("count", -1) for _ in range(1000))
            raise InterruptedError

        with pytest.raises(InterruptedError):
            worker.call(planted.note_forever, timeout=PLENTY, on_wait=look)
        known = [count for count in notes if count >= 0]
        assert known == sorted(known)
        assert len(set(known)) > 90
        assert len(known) > 0.9 * len(notes)


def test_a_closed_worker_refuses_calls_and_may_be_closed_again() -> None:
    with Worker(preload=()) as worker:
        worker.call(planted.pid, timeout=PLENTY)
        worker.close()
        with pytest.raises(ValueError, match="closed file"):
            worker.call(planted.pid, timeout=PLENTY)


def test_a_call_may_start_processes(worker: Worker) -> None:
    assert worker.call(planted.start_a_process, timeout=PLENTY) == 5


LAUNCHED = """
import os, signal, sys, threading, time
from multiprocessing import forkserver
from conformance.worker.isolation import Worker
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a background job
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=(999,), daemon=True).start()
connect = forkserver._forkserver.connect_to_new_process
def interrupted(*given):
    connected = connect(*given)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)  # until another thread has taken it
    return connected
forkserver.connect_to_new_process = forkserver._forkserver.connect_to_new_process = interrupted
try:
    with Worker() as worker:
        worker.call(str, timeout=60)
        raise SystemExit("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("other_threads", ["0", "1"])
def test_an_interruption_between_a_fork_and_what_it_is_sent_leaves_no_traceback(other_threads: str) -> None:
    command = [sys.executable, "-c", LAUNCHED, other_threads]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PLENTY)
    assert (done.returncode, done.stdout.strip()) == (0, "interrupted"), done.stderr
    assert "Traceback" not in done.stderr
