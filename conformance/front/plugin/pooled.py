"""A session whose cells run in several workers here: their tests run in the order in which the records come."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from conformance.front.plugin.ordering import cell_of
from conformance.front.plugin.saying import SLOW_SECONDS, Waiting
from conformance.front.plugin.session_parts import may_run, run_tests

if TYPE_CHECKING:
    from conformance.case.plan.cell import Cell
    from conformance.cells.pool import Doing, Pool
    from conformance.front.plugin.session_parts import Parts
    from conformance.process.worker.isolation import Worker
    from conformance.results.records.record import Record


class Pooled:
    """Hooks of a session whose cells run in several workers."""

    def __init__(self, session: Parts, workers: int) -> None:
        self._session, self._options, self._count = session, session.options, workers
        self._pool: Pool[Cell, Record] | None = None
        self._waiting: Waiting | None = None

    def close(self) -> None:
        """End the workers, and what they are running."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def idle(self) -> list[Worker]:
        """Return the workers, which have run all that there was, if they are still there."""
        return [] if self._pool is None else self._pool.workers

    # ---- hooks

    @pytest.hookimpl(tryfirst=True)  # before progress is shown
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._session.ordering.workers = self._count

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of cells as their records come, and the others meanwhile; budgets of time at the end, while
        nothing else runs."""
        if not self._session.planning.collected or session.config.option.collectonly or not may_run(session):
            return None
        of_workers, at_once, alone = self._divided(session.items)
        if len(of_workers) < 2:
            return None
        left = dict.fromkeys(of_workers)
        pool = self._start(session.items, of_workers)
        run_tests(session, at_once, (*of_workers, *alone))
        quiet = time.monotonic()
        for made in pool.results():
            if made is None:
                if time.monotonic() - quiet >= SLOW_SECONDS:
                    self._show(pool.doing())
                continue
            self._show([])
            number, self._session.running.given = made
            del left[of_workers[number]]
            run_tests(session, [of_workers[number]], itertools.chain(reversed(left), alone))
            quiet = time.monotonic()
        self._show([])
        if alone:
            self.close()  # budgets of time are measured while nothing else is there
        run_tests(session, alone, ())
        return True

    def _divided(
        self, items: Sequence[pytest.Item]
    ) -> tuple[list[pytest.Item], list[pytest.Item], list[pytest.Item]]:
        """The tests whose cells the workers run, those that take no time, and budgets of time, measured alone."""
        of_workers, at_once, alone = list[pytest.Item](), list[pytest.Item](), list[pytest.Item]()
        for item in items:
            cell = cell_of(item)
            if cell is None or not self._has_to_run(cell):
                at_once.append(item)
            else:
                (alone if cell.check == "latency" else of_workers).append(item)
        return of_workers, at_once, alone

    def _has_to_run(self, cell: Cell) -> bool:
        try:
            return self._session.running.has_to_run(cell)
        except Exception:  # raised again by the cell's own test, which tells it
            return False

    def _start(self, items: Sequence[pytest.Item], of_workers: Sequence[pytest.Item]) -> Pool[Cell, Record]:
        from conformance.case.plan.order import Schedule
        from conformance.cells.pool import Pool
        from conformance.process.worker.warm import new_worker

        ordering, running = self._session.ordering, self._session.running
        told = ordering.tell(items)
        known = zip(told.works, ordering.seconds([item.nodeid for item in items]), strict=True)
        of = dict(zip(items, known, strict=True))
        works, seconds = zip(*(of[item] for item in of_workers), strict=True)
        cells = {number: cell for number, item in enumerate(of_workers) if (cell := cell_of(item)) is not None}
        memory = self._options.cell_memory()
        dynamo = self._options.may_need_dynamo()
        workers = [new_worker(memory, dynamo=dynamo).__enter__() for _ in range(min(self._count, len(of_workers)))]
        shown: dict[str, str] = {}
        schedule = Schedule(works, seconds, as_given=told.as_given)
        self._pool = Pool(workers, lambda worker: running.runner(worker, shown), schedule, cells, unmade)
        self._pool.start()
        return self._pool

    def _show(self, doing: Sequence[Doing]) -> None:
        """Show what the cell is doing that began first, and take away what was shown of another."""
        front = doing[0] if doing else None
        if self._waiting is not None and (front is None or front.job.id != self._waiting.cell):
            self._waiting.done()
            self._waiting = None
        if front is not None:
            if self._waiting is None:
                self._waiting = Waiting(self._options.config, self._session.progress, front.job.id, front.begun)
            self._waiting(front.note)


def unmade(cell: Cell, error: Exception) -> Record:
    """The record of a cell that could not be run, so that the others run all the same."""
    from conformance.cells.runner import broken

    return broken(cell, type(error).__name__, "the cell has no record of its own", error)
