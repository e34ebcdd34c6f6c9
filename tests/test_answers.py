"""Whatever a call does to what it can reach, each answer is that of its call, or a death, and comes in time."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.worker import server
from conformance.worker.isolation import Death, Worker
from conformance.worker.progress import Progress, SharedProgress
from tests import hostile, planted
from tests.support import write_case
from tests.test_isolation import PLENTY, ROOT, gone

Function = Callable[[Progress, int], Any]
SHORT = 1.0  # seconds for a call that hangs

ANSWERED: list[Function] = [
    hostile.well_behaved, hostile.says_much, hostile.forks_and_exits, hostile.forks_and_returns,
    hostile.forks_and_raises, hostile.forks_and_waits, hostile.forks_and_notes, hostile.leaves_a_child,
    hostile.writes_to_all_descriptors, hostile.empties_all_files, hostile.closes_all_descriptors,
    hostile.uses_up_the_descriptors, hostile.kills_its_parent, hostile.patches_what_an_answer_takes,
]  # fmt: skip
"""Each gives back its number: what else it does is no reason for a death."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def sound(worker: Worker) -> None:
    for number in (1001, 1002):
        assert worker.call(hostile.well_behaved, number, timeout=PLENTY) == number


@pytest.mark.parametrize("function", ANSWERED, ids=lambda function: function.__name__)
def test_the_answer_is_that_of_the_call(worker: Worker, function: Function) -> None:
    for number in (17, 18, 19):
        assert worker.call(function, number, timeout=PLENTY) == number
    sound(worker)


def test_every_answer_of_a_random_sequence_belongs_to_its_call() -> None:
    """Thirty sequences of ten calls, among them such as end, crash and hang."""
    others = [hostile.raises, hostile.exits, hostile.ends, hostile.crashes, hostile.leaves_a_thread,
              hostile.stops_its_parent, hostile.crashes_beside_a_daemon]  # fmt: skip
    dice = random.Random(12)
    number = 1
    with Worker() as worker:
        for _ in range(30):
            threads = patched = False
            for function in dice.choices([*ANSWERED, *others, *[hostile.well_behaved] * 6], k=10):
                number += 1
                answer = answer_of(worker, function, number)
                told = f"call {number}, {function.__name__}: {answer}"
                if answer == number:
                    assert function in ANSWERED or function is hostile.leaves_a_thread, told
                elif isinstance(answer, Death):
                    # a thread may spoil the answer, so that there is none, but not turn it into that of another call
                    assert function in others or threads or patched, told
                    assert function is not hostile.well_behaved or threads, told
                elif function is hostile.raises:
                    assert answer.args == (number,), told
                else:  # what a call before did to this process has met the function
                    assert threads or patched, told
                    assert function is not hostile.well_behaved, told
                threads = threads or function is hostile.leaves_a_thread
                patched = patched or function is hostile.patches_what_an_answer_takes
            worker.replace()
            sound(worker)


def answer_of(worker: Worker, function: Function, number: int) -> Any:
    try:
        return worker.call(function, number, timeout=PLENTY)
    except Exception as error:
        return error


@pytest.mark.parametrize("number", range(len(hostile.FRAMES)))
def test_the_time_limit_holds_for_what_writes_half_an_answer(worker: Worker, number: int) -> None:
    sound(worker)
    start = time.monotonic()
    death = worker.call(hostile.writes_and_hangs, number, timeout=SHORT)
    assert time.monotonic() - start < PLENTY
    assert isinstance(death, Death)
    assert (death.how, death.error) == ("timeout after 1 s", "Timeout")
    sound(worker)


def test_no_descriptor_leads_to_another_process(worker: Worker) -> None:
    found = worker.call(hostile.descriptors, 0, timeout=PLENTY)
    assert isinstance(found, list)
    assert [one for one in found if one.startswith("socket:")] == []
    # the one pipe is for the kernel, which ends the worker when the other end is closed; it can only be read
    assert len([one for one in found if one.startswith("pipe:")]) <= 2
    assert not any("memfd" in one for one in found)


# ---- answers that are none -----------------------------------------------------------------------------------


