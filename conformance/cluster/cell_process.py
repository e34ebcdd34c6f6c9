"""The process below a Dask worker that runs its cells. It ends with its connection, whatever happens to the worker.

A process of its own, since a Dask worker may start none through multiprocessing, and since cells run in the folder in
which the run was started, as it is laid out there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from conformance.cluster.freight import below
from conformance.cluster.run_description import Run

START = "import sys; sys.path[:1] = []; from conformance.cluster.serving import main; main()"
"""Run by Python without the folder of the cases on ``sys.path``: that is what a case file's own imports look at."""


class Host:
    """The process as its Dask worker sees it."""

    def __init__(self, run: Run, root: Path, started_in: Path) -> None:
        """``root`` is the folder of the run, ``started_in`` the worker's. OSError where it cannot be started."""
        self.run, self.root = run, root
        folder = below(root, run.folder)
        folder.mkdir(parents=True, exist_ok=True)
        roots = [str(below(root, entry)) for entry in run.roots]
        paths = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._connection, theirs = Pipe()
        with theirs:
            # In a session of its own: a Ctrl-C in the terminal is for the run, which then cancels its tasks.
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(theirs.fileno())],
                cwd=folder, env={**os.environ, "PYTHONPATH": paths}, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._connection.send((run, root, started_in))

    def send(self, cells: bytes) -> None:
        """Has it run these cells, which are pickled."""
        self._connection.send_bytes(cells)

    def poll(self, seconds: float) -> bool:
        """Wait at most so many seconds for ``receive`` to have something."""
        return self._connection.poll(seconds)

    def receive(self) -> tuple[Any, ...]:
        """Return what it says next; EOFError or OSError where it has ended."""
        told: tuple[Any, ...] = self._connection.recv()
        return told

    @property
    def ended(self) -> bool:
        """Return whether the process has ended of itself."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Ends it with all that it runs."""
        self._connection.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
