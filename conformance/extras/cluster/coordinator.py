"""The cases that a cluster runs: they go out as tasks, and records come back as they are made."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import queue
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from distributed import Future

from conformance.extras.cluster import tasks
from conformance.extras.cluster.admission import SLOT
from conformance.extras.cluster.freight import Freight
from conformance.extras.cluster.run_description import Run
from conformance.extras.cluster.workers import ANSWER, DaskWorker, Workers
from conformance.process.disk.foreign_files import unpack
from conformance.process.errors import display_path, why
from conformance.results.records.record import Record

KILLS = 3
"""A cell during which so many workers ended is not tried on another."""
SMALL = 2**18
"""Bytes of a file that goes with each task that needs it."""
TICK = 0.5
"""Seconds between looks of a cluster at what nobody tells it."""


@dataclass(frozen=True)
class CellJob:
    """Cells of one case that one worker runs in a row."""

    cells: tuple[str, ...]
    """Their ids."""
    function: Callable[..., list[tuple[str, bytes]]]
    """Of ``tasks``: what the worker calls."""
    packed: Callable[[Sequence[str]], bytes]
    """What it is given of these of the cells."""
    files: Freight
    words: frozenset[str]
    """What a worker has to have: ``package timm``, ``runtime tensorrt``."""
    seconds: float
    """What is expected of it."""


class MadeCell(NamedTuple):
    """A cell with its record."""

    cell: str
    """Its id."""
    record: Record
    worker: Any
    """The name, host and processor of the worker that made it."""
    fingerprint: str | None = None
    """What fingerprints take of that worker's host."""


@dataclass
class _Task:
    job: CellJob
    rank: int
    left: dict[str, None]
    """The cells of which no record has come."""
    tries: int = 0
    stranded: float | None = None
    """Since when there has been no worker for it."""
    future: Future[Any] | None = None


