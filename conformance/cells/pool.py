"""Jobs, mostly cells, in several worker processes at a time; what is done with their results runs in the caller's
thread."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from conformance.process.worker.isolation import OnWait, Worker

J = TypeVar("J")
R = TypeVar("R")

TICK = 0.1
"""Seconds after which ``Pool.results`` lets its caller do something else."""


class Doing(NamedTuple):
    """A job that is running, when it began (``time.monotonic``), and the latest note of its worker."""

    job: Any
    begun: float
    note: dict[str, object]


Running: TypeAlias = Callable[[J, OnWait, J | None], R]
"""Runs a job in a worker, such as a cell; told which comes next, it may begin that one at once."""


class Handing(Protocol):
    """Hands numbers of jobs to the workers that ask, as ``case.plan.order.Schedule`` does."""

    def add(self, worker: object, /) -> None: ...

    def take(self, worker: object, /, *, of_others: bool) -> int | None:
        """Return the next job of a worker, or of others if it has none of its own; None where none is left."""


class InOrder:
    """Hand out jobs in their order, to whichever worker asks; none once time is up (``time.monotonic``)."""

    def __init__(self, numbers: Iterable[int], deadline: float = math.inf) -> None:
        self._numbers, self._deadline = iter(numbers), deadline

    def add(self, worker: object, /) -> None: ...

    def take(self, worker: object, /, *, of_others: bool) -> int | None:
        return next(self._numbers, None) if of_others and time.monotonic() <= self._deadline else None


class Pool(Generic[J, R]):
    """One thread for each worker, which has it run one job after another and waits for its answers.

    Threads suffice, since the work is done by the workers; each is held to the time and the memory of its job by the
    thread that waits for it.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        runner: Callable[[Worker], Running[J, R]],
        schedule: Handing,
        jobs: Mapping[int, J],
        failed: Callable[[J, Exception], R],
    ) -> None:
        """``workers`` have been entered; ``runner`` makes what runs jobs in one of them. The ``schedule`` hands out
        the numbers of ``jobs``. ``failed`` gives the result of one that raised."""
        self._schedule, self._jobs, self._failed = schedule, jobs, failed
        self.workers = [*workers]
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[tuple[int, R] | BaseException | None] = queue.SimpleQueue()
        self._doing: dict[int, Doing] = {}
        self._stopped = False
        self._over = threading.Event()
        for number in range(len(workers)):
            schedule.add(number)
        self._threads = [
            threading.Thread(target=self._drive, args=(number, runner(worker)), name=f"jobs-{number}", daemon=True)
            for number, worker in enumerate(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[tuple[int, R] | None]:
        """The results as they come, each with the number of its job; None after each ``TICK`` without any. Raises
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
        """The jobs that are running, the one that began first at the front."""
        return list(self._doing.values())

    def close(self) -> None:
        """End what is running, and the workers."""
        self._stopped = True
        self._over.set()
        for worker in self.workers:
            worker.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        with ExitStack() as stack:
            for worker in self.workers:
                stack.callback(worker.close)

    def _take(self, worker: int, *, of_others: bool) -> int | None:
        with self._lock:
            return self._schedule.take(worker, of_others=of_others)

    def _drive(self, worker: int, run: Running[J, R]) -> None:
        """Have one worker run what the schedule gives it."""
        try:
            number = self._take(worker, of_others=True)
            while number is not None and not self._stopped:
                following = self._take(worker, of_others=False)
                self._answers.put((number, self._result(number, run, following)))
                number = self._take(worker, of_others=True) if following is None else following
        except BaseException as error:  # of a thread: who waits for the records raises it
            self._answers.put(error)
        else:
            self._answers.put(None)
        self._over.wait()  # a fork server that this thread has started ends with it, and the workers of all others

    def _result(self, number: int, run: Running[J, R], following: int | None) -> R:
        job = self._jobs[number]
        doing = self._doing[number] = Doing(job, time.monotonic(), {})

        def note(latest: dict[str, object]) -> None:
            self._doing[number] = doing._replace(note=latest)

        try:
            return run(job, note, None if following is None else self._jobs[following])
        except Exception as error:  # a mistake of ours; the result says so, and the other jobs run all the same
            return self._failed(job, error)
        finally:
            del self._doing[number]
