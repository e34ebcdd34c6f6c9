"""Limit the memory of a worker, and find out whether it took more.

RLIMIT_DATA bounds what a process writes for itself, and makes the allocation fail. What it shares is bounded by
looking at it: a group of the kernel's own (cgroup) would count it too, but hardly any host lets its users make one,
the two versions differ, and a controller that is killed would leave it behind.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from conformance.process.worker import children

GIB = 2**30
_MOST = 16.0  # GiB
_SHARE = 0.9  # of the memory that there is
LOOKS = 3
"""How often in a row too much has to be seen."""
VMSTAT = Path("/proc/vmstat")
"""Where the kernel counts the processes that it has killed for memory."""


def share(processes: int = 1, machine: int | None = None) -> float:
    """GiB for one worker where so many run at the same time: at most 16, and together 9/10 of what there is, which
    ``machine`` has in bytes (default: of this host)."""
    there_is = machine_memory() if machine is None else machine
    return min(_MOST, _SHARE * there_is / processes / GIB)


def allowed() -> int:
    """Bytes of memory that this process may take: by its own limit, or all that there is."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return machine_memory() if soft == resource.RLIM_INFINITY else min(soft, machine_memory())


def machine_memory(
    physical: int | None = None,
    member: Path = Path("/proc/self/cgroup"),
    groups: Path = Path("/sys/fs/cgroup"),
) -> int:
    """Bytes of memory of this host, or that its container may use, if that is less.

    ``physical`` is what the host has; ``member`` names the control groups of this process, whose limits lie below
    ``groups``.
    """
    if physical is None:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_group_limits(member, groups)])


def _group_limits(member: Path, groups: Path) -> list[int]:
    """The limits of the control groups of this process, from its own to the outermost that can be seen."""
    limits = []
    with contextlib.suppress(OSError, ValueError):
        for line in member.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                home, name = groups, "memory.max"
            elif "memory" in controllers.split(","):
                home, name = groups / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = home / path.lstrip("/")
            # in a container, the path may be that of the host, and only the outermost group be there
            for folder in (group, *group.parents):
                if folder.is_relative_to(home):
                    with contextlib.suppress(OSError, ValueError):  # "max" is no number
                        limits.append(int((folder / name).read_text(encoding="ascii")))
    return limits


class Watch:
    """The memory of one worker and of all processes below it, beyond what the worker began with."""

    def __init__(self, pid: int, limit_gib: float, server: int | None = None) -> None:
        """``server``: what the worker was forked from, whose memory it began with."""
        self._pid = pid
        self._limit = limit_gib * GIB
        self._before = _own(pid, "status")
        self._forked = server is not None
        self.killed = _kills()

    def excess(self) -> str | None:
        """Say in words what the worker has taken beyond what it may; None if nothing."""
        # What processes share counts in each of them; only where the sum is too much is it worth asking for the
        # part of each, which takes the kernel longer.
        if self._measure("status") <= self._limit:
            return None
        # One process is read after another, and while some of them end, what they shared counts as that of several.
        taken = min(self._measure("smaps_rollup") for _ in range(LOOKS))
        if taken <= self._limit:
            return None
        return f"{taken / GIB:.3g} GiB of memory taken, {self._limit / GIB:.3g} GiB allowed"

    def _measure(self, source: str) -> int:
        pids = (self._pid, *children.below(self._pid))
        before = self._before
        if source == "smaps_rollup" and self._forked:
            # The server shares what they began with: so many parts of it are theirs. More, where others end.
            before = before * len(pids) // (len(pids) + 1)
        return sum(_own(pid, source) for pid in pids) - before

    def look(self) -> None:
        """Take note of how often the kernel has killed for memory so far."""
        self.killed = _kills()

    def out_of_memory(self) -> bool:
        """Return whether the kernel has killed for memory since the last ``look``.

        Any process of this host.
        """
        return _kills() > self.killed


def _own(pid: int, source: str) -> int:
    """Bytes that a process takes but for files that it has mapped: all of them, or with ``smaps_rollup`` its part."""
    wanted = ("RssAnon:", "RssShmem:") if source == "status" else ("Pss_Anon:", "Pss_Shmem:")
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/{source}").read_text(encoding="utf-8", errors="replace").splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(wanted))
    return 0


def _kills() -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in VMSTAT.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
