"""Runs in processes of their own, what of them is alive, and what a process holds, as the kernel tells it."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "CONFORMANCE_ENDURANCE"
"""A variable in the environment of a run, which all processes that it starts inherit."""


def start_run(folder: Path, *more: str, token: str = "", report: str = "report") -> subprocess.Popen[str]:
    """Starts the cases of a folder on two workers, in a session of its own."""
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    command = [
        sys.executable, "-m", "pytest", "--pyargs", "conformance", "-n", "2", "-v", "--cases", "cases",
        "--report", report, "--store", "store", "--cell-timeout", "60", "-p", "no:cacheprovider", *more,
    ]  # fmt: skip
    environment = {**os.environ, MARK: token, "PYTHONUNBUFFERED": "1", "PYTHONPATH": paths, "COLUMNS": "200"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def marked(token: str) -> list[int]:
    """Processes with that mark; those that ended and were not waited for are none."""
    wanted = f"{MARK}={token}".encode()
    alive = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in (place / "environ").read_bytes().split(b"\0"):
                    alive.append(int(place.name))
    return alive


def seconds_until_gone(token: str, limit: float) -> float | None:
    """How long it took until no process had that mark; None where some were left after ``limit`` seconds."""
    start = time.monotonic()
    while time.monotonic() - start < limit:
        if not marked(token):
            return time.monotonic() - start
        time.sleep(0.02)
    return None


def resident(pid: int) -> float:
    """MiB that a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def descriptors(pid: int) -> int:
    return sum(1 for _ in _listed(Path(f"/proc/{pid}/fd")))


def _listed(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from folder.iterdir()