def test_an_answer_from_another_process_ends_the_worker_and_is_said(worker: Worker) -> None:
    sound(worker)
    assert worker._process is not None
    address = worker._process._listener.getsockname()
    with socket.socket(socket.AF_UNIX) as stranger:
        worker.begin(hostile.writes_and_hangs, 0)
        stranger.connect(address)
        stranger.sendall(b"garbage!")
        death = worker.finish(timeout=PLENTY)
    assert isinstance(death, Death)
    assert death.how == f"an answer from another process (pid {os.getpid()})"
    assert death.error == "BadAnswer"
    sound(worker)


@pytest.mark.parametrize("name, how", [
    ("garbage", "bytes that are no answer"), ("earlier", "an answer to call 1 in place of call 4"),
    ("damaged", "an answer that was damaged on its way"), ("long", "an answer of 9223372036854775807 bytes"),
    ("unreadable", "an answer that cannot be read: UnpicklingError"), ("other", "bytes that are no answer"),
])  # fmt: skip
def test_what_is_no_answer_ends_the_worker_and_is_said(name: str, how: str) -> None:
    with Worker() as worker:
        sound(worker)
        process = worker._process
        assert process is not None
        death = worker.call(
            planted.answers_wrongly, name, process._listener.getsockname(), process._key, timeout=PLENTY
        )
        assert isinstance(death, Death)
        assert (death.how, death.error) == (how, "BadAnswer")
        sound(worker)


def test_an_answer_that_does_not_come_to_its_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.worker.isolation._TRANSFER", 0.5)
    with Worker() as worker:
        sound(worker)
        process = worker._process
        assert process is not None
        arguments = ("half", process._listener.getsockname(), process._key)
        death = worker.call(planted.answers_wrongly, *arguments, timeout=SHORT)
        assert isinstance(death, Death)
        assert death.how == "the answer did not come to its end"


# ---- what is below a worker ----------------------------------------------------------------------------------


def test_what_a_call_leaves_running_ends_with_it_and_is_named(worker: Worker) -> None:
    daemon = worker.call(hostile.leaves_a_daemon, 0, timeout=PLENTY)
    assert isinstance(daemon, int)
    assert gone(daemon)
    assert len(worker.left) == 1
    assert worker.call(hostile.leaves_a_child, 5, timeout=PLENTY) == 5
    assert worker.left == ("sleep",)
    sound(worker)
    assert worker.left == ()


@pytest.mark.parametrize("function", [hostile.crashes_beside_a_daemon, hostile.hangs_beside_a_daemon])
def test_what_is_below_a_worker_ends_when_it_does(worker: Worker, function: Function) -> None:
    death = worker.call(function, 0, timeout=2 * SHORT)
    assert isinstance(death, Death)
    assert gone(death.last["daemon"])


def test_what_is_below_a_worker_ends_with_it_also_without_a_fork_server(worker: Worker) -> None:
    worker.begin(hostile.hangs_beside_a_daemon, 0)
    notes: list[dict[str, Any]] = []

    def kill_the_server(note: dict[str, Any]) -> None:
        if note and not notes:
            notes.append(note)
            pid = server._pid()
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

    death = worker.finish(timeout=2 * SHORT, on_wait=kill_the_server)
    assert isinstance(death, Death)
    assert gone(notes[0]["daemon"])
    sound(worker)


def test_shared_memory_that_a_call_leaves_is_removed(worker: Worker) -> None:
    name = worker.call(hostile.leaves_shared_memory, 0, timeout=PLENTY)
    assert isinstance(name, str)
    assert not Path("/dev/shm", name).exists()
    assert worker.left == ()
    sound(worker)


LEAVES = """
from conformance.worker.isolation import Worker
from tests import hostile

with Worker() as worker:
    worker.call(hostile.{function}, 0, timeout=1000, on_wait=lambda note: note and print(note["daemon"], flush=True))
"""


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("function", ["hangs_beside_a_daemon", "hangs_beside_a_daemon_with_its_parent_stopped"])
def test_what_is_below_a_worker_ends_when_the_run_is_killed(function: str, group: bool) -> None:
    code = LEAVES.format(function=function)
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with parent:
        assert parent.stdout is not None
        daemon = int(parent.stdout.readline())
        if group:
            os.killpg(parent.pid, signal.SIGKILL)
        else:
            parent.kill()
        assert gone(daemon, 3.0)


