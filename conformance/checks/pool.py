"""Cells in several worker processes at a time; what pytest does with their records runs in the caller's thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from conformance.checks.runner import Runner, broken
from conformance.plan.cell import Cell
from conformance.plan.order import Schedule
from conformance.records.record import Record
from conformance.worker.isolation import Worker

TICK = 0.1
"""Seconds after which ``Pool.records`` lets its caller do something else."""


class Doing(NamedTuple):
    """A cell that is running, when it began (``time.monotonic``), and the latest note of its worker."""

    cell: Cell
    begun: float
    note: dict[str, Any]


class Pool:
    """One thread for each worker, which has it run one cell after another and waits for its answers.

    Threads suffice, since the work is done by the workers; each is held to the time and the memory of its cell by the
    thread that waits for it.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        runner: Callable[[Worker], Runner],
        schedule: Schedule,
        cells: Mapping[int, Cell],
    ) -> None:
        """``workers`` have been entered; ``runner`` makes what runs cells in one of them. The ``schedule`` hands out
        the numbers of ``cells``."""
        self._schedule, self._cells = schedule, cells
        self._workers = [*workers]
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[tuple[int, Record] | BaseException | None] = queue.SimpleQueue()
        self._doing: dict[int, Doing] = {}
        self._stopped = False
        self._over = threading.Event()
        for number in range(len(workers)):
            schedule.add(number)
        self._threads = [
            threading.Thread(target=self._drive, args=(number, runner(worker)), name=f"cells-{number}", daemon=True)
            for number, worker in enumerate(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def records(self) -> Iterator[tuple[int, Record] | None]:
        """The records as they come, each with the number of its cell; None after each ``TICK`` without any. Raises
        what has ended a thread."""
        left = len(self._threads)
        while left:
            try:
                answer = self._answers.get(timeout=TICK)
            except queue.Empty:
                yield None
                continue
            if isinstance(answer, BaseException):
                raise answer
            if answer is None:
                left -= 1
            else:
                yield answer

    def doing(self) -> list[Doing]:
        """The cells that are running, the one that began first at the front."""
        return list(self._doing.values())

    def close(self) -> None:
        """Ends what is running, and the workers."""
        self._stopped = True
        self._over.set()
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        with ExitStack() as stack:
            for worker in self._workers:
                stack.callback(worker.close)

    def _take(self, worker: int, *, of_others: bool) -> int | None:
        with self._lock:
            return self._schedule.take(worker, of_others=of_others)

    def _drive(self, worker: int, run: Runner) -> None:
        """Has one worker run what the schedule gives it."""
        try:
            number = self._take(worker, of_others=True)
            while number is not None and not self._stopped:
                following = self._take(worker, of_others=False)
                self._answers.put((number, self._record(number, run, following)))
                number = self._take(worker, of_others=True) if following is None else following
        except BaseException as error:  # of a thread: who waits for the records raises it
            self._answers.put(error)
        else:
            self._answers.put(None)
        self._over.wait()  # a fork server that this thread has started ends with it, and the workers of all others

    def _record(self, number: int, run: Runner, following: int | None) -> Record:
        cell = self._cells[number]
        doing = self._doing[number] = Doing(cell, time.monotonic(), {})

        def note(latest: dict[str, Any]) -> None:
            self._doing[number] = doing._replace(note=latest)

        try:
            return run(cell, note, None if following is None else self._cells[following])
        except Exception as error:  # a mistake of ours; it is in the record, and the other cells run all the same
            return broken(cell, type(error).__name__, "the cell has no record of its own", error)
        finally:
            del self._doing[number]
