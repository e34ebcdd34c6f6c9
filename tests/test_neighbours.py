"""A cell cannot harm the next: what it changes in its process, and what becomes of the cells that run after it."""

from __future__ import annotations

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

from conformance.checks.alone import NAMED, Predecessors, believed
from conformance.checks.runner import Runner
from conformance.plan.settings import Settings
from conformance.records import matrix, text
from conformance.worker.isolation import Worker
from conformance.worker.progress import Progress
from conformance.worker.state.functions import OWN
from conformance.worker.warm import prepare_process
from tests.planted_neighbours import HARMS, JUDGING, LEFT, PYTHON, cells_of
from tests.support import details, run_suite, verdict

ROOT = Path(__file__).parent.parent
REPLACED = ("failed", "declare", "ReplacedFunction", "case")


def planted(what: str, folder: Path) -> dict[str, Any]:
    """What ``planted_neighbours`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.planted_neighbours", what, str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def result(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("status", "stage", "error", "fault"))


# ---- what a cell changes -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return planted("pairs", tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize("name", HARMS)
def test_a_cell_is_not_harmed_by_what_the_one_before_it_changed(pairs: dict[str, Any], name: str) -> None:
    assert (pairs[name]["alone"]["status"], pairs[name]["alone"]["reason"]) == ("passed", None)
    assert (pairs[name]["after"]["status"], pairs[name]["after"]["reason"]) == ("passed", None)


@pytest.mark.parametrize("name", HARMS)
def test_the_cell_that_changed_something_says_so(pairs: dict[str, Any], name: str) -> None:
    (change,) = pairs[name]["harm"]["changed"]
    assert (change["when"], change["outcome"]) == ("running", "left" if name in LEFT else "put back")
    assert pairs[name]["alone"]["changed"] == []
    assert pairs[name]["after"]["changed"] == []


@pytest.mark.parametrize("name", sorted(JUDGING))
def test_a_cell_that_replaces_what_compares_is_not_green(pairs: dict[str, Any], name: str) -> None:
    assert result(pairs[name]["harm"]) == REPLACED


def test_values_of_environment_variables_are_not_told(pairs: dict[str, Any]) -> None:
    assert "a secret" not in json.dumps(pairs["variable"])
    assert pairs["variable"]["harm"]["changed"][0]["after"] == "PLANTED_NEIGHBOUR"


def test_verdicts_are_the_same_in_ten_random_orders(tmp_path: Path) -> None:
    found = planted("orders", tmp_path)
    verdicts = [{name: result(record) for name, record in records.items()} for records in found.values()]
    assert len(verdicts) == 10
    assert all(others == verdicts[0] for others in verdicts)
    red = {name for name, (status, *_) in verdicts[0].items() if status != "passed"}
    assert red == {"export[o_numpy-torchscript-op17]", "accuracy[o_numpy-torchscript-op17-onnxruntime-fp32]"}
    assert {verdicts[0][name] for name in red} == {REPLACED}


SEEN = """
import random
import numpy as np, torch
SEEN = []

class Draws(torch.nn.Module):
    def forward(self, x):
        SEEN.append((random.random(), float(np.random.rand()), float(torch.rand(1))))
        return torch.sin(x)
"""
DRAWS = """
module: beside.Draws
inputs: {x: "float32[3]"}
specials: false
runtimes: onnxruntime
export: {torchscript: [17]}
"""


def test_what_a_cell_draws_from_the_process_generators_does_not_depend_on_others(bench) -> None:
    (cell,) = (cell for cell in bench.cells(DRAWS, SEEN) if cell.check == "accuracy")
    assert bench.run_cell(cell).status == "passed"  # which exports
    drawn = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        assert bench.run_cell(cell).status == "passed"
        seen = _seen(cell)
        drawn.append(seen.copy())
        seen.clear()
    assert drawn[0][-1] == drawn[1][-1]


def _seen(cell: Any) -> list[Any]:
    from conformance.case.python import Folder

    return Folder.of(cell.case.folder)._modules["beside"].SEEN  # type: ignore[no-any-return]


# ---- what is changed while a case is loaded ------------------------------------------------------------------

LIBRARY = """
import torch.nn.functional as F
def relu(x):
    return x.abs()
F.relu = relu
"""
USES = """
import planted_library
import torch
import torch.nn.functional as F

class Uses(torch.nn.Module):
    def forward(self, x):
        assert F.relu is planted_library.relu
        return F.relu(x)
"""
PLAIN = """
import torch
import torch.nn.functional as F

class Plain(torch.nn.Module):
    def forward(self, x):
        assert F.relu.__module__ == "torch.nn.functional"
        return F.relu(x)