# ---- the fork server ------------------------------------------------------------------------------------------


def test_a_fork_server_that_still_imports_ends_when_the_run_is_killed(tmp_path: Path) -> None:
    began = tmp_path / "began"
    (tmp_path / "slow.py").write_text(
        f"import pathlib, time\npathlib.Path({str(began)!r}).touch()\ntime.sleep(60)\n", encoding="utf-8"
    )
    code = """
from conformance.worker import server
from conformance.worker.isolation import Worker

with Worker(preload=("slow",)):
    print(server._pid(), flush=True)
    input()
"""
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        while not began.exists():
            time.sleep(0.01)
        parent.kill()
        assert gone(pid, 3.0)


def test_a_fork_server_ends_with_its_run_also_where_an_import_runs_no_signal_handler(tmp_path: Path) -> None:
    began, told = tmp_path / "began", tmp_path / "told"
    (tmp_path / "stuck.py").write_text(
        "import ctypes, os, pathlib\n"
        f"pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\npathlib.Path({str(began)!r}).touch()\n"
        "ctypes.PyDLL(None).sleep(60)\n",  # PyDLL keeps Python's lock
        encoding="utf-8",
    )
    code = """
from conformance.worker.isolation import Worker

with Worker(preload=("stuck",)):
    input()
"""
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.PIPE
    ) as parent:
        while not began.exists():
            time.sleep(0.01)
        parent.kill()
        assert gone(int(told.read_text()), 3.0)


def test_a_process_of_xdist_ends_with_its_run_whatever_it_does(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import ctypes, os, pathlib\n"
        "def pytest_collection_modifyitems(config):\n"
        "    if hasattr(config, 'workerinput'):\n"
        "        pathlib.Path('told').write_text(str(os.getpid()))\n"
        "        os.rename('told', 'began')\n"
        "        ctypes.PyDLL(None).sleep(60)\n",
        encoding="utf-8",
    )
    write_case(tmp_path / "cases", 'forward: x + 1\ninputs: {x: "float32[2]"}')
    command = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "-n", "1", "-p", "no:cacheprovider"]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [*command, "--confcutdir", str(tmp_path), "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "conftest"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{paths}"}, stdout=subprocess.DEVNULL,
    ) as run:  # fmt: skip
        while not (tmp_path / "began").exists():
            assert run.poll() is None
            time.sleep(0.01)
        pid = int((tmp_path / "began").read_text())
        run.kill()
        assert gone(pid, 3.0)


def test_a_fork_server_that_was_killed_is_replaced_with_what_it_had_imported() -> None:
    code = """
import os, signal
from conformance.worker import server
from conformance.worker.isolation import Worker
from tests import hostile, planted

with Worker(preload=("colorsys",)) as worker:
    for _ in range(3):
        assert worker.call(planted.loaded, "colorsys", timeout=30) == ["colorsys"]
        os.kill(server._pid(), signal.SIGKILL)
    assert worker.call(hostile.kills_its_parent, 1, timeout=30) == 1
    assert worker.call(planted.loaded, "colorsys", timeout=30) == ["colorsys"]
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, timeout=PLENTY * 2, check=False)
    assert done.returncode == 0


def test_a_fork_server_that_was_stopped_goes_on(worker: Worker) -> None:
    sound(worker)
    assert isinstance(worker.call(hostile.stops_its_parent, 1, timeout=SHORT), Death)
    sound(worker)


# ---- the note --------------------------------------------------------------------------------------------------


def test_a_note_cannot_be_shortened_by_who_shares_it() -> None:
    progress = SharedProgress()
    with pytest.raises(PermissionError):
        os.ftruncate(progress._fd, 0)
    progress.note(stage="run")
    assert progress.read() == {"stage": "run"}
