"""Whatever a call does to what it can reach, each answer is that of its call, or a death, and comes in time."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.process.worker import server
from conformance.process.worker.isolation import Death, Worker
from conformance.process.worker.progress_note import Progress
from tests.kit import fatal, hostile
from tests.kit.cases import write_case
from tests.kit.processes import PLENTY, gone, waited_for
from tests.kit.runs import ROOT
from tests.kit.servers import kill_fork_server, own_fork_server

Function = Callable[[Progress, int], Any]
SHORT = 1.0  # seconds for a call that hangs

ANSWERED: list[Function] = [
    hostile.well_behaved, hostile.forks_and_exits, hostile.forks_and_waits, hostile.forks_and_notes,
    hostile.leaves_a_child, hostile.writes_to_all_descriptors, hostile.empties_all_files,
    hostile.closes_all_descriptors, hostile.uses_up_the_descriptors, hostile.kills_its_parent,
    hostile.patches_what_an_answer_takes,
]  # fmt: skip
"""Each gives back its number: what else it does is no reason for a death."""


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> Iterator[None]:
    with own_fork_server():
        yield


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def sound(worker: Worker) -> None:
    for number in (1001, 1002):
        assert worker.call(hostile.well_behaved, number, timeout=PLENTY) == number


@pytest.mark.parametrize("function", ANSWERED, ids=lambda function: function.__name__)
def test_the_answer_is_that_of_the_call(worker, function):
    for number in (17, 18, 19):
        assert worker.call(function, number, timeout=PLENTY) == number
    sound(worker)


@pytest.mark.parametrize("sequences", [5, pytest.param(30, marks=pytest.mark.thorough)])
def test_every_answer_of_a_random_sequence_belongs_to_its_call(sequences):
    """Sequences of ten calls, among them such as end, crash and hang."""
    others = [hostile.raises, hostile.exits, hostile.ends, hostile.crashes, hostile.leaves_a_thread,
              hostile.stops_its_parent, hostile.crashes_beside_a_daemon]  # fmt: skip
    dice = random.Random(12)
    number = 1
    with Worker() as worker:
        for _ in range(sequences):
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
def test_the_time_limit_holds_for_what_writes_half_an_answer(worker, number):
    sound(worker)
    start = time.monotonic()
    death = worker.call(hostile.writes_and_hangs, number, timeout=SHORT)
    assert time.monotonic() - start < PLENTY
    assert isinstance(death, Death) and (death.how, death.error) == ("timeout after 1 s", "Timeout")
    sound(worker)


def test_no_descriptor_leads_to_another_process(worker):
    found = worker.call(hostile.descriptors, 0, timeout=PLENTY)
    assert isinstance(found, list) and [one for one in found if one.startswith("socket:")] == []
    # the one pipe is for the kernel, which ends the worker when the other end is closed; it can only be read
    assert len([one for one in found if one.startswith("pipe:")]) <= 2 and not any("memfd" in one for one in found)


def test_an_answer_may_come_at_any_time_within_the_limit():
    with Worker(transfer=0) as worker:
        sound(worker)


@pytest.mark.parametrize("name, how", [
    ("garbage", "bytes that are no answer"), ("earlier", "an answer to call 1 in place of call 5"),
    ("damaged", "an answer that was damaged on its way"), ("long", "an answer of 9223372036854775807 bytes"),
    ("unreadable", "an answer that cannot be read: UnpicklingError"), ("other", "bytes that are no answer"),
    ("half", "the answer did not come to its end"),
])  # fmt: skip
def test_what_is_no_answer_ends_the_worker_and_is_said(name, how):
    """An answer that begins and never ends is waited for only so long."""
    with Worker(transfer=0.3) as worker:
        sound(worker)
        process = worker._process
        assert process is not None
        arguments = (name, process._listener.getsockname(), process._key)
        death = worker.call(fatal.answers_wrongly, *arguments, timeout=SHORT if name == "half" else PLENTY)
        assert isinstance(death, Death) and (death.how, death.error) == (how, "BadAnswer")
        sound(worker)


def test_what_a_call_leaves_running_ends_with_it_and_is_named(worker):
    daemon = worker.call(hostile.leaves_a_daemon, 0, timeout=PLENTY)
    assert isinstance(daemon, int) and gone(daemon)
    assert len(worker.left) == 1 and worker.call(hostile.leaves_a_child, 5, timeout=PLENTY) == 5
    assert worker.left == ("sleep",) and not worker.running
    sound(worker)
    assert worker.left == ()


@pytest.mark.parametrize("function", [hostile.crashes_beside_a_daemon, hostile.hangs_beside_a_daemon])
def test_what_is_below_a_worker_ends_when_it_does(worker, function):
    death = worker.call(function, 0, timeout=2 * SHORT)
    assert isinstance(death, Death) and gone(death.last["daemon"])


def test_shared_memory_that_a_call_leaves_is_removed(worker):
    name = worker.call(hostile.leaves_shared_memory, 0, timeout=PLENTY)
    assert isinstance(name, str) and not Path("/dev/shm", name).exists()
    assert worker.left == ()
    sound(worker)


def started(code: str, *folders: Path) -> subprocess.Popen[str]:
    """A Python process of its own session that runs the code, with these folders on its path."""
    paths = os.pathsep.join(map(str, (ROOT, *folders)))
    return subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


LEAVES = """
from conformance.process.worker.isolation import Worker
from tests.kit import hostile
with Worker() as worker:
    worker.call(hostile.{function}, 0, timeout=1000, on_wait=lambda note: note and print(note["daemon"], flush=True))
