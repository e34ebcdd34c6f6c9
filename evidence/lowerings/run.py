"""Run the catalogue's cells with onnxscript copied into a folder that is first on the path, with one mistake in it.

Of the catalogue those cells run whose samples call an operator that the mistake's own call calls, as PyTorch traces
them, until one is red that passes without the mistake. An answer is kept as JSON, so that a run that was cut off goes
on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.common import ROOT
from conformance.case.files.case_file import load
from conformance.case.files.sampled import FromSamples
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.case.samples.told import OfOperator, ask
from conformance.cells.runner import Runner
from conformance.process.errors import attempt, summarize
from conformance.process.worker.isolation import Death, Worker
from conformance.results.records.environment import code
from evidence.location.lowered import CELL, PRELOAD, prepare
from evidence.operators.table import COPIES, called_by_samples, sample_of
from tests.plants.location.lowerings import edited
from tests.plants.planted import Holding

KEPT = ROOT / ".conformance" / "lowerings"
CATALOGUE = (*sorted(Path(__file__).with_name("catalogue").glob("*.yaml")),)
OPS = "onnxscript/function_libs/torch_lib/ops"
COUNT, SEED = 60, 64
"""The number of mistakes that are drawn of those that are written down, and the seed; one that is no mistake is
replaced by the next of that order."""
EXPLAINED = 6
"""Of the first so many the finding is explained as well, which takes as long as all else."""
LIMIT = 1500.0
"""Seconds after which a run asks of no further mistake; the next goes on."""
FIELDS = ("id", "case", "check", "stage", "error", "fault", "operator", "unexplained")


@dataclass(frozen=True)
class Plant:
    """One mistake, and a call that it makes wrong."""

    at: str
    """The file and function, as in ``core.aten_add``."""
    old: str
    new: str
    about: str
    reaches: str
    """A call of inputs named x, y, z and w, as Python."""
    inputs: Sequence[str]
    module: str = ""
    """An expression of a module that the call names ``self.module``."""

    @property
    def file(self) -> str:
        return f"{OPS}/{self.at.partition('.')[0]}.py"

    @property
    def function(self) -> str:
        return self.at.partition(".")[2]


@dataclass(frozen=True)
class Answer:
    """The catalogue's answer about a mistake."""

    plant: str
    about: str
    sound: str
    """``right`` where the mistake's own call is exported rightly without it."""
    planted: str
    """``wrong`` where the same call is wrong with it; else why it proves nothing."""
    calls: Sequence[str]
    """The operators of PyTorch that the call calls."""
    cells: int
    """Those whose samples call one of these."""
    ran: int
    red: Mapping[str, Any] | None
    """``FIELDS`` of the record of the first that fails, and ``plain``; None where none does."""
    seconds: float

    @property
    def counts(self) -> bool:
        return (self.sound, self.planted) == ("right", "wrong")

    @property
    def named(self) -> bool:
        """Return whether the finding names the exporter and an operator of the mistake's own call."""
        red = self.red or {}
        return red.get("fault") == "exporter" and (red.get("operator") or {}).get("operator") in self.calls


def plants() -> list[Plant]:
    """Return all that are written down, in the order in which they are drawn."""
    found = YAML(typ="safe").load(Path(__file__).with_name("plants.yaml").read_text(encoding="utf-8"))
    return random.Random(SEED).sample([Plant(**one) for one in found], len(found))


@functools.cache
def study(quick: bool, files: Sequence[Path] = CATALOGUE) -> list[Answer]:
    """Return the answers for the first mistakes that are ones."""
    answers: list[Answer] = []
    start = time.monotonic()
    with Planting(calling(files), plain(files)) as planting:
        for plant in plants():
            answers.append(planting.kept(plant, explained=len(answers) < EXPLAINED))
            told = answers[-1]
            found = (told.red or {"id": "missed"})["id"] if told.counts else f"no mistake: {told.planted}"
            print(f"{plant.at}, {plant.about}: {found} ({told.seconds} s)", file=sys.stderr, flush=True)
            enough = sum(one.counts for one in answers) == (4 if quick else COUNT)
            if enough or time.monotonic() - start > LIMIT:
                break
    return answers


