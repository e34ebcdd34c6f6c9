"""A file is saved while a cell uses it: nothing is kept of that run, as its results are not of the text on disk."""

import os
import py_compile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.red import explain_cell
from conformance.cells.run_cell import run_cell
from conformance.models.kept.observed_dependencies import Now, Observed
from conformance.process.worker.isolation import Worker
from conformance.results.records.record import Record
from tests.kit.cases import say, write_case
from tests.kit.saving import Reaching, reached, saving

TWICE = """
import torch
%s
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        %s
    def forward(self, x):
        if torch.jit.is_tracing():
            getattr(torch, "planted_moment", str)("traced")
        return %s
"""
SHAPES = 'inputs: {x: "float32[n, 3]"}\ndims: {n: 1..5}\nspecials: false\nruntimes: onnxruntime'
BODY = say("module: beside.Net", SHAPES, "export: {torchscript: [17]}")
SOUND, WRONG = "def step(x):\n    return x * 2\n", "def step(x):\n    return x * int(x.shape[0])\n"
HOOK = "def hook(module, inputs):\n    return (%s,)\n"
SYMBOLIC = """
import torch
def symbolic(g, x):
    getattr(torch, "planted_moment", str)("traced")
    return g.op("%s", x)
getattr(torch, "planted_moment", str)("loaded")
"""
TRANSLATION = """
import torch
from onnxscript import opset18 as op
def translation(x):
    getattr(torch, "planted_moment", str)("traced")
    return op.%s(x)
getattr(torch, "planted_moment", str)("loaded")
"""
FORWARD = say('forward: "beside.twice(x)%s"', SHAPES, "export: {torchscript: [17]}")
EXPRESSION = """
import torch
def twice(x):
    if torch.jit.is_tracing():
        getattr(torch, "planted_moment", str)("traced")
    return x * 2
"""
DATA = 'int((HERE / "count.txt").read_text())'
READS = "import colorsys\nfrom pathlib import Path\nHERE = Path(__file__).parent"

WAYS: dict[str, tuple[str, str, str, str, str]] = {
    # the case, beside.py, the file that is saved, its sound text, its wrong one
    "an import": (BODY, TWICE % ("import helper", "pass", "helper.step(x)"), "helper.py", SOUND, WRONG),
    "a hook": (BODY, TWICE % ("import hooks", "self.register_forward_pre_hook(hooks.hook)", "x"), "hooks.py",
        HOOK % "inputs[0] * 2", HOOK % "inputs[0] * int(inputs[0].shape[0])"),
    "a data file": (BODY, TWICE % (READS, f"self.count = {DATA}", "x * (2 if self.count == 1 else int(x.shape[0]))"),
        "count.txt", "1", "2"),
    "a symbolic": (say("forward: torch.asinh(x)", SHAPES,
        'export: {torchscript: {opsets: [17], symbolics: {"aten::asinh": symbolics.symbolic}}}'), "",
        "symbolics.py", SYMBOLIC % "Asinh", SYMBOLIC % "Acosh"),
    "a translation": (say("forward: torch.asinh(x)", SHAPES,
        'export: {dynamo: {opsets: [18], translations: {"aten::asinh": translations.translation}}}'), "",
        "translations.py", TRANSLATION % "Asinh", TRANSLATION % "Acosh"),
    "forward": (FORWARD % "", EXPRESSION, "planted.yaml", "", ""),
}  # fmt: skip
MOMENTS = {"before the export": "export", "while it is exported": "traced", "before its model is kept": "check"}
LOADED_BY_THE_EXPORT = ("a symbolic", "a translation")


def case_in(folder: Path, way: str) -> tuple[Cell, Path, str]:
    """The accuracy cell of a sound case, the file that is to be saved, and the wrong text that it then gets."""
    body, python, name, sound, wrong = WAYS[way]
    case = write_case(folder, body, python)
    if name == case.name:
        wrong = case.read_text().replace("twice(x)", "twice(x) * int(x.shape[0])")
    else:
        (folder / name).write_text(sound)
    return cell_of(case), folder / name, wrong


def cell_of(file: Path) -> Cell:
    (found,) = (cell for cell in plan(*load(file)) if cell.check == "accuracy")
    return found


def settings(store: Path) -> Settings:
    """Of one run in two processes, whose variables other tests may have changed in between."""
    kept = {name: store.parent / name for name in ("answers", "outcomes")}
    return Settings(store=store, examples=4, smallest=False, suite="one run", **kept)


def in_fresh_process(worker: Worker, cell: Cell, store: Path) -> Record:
    worker.replace()
    record = worker.call(run_cell, cell, settings(store), timeout=60)
    assert isinstance(record, Record), record
    return record


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", WAYS)
def test_the_text_on_disk_is_judged_after_a_run_in_which_it_was_saved(tmp_path, worker, monkeypatch, way, moment):
    monkeypatch.setattr(torch, "planted_moment", reached, raising=False)
    cell, file, wrong = case_in(tmp_path / "case", way)
    store = tmp_path / "store" / "models"
    now = "loaded" if moment == "before the export" and way in LOADED_BY_THE_EXPORT else MOMENTS[moment]
    with saving(file, wrong, now):
        first = run_cell(Reaching(), cell, settings(store))
    assert first.status == "passed", first.reason
    assert file.read_text() == wrong
    home = cell.case.folder.resolve()
    if way != "forward":  # a run reads its case file once, before any cell, and keeps by that text
        told = list(Observed.from_dict(first.depends).differences(Now(home)))
        assert told == [f"{file.name} changed"]  # so ``--reuse`` and ``--changed-since`` run it again
    second = in_fresh_process(worker, cell_of(file.parent / "planted.yaml"), store)
    assert (second.status, second.stage) == ("failed", "compare"), second.reason


