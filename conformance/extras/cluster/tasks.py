"""Run the tasks of a cluster, the cells in a process below the Dask worker. Workers import this: no PyTorch, no
cases.

A process of its own, since a Dask worker may start none through multiprocessing, and since cells run in the folder
in which the run was started, as it is laid out there. It ends with its connection, whatever happens to the worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from distributed import Worker, get_worker

from conformance.extras.cluster.freight import below, lay_out
from conformance.extras.cluster.run_description import Run, store_of
from conformance.process.errors import trouble_of_host
from conformance.results.records.environment import code
from conformance.results.records.record import Record
from conformance.results.records.run_file import LINES

START = "import sys; sys.path[:1] = []; from conformance.extras.cluster.serving import main; main()"
"""Run by Python without the folder of the cases on ``sys.path``: that is what a case file's own imports look at."""


class DaskHost:
    """The process as its Dask worker sees it."""

    def __init__(self, run: Run, root: Path, started_in: Path) -> None:
        """``root`` is the folder of the run, ``started_in`` the worker's. OSError where it cannot be started."""
        self.run, self.root = run, root
        folder = below(root, run.folder)
        folder.mkdir(parents=True, exist_ok=True)
        roots = [str(below(root, entry)) for entry in run.roots]
        paths = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.connection, theirs = Pipe()
        """Takes cells, pickled, that the process is to run, and has what it says of them."""
        with theirs:
            # In a session of its own: a Ctrl-C in the terminal is for the run, which then cancels its tasks.
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(theirs.fileno())],
                cwd=folder, env={**os.environ, "PYTHONPATH": paths}, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.connection.send((run, root, started_in))

    @property
    def ended(self) -> bool:
        """Return whether the process has ended of itself."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End it with all that it runs."""
        self.connection.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


CODE = code()
"""The version of this package that this process has loaded."""

_LOOK = 0.2
"""Seconds between looks at whether a task is still wanted."""

WITH_RECORD = 2**20
"""Bytes of a bundle that comes with its record, so that it is here where the run ends before its task. The scheduler
keeps the last thousand of what it is told under a topic: larger ones come as the task's result."""

_host: DaskHost | None = None


class Unfit(Exception):
    """A worker cannot run any case, as its disk is full. The task is to be run by another one."""


class HostEnded(Exception):
    """The process that runs the cells ended while it ran one."""


def contents(data: bytes) -> bytes:
    """A file's contents, which a task is a task for so that each worker fetches them once."""
    return data


def run_cells(
    run: Run, cells: bytes, digests: Mapping[str, str], files: Mapping[str, bytes]
) -> list[tuple[str, bytes]]:
    """Run cells, which are pickled. Tells of each under the topic of the run when it begins, and with its record
    when it has ended, and the bundle of one that failed, where the worker does not share the store of the run. Gives
    the bundles that are larger than ``WITH_RECORD``.

    ``digests`` has the files by their paths, ``files`` their contents by digest. Raises Unfit and HostEnded.
    """
    worker = get_worker()
    root = Path(worker.local_directory) / run.name
    try:
        lay_out(root, digests, files.__getitem__)
        host = ready(run, root)
    except OSError as error:
        raise _unfit(run, worker, trouble_of_host(error) or str(error)) from None
    try:
        return _passed_on(host, cells, worker, worker.get_current_task())
    except (EOFError, OSError):
        end()
        raise HostEnded("the process that runs the cells has ended") from None


