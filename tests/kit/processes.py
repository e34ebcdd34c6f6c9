"""Runs that go on while a test looks at them, and the processes that they start."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit.runs import clean_environment

PLENTY = 120.0
"""Seconds; nothing comes near it unless it is broken."""
TYPED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored in a background job
"""
"""The first lines of a program that takes Ctrl-C as a command does that somebody has typed."""


def begin_suite(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the suite in a process of its own, as ``run_suite`` does, and give the process while it goes on."""
    program = f"{TYPED}import pytest\nsys.exit(pytest.main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", program, "-p", "no:cacheprovider", "--pyargs", "conformance", *arguments], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_environment(),
    )  # fmt: skip


def waited_for(what: Callable[[], Any], state: Callable[[], object] = lambda: "") -> Any:
    """Return what the function gives once it is true; ``state`` tells what there was in place of it."""
    end = time.monotonic() + PLENTY
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            if value := what():
                return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {PLENTY:g} s: {state()}")


def spawned(pid: int) -> list[int]:
    """Return the processes below one."""
    direct = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):  # by the thread that started them
        with contextlib.suppress(OSError):
            direct += [int(child) for child in children.read_text(encoding="ascii").split()]
    return [*direct, *(below for child in direct for below in spawned(child))]


def gone(pid: int, seconds: float = PLENTY) -> bool:
    """Wait for the end of a process, and return whether it came within that time; it may have ended before."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], seconds)[0])
    finally:
        os.close(process)
