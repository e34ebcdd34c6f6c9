"""Cells in several workers at a time: each once, with its own record, until the run ends or is broken off."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.checks.pool import Pool
from conformance.plan.cell import Cell
from conformance.plan.order import Schedule, Work
from conformance.records.record import Record
from conformance.worker.isolation import Death, Worker, WorkerError
from tests import planted

PLENTY = 60.0
"""Seconds; nothing here comes near it unless it is broken."""
BODY = """
forward: torch.sin(x)
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
export: {torchscript: [9, 11, 13, 15, 17]}
"""


class Idle:
    """A worker whose calls are planted in what runs cells."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.closed = False

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.closed = True


Planted = Callable[[Idle, Cell], None]


@pytest.fixture
def cells(bench) -> dict[int, Cell]:
    return dict(enumerate(bench.cells(BODY)))


def pool_of(cells: dict[int, Cell], planted: Planted, workers: int = 2) -> tuple[Pool, list[Idle]]:
    """A pool whose cells do what is planted."""
    works = [Work(number // 2, number // 2, number, 0.01) for number in cells]
    idle = [Idle() for _ in range(workers)]

    def runner(worker: Any) -> Any:
        def run(cell: Cell, on_wait: Any, then: Cell | None) -> Record:
            planted(worker, cell)
            return cell.record()

        return run

    return Pool(idle, runner, Schedule(works, [0.01] * len(works)), cells), idle  # type: ignore[arg-type]


def all_of(pool: Pool) -> Iterator[tuple[int, Record]]:
    pool.start()
    yield from filter(None, pool.records())


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_each_cell_comes_once_with_its_own_record(cells, workers):
    pool, idle = pool_of(cells, lambda worker, cell: None, workers)
    made = dict(all_of(pool))
    pool.close()
    assert {number: record.id for number, record in made.items()} == {n: cell.id for n, cell in cells.items()}
    assert all(worker.closed for worker in idle)


def test_cells_run_at_the_same_time(cells):
    """The first cell of each worker waits until the other worker has begun one."""
    both, begun = threading.Barrier(2, timeout=PLENTY), set[Idle]()

    def planted(worker: Idle, cell: Cell) -> None:
        if worker not in begun:
            begun.add(worker)
            both.wait()

    pool, _ = pool_of(cells, planted)
    assert len(list(all_of(pool))) == len(cells)
    pool.close()


def test_a_cell_that_takes_long_holds_up_no_other(cells):
    others = threading.Semaphore(0)

    def planted(worker: Idle, cell: Cell) -> None:
        if cell is cells[0]:
            for _ in range(len(cells) - 2):  # all but itself and the one that its worker has before it
                assert others.acquire(timeout=PLENTY)
        else:
            others.release()

    pool, _ = pool_of(cells, planted)
    order = [number for number, _ in all_of(pool)]
    pool.close()
    assert sorted(order) == sorted(cells)
    assert order.index(0) >= len(cells) - 3  # the record of the last of the others may come behind that of this one


def test_what_is_running_is_known_with_its_latest_note(cells):
    begun, seen = threading.Event(), threading.Event()

    def planted(worker: Idle, cell: Cell) -> None:
        begun.set()
        assert seen.wait(PLENTY)

    pool, _ = pool_of(cells, planted, workers=1)
    pool.start()
    assert begun.wait(PLENTY)
    (doing,) = pool.doing()
    assert doing.cell in cells.values() and doing.begun <= time.monotonic()
    seen.set()
    assert len(list(filter(None, pool.records()))) == len(cells)
    assert pool.doing() == []
    pool.close()


def test_a_mistake_of_this_package_is_the_record_of_its_cell_alone(cells):
    def planted(worker: Idle, cell: Cell) -> None:
        if cell is cells[1]:
            raise ZeroDivisionError("planted")

    pool, _ = pool_of(cells, planted)
    made = dict(all_of(pool))
    pool.close()
    failed = [(n, record.error, record.fault) for n, record in made.items() if record.status == "failed"]
    assert failed == [(1, "ZeroDivisionError", "harness")] and len(made) == len(cells)


def test_what_ends_a_thread_is_raised_where_the_records_are_taken(cells):
    def planted(worker: Idle, cell: Cell) -> None:
        raise SystemExit("planted")

    pool, _ = pool_of(cells, planted)
    with pytest.raises(SystemExit, match="planted"):
        list(all_of(pool))
    pool.close()


def test_closing_ends_what_is_running(cells):
    running = threading.Semaphore(0)

    def planted(worker: Idle, cell: Cell) -> None:
        running.release()
        assert worker.stopped.wait(PLENTY), "was never stopped"

    pool, idle = pool_of(cells, planted)
    pool.start()
    for _ in idle:
        assert running.acquire(timeout=PLENTY)
    pool.close()
    assert all(worker.closed for worker in idle)
    assert not running.acquire(blocking=False), "another cell was begun"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cells-")]


# ---- workers in threads --------------------------------------------------------------------------------------


def test_a_call_that_another_thread_waits_for_ends_when_it_is_stopped():
    ended: list[object] = []
    with Worker() as worker:
        worker.ready()

        def wait() -> None:
            ended.append(worker.call(planted.noted, "hang", timeout=10 * PLENTY))

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        worker.stop()
        thread.join(PLENTY)
        assert not thread.is_alive()
        (death,) = ended
        assert isinstance(death, Death) and death.how == "the run was broken off"
        with pytest.raises(WorkerError, match="broken off"):
            worker.call(planted.pid, timeout=PLENTY)


def test_workers_that_die_in_several_threads_leave_one_another_alone():
    """While one thread has a worker forked, another ends what its own dead worker left behind, and a third reads how
    its worker has ended."""
    wrong: list[object] = []

    def live_and_die(number: int) -> None:
        with Worker() as worker:
            for turn in range(40):
                answer = worker.call(planted.echo, (number, turn), timeout=PLENTY)
                if answer != (number, turn):
                    wrong.append(answer)
                death = worker.call(planted.noted, "sigkill", timeout=PLENTY)
                if not isinstance(death, Death) or death.how != signal.Signals.SIGKILL.name:
                    wrong.append(death)

    threads = [threading.Thread(target=live_and_die, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PLENTY)
    assert wrong == [] and not any(thread.is_alive() for thread in threads)