REPLAY = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(1)
sys.path[:1] = []
from conformance.front.cli import main
sys.exit(main())
"""
"""Run by Python without the folder that it is in on ``sys.path``. Linux ends it with the worker that started it: 1 is
PR_SET_PDEATHSIG of prctl(2)."""


def replay(run: Run, order: bytes, digests: Mapping[str, str], files: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """Replay a bundle, as ``extras.cluster.bundles`` packs it, in this environment, whatever it has. Tell of cells as
    ``run_cells`` does. Raises Unfit and HostEnded."""
    worker = get_worker()
    root, given = Path(worker.local_directory) / run.name, json.loads(order)
    try:
        lay_out(root, digests, files.__getitem__)
        report = Path(tempfile.mkdtemp(dir=root))
    except OSError as error:
        raise _unfit(run, worker, trouble_of_host(error) or str(error)) from None
    store = store_of(run, Path.cwd()) / "engines"
    command = [
        sys.executable, "-c", REPLAY, str(os.getpid()), "replay", str(below(root, given["folder"])),
        "--report", str(report / "run"), "--store", str(store.absolute()), *given["arguments"],
    ]  # fmt: skip
    with (report / "said").open("w+b") as said:
        process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            told = _follow(process, report / "run" / LINES, worker)
            _tell_of_replayed(run, worker, given["cells"], told)
        finally:
            process.kill()
            process.wait()
        if process.returncode not in (0, 1, 5, -signal.SIGKILL):
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines() or [f"it ended with {process.returncode}"]
            raise HostEnded(f"conformance replay: {lines[-1]}")
    return []


def _tell_of_replayed(run: Run, worker: Worker, cells: list[str], records: Iterator[dict[str, object]]) -> None:
    common = {"task": str(worker.get_current_task()), "address": worker.address}
    for cell in [*cells, ""]:
        if cell:
            worker.log_event(run.name, {"kind": "begun", **common, "cell": cell})
        record = next(records, None)
        if record is None:
            return
        made = pickle.dumps(Record.from_dict(record))
        worker.log_event(run.name, {"kind": "ended", **common, "cell": record["id"], "record": made})


def _follow(process: subprocess.Popen[bytes], lines: Path, worker: Worker) -> Iterator[dict[str, object]]:
    """The records of a run file as they come, until the process that writes it has ended, or nobody wants them."""
    key, place = worker.get_current_task(), 0
    while True:
        ended = process.poll() is not None
        with contextlib.suppress(OSError), lines.open("rb") as file:
            file.seek(place)
            for line in file:
                if line.endswith(b"\n"):
                    if place:  # the first line is the header
                        yield json.loads(line)
                    place += len(line)
        if ended or not _is_wanted(worker, key):
            return
        time.sleep(_LOOK)


def _is_wanted(worker: Worker, key: Any) -> bool:
    """Return whether somebody waits for a task: not after a Ctrl-C."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled"


def _unfit(run: Run, worker: Worker, reason: str) -> Unfit:
    """The exception; the worker gets no more cases of this run."""
    end()
    # Told to the scheduler alone: tasks that this worker has already been given could not begin without the resource.
    withdraw = {"worker": worker.contact_address, "resources": {run.name: 0}}
    with contextlib.suppress(RuntimeError):  # its loop has ended
        worker.loop.add_callback(worker.scheduler.set_resources, **withdraw)
    worker.log_event(run.name, {"kind": "unfit", "address": worker.address, "reason": reason})
    return Unfit(reason)


def _passed_on(host: DaskHost, cells: bytes, worker: Worker, key: object) -> list[tuple[str, bytes]]:
    bundles: list[tuple[str, bytes]] = []
    common = {"task": str(key), "address": worker.address}
    host.connection.send_bytes(cells)
    while True:
        while not host.connection.poll(_LOOK):
            if not _is_wanted(worker, key):
                end()
                return []
        kind, *told = host.connection.recv()
        if kind == "done":
            return bundles
        if kind == "unfit":
            raise _unfit(host.run, worker, told[0])
        said = {"kind": kind, **common, "cell": told[0]}
        if kind == "ended":
            _, said["record"], bundle = told
            if bundle is not None and len(bundle[1]) > WITH_RECORD:
                bundles.append(bundle)
            else:
                said["bundle"] = bundle
        worker.log_event(host.run.name, said)


def ready(run: Run, root: Path, start: Callable[[Run, Path, Path], DaskHost] = DaskHost) -> DaskHost:
    """The process of the run, started where it does not run yet. OSError where it cannot be."""
    global _host
    if _host is None or _host.run.name != run.name or _host.ended:
        end()
        _host = start(run, root, Path.cwd())
    return _host


def end(run: str | None = None) -> None:
    """End the process that runs cells, if there is one; with the name of a run, only if it is that run's."""
    global _host
    if _host is None or run not in (None, _host.run.name):
        return
    host, _host = _host, None
    host.end()
