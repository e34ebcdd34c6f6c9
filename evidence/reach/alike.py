"""Whether ``conformance.check`` says of shipped cases what the suite says, and how long each takes."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, run_python, seconds_of
from conformance import HOME
from conformance.case.files.case_file import case_files, cases_of
from conformance.case.files.declaration import Case
from conformance.case.files.document import Document, read_document
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell

CASES = 100
SEED = 0
LARGE = ("networks", "swin", "tensorrt")
"""Folders of networks, in which a cell takes many seconds."""
LEFT_OUT = ("latency", "precisions", "tensorrt", "vary")
NETWORK = "classifier"
"""Cases of whole classifiers, in a folder of small ones."""


@dataclass(frozen=True)
class Chosen:
    """A shipped case with all that it says, but for one exporter at one opset and ONNX Runtime in fp32."""

    case: Case
    said: Mapping[str, Any]
    cells: tuple[Cell, ...]

    @property
    def accuracy(self) -> str:
        """The id of the cell that is compared."""
        return next(cell.id for cell in self.cells if cell.check == "accuracy")


@dataclass(frozen=True)
class Alike:
    """What both sides said of each accuracy cell, and the seconds that they took, process start included."""

    verdicts: Mapping[str, tuple[str, str]]
    """By cell: of the suite, of ``check``."""
    suite: float
    check: float
    cells: int
    """That each side ran, exports and special values among them."""

    @property
    def equal(self) -> int:
        return sum(one == other for one, other in self.verdicts.values())


def chosen(count: int) -> list[Chosen]:
    """So many of the shipped cases, by a fixed seed; of a case with ``vary`` each combination is one."""
    found = [one for file in case_files([ROOT / "cases"]) for one in _in_file(file)]
    found.sort(key=lambda one: one.case.name)
    return random.Random(SEED).sample(found, min(count, len(found)))


def _in_file(file: Path) -> Iterator[Chosen]:
    if file.relative_to(ROOT / "cases").parts[0] in LARGE:
        return
    document = read_document(file)
    defaults = document.values.pop("defaults", None) or {}
    for name, said in document.values.items():
        merged = _merged(defaults, said)
        if name.startswith(NETWORK) or "needs" in merged:
            continue
        for case in cases_of(name, merged, document)[0]:
            one = _narrowed(merged, case, document)
            if one is not None:
                yield one


def _merged(defaults: Any, said: Any) -> Any:
    if not (isinstance(defaults, dict) and isinstance(said, dict)):
        return said
    merged = {**defaults, **{key: _merged(defaults.get(key), value) for key, value in said.items()}}
    return {key: value for key, value in merged.items() if not (value is None and key in defaults)}


def _narrowed(said: Mapping[str, Any], case: Case, document: Document) -> Chosen | None:
    """One combination of a case, with its first accuracy cell in ONNX Runtime and those before it; None without."""
    cells = [cell for cell in plan(case) if (cell.check, cell.runtime) == ("accuracy", "onnxruntime")]
    wanted = [cell for cell in cells if cell.precision == "fp32" and cell.exporter != "onnx"]
    if not wanted:
        return None
    exporter, opset = wanted[0].exporter, wanted[0].opset
    of = said.get("export", {}).get(exporter, {})
    narrow = {key: value for key, value in said.items() if key not in LEFT_OUT} | {
        "export": {exporter: {**(of if isinstance(of, dict) else {}), "opsets": [opset]}},
        "runtimes": ["onnxruntime"],
        "with": {**said.get("with", {}), **case.varied},
    }
    for key in {"fails", "graph"} & narrow.keys():
        entries = narrow[key] if isinstance(narrow[key], list) else [narrow[key]]
        narrow[key] = [_without_vary(entry) for entry in entries if _about(entry, case.varied)]
    if not narrow["with"]:
        del narrow["with"]
    place: dict[tuple[str | int, ...], tuple[int, int]] = {(case.name,): (case.line, 1)}
    cases, problems = cases_of(case.name, narrow, Document(document.file, {}, place))
    return None if problems else Chosen(cases[0], narrow, tuple(plan(cases[0])))


def _about(entry: Mapping[str, Any], varied: Mapping[str, Any]) -> bool:
    """Whether an entry of ``fails`` or ``graph`` is about this combination."""
    given = entry.get("when", {}).get("with", {})
    return all(varied.get(key) in (value if isinstance(value, list) else [value]) for key, value in given.items())


def _without_vary(entry: Mapping[str, Any]) -> dict[str, Any]:
    when = {key: value for key, value in entry.get("when", {}).items() if key != "with"}
    rest = {key: value for key, value in entry.items() if key != "when"}
    return {**rest, "when": when} if when else rest


def compared(count: int) -> Alike:
    """Both sides on so many cases, each in a process of its own with an empty store."""
    cases = chosen(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        told: dict[str, dict[str, str]] = {}

        def suite() -> None:
            ids = [f"{HOME / 'test_suite.py'}::test_{cell.id}" for one in cases for cell in one.cells]
            options = ("-q", "--cases", str(ROOT / "cases"), "--report", "report", "-p", "no:cacheprovider")
            run_python(folder, "-m", "pytest", *options, *ids, allowed=(0, 1))
            run = json.loads((folder / "report" / "run.json").read_text(encoding="utf-8"))
            told["suite"] = {record["id"]: record["status"] for record in run["records"]}

        def check() -> None:
            given = [[one.case.name, str(one.case.file), dict(one.said)] for one in cases]
            (folder / "cases.json").write_text(json.dumps(given), encoding="utf-8")
            script = Path(__file__).parent / "checked.py"
            run_python(folder, "-P", str(script), "cases.json", "told.json")  # -P: what lies beside it is no module
            told["check"] = json.loads((folder / "told.json").read_text(encoding="utf-8"))

        seconds = {"suite": seconds_of(suite)}
        shutil.rmtree(folder / ".conformance", ignore_errors=True)
        seconds["check"] = seconds_of(check)
    none = "not told"
    verdicts = {
        one.accuracy: (told["suite"].get(one.accuracy, none), told["check"].get(one.accuracy, none)) for one in cases
    }
    return Alike(verdicts, seconds["suite"], seconds["check"], len(told["suite"]))