"""


@pytest.fixture
def run(bench: Any) -> Iterator[Runner]:
    # Nothing is preloaded: the fork server is that of all tests, and some of them have no room for torch.
    with Worker(initializer=prepare_process) as worker:
        yield Runner(Settings(store=bench.store, examples=1), 60, worker)


def test_a_library_that_patches_torch_as_it_is_imported_works_for_each_case_that_imports_it(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_library.py").write_text(LIBRARY, encoding="utf-8")
    path = f"import sys\nsys.path.append({str(tmp_path)!r})\n"
    one = cells_of(tmp_path, "one", "Uses", path + USES)
    other = cells_of(tmp_path, "other", "Uses", path + USES)
    plain = cells_of(tmp_path, "plain", "Plain", PLAIN)
    order = [one["export"], one["accuracy"], plain["accuracy"], other["accuracy"]]
    records = [run(cell, then=then) for cell, then in zip(order, [*order[1:], None], strict=True)]
    assert [(record.status, record.reason) for record in records] == [("passed", None)] * 4
    patch = {"what": "torch.nn.functional.relu", "kind": "function", "when": "loading", "outcome": "kept"}
    for record, expected in zip(records, ([patch], [patch], [], [patch]), strict=True):
        assert [{name: change[name] for name in patch} for change in record.changed] == expected


# ---- a failure is believed when it comes again alone ---------------------------------------------------------

MARKS = """
import builtins, os
import torch

class Marks(torch.nn.Module):
    def forward(self, x):
        builtins.planted_mark = True  # which nobody watches
        return torch.sin(x)

