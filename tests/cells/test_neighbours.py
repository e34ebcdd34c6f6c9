"""A cell cannot harm the next: what it changes in its process, and what becomes of the cells that run after it."""

import builtins
import importlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.cells.alone import Predecessors
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Worker
from conformance.process.worker.state.judging import Bodies
from conformance.process.worker.warm import new_worker
from conformance.results.records import matrix, text
from conformance.results.records.record import Record
from tests.kit import fatal, neighbours
from tests.kit.cases import QUICK, details, load_case, module_of, say, verdict
from tests.kit.modules import net_of
from tests.kit.neighbours import HARMS, JUDGING, LEFT, REGISTRIES, cells_of, holds

REPLACED = ("failed", "declare", "ReplacedFunction", "case")


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory, worker: Worker, store: Path) -> dict[str, Any]:
    run = Runner(Settings(store=store, examples=1), 60, worker)
    return dict(neighbours.harmed(tmp_path_factory.mktemp("harmed"), run, worker))


@pytest.mark.parametrize("name", HARMS)
def test_the_cell_that_changed_something_says_so_and_what_can_be_is_put_back(harmed, name):
    changes = harmed[name]["changed"]
    assert len(changes) == 1, harmed[name]
    (change,) = changes
    assert (change["when"], change["outcome"]) == ("running", "left" if name in LEFT else "put back")
    assert change["kind"] == "registry" or name not in REGISTRIES
    result = tuple(harmed[name][field] for field in ("status", "stage", "error", "fault"))
    assert harmed[name]["held"] and (result == REPLACED) == (name in JUDGING)


IMPORTED_LATE = """
import pathlib, sys
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Worker
from conformance.process.worker.warm import new_worker
from tests.kit import neighbours
if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    neighbours.HARMS = {name: neighbours.HARMS[name] for name in ("symbolic", "at_exit")}
    with Worker(), new_worker() as worker:
        run = Runner(Settings(store=folder / "store", examples=1), 60, worker)
        for time in ("first", "again"):
            for name, record in neighbours.harmed(folder / time, run, worker):
                print(time, name, *(change["outcome"] for change in record["changed"]))
"""


@pytest.mark.thorough
def test_what_a_cell_registers_is_seen_where_the_server_was_begun_for_others_and_where_results_are_kept(tmp_path):
    """A server without a worker's imports leaves them to its workers: what comes with an import is nobody's."""
    program = tmp_path / "program.py"
    program.write_text(IMPORTED_LATE, encoding="utf-8")
    seen = subprocess.check_output(
        [sys.executable, program, tmp_path], env={**os.environ, "PYTHONPATH": os.curdir}, text=True
    ).splitlines()
    assert seen == [f"{time} {name} left" for time in ("first", "again") for name in ("symbolic", "at_exit")]


def test_values_of_environment_variables_are_not_told(harmed):
    assert "a secret" not in json.dumps(harmed["variable"])
    assert harmed["variable"]["changed"][0]["after"] == "PLANTED_NEIGHBOUR"


DRAWING = "import random\nimport numpy as np" + net_of(
    "torch.sin(x)",
    'with open(__file__ + ".seen", "a") as seen:',
    "    print(random.random(), np.random.rand(), float(torch.rand(1)), file=seen)",
)
DRAWS = say("module: beside.Net", 'inputs: {x: "float32[3]"}', QUICK)


def test_what_a_cell_draws_from_the_process_generators_does_not_depend_on_others(bench):
    cell = bench.cell(DRAWS, DRAWING)
    seen, last = cell.case.folder / "beside.py.seen", []
    for seed in (0, 1, 2):  # the first run exports
        random.seed(seed)
        np.random.seed(seed)
        assert bench.run_cell(cell).status == "passed"
        last.append(seen.read_text(encoding="utf-8").splitlines()[-1])
    assert last[1] == last[2]


LIBRARY = """
import torch.nn.functional as F
def relu(x):
    return x.abs()
F.relu = relu
"""
RELU = "torch.nn.functional.relu"
USES = "import planted_library" + net_of(f"{RELU}(x)", f"assert {RELU} is planted_library.relu")
PLAIN = net_of(f"{RELU}(x)", f"assert {RELU}.__module__ == 'torch.nn.functional'")


@pytest.fixture
def fresh() -> Iterator[Worker]:
    """A worker in which nothing has run."""
    with new_worker() as worker:
        yield worker


@pytest.fixture
def run(bench: Any, fresh: Worker) -> Runner:
    return Runner(Settings(store=bench.store, examples=1), 60, fresh)


