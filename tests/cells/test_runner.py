"""Cells one after another in a worker that begins the next one while the caller deals with the last."""

import dataclasses
import time

import numpy as np
import pytest

from conformance.case.plan.settings import Settings
from conformance.cells.load_limit import LoadLimit
from conformance.cells.runner import Runner
from conformance.compare.judges import Right, defaults_for
from conformance.models.stages import Stages
from conformance.process.errors import Stopped, Unavailable
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.warm import new_worker
from conformance.results.records.explanation import fail
from tests.kit.cases import case_of, say
from tests.kit.modules import net_of

HEAD = say('inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..4}", "runtimes: onnxruntime", "specials: false")
PYTHON = net_of("x", "__import__('os')._exit(3)")


@pytest.mark.smoke
def test_each_cell_gets_its_own_record_whatever_was_begun_before(bench):
    sound = bench.cells(say(HEAD, "forward: torch.sin(x)", "export: {torchscript: [13, 17]}"))
    deadly = bench.cells(say(HEAD, "module: beside.Net", "export: {torchscript: [17]}"), PYTHON)
    with new_worker() as worker:
        run = Runner(Settings(store=bench.store), 60, worker)
        first = run(sound[0], then=sound[1])
        assert (first.id, first.status) == (sound[0].id, "passed")
        assert run(sound[1], then=deadly[0]).id == sound[1].id
        # what was begun and is not asked for after all does no harm, also where it has ended the worker
        assert (run(sound[2], then=sound[3]).id, run(sound[0]).id) == (sound[2].id, sound[0].id)
        assert run(sound[3], then=deadly[1]).status == "passed"
        ended = run(deadly[1], then=sound[2])
        assert (ended.id, ended.status, ended.signal) == (deadly[1].id, "failed", "exit 3")
        after = run(sound[2])
        assert (after.id, after.status, after.signal) == (sound[2].id, "passed", None)


@pytest.mark.parametrize(
    "raised", [ValueError("planted"), Stopped("load", "Planted", "planted"), Unavailable("none")]
)
def test_what_comes_after_a_failure_is_at_the_stage_around_it(bench, raised):
    (cell, *_) = bench.cells(case_of("x + 1"))
    stages = Stages(cell.record(), Progress(), cell.case.folder)
    with pytest.raises((Stopped, Unavailable)) as told, stages("run", "runtime"), stages("load", "runtime"):
        raise raised
    assert told.value.stage == "load"
    assert stages.stopped_by(KeyError("later")).stage == "declare"


def test_the_parent_process_is_told_the_stage_around_it_again(bench):
    """By which it limits how long a model loads, and says where a process has ended."""
    (cell, *_) = bench.cells(case_of("x + 1"))
    told: list[object] = []

    class Noted(Progress):
        def note(self, **what):
            told.append(what["stage"])

    stages = Stages(cell.record(), Noted(), cell.case.folder)
    with stages("load", "runtime"):
        with stages("declare", "case"):
            pass
        assert told == ["load", "declare", "load"]
    assert told == ["load", "declare", "load"]


def test_outputs_that_are_too_large_to_compare_are_no_mistake_in_the_harness(bench):
    (cell, *_) = bench.cells(case_of("x + 1"))
    record = cell.record()
    huge = np.broadcast_to(np.float32(0), (10**7, 10**7))
    with pytest.raises(Stopped) as told, Stages(record, Progress(), cell.case.folder)("compare", "runtime"):
        defaults_for([huge]).compare([huge], Right([huge]))
    fail(record, told.value)
    assert (record.error, record.fault, record.hints, record.traceback) == ("OutOfMemory", None, ["memory"], [])


SLEEPS = """
import time
import torch
time.sleep(0.2)
class Own(torch.autograd.Function):
    @staticmethod
    def symbolic(g, x):
        time.sleep(0.2)
        return g.op("Sin", x)
    @staticmethod
    def forward(ctx, x):
        return torch.sin(x)
class Sleeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(0.2)
    def forward(self, x):
        time.sleep(0.01)
        return Own.apply(x)
def values(shape, sizes, rng):
    time.sleep(0.01)
    return rng.standard_normal(shape).astype("float32")
"""


@pytest.mark.parametrize("module, python, least", [
    pytest.param("Sleeps", SLEEPS, 0.6, id="importing, building, exporting"),
    pytest.param("Net", net_of("x", "import time, os; time.sleep(0.5); os._exit(3)"), 0.5, id="it ends"),
    pytest.param("Net", net_of("x.sin()"), 0.0, id="quick"),
])  # fmt: skip
def test_every_second_of_a_cell_is_in_its_record_and_none_twice(bench, module, python, least):
    body = say(HEAD, f"module: beside.{module}", "export: {torchscript: [17]}")
    if module == "Sleeps":
        body = body.replace('"float32[batch, 3]"', '{type: "float32[batch, 3]", values: {python: beside.values}}')
    cell = bench.cell(body, python)
    with new_worker() as worker:
        run = Runner(Settings(store=bench.store), 60, worker)
        start = time.perf_counter()
        record = run(cell)
        assert least <= sum(record.seconds.values()) <= time.perf_counter() - start + 0.01
        assert all(seconds >= 0 for seconds in record.seconds.values())
        inside = sum(seconds for name, seconds in record.seconds.items() if name not in ("process", "start"))
    assert inside >= least or record.signal == "exit 3"


def test_a_runtime_that_is_only_asked_too_and_takes_longer_to_load_than_the_budget_is_left_out(bench, monkeypatch):
    sound = bench.cells(say(HEAD, "forward: torch.sin(x)", "export: {torchscript: [17]}"))
    openvino = dataclasses.replace(sound[1], runtime="openvino")
    settings = Settings(store=bench.store, budget=3.0)
    assert LoadLimit.of(sound[1], settings) is None  # ONNX Runtime is what the run is about
    until = LoadLimit.of(openvino, settings)
    notes = [("declare", 50.0), ("load", 60.0), ("load", 62.9), ("run", 70.0), ("load", 80.0), ("load", 83.1)]
    ended = [until({"stage": stage}, seconds) for stage, seconds in notes]
    said = "OpenVINO takes longer for it than 3 s; --budget gives it more"
    assert ended[:-1] == [None] * 5 and ended[-1] == f"not loaded: {said}"
    engine = LoadLimit.of(dataclasses.replace(sound[1], runtime="tensorrt-rtx", check="build"), settings)
    assert engine({"stage": "load"}, 1.0) is None
    assert str(engine({"stage": "load"}, 5.0)).startswith("not built: TensorRT for RTX takes longer for it than")

    slow = bench.cell(
        say(HEAD, "module: beside.Net", "export: {torchscript: [17]}"), net_of("x", "__import__('time').sleep(50)")
    )
    over = LoadLimit("not loaded: planted", 3.0)
    over.reason = "not loaded: planted"
    monkeypatch.setattr(LoadLimit, "of", lambda cell, settings: over)
    with new_worker() as worker:
        run = Runner(Settings(store=bench.store), 60, worker)
        record = run(slow)  # however late it is looked at
        assert (record.status, record.stage, record.reason) == ("skipped", "load", "not loaded: planted")
        monkeypatch.undo()
        assert run(sound[1]).status == "passed"