class Minds(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
    def forward(self, x):
        import builtins
        if hasattr(builtins, "planted_mark"):
            if self.how == "dies":
                os._exit(7)
            raise RuntimeError("there is a mark")
        return torch.sin(x)

class Fails(torch.nn.Module):
    def forward(self, x):
        raise RuntimeError("always")

class AtTimes(torch.nn.Module):
    def __init__(self, counter):
        super().__init__()
        with open(counter, "a+") as file:
            file.seek(0)
            self.count = len(file.read())
            file.write("x")
    def forward(self, x):
        if self.count % 2 == 0:
            raise RuntimeError("half of the time")
        return torch.sin(x)
"""


def test_a_cell_that_fails_only_after_others_says_so_and_blames_nobody(run: Runner, tmp_path: Path) -> None:
    marks = cells_of(tmp_path, "marks", "Marks", MARKS)["accuracy"]
    raises = cells_of(tmp_path, "raises", "Minds", MARKS, how="raises")["accuracy"]
    dies = cells_of(tmp_path, "dies", "Minds", MARKS, how="dies")["accuracy"]
    run(marks, then=raises)
    record = run(raises, then=marks)
    assert verdict(record) == ("failed", "declare", "OnlyAfter", None)
    assert record.after == {
        "cells": 1, "cases": ["marks"], "others": 0, "changed": {}, "stage": "declare", "error": "RuntimeError",
        "alone": "passed",
    }  # fmt: skip
    assert details(record)[:2] == [
        "alone, in a fresh process, it passes",
        "in this process it ran after 1 cell of: marks",
    ]
    run(marks, then=dies)
    ended = run(dies)
    assert (ended.status, ended.error, ended.fault, ended.signal) == ("failed", "OnlyAfter", None, "exit 7")


def test_a_cell_that_fails_half_of_the_time_does_not_pass_by_running_again(run: Runner, tmp_path: Path) -> None:
    sound = cells_of(tmp_path, "sound", "Minds", MARKS, how="raises")["accuracy"]
    flaky = cells_of(tmp_path, "flaky", "AtTimes", MARKS, counter=str(tmp_path / "counter"))["accuracy"]
    assert run(sound, then=flaky).status == "passed"
    record = run(flaky)
    assert verdict(record) == ("failed", "declare", "OnlyAfter", None)
    assert "nothing that is watched had been changed, so it may also fail at times by itself" in details(record)


def test_a_failure_of_its_own_is_what_it_is_alone_and_its_next_cell_needs_no_other_process(
    run: Runner, tmp_path: Path
) -> None:
    sound = cells_of(tmp_path, "sound", "Minds", MARKS, how="raises")["accuracy"]
    fails = cells_of(tmp_path, "fails", "Fails", MARKS)
    run(sound, then=fails["export"])
    for check in ("export", "accuracy"):
        record = run(fails[check])
        assert (record.status, record.error, record.after) == ("failed", "RuntimeError", None)
    assert len(run._before) == 2


# ---- what is doubted, and what is told -----------------------------------------------------------------------


def test_only_failures_are_doubted_and_no_time_limit_or_budget_is(bench) -> None:
    first, second, *_ = bench.cells(DRAWS, SEEN)
    before = Predecessors()
    record = second.record()
    record.status, record.stage, record.error = "failed", "run", "RuntimeError"
    assert not before.doubtful(second, record)  # the first cell of its process
    before.add(first, first.record(), "any")
    assert before.doubtful(second, record)
    record.error = "Timeout"
    assert not before.doubtful(second, record)
    record.error, record.stage = "TooSlow", "latency"
    assert not before.doubtful(second, record)
    for status in ("passed", "xfailed", "skipped"):
        record.status, record.stage, record.error = status, "run", "RuntimeError"
        assert not before.doubtful(second, record)


def test_the_cases_that_ran_before_are_named_the_last_ones_first(bench) -> None:
    cells = [bench.cells(DRAWS, SEEN)[0] for _ in range(2)]
    before = Predecessors()
    for number in range(NAMED + 2):
        cell = cells[number % 2]
        object.__setattr__(cell.case, "name", f"case{number}")
        record = cell.record()
        record.changed = [{"what": "os.umask"}] if number == 1 else []
        before.add(cell, record, "any")
    failed, alone = cells[0].record(), cells[0].record()
    failed.status, failed.stage, failed.error, failed.reason = "failed", "run", "SIGSEGV", "the process ended"
    record = believed(failed, alone, before.told())
    assert record.reason == "SIGSEGV only after other cells in the same process: the process ended"
    assert record.after is not None
    assert record.after["cells"] == NAMED + 2


def test_what_libraries_start_for_their_own_is_no_change_of_a_cell() -> None:
    """The thread of tqdm, and the lock with which multiprocessing settles on its default; in a process of its own."""
    code = """
import multiprocessing, threading
from conformance.worker.state.fence import Fence
stay = threading.Event()
def start(name):
    threading.Thread(target=stay.wait, name=name, daemon=True).start()
fence = Fence()
for name in ("tqdm_monitor", "worker of the case"):
    fence.begin("case")
    multiprocessing.RLock()
    start(name)
    print([(change.what, change.after) for change in fence.end()], fence.fit)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines() == ["[] any", "[('threads', 'worker of the case')] none"]


def test_a_change_reads_as_what_happened() -> None:
    change = {"what": "os.umask", "kind": "setting", "when": "running", "outcome": "put back", "before": "0o22",
              "after": "0o0"}  # fmt: skip
    replaced = {
        "what": "torch.relu",
        "kind": "function",
        "when": "loading",
        "outcome": "kept",
        "before": "",
        "after": "",
    }
    left = {
        "what": "threads",
        "kind": "leftover",
        "when": "running",
        "outcome": "left",
        "before": "",
        "after": "Timer",
    }
    assert text.details({"changed": [change, replaced, left]}) == [
        "while it ran the case changed os.umask from 0o22 to 0o0: put back",
        "while it was loaded the case replaced torch.relu: kept for the cells of this case, which share their "
        "process with no other case",
        "while it ran the case left threads behind (Timer): not to be put back, so that no cell ran after it",
    ]
    assert list(matrix.changed([{"case": "planted", "changed": [change, left]}, {"case": "sound"}])) == [
        "cases that changed the process they ran in (other cases did not see it):", "  planted: os.umask, threads",
    ]  # fmt: skip


def test_all_that_compares_is_watched() -> None:
    folder = ROOT / "conformance" / "compare"
    assert {f"conformance.compare.{file.stem}" for file in folder.glob("*.py")} <= {
        *OWN,
        "conformance.compare.__init__",
    }


# ---- a whole run ---------------------------------------------------------------------------------------------


def test_a_run_names_the_cases_that_changed_their_process_and_the_others_pass(tmp_path: Path) -> None:
    harms = {name: HARMS[name] for name in ("folder", "deleted_folder", "default_dtype", "thread")}
    for name, (code, contrary) in harms.items():
        cells_of(tmp_path / "cases", f"a_{name}", "Harm", code=f"({code})")
        cells_of(tmp_path / "cases", f"b_relies_on_{name}", "Relies", on=f"({contrary})", home=str(tmp_path))
    loaded = PYTHON + f"os.chdir({str(tmp_path.parent)!r})\n"
    cells_of(tmp_path / "cases", "a_loaded", "Harm", loaded, code="(0)")
    outcome = run_suite(
        tmp_path, "--cases", "cases", "--store", "store", "--examples", "1", "-k", "accuracy or a_loaded"
    )
    assert outcome.code == 0, outcome.text
    assert "  a_folder: the working directory\n" in outcome.text
    changed = {record["case"] for record in outcome.records.values() if record["changed"]}
    assert changed == {"a_loaded", *(f"a_{name}" for name in harms)}
    assert {record["source"]["file"].split("/")[0] for record in outcome.records.values()} == {"cases"}


def _draws_a_bar(_: Progress) -> list[int]:
    from tqdm import tqdm

    return [*tqdm(range(3))]


def test_a_progress_bar_ends_no_worker() -> None:
    """tqdm's own lock starts a process; every export with dynamo would end its worker, and import all anew."""
    with Worker(initializer=prepare_process) as worker:
        assert worker.call(_draws_a_bar, timeout=60) == [0, 1, 2]
        assert worker.running