class Cluster(Workers):
    """A context manager that gives jobs to the workers."""

    def __init__(
        self, address: str, store: Path, tell: Callable[[str], object], *, tick: float = TICK, **wanted: Any
    ) -> None:
        """As ``Workers``; ``tick`` are the seconds after which ``records`` lets its caller do something else."""
        super().__init__(address, store, tell, **wanted)
        self._tick = tick
        self.twice = 0
        """Records that came once more than needed, as of a case that was begun again, and were dropped."""
        self._run: Run | None = None
        self._lost: Callable[[str, str, str], Record]
        self._tasks: dict[str, _Task] = {}
        self._contents: dict[str, Future[Any]] = {}
        self._begun: dict[str, list[str]] = {}
        """By cell the addresses of the workers that began it and sent no record."""
        self._ended: set[str] = set()
        self._numbers = itertools.count()

    def records(
        self, jobs: Sequence[CellJob], run: Callable[[str, int], Run], lost: Callable[[str, str, str], Record]
    ) -> Iterator[MadeCell | None]:
        """The cells with their records as they come, each once; None now and then while none comes.

        ``jobs`` are in the order in which they should begin. ``run`` makes of this run's name, and of how many
        workers there are at most on a host, what all tasks have in common; ``lost`` makes of the id of a cell, an
        error and a reason the record of one that no worker could run. Raises SchedulerLost.
        """
        self._lost = lost
        on_host = Counter(worker.host for worker in self.fit)
        self._run = run(self.name, max(on_host.values(), default=1))
        for rank, job in enumerate(jobs):
            self._submit(_Task(job, rank, dict.fromkeys(job.cells)))
        while self._tasks:
            try:
                kind, what = self.events.get(timeout=self._tick)
            except queue.Empty:
                self._look()
                yield from self._given_up()
                yield None
                continue
            self._look()
            if kind == "unreadable":
                yield from self._unreadable(*what)
            else:
                yield from self._hear(what) if kind == "event" else self._done(what)

    def _submit(self, task: _Task) -> None:
        """Hand out what is left of a task, under another key each time."""
        assert self.client is not None and self._run is not None
        task.tries += 1
        key = f"conformance_cells-{self.name}-{next(self._numbers)}"  # Dask keeps durations by the first word
        self._tasks[key] = task
        try:
            contents = {digest: self._contents_of(digest, place) for digest, place in task.job.files.places.items()}
        except OSError as error:  # a file was removed since the run began
            self.events.put(("unreadable", (task, f"{error.filename} cannot be read any more ({why(error)})")))
            return
        words = {f"{self.name} {word}": 1.0 for word in task.job.words}
        task.future = self.client.submit(
            task.job.function, self._run, task.job.packed(list(task.left)), dict(task.job.files.digests),
            contents, key=key, pure=False, priority=-task.rank, resources={SLOT: 1.0, self.name: 1.0, **words},
        )  # fmt: skip
        task.future.add_done_callback(lambda _: self.events.put(("done", key)))

    def _contents_of(self, digest: str, file: Path) -> bytes | Future[object]:
        """A small file goes with each task that needs it: where a task depends on a future, Dask looks first for
        workers that have it, and leaves others idle. A large one is sent once, and fetched from one another."""
        assert self.client is not None
        if file.stat().st_size <= SMALL:
            return file.read_bytes()
        if digest not in self._contents:
            self._contents[digest] = self.client.submit(
                tasks.contents, file.read_bytes(), key=f"conformance_file-{self.name}-{digest}", pure=False,
                resources={f"{self.name} files": 1.0},
            )  # fmt: skip
        return self._contents[digest]

    def _hear(self, told: Mapping[str, object]) -> Iterator[MadeCell]:
        if told["kind"] == "worker":
            # Dask looks for a worker when a task or a worker comes, and this one had no resources when it came.
            self._look(at_once=True)
            stranded = [task for task in self._tasks.values() if self.lacking(task.job.words) is not None]
            self._hear_worker(told)
            self._contents = {digest: sent for digest, sent in self._contents.items() if sent.done()}
            for task in stranded:
                if self.lacking(task.job.words) is None:
                    task.tries -= 1
                    self._again(task)
            return iter(())
        if told["kind"] == "unfit":
            self._hear_worker(told)
            return iter(())
        return self._hear_cell(told)

    def _hear_cell(self, told: Mapping[str, Any]) -> Iterator[MadeCell]:
        id, address, task = told["cell"], told["address"], self._tasks.get(told["task"])
        if told["kind"] == "begun":
            if task is not None and id in task.left:
                self._begun.setdefault(id, []).append(address)
                if len(self._begun[id]) > KILLS:
                    yield from self._condemned(task, id)
            return
        if id in self._ended:
            self.twice += 1
            return
        if task is None or id not in task.left:  # of a task that was given up
            task = next((other for other in self._tasks.values() if id in other.left), None)
        if task is not None:
            if told.get("bundle") is not None:
                self._unpack(*told["bundle"])
            yield self._finish(task, id, pickle.loads(told["record"]), self.known.get(address))

    def _finish(self, task: _Task, cell: str, record: Record, worker: DaskWorker | None = None) -> MadeCell:
        del task.left[cell]
        self._ended.add(cell)
        self._begun.pop(cell, None)
        if worker is None:
            return MadeCell(cell, record, None)
        said = {"name": worker.name, "host": worker.host, "cpu": worker.facts["cpu"]}
        return MadeCell(cell, record, said, worker.facts["fingerprint"])

    def _condemned(self, task: _Task, id: str) -> Iterator[MadeCell]:
        """The cell during which too many workers ended has its verdict, and the others of its case go on."""
        began = self._begun[id][:KILLS]
        text = f"{len(began)} workers ended while they ran it: {', '.join(map(self._name_worker, began))}"
        yield self._finish(task, id, self._lost(id, "WorkersLost", text))
        self._again(task)

    def _name_worker(self, address: str) -> str:
        worker = self.known.get(address)
        return address if worker is None else f"{worker.name} ({address})"

    def _again(self, task: _Task) -> None:
        """Hand out anew what is left of a task, in place of what runs of it now."""
        for key in [key for key, known in self._tasks.items() if known is task]:
            del self._tasks[key]
        if task.future is not None:
            if task.future.done():
                task.future.release()
            else:
                task.future.cancel(force=True)
            task.future = None
        if task.left:
            self._submit(task)

    def _done(self, key: str) -> Iterator[MadeCell]:
        """A task has ended, one way or another."""
        task = self._tasks.get(key)
        if task is None or task.future is None:
            return
        future = task.future
        if future.status == "finished":
            with contextlib.suppress(Exception):  # the bundles are gone with their worker; the records are here
                for name, archive in future.result(timeout=ANSWER):
                    self._unpack(name, archive)
            text = "its worker sent no record of it"
        elif future.status == "error":
            error = future.exception()
            if isinstance(error, tasks.Unfit):
                task.tries -= 1
                for id in task.left:
                    self._begun.pop(id, None)
            text = f"{type(error).__name__}: {error}"
        else:  # cancelled, as where the scheduler is gone
            self._look()
            text = "the cluster dropped it"
        killing = [id for id in task.left if len(self._begun.get(id, ())) >= KILLS]
        for id in killing:
            yield from self._condemned(task, id)
        if killing:
            return
        if task.tries >= 2 * KILLS:
            for id in list(task.left):
                yield self._finish(task, id, self._lost(id, "WorkersLost", text))
        self._again(task)

    def _unreadable(self, task: _Task, text: str) -> Iterator[MadeCell]:
        """The cells that cannot go out any more, with records that say so."""
        for id in list(task.left):
            yield self._finish(task, id, self._lost(id, "MissingFile", text))
        self._again(task)

    def _given_up(self) -> Iterator[MadeCell]:
        """The cells that no worker can run, once there has been none for a while, with records that say so."""
        now = time.monotonic()
        for task in list(self._tasks.values()):
            lacking = self.lacking(task.job.words)
            if lacking is None:
                task.stranded = None
                continue
            task.stranded = task.stranded or now
            if now - task.stranded < self.patience:
                continue
            text = f"no worker of {self._address} is left that {f'has {lacking}' if lacking else 'could run it'}"
            for id in list(task.left):
                yield self._finish(task, id, self._lost(id, "NoWorker", text))
            self._again(task)

    def _unpack(self, name: str, archive: bytes) -> None:
        """Lay the bundle of a failing example into the store of the run, or say why it cannot be."""
        target = self._store / name
        if not target.resolve().is_relative_to(self._store.resolve()):
            return
        try:
            unpack(archive, target)
        except (OSError, tarfile.TarError) as error:
            self._tell(f"a bundle cannot be laid into {display_path(target)} ({error})")

    def close(self) -> None:
        """End what still runs, and leave the workers as they were."""
        if self.client is not None and self.client.status == "running":
            with contextlib.suppress(Exception):  # the scheduler may be gone
                self.client.cancel([task.future for task in self._tasks.values() if task.future], force=True)
        self._contents.clear()
        super().close()
