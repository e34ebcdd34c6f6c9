"""How much memory a worker may take, what counts, and what a death for memory says."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from conformance.process.worker import memory
from conformance.process.worker.isolation import Death, Worker
from tests.kit import fatal, hostile
from tests.kit.processes import PLENTY
from tests.kit.servers import WARM

MIB = 2**20


def test_what_is_shared_counts():
    with Worker(WARM, memory_gib=0.125) as worker:
        assert worker.call(hostile.takes_shared_memory, 32 * MIB, 0.3, timeout=PLENTY) == 32 * MIB
        death = worker.call(hostile.takes_shared_memory, 384 * MIB, PLENTY, timeout=PLENTY)
        assert isinstance(death, Death) and death.error == "OutOfMemory"
        assert death.how.endswith(" GiB of memory taken, 0.125 GiB allowed")
        assert worker.call(hostile.well_behaved, 3, timeout=PLENTY) == 3


def test_what_several_processes_share_counts_once():
    with Worker(WARM, memory_gib=0.25) as worker:
        assert worker.call(hostile.takes_memory_in_children, 128 * MIB, timeout=PLENTY) == 128 * MIB


TAKES = f"import mmap, sys; m = mmap.mmap(-1, {256 * MIB}); m.write(bytes({256 * MIB})); print(); sys.stdin.read()"
STARTS = f"import subprocess, sys; subprocess.run([sys.executable, '-uc', {TAKES!r}])"


def test_what_is_taken_below_a_worker_counts():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", STARTS], stdin=pipe, stdout=pipe) as process:
        watch = memory.Watch(process.pid, 0.125)
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert (watch.excess() or "").endswith(" GiB of memory taken, 0.125 GiB allowed")


@pytest.mark.parametrize("after, error", [(2, "SIGKILL"), (3, "OutOfMemory")])
def test_the_kernels_count_tells_who_was_killed_for_memory(tmp_path, monkeypatch, after, error):
    counts = tmp_path / "vmstat"
    monkeypatch.setattr(memory, "VMSTAT", counts)
    counts.write_text("pgfault 17\noom_kill 2\n")

    def kill(note: dict[str, Any]) -> None:
        if note:
            counts.write_text(f"pgfault 18\noom_kill {after}\n")
            os.kill(note["pid"], signal.SIGKILL)

    with Worker(WARM) as worker:
        death = worker.call(fatal.noted, "hang", timeout=PLENTY, on_wait=kill)
    assert isinstance(death, Death) and death.error == error and death.how.startswith("SIGKILL")


GIB = 2**30


@pytest.mark.parametrize("groups, files, processes, share", [
    ("", {}, 1, 16),
    ("0::/\n", {"memory.max": "max"}, 4, 9),
    ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": 10 * GIB}, 1, 9),
    ("0::/a/b\n", {"a/b/memory.max": 5 * GIB, "a/memory.max": 10 * GIB}, 1, 4.5),
    # in a container: the path of the host, and the limit at the root
    ("0::/system.slice/docker-1\n", {"memory.max": 10 * GIB}, 2, 4.5),
    ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": 10 * GIB}, 3, 3),
    ("nonsense", {}, 4, 9),
])  # fmt: skip
def test_the_share_is_of_what_there_is(tmp_path, groups, files, processes, share):
    """On a host of 40 GiB."""
    (tmp_path / "member").write_text(groups)
    for name, content in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    machine = memory.machine_memory(40 * GIB, tmp_path / "member", tmp_path / "groups")
    assert memory.share(processes, machine) == pytest.approx(share)