"""


@pytest.mark.parametrize("function, group", [
    ("hangs_beside_a_daemon", True), ("hangs_beside_a_daemon_with_its_parent_stopped", False),
])  # fmt: skip
def test_what_is_below_a_worker_ends_when_the_run_is_killed(function, group):
    with started(LEAVES.format(function=function)) as parent:
        assert parent.stdout is not None
        daemon = int(parent.stdout.readline())
        if group:
            os.killpg(parent.pid, signal.SIGKILL)
        else:
            parent.kill()
        assert gone(daemon, 3.0)


PRELOADS = """
from conformance.process.worker.isolation import Worker
with Worker(preload=("slow",)):
    input()
"""
SLEEPS = "import time\ntime.sleep(60)"
STUCK = "import ctypes\nctypes.PyDLL(None).sleep(60)  # PyDLL keeps Python's lock: no signal handler runs"


@pytest.mark.parametrize("sleep", [SLEEPS, STUCK], ids=["sleeps", "stuck"])
def test_a_fork_server_that_still_imports_ends_when_the_run_is_killed(tmp_path, sleep):
    """Also where an import runs no signal handler."""
    told = tmp_path / "told"
    (tmp_path / "slow.py").write_text(
        f"import os, pathlib\npathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n{sleep}\n", encoding="utf-8"
    )
    with started(PRELOADS, tmp_path) as parent:
        server = int(waited_for(told.read_text))
        parent.kill()
        assert gone(server, 3.0)


def test_a_process_of_xdist_ends_with_its_run_whatever_it_does(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "import ctypes, os, pathlib\n"
        "def pytest_collection_modifyitems(config):\n"
        "    if hasattr(config, 'workerinput'):\n"
        "        pathlib.Path('told').write_text(str(os.getpid()))\n"
        "        ctypes.PyDLL(None).sleep(60)\n",
        encoding="utf-8",
    )
    write_case(tmp_path / "cases", 'forward: x + 1\ninputs: {x: "float32[2]"}')
    command = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "-n", "1", "-p", "no:cacheprovider"]
    paths = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [*command, "--confcutdir", str(tmp_path), "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "conftest"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL,
    ) as run:  # fmt: skip
        pid = int(waited_for((tmp_path / "told").read_text))
        run.kill()
        assert gone(pid, 3.0)


def test_a_fork_server_that_was_killed_is_replaced_with_what_it_had_imported():
    with own_fork_server(), Worker(preload=("colorsys",)) as worker:
        for _ in range(3):
            assert worker.call(fatal.loaded, "colorsys", timeout=PLENTY) == ["colorsys"]
            kill_fork_server()
        assert worker.call(hostile.kills_its_parent, 1, timeout=PLENTY) == 1
        assert worker.call(fatal.loaded, "colorsys", timeout=PLENTY) == ["colorsys"]


def test_a_fork_server_that_was_stopped_goes_on(worker):
    sound(worker)
    assert isinstance(worker.call(hostile.stops_its_parent, 1, timeout=SHORT), Death)
    sound(worker)


IMPORTED = {
    "stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
    "never ends": "import time\ntime.sleep(1000)\n",
}
IMPORTED["stops itself, and never ends"] = IMPORTED["stops itself"] + IMPORTED["never ends"]


@pytest.mark.parametrize("what", IMPORTED)
def test_a_fork_server_that_is_stopped_or_hangs_while_it_imports_costs_a_limit_and_no_more(
    tmp_path, monkeypatch, what
):
    (tmp_path / "planted_import.py").write_text(IMPORTED[what])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(server, "_TICK", 0.2)
    if "never" in what:
        monkeypatch.setattr(server, "_SLOWEST", 5.0)
    with own_fork_server(), Worker(["planted_import"]) as worker:
        sound(worker)


def test_a_server_that_never_comes_to_fork_is_said(tmp_path, monkeypatch):
    (tmp_path / "planted_import.py").write_text(IMPORTED["never ends"])
    monkeypatch.setattr(server, "_GUARD", "planted_import")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(server, "_SLOWEST", 0.5)
    with own_fork_server(), Worker() as worker, pytest.raises(TimeoutError, match=r"within 0\.5 s: it was ended"):
        worker.ready()
