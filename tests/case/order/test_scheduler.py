"""Handing out to processes of pytest-xdist that end at any time, with doubles of the processes."""

import random
from typing import Any, get_args

import pytest

from conformance.case.plan.order import Work
from conformance.front.plugin.ordering import Told, id_of
from conformance.front.plugin.scheduler import ModuleScheduling
from conformance.results.records.words import Check

pytestmark = pytest.mark.smoke

TESTS = [f"test_suite.py::test_export[c{number // 6}-torchscript-op{number}]" for number in range(60)]


@pytest.mark.parametrize("check", get_args(Check))
def test_the_cells_of_every_check_are_known_by_the_ids_of_their_tests(check):
    assert id_of(f"conformance/test_suite.py::test_{check}[a-onnx-op17]@group") == f"{check}[a-onnx-op17]"
    assert id_of(f"mine/test_own.py::test_{check}[a-onnx-op17]") is None


class Config:
    option = None

    def getvalue(self, name: str) -> Any:
        return {"tx": ["popen", "popen"]}[name]

    def getoption(self, name: str) -> Any:
        return {"tx": ["popen", "popen"], "maxschedchunk": None}[name]


class Order:
    """What ``ModuleScheduling`` takes of an ``Ordering``."""

    told = Told([Work(number // 6, number // 6, number // 2, 1.0) for number in range(60)], False)

    def seconds(self, nodeids):
        return [1.0] * len(nodeids)


class Gateway:
    id = "gw"


class Process:
    """A process that knows its next test before it runs one, and that may have ended unnoticed."""

    gateway = Gateway()

    def __init__(self) -> None:
        self.queue: list[int] = []
        self.shutting_down = self.ended = False

    def send_runtest_some(self, tests):
        if self.ended:
            raise OSError("cannot send to <Channel closed>")
        assert not self.shutting_down
        self.queue += tests

    def shutdown(self):
        self.shutting_down = True


def begun(processes):
    sharing = ModuleScheduling(Config(), None, Order())
    sharing.log.enabled = False
    for process in processes:
        sharing.add_node(process)
    for process in processes:
        sharing.add_node_collection(process, TESTS)
    sharing.schedule()
    return sharing


@pytest.mark.parametrize("seed", range(40))
def test_each_test_runs_once_whichever_processes_end(seed):
    rng = random.Random(seed)
    processes = [Process(), Process()]
    sharing, ran, lost = begun(processes), [], []
    for _ in range(1000):
        process = rng.choice(processes)
        if process.ended or (process.shutting_down and not process.queue):  # the terminal learns of it
            crashed = sharing.remove_node(process)
            processes.remove(process)
            if crashed is not None:
                lost.append(TESTS.index(crashed))
                processes.append(Process())
                sharing.add_node(processes[-1])
                sharing.add_node_collection(processes[-1], TESTS)
                sharing.schedule()
            if not processes:
                break
        elif len(process.queue) > 1 or process.shutting_down:
            if rng.random() < 0.05:
                process.ended = True  # at this test, which the terminal learns later
                continue
            ran.append(process.queue.pop(0))
            # it may have ended at the next one before the terminal knows that this one is done
            process.ended = bool(process.queue) and rng.random() < 0.05
            sharing.mark_test_complete(process, ran[-1])
    assert not processes, "a process waits for tests"
    assert sorted([*ran, *lost]) == list(range(60))
    assert sharing.tests_finished and not sharing.has_pending


def test_where_nothing_was_told_it_is_load():
    class Untold(Order):
        told = None

    processes = [Process(), Process()]
    sharing = ModuleScheduling(Config(), None, Untold())
    for process in processes:
        sharing.add_node(process)
        sharing.add_node_collection(process, TESTS)
    sharing.schedule()
    assert [process.queue for process in processes] == [[*range(7)], [*range(7, 14)]]
