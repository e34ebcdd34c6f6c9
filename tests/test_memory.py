"""How much memory a worker may take, what counts, and what a death for memory says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.worker import memory
from conformance.worker.isolation import Death, Worker
from tests import hostile, planted
from tests.test_isolation import PLENTY

MIB = 2**20


def test_what_is_shared_counts() -> None:
    with Worker(memory_gib=0.125) as worker:
        assert worker.call(hostile.takes_shared_memory, 32 * MIB, timeout=PLENTY) == 32 * MIB
        death = worker.call(hostile.takes_shared_memory, 384 * MIB, timeout=PLENTY)
        assert isinstance(death, Death)
        assert death.error == "OutOfMemory"
        assert death.how.endswith(" GiB of memory taken, 0.125 GiB allowed")
        assert worker.call(hostile.well_behaved, 3, timeout=PLENTY) == 3


def test_what_several_processes_share_counts_once() -> None:
    with Worker(memory_gib=0.25) as worker:
        assert worker.call(hostile.takes_memory_in_children, 128 * MIB, timeout=PLENTY) == 128 * MIB


@pytest.mark.parametrize("after, error", [(2, "SIGKILL"), (3, "OutOfMemory")])
def test_the_kernels_count_tells_who_was_killed_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, error: str
) -> None:
    counts = tmp_path / "vmstat"
    monkeypatch.setattr(memory, "_VMSTAT", counts)
    counts.write_text("pgfault 17\noom_kill 2\n")
    with Worker() as worker:
        worker.call(planted.pid, timeout=PLENTY)
        worker.begin(planted.noted, "sigkill")
        counts.write_text(f"pgfault 18\noom_kill {after}\n")
        death = worker.finish(timeout=PLENTY)
        assert isinstance(death, Death)
        assert death.error == error
        assert death.how.startswith("SIGKILL")


GIB = 2**30


@pytest.mark.parametrize(
    "groups, files, processes, share",
    [
        ("", {}, 1, 16),
        ("", {}, 4, 9),
        ("0::/\n", {"memory.max": "max"}, 4, 9),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": 10 * GIB}, 1, 9),
        ("0::/a/b\n", {"a/b/memory.max": 5 * GIB, "a/memory.max": 10 * GIB}, 1, 4.5),
        # in a container: the path of the host, and the limit at the root
        ("0::/system.slice/docker-1\n", {"memory.max": 10 * GIB}, 2, 4.5),
        ("4:memory:/a\n0::/\n", {"memory/a/memory.limit_in_bytes": 10 * GIB}, 3, 3),
        ("4:memory:/a\n0::/\n", {"memory/memory.limit_in_bytes": 2**63 - 4096}, 4, 9),
        ("nonsense", {}, 4, 9),
    ],
)
def test_the_share_is_of_what_there_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups: str,
    files: dict[str, object],
    processes: int,
    share: float,
) -> None:
    """On a host of 40 GiB."""
    sizes = {"SC_PHYS_PAGES": 40 * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", lambda name: sizes[name])
    (tmp_path / "member").write_text(groups)
    monkeypatch.setattr(memory, "_MEMBER", tmp_path / "member")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "groups")
    for name, content in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    assert memory.share(processes) == pytest.approx(share)
