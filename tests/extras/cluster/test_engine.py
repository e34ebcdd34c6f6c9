"""What becomes of cells whose workers end, answer late or cannot write: decided without any worker."""

import contextlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from conformance.case.plan.catalogue import plan
from conformance.extras.cluster import tasks
from conformance.extras.cluster.coordinator import KILLS, CellJob, Cluster, MadeCell
from conformance.extras.cluster.freight import Freight
from conformance.extras.cluster.run_description import Run
from conformance.extras.cluster.workers import DaskWorker, SchedulerLost
from conformance.front.plugin.running import Running
from conformance.results.records.record import Record
from tests.kit.cases import load_case

FACTS = {"host": "here", "cpu": {"name": "a processor", "instructions": []}, "fingerprint": "f", "words": []}


class _Future:
    """What Dask gives for a task."""

    def __init__(self, key: str) -> None:
        self.key, self.status, self.error, self.cancelled = key, "pending", None, False

    def add_done_callback(self, callback: Any) -> None:
        pass

    def done(self) -> bool:
        return self.status != "pending"

    def cancel(self, force: bool = False) -> None:
        self.cancelled = True

    def release(self) -> None:
        pass

    def result(self, timeout: float) -> list[Any]:
        return []

    def exception(self) -> Any:
        return self.error


class _Client:
    """A client that takes tasks and runs none."""

    status = "running"

    def __init__(self) -> None:
        self.given: dict[str, tuple[tuple[Any, ...], _Future]] = {}

    def submit(self, function: Any, *arguments: Any, key: str, **how: Any) -> _Future:
        self.given[key] = arguments, _Future(key)
        return self.given[key][1]

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {"a": {}, "b": {}}}


def record(id: str) -> Record:
    return Record(id, id, "dynamo", 20, "onnxruntime", "fp32", "accuracy", {})


def lost(id: str, error: str, reason: str) -> Record:
    made = record(id)
    made.status, made.error, made.reason = "failed", error, reason
    return made


NONE = Freight({}, {})


class Scene:
    """A run of one case with some cells, whose events the test makes up."""

    def __init__(self, folder: Path, *cells: str, words: frozenset[str] = frozenset(), files: Freight = NONE) -> None:
        self.cluster = Cluster("tcp://nowhere:1", folder, lambda line: None, packages={}, patience=0.0, tick=0.01)
        self.client = self.cluster.client = _Client()  # type: ignore[assignment]
        self.cluster.workers = {
            "a": DaskWorker("a", {**FACTS, "words": ["package timm"]}),
            "b": DaskWorker("b", FACTS),
        }
        self.cluster.known = dict(self.cluster.workers)
        job = CellJob(cells, tasks.run_cells, lambda ids: pickle.dumps(list(ids)), files, words, 1.0)
        run = Run("r", "/", "/", ".", (), {}, 1.0, None, 1)
        self._made = self.cluster.records([job], lambda name, neighbours: run, lost)
        self.next()  # nothing has come yet, and the task is given

    @property
    def key(self) -> str:
        """Of the task that was given last."""
        return list(self.client.given)[-1]

    def begun(self, cell: str, worker: str = "a", task: str | None = None) -> None:
        event = {"kind": "begun", "cell": cell, "address": worker, "task": task or self.key}
        self.cluster.events.put(("event", event))

    def ended(self, cell: str, worker: str = "a", task: str | None = None) -> None:
        event = {"kind": "ended", "cell": cell, "address": worker, "task": task or self.key}
        self.cluster.events.put(("event", {**event, "record": pickle.dumps(record(cell))}))

    def done(self, status: str = "finished", error: Any = None) -> None:
        future = self.client.given[self.key][1]
        future.status, future.error = status, error
        self.cluster.events.put(("done", self.key))

    def next(self) -> MadeCell | None:
        return next(self._made)

    def rest(self) -> list[MadeCell]:
        return [made for made in self._made if made is not None]

    def asked_again(self) -> list[str]:
        """The cells of the task that was given last."""
        cells: list[str] = pickle.loads(self.client.given[self.key][0][1])
        return cells


def test_records_come_with_the_worker_that_made_them(tmp_path):
    scene = Scene(tmp_path, "one", "two")
    scene.begun("one")
    scene.ended("one")
    scene.ended("two", "b")
    scene.done()
    made = scene.rest()
    assert [(cell.cell, cell.worker["name"], cell.fingerprint) for cell in made] == [
        ("one", "a", "f"),
        ("two", "b", "f"),
    ]


def test_a_cell_during_which_three_workers_end_has_a_verdict_and_its_case_goes_on(tmp_path):
    scene = Scene(tmp_path, "one", "two")
    for _ in range(KILLS):
        scene.ended("one")  # Dask runs the task anew, from its start
        scene.begun("two")
    scene.begun("two", "b")
    first, second = scene.next(), scene.next()
    assert first is not None and first.record.status == "passed"
    assert second is not None and second.record.error == "WorkersLost"
    assert second.record.reason == "3 workers ended while they ran it: a (a), a (a), a (a)"
    assert scene.cluster.twice == KILLS - 1


