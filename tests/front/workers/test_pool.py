"""Cells in several workers at a time: each once, with its own record, until the run ends or is broken off."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.case.plan.cell import Cell
from conformance.case.plan.order import Schedule, Work
from conformance.cells.pool import Pool
from conformance.front.plugin.pooled import unmade
from conformance.process.worker.isolation import Death, Worker, WorkerError
from conformance.results.records.record import Record
from tests.kit import fatal
from tests.kit.cases import case_of
from tests.kit.servers import WARM

PLENTY = 60.0
"""Seconds; nothing here comes near it unless it is broken."""
BODY = case_of(
    "torch.sin(x)",
    "runtimes: onnxruntime",
    "specials: false",
    "export: {torchscript: [9, 11, 13, 15, 17]}",
    dims="batch: 1..4",
)


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


def pool_of(
    cells: dict[int, Cell], planted: Planted, workers: int = 2, schedule: type[Schedule] = Schedule
) -> tuple[Pool, list[Idle]]:
    """A pool whose cells do what is planted."""
    works = [Work(number // 2, number // 2, number, 0.01) for number in cells]
    idle = [Idle() for _ in range(workers)]

    def runner(worker: Any) -> Any:
        def run(cell: Cell, on_wait: Any, then: Cell | None) -> Record:
            planted(worker, cell)
            return cell.record()

        return run

    return Pool(idle, runner, schedule(works, [0.01] * len(works)), cells, unmade), idle  # type: ignore[arg-type]


def all_of(pool: Pool) -> Iterator[tuple[int, Record]]:
    pool.start()
    yield from filter(None, pool.results())


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_each_cell_comes_once_with_its_own_record(cells, workers):
    pool, idle = pool_of(cells, lambda worker, cell: None, workers)
    made = dict(all_of(pool))
    pool.close()
    assert {number: record.id for number, record in made.items()} == {n: cell.id for n, cell in cells.items()}
    assert all(worker.closed for worker in idle)


def test_one_worker_at_a_time_takes_from_the_schedule(cells):
    inside, seen = list[Any](), set[int]()

    class Watched(Schedule):
        def take(self, worker: Any, *, of_others: bool = True) -> int | None:
            inside.append(worker)
            for _ in range(200):  # turns for the other threads
                time.sleep(0)
            seen.add(len(inside))
            inside.remove(worker)
            return super().take(worker, of_others=of_others)

    pool, _ = pool_of(cells, lambda worker, cell: None, 4, Watched)
    assert len(list(all_of(pool))) == len(cells) and seen == {1}
    pool.close()


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


def test_a_mistake_of_this_package_is_the_record_of_its_cell_alone(cells):
    def planted(worker: Idle, cell: Cell) -> None:
        if cell is cells[1]:
            raise ZeroDivisionError("planted")

    pool, _ = pool_of(cells, planted)
    made = dict(all_of(pool))
    pool.close()
    failed = [(n, record.error, record.fault) for n, record in made.items() if record.status == "failed"]
    assert failed == [(1, "ZeroDivisionError", "harness")] and len(made) == len(cells)


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


def test_a_call_that_another_thread_waits_for_ends_when_it_is_stopped():
    ended: list[object] = []
    hangs = threading.Event()
    with Worker(WARM) as worker:
        worker.ready()

        def wait() -> None:
            ended.append(worker.call(fatal.noted, "hang", timeout=10 * PLENTY, on_wait=lambda note: hangs.set()))

        thread = threading.Thread(target=wait)
        thread.start()
        assert hangs.wait(PLENTY)
        worker.stop()
        thread.join(PLENTY)
        assert not thread.is_alive()
        (death,) = ended
        assert isinstance(death, Death) and death.how == "the run was broken off"
        with pytest.raises(WorkerError, match="broken off"):
            worker.call(fatal.pid, timeout=PLENTY)


@pytest.mark.parametrize("turns", [8, pytest.param(40, marks=pytest.mark.thorough)])
def test_workers_that_die_in_several_threads_leave_one_another_alone(turns):
    """While one thread has a worker forked, another ends what its own dead worker left behind, and a third reads how
    its worker has ended."""
    wrong: list[object] = []

    def live_and_die(number: int) -> None:
        with Worker(WARM) as worker:
            for turn in range(turns):
                answer = worker.call(fatal.echo, (number, turn), timeout=PLENTY)
                if answer != (number, turn):
                    wrong.append(answer)
                death = worker.call(fatal.noted, "sigkill", timeout=PLENTY)
                if not isinstance(death, Death) or death.how != signal.Signals.SIGKILL.name:
                    wrong.append(death)

    threads = [threading.Thread(target=live_and_die, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PLENTY)
    assert wrong == [] and not any(thread.is_alive() for thread in threads)