def test_a_library_that_patches_torch_as_it_is_imported_works_for_each_case_that_imports_it(run, tmp_path):
    (tmp_path / "planted_library.py").write_text(LIBRARY, encoding="utf-8")
    path = f"import sys\nsys.path.append({str(tmp_path)!r})\n"
    one = cells_of(tmp_path, "one", "Net", path + USES)
    other = cells_of(tmp_path, "other", "Net", path + USES)
    plain = cells_of(tmp_path, "plain", "Net", PLAIN)
    order = [one["export"], one["accuracy"], plain["accuracy"], other["accuracy"]]
    records = [run(cell, then=then) for cell, then in zip(order, [*order[1:], None], strict=True)]
    assert [(record.status, record.reason) for record in records] == [("passed", None)] * 4
    patch = {"what": "torch.nn.functional.relu", "kind": "function", "when": "loading", "outcome": "kept"}
    for record, expected in zip(records, ([patch], [patch], [], [patch]), strict=True):
        assert [{name: change[name] for name in patch} for change in record.changed] == expected


NET = net_of("self.layer(x)", layer="Linear(4, 4)")
KEEPS = """
import torch
class Keeps(torch.nn.Module):
    def __init__(self, where):
        super().__init__()
        self.where = where
    def forward(self, x):
        exec(self.where, globals())
        return torch.sin(x)
"""


@pytest.mark.parametrize("keeps, shared", [
    ("pass", True),
    ("__import__('logging').warning('which gives the root logger a handler')", True),
    ("global count; count = 1", False), ("setattr(torch, 'planted', 1)", False),
    ("setattr(Keeps, 'seen', 1)", False),
])  # fmt: skip
def test_cells_share_a_process_only_where_nothing_is_kept(run, fresh, tmp_path, keeps, shared):
    one = cells_of(tmp_path, "one", "Keeps", KEEPS, where=keeps)
    other = cells_of(tmp_path, "other", "Keeps", KEEPS, where="pass")
    processes = []
    for cell in (one["export"], one["accuracy"], other["accuracy"]):
        record = run(cell)
        assert (record.status, record.reason, record.changed) == ("passed", None, [])
        processes.append(fresh.call(fatal.pid, timeout=60))
    assert (processes[0] == processes[1], processes[1] == processes[2]) == (shared, False)


def test_exporting_with_dynamo_and_converting_leaves_a_process_to_the_next_cell(run, fresh, tmp_path):
    said = "precisions: {fp16: {}, int8: {}}\nexport: {dynamo: [20], torchscript: [17]}"
    case = load_case(tmp_path, say(module_of("Net"), "runtimes: onnxruntime", said), NET)
    processes = set()
    for cell in plan(case):
        record = run(cell)
        assert (record.status, record.changed) == ("passed", []), (cell.id, record.reason)
        processes.add(fresh.call(fatal.pid, timeout=60))
    assert len(processes) == 1