def test_an_innocent_cell_of_a_task_that_dask_gave_up_is_run_again(tmp_path):
    scene = Scene(tmp_path, "one", "two")
    scene.ended("one")
    scene.begun("two")
    scene.done("error", RuntimeError("KilledWorker"))
    first = scene.next()
    assert first is not None and first.cell == "one"
    assert scene.next() is None and scene.asked_again() == ["two"]
    scene.ended("two")
    scene.done()
    assert [made.cell for made in scene.rest()] == ["two"]


def test_an_answer_after_its_worker_was_given_up_counts_once(tmp_path):
    scene = Scene(tmp_path, "one")
    first = scene.key
    scene.done("error", tasks.HostEnded("gone"))
    assert scene.next() is None
    scene.ended("one", task=first)  # the worker had only been away
    scene.ended("one", "b")
    scene.done()
    assert [made.cell for made in scene.rest()] == ["one"] and scene.cluster.twice <= 1


def test_a_full_disk_counts_for_no_cell(tmp_path):
    scene = Scene(tmp_path, "one")
    for _ in range(3 * KILLS):
        scene.begun("one")
        scene.done("error", tasks.Unfit("the host's disk is full"))
        assert scene.next() is None
    scene.ended("one")
    scene.done()
    assert [made.record.status for made in scene.rest()] == ["passed"]


def test_a_task_that_fails_again_and_again_is_no_endless_run(tmp_path):
    scene = Scene(tmp_path, "one")
    for _ in range(2 * KILLS):
        scene.done("error", TypeError("a mistake of ours"))
        made = scene.next()
    assert made is not None and made.record.error == "WorkersLost" and "a mistake of ours" in str(made.record.reason)
    assert scene.rest() == []


def test_cells_whose_only_worker_with_a_package_is_gone_say_so_and_others_go_on(tmp_path):
    scene = Scene(tmp_path, "one", words=frozenset({"package timm"}))
    del scene.cluster.workers["a"]
    made = [cell for cell in (scene.next() for _ in range(2)) if cell is not None]
    assert [cell.record.reason for cell in made] == ["no worker of tcp://nowhere:1 is left that has package timm"]
    assert len(scene.cluster.fit) == 1


def test_a_task_without_a_worker_goes_to_one_that_comes(tmp_path):
    scene = Scene(tmp_path, "one")
    scene.cluster.workers = {}
    first, came = scene.key, {"kind": "worker", "address": "b", "name": "b", "facts": FACTS, "refused": []}
    scene.cluster.events.put(("event", came))
    scene.cluster.patience = 60.0
    assert scene.next() is None and scene.key != first and scene.client.given[first][1].cancelled
    scene.ended("one", "b")
    scene.done()
    assert [made.cell for made in scene.rest()] == ["one"]


def test_cells_whose_file_was_removed_meanwhile_say_so(tmp_path):
    file = tmp_path / "data.bin"
    file.write_bytes(b"data")
    scene = Scene(tmp_path, "one", "two", files=Freight({str(file): "digest"}, {"digest": file}))
    scene.begun("one")
    scene.ended("one")
    assert scene.next().record.status == record("one").status
    file.unlink()
    scene.done("error", tasks.HostEnded("the worker was killed"))
    (made,) = scene.rest()
    assert (made.cell, made.record.error) == ("two", "MissingFile")
    assert made.record.reason == f"{file} cannot be read any more (No such file or directory)"


def test_a_client_that_lost_its_scheduler_says_so(tmp_path):
    scene = Scene(tmp_path, "one")
    scene.client.status = "connecting"
    with pytest.raises(SchedulerLost):
        scene.next()


class _Options(dict[str, Any]):
    """Those of a session, as far as running asks for them."""

    config, folder = None, Path()

    def earlier(self) -> dict[str, str]:
        return {}

    def required(self) -> frozenset[str]:
        return frozenset()


class _Clustered:
    """A cluster whose only worker with a runtime has gone, and what had come of a cell by then."""

    def __init__(self, made: MadeCell | None) -> None:
        self.made = lambda cell: made

    def absence(self, runtime: str | None) -> str:
        return "no worker of the cluster has it"


def test_what_failed_is_not_skipped_when_its_worker_is_gone(tmp_path):
    """A skipped cell is green."""
    cell = next(
        cell for cell in plan(load_case(tmp_path, "forward: x + 1\ninputs: {x: 'float32[3]'}")) if cell.runtime
    )
    unsaid = dict.fromkeys(("examples", "budget", "tensorrt", "provider_option", "store", "cases"))
    options = _Options(unsaid, explain="all")
    running = Running(options, None, lambda text: contextlib.nullcontext())  # type: ignore[arg-type]
    for error in ("NoWorker", "WrongValue"):
        running.clustered = _Clustered(MadeCell(cell.id, lost(cell.id, error, "why"), None))  # type: ignore[assignment]
        assert (running(cell).status, running(cell).error) == ("failed", error)
    running.clustered = _Clustered(None)  # type: ignore[assignment]
    assert running(cell).status == "skipped"