@pytest.mark.parametrize("way", ["an import", "a symbolic", "a data file"])
def test_what_nobody_saved_meanwhile_is_kept(tmp_path, worker, way):
    """The sound twin: of a file that was saved just before the run, too."""
    cell, _, _ = case_in(tmp_path / "case", way)
    store = tmp_path / "store" / "models"
    first = run_cell(Reaching(), cell, settings(store))
    assert first.status == "passed" and Observed.from_dict(first.depends).lasts
    assert [*store.glob("*/meta.json")]
    again = in_fresh_process(worker, cell, store)
    assert again.status == "passed" and again.seconds.get("export", 0) == 0
    assert [again.depends.get(name) for name in ("files", "parts")] == [
        first.depends.get(name) for name in ("files", "parts")
    ]


KEPT = ("answers", "coverage", "outcomes")
LATER = {"before its answers are made": "load", "before the export": "export"}
DECLARED = say(BODY, "fails: [{stage: compare, because: planted}]")


def entries(folder: Path) -> list[str]:
    return [f"{name}/{one.name}" for name in KEPT for one in (folder / name).glob("[!.]*")]


@pytest.mark.parametrize("moment", LATER)
@pytest.mark.parametrize("way", ["an import", "a data file"])
def test_nothing_else_is_kept_of_a_run_in_which_a_file_was_saved(tmp_path, worker, way, moment):
    """Answers of PyTorch, what shows in outputs, and how declared failures came about; the model itself may be kept
    where it was made before."""
    cell, file, wrong = case_in(tmp_path / "case", way)
    store = tmp_path / "store" / "models"
    with saving(file, wrong, LATER[moment]):
        first = run_cell(Reaching(), cell, settings(store))
    assert first.status == "passed", first.reason
    assert entries(tmp_path / "store") == []
    second = in_fresh_process(worker, cell_of(file.parent / "planted.yaml"), store)
    assert (second.status, second.stage) == ("failed", "compare"), second.reason


@pytest.mark.parametrize("way", ["an import", "a data file"])
def test_all_of_it_is_kept_where_nobody_saved(tmp_path, way):
    cell, _, _ = case_in(tmp_path / "case", way)
    assert run_cell(Reaching(), cell, settings(tmp_path / "store" / "models")).status == "passed"
    assert {name.partition("/")[0] for name in entries(tmp_path / "store")} == {"answers", "coverage"}


@pytest.mark.parametrize("saved", [True, False])
def test_an_explanation_is_not_kept_of_a_run_in_which_a_file_was_saved(tmp_path, saved):
    """Of a declared failure that ``--explain all`` asks about."""
    folder = tmp_path / "case"
    file = write_case(folder, DECLARED, WAYS["an import"][1])
    (folder / "helper.py").write_text(WRONG)
    asked = replace(settings(tmp_path / "store" / "models"), explain_declared=True)
    with saving(folder / "helper.py", SOUND, "load") if saved else nullcontext():
        record = explain_cell(Reaching(), cell_of(file), asked)
    assert (record.status, record.stage) == ("xfailed", "compare"), record.reason
    assert bool([name for name in entries(tmp_path / "store") if name.startswith("outcomes/")]) is not saved


APPEARS: dict[str, tuple[str, str]] = {
    "a file that was looked for": ("2 if (HERE / 'flag').exists() else 1", "flag"),
    "a name in a folder": ("len(list(HERE.glob('*.dat')))", "b.dat"),
    "a module that hides another": ("int(colorsys.ONE_THIRD > 0)", "colorsys.py"),
}


@pytest.mark.parametrize("way", APPEARS)
def test_what_appears_while_a_cell_runs_is_seen(tmp_path, way):
    code, name = APPEARS[way]
    folder = tmp_path / "case"
    file = write_case(folder, BODY, TWICE % (READS, f"self.count = {code}", "x * 2"))
    (folder / "a.dat").write_text("")
    with saving(folder / name, "", "check"):
        record = run_cell(Reaching(), cell_of(file), settings(tmp_path / "store" / "models"))
    assert record.status == "passed" and not Observed.from_dict(record.depends).lasts
    assert not [*(tmp_path / "store" / "models").glob("*/meta.json")]


def test_compiled_code_of_an_earlier_text_is_not_run(tmp_path):
    """Python tells a text from the one before by its length and the second in which it was saved."""
    file = write_case(tmp_path / "case", say('forward: "beside.step(x)"', SHAPES, "export: {torchscript: [17]}"))
    beside = file.with_name("beside.py")
    beside.write_text(SOUND.ljust(len(WRONG)))
    second = int(beside.stat().st_mtime)
    os.utime(beside, (second, second))
    py_compile.compile(str(beside))
    beside.write_text(WRONG)
    os.utime(beside, (second, second))
    record = run_cell(Reaching(), cell_of(file), settings(tmp_path / "store" / "models"))
    assert (record.status, record.stage) == ("failed", "compare"), record.reason