Calling = list[tuple[Cell, Sequence[str]]]
"""Cells of dynamo, and the operators that their samples call."""


def calling(files: Sequence[Path]) -> Calling:
    """Return the cells of case files that compare values: those of samples that ``plain`` has first, of these the
    ones that call little else, and NaN and infinities last."""
    cells = [cell for file in files for case in load(file) for cell in plan(case)]
    mine = [cell for cell in cells if cell.exporter == "dynamo" and cell.check in ("accuracy", "specials")]
    kept = KEPT / f"calls-{_key(code(), [cell.id for cell in mine])}.json"
    if not kept.exists():
        traced = called_by_samples(files)
        calls = {cell.case.name: traced[sample_of(cell.case.name)] for cell in mine}
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(calls), encoding="utf-8")
    calls, first = json.loads(kept.read_text(encoding="utf-8")), plain(files)
    found = [(cell, [overload.rpartition(".")[0] for overload in calls[cell.case.name]]) for cell in mine]
    return sorted(found, key=lambda one: (not _is_plain(one[0], first), one[0].check != "accuracy", len(one[1])))


def _key(*state: object) -> str:
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:24]


def plain(files: Sequence[Path]) -> set[tuple[str, int]]:
    """Return the samples that a catalogue of two of each operator has, where sizes and values alone grow: the first
    two of float32."""
    of_operator: dict[str, list[int]] = {}
    for file in files:
        (entry,) = YAML(typ="safe").load(file.read_text(encoding="utf-8")).values()
        samples = FromSamples.model_validate(entry["samples"])
        for one in ask((*samples.only,), (*samples.but,), samples.each, (*samples.grow,)).told:
            if isinstance(one, OfOperator) and any("float32" in said["type"] for said in one.said["inputs"].values()):
                of_operator.setdefault(one.operator, []).append(one.number)
    return {(operator, number) for operator, numbers in of_operator.items() for number in numbers[:2]}


def _is_plain(cell: Cell, samples: set[tuple[str, int]]) -> bool:
    return cell.check == "accuracy" and sample_of(cell.case.name) in samples


class Planting:
    """A copy of onnxscript, and processes that import it."""

    def __init__(self, calling: Calling, samples: set[tuple[str, int]]) -> None:
        self._calling, self._plain = calling, samples
        self._passing: dict[str, bool] = {}

    def __enter__(self) -> Planting:
        spec = importlib.util.find_spec("onnxscript")
        assert spec is not None and spec.origin is not None
        self._temporary = tempfile.TemporaryDirectory(prefix="lowerings-")
        self._folder, self._real = Path(self._temporary.name).resolve(), Path(spec.origin).parents[1]
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(self._real / "onnxscript", self._folder / "onnxscript", ignore=left_out)
        self._worker, self._sound = (Worker(PRELOAD["dynamo"], None, prepare).__enter__() for _ in range(2))
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()
        self._sound.close()
        self._temporary.cleanup()

    def kept(self, plant: Plant, *, explained: bool) -> Answer:
        """Return the answer that is kept of this state of everything, or ask for it."""
        state = _key(code(), dataclasses.asdict(plant), [cell.id for cell, _ in self._calling])
        file = KEPT / f"{state}.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(dataclasses.asdict(self.answer(plant, explained=explained)))
            file.write_text(text, encoding="utf-8")
        return Answer(**json.loads(file.read_text(encoding="utf-8")))

    def answer(self, plant: Plant, *, explained: bool = True) -> Answer:
        """Return what comes of a mistake's own call, and of the cells that call the same."""
        start = time.perf_counter()
        cells, ran, red = 0, 0, None
        with self.edited_copy(plant) as (there, run):
            (sound, calls), (planted, _) = _asked(self._sound, plant), _asked(there, plant)
            if (sound, planted) == ("right", "wrong"):
                cells, ran, red = self.first_red(run, calls, explained=explained)
        seconds = round(time.perf_counter() - start, 1)
        return Answer(plant.at, plant.about, sound, planted, calls, cells, ran, red, seconds)

    @contextlib.contextmanager
    def edited_copy(self, plant: Plant) -> Iterator[tuple[Any, Runner]]:
        """Yield a worker that imports the copy with the mistake in it, and a runner of cells there."""
        text = (self._real / plant.file).read_text(encoding="utf-8")
        (self._folder / plant.file).write_text(edited(text, plant.function, plant.old, plant.new), encoding="utf-8")
        self._worker.replace()
        there: Any = Holding(self._worker, held, str(self._folder))
        with tempfile.TemporaryDirectory(dir=self._folder) as store:
            settings = Settings(store=Path(store) / "models", smallest=False)
            yield there, Runner(settings, CELL, there, explaining=False)
        (self._folder / plant.file).write_text(text, encoding="utf-8")

    def first_red(
        self, run: Runner, calls: Sequence[str], *, explained: bool = True
    ) -> tuple[int, int, dict[str, Any] | None]:
        """Return how many cells call one of these operators, how many ran, and what the first red one says."""
        cells = [cell for cell, called in self._calling if not set(calls).isdisjoint(called)]
        for ran, cell in enumerate(cells, 1):
            record = run(cell)
            if record.status == "failed" and self._passes(cell):
                told = (run.explain(cell, record) if explained else record).as_dict()
                red = {field: told[field] for field in FIELDS}
                return len(cells), ran, {**red, "plain": _is_plain(cell, self._plain)}
        return len(cells), len(cells), None

    def _passes(self, cell: Cell) -> bool:
        """Return whether a cell passes with the onnxscript that is installed."""
        if cell.id not in self._passing:
            settings = Settings(store=self._folder / "sound" / "models", smallest=False)
            runner = Runner(settings, CELL, self._sound, explaining=False)
            self._passing[cell.id] = runner(cell).status == "passed"
        return self._passing[cell.id]