def test_texts_have_the_hashes_of_one_seed_in_each_run(worker):
    command = [sys.executable, "-c", "print(hash('text'))"]
    of_seed_0 = int(subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": "0"}))
    assert worker.call(holds, f"hash('text') == {of_seed_0}", "", timeout=60)


LATE = """
import json, sys
def callers(frame):
    while frame is not None:
        yield frame.f_code.co_name
        frame = frame.f_back
if "each" in callers(sys._getframe()):  # where examples are run, after the export was looked at
    json.loads = str
"""


FENCELESS = "from conformance.process.worker.state.fence import Fence; Fence.end = lambda self: []"


@pytest.mark.parametrize(
    "where, what", [(LATE, "json.loads"), (FENCELESS, "conformance.process.worker.state.fence.Fence.end")]
)
def test_who_replaces_a_function_after_the_export_or_the_fence_is_not_green(run, tmp_path, where, what):
    record = run(cells_of(tmp_path, "one", "Keeps", KEEPS, where=where)["accuracy"])
    assert verdict(record) == REPLACED and what in str(record.reason)


@pytest.mark.parametrize("imported", ["during", "before"])
def test_a_decorator_makes_functions_of_a_module_while_it_is_imported(tmp_path, monkeypatch, imported):
    """``types.coroutine`` gives functions of asyncio other code as these are made, which replaces nothing."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "decorated.py").write_text("def own():\n    return 1\nmake(own)\n")
    watched = Bodies({"decorated"})

    def make(function, code=(lambda: 2).__code__):
        function.__code__ = code

    monkeypatch.setitem(vars(builtins), "make", make)
    module = importlib.import_module("decorated")
    assert module.own() == 2
    if imported == "before":
        make(module.own, (lambda: 3).__code__)
    assert watched.changes(put_back=False) == ([] if imported == "during" else ["decorated.own"])
    del sys.modules["decorated"]


MARKS = """
import os, sys
import torch
def called_by(name):
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None
class Minds(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
    def forward(self, x):
        if called_by("check_export"):
            marks.planted = True  # which nobody watches
        elif hasattr(marks, "planted"):
            if self.how == "dies":
                os._exit(7)
            raise RuntimeError("there is a mark")
        return torch.sin(x)
marks = torch.nn.functional.relu
class Fails(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("always")
"""


def test_a_cell_that_fails_only_after_others_says_so_and_blames_nobody(run, tmp_path):
    raises = cells_of(tmp_path, "raises", "Minds", MARKS, how="raises")
    dies = cells_of(tmp_path, "dies", "Minds", MARKS, how="dies")
    run(raises["export"], then=raises["accuracy"])
    record = run(raises["accuracy"], then=dies["export"])
    assert verdict(record) == ("failed", "declare", "OnlyAfter", None)
    assert record.after == {
        "cells": 1, "cases": ["raises"], "others": 0, "changed": {}, "stage": "declare", "error": "RuntimeError",
        "alone": "passed",
    }  # fmt: skip
    assert details(record)[:2] == [
        "alone, in a fresh process, it passes",
        "in this process it ran after 1 cell of: raises",
    ]
    run(dies["export"], then=dies["accuracy"])
    ended = run(dies["accuracy"])
    assert (ended.status, ended.error, ended.fault, ended.signal) == ("failed", "OnlyAfter", None, "exit 7")


def test_a_wrong_value_after_others_is_run_alone_when_it_is_explained(bench, fresh, tmp_path):
    settings = Settings(store=bench.store, failures=tmp_path / "kept", examples=1)
    run = Runner(settings, 60, fresh, explaining=False)
    python = MARKS.replace('raise RuntimeError("there is a mark")', "return torch.sin(x) + 1.0")
    cells = cells_of(tmp_path, "minds", "Minds", python, how="adds")
    run(cells["export"], then=cells["accuracy"])
    record = run(cells["accuracy"])
    assert (*verdict(record)[:3], record.unexplained) == ("failed", "compare", "WrongValue", True)
    assert record.after is not None and "alone" not in record.after
    assert not any("in this process it ran" in line for line in details(record))
    explained = run.explain(cells["accuracy"], record)
    assert (verdict(explained), explained.unexplained) == (("failed", "compare", "OnlyAfter", None), False)
    assert details(explained)[0] == "alone, in a fresh process, it passes"


def test_a_failure_of_its_own_is_what_it_is_alone_and_its_next_cell_needs_no_other_process(run, fresh, tmp_path):
    fails, processes = cells_of(tmp_path, "fails", "Fails", MARKS), []
    for check in ("export", "accuracy"):
        record = run(fails[check])
        assert (record.status, record.error, record.after) == ("failed", "RuntimeError", None)
        processes.append(fresh.call(fatal.pid, timeout=60))
    assert processes[0] == processes[1]


def test_only_failures_are_doubted_and_no_time_limit_or_budget_is(bench):
    first, second, *_ = bench.cells(DRAWS, DRAWING)
    before = Predecessors()
    record = second.record()
    record.status, record.stage, record.error = "failed", "run", "RuntimeError"
    assert not before.doubtful(second, record)  # the first cell of its process
    before.add(first, first.record(), spoilt=False)
    assert before.doubtful(second, record)
    record.error = "Timeout"
    assert not before.doubtful(second, record)
    record.error, record.stage = "TooSlow", "latency"
    assert not before.doubtful(second, record)
    for status in ("passed", "xfailed", "skipped"):
        record.status, record.stage, record.error = status, "run", "RuntimeError"
        assert not before.doubtful(second, record)


def test_what_libraries_start_for_their_own_is_no_change_of_a_cell(fresh):
    assert fresh.call(neighbours.starts_threads, timeout=60) == [
        ([], False), ([("threads", "worker of the case")], True)
    ]  # fmt: skip


def test_a_progress_bar_ends_no_worker(fresh):
    """tqdm's own lock starts a process; every export with dynamo would end its worker, and import all anew."""
    assert fresh.call(neighbours.draws_a_bar, timeout=60) == [0, 1, 2] and fresh.running


def test_a_change_reads_as_what_happened():
    def told(what: str, kind: str, when: str, outcome: str, before: str = "", after: str = "") -> dict[str, str]:
        return {"what": what, "kind": kind, "when": when, "outcome": outcome, "before": before, "after": after}

    change = told("os.umask", "setting", "running", "put back", "0o22", "0o0")
    left = told("threads", "leftover", "running", "left", after="Timer")
    record = Record(
        "export[planted-dynamo-op20]", "planted", "dynamo", 20, None, "fp32", "export", {}, changed=[change, left]
    )
    assert text.details(record) == [
        "while it ran the case changed os.umask from 0o22 to 0o0: put back",
        "while it ran the case left threads behind (Timer): not put back, so that no cell ran after it",
    ]
    assert "  planted: os.umask, threads" in matrix.changed([record])