def _asked(worker: Any, plant: Plant) -> tuple[str, list[str]]:
    told = attempt(partial(worker.call, own_call, plant, timeout=CELL))
    if isinstance(told, Exception):
        return f"raises {summarize(told)}", []
    return (told.how, []) if isinstance(told, Death) else told


def held(progress: object, folder: str, function: Any, arguments: tuple[object, ...]) -> Any:
    """In a worker: what a function gives with the copy first on the path."""
    if folder not in sys.path:
        assert "onnxscript" not in sys.modules
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True  # the copy is edited within a second, which a cached file would not show
    return function(progress, *arguments)


def own_call(progress: object, plant: Plant) -> tuple[str, list[str]]:
    """In a worker: ``right`` or ``wrong`` of a mistake's own call, and the operators that it calls."""
    import numpy as np
    import onnxruntime
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "inf": np.inf, "nan": np.nan}
    names |= {name: getattr(torch, name) for name in ("randn", "rand", "ones", "tensor")}
    torch.manual_seed(0)
    given = [eval(one, names) for one in plant.inputs]
    exec(f"def forward(self, {', '.join('xyzw'[: len(given)])}):\n    return {plant.reaches}", names)
    module = type("Call", (torch.nn.Module,), {"forward": names["forward"]})()
    module.module = eval(plant.module, names) if plant.module else None
    wanted = module.eval()(*given)
    traced = make_fx(lambda *values: module(*values), pre_dispatch=True)(*given)
    exported: Any = torch.onnx.export(module, tuple(given), dynamo=True, opset_version=20, verbose=False)
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    feed = {one.name: value.numpy() for one, value in zip(session.get_inputs(), given, strict=True)}
    pairs = zip(session.run(None, feed), wanted if isinstance(wanted, tuple) else [wanted], strict=True)
    targets = [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]
    calls = sorted(
        {target.rpartition(".")[0] for target in targets if "." in target and not COPIES.fullmatch(target)}
    )
    return ("right" if all(_alike(got, one.detach().numpy()) for got, one in pairs) else "wrong"), calls


def _alike(got: Any, wanted: Any) -> bool:
    import numpy as np

    same = got.shape == wanted.shape and got.dtype == wanted.dtype
    return same and np.allclose(got, wanted, rtol=1e-4, atol=1e-6, equal_nan=True)
