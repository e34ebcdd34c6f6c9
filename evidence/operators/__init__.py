"""Run PyTorch's own samples of its operators through both exporters and ONNX Runtime, and count what comes of each.

The cases are the files of this folder. A run that was cut off goes on from the records that it has.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import HEAD, ROOT, Row, core_seconds_of, process_ended
from conformance.results.records.operator_table import EXPORTERS, FILE
from conformance.results.records.words import Exporter
from evidence.operators.table import Data, as_data, called_by_samples, header_of, lines_of, sample_of, shipped

FOLDER = Path(__file__).parent
PAGE = ROOT / "docs" / "evidence" / "operators.md"
DATA = ROOT / "docs" / "evidence" / "operators.json"
KEPT = ROOT / "reports" / "operators"
"""The run, from which one that was cut off goes on."""
QUICK = "nn.functional.g or log1p or cumsum"
OUTCOMES = (
    "right", "wrong", "not exported", "the process ends", "does not run", "proves nothing", "no verdict",
)  # fmt: skip
"""What may come of an operator with an exporter; the worst of its samples stands for it."""
PROVES_NOTHING = ("Vacuous", "Hollow")


@dataclass(frozen=True)
class OfSample:
    """Hold the outcome of one sample with one exporter."""

    operator: str
    sample: int
    exporter: Exporter
    outcome: str
    error: str | None
    reason: str | None
    examples: int


@functools.cache
def study(quick: bool) -> tuple[list[OfSample], float, Data]:
    """Return what came of every sample, the core-seconds of this run, and when and with what it measured."""
    chosen = ["-k", QUICK] if quick else []
    if (KEPT / "records.jsonl").exists() and not quick:
        chosen += ["--reuse", str(KEPT)]
    report = KEPT.with_name("operators-quick") if quick else KEPT
    command = [
        sys.executable, "-m", "pytest", "conformance", "--cases", str(FOLDER), "--explain", "none", "-q",
        "--report", str(report), *chosen,
    ]  # fmt: skip
    run = functools.partial(subprocess.run, command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    seconds = core_seconds_of(run)
    header, *records = map(json.loads, (report / "records.jsonl").read_text(encoding="utf-8").splitlines())
    opsets = {record["exporter"]: record["opset"] for record in records}
    return outcomes(records), seconds, header_of(header, opsets)


def outcomes(records: Sequence[Mapping[str, Any]]) -> list[OfSample]:
    """Return what came of each sample with each exporter, of records as a run file has them."""
    grouped: dict[tuple[str, Exporter], list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        if record.get("check") in ("export", "accuracy"):
            grouped[record["case"], record["exporter"]].append(record)
    return [_of_sample(case, exporter, of_case) for (case, exporter), of_case in grouped.items()]


def _of_sample(case: str, exporter: Exporter, records: Sequence[Mapping[str, Any]]) -> OfSample:
    operator, sample = sample_of(case)
    of_run = max(records, key=lambda record: (record["status"] == "failed", record["check"] == "accuracy"))
    examples = sum(record.get("examples") or 0 for record in records)
    error, reason = of_run.get("error"), of_run.get("reason")
    return OfSample(operator, sample, exporter, _outcome(of_run), error, reason, examples)


def _outcome(record: Mapping[str, Any]) -> str:
    if record["status"] == "passed":
        return "right"
    if record["status"] == "skipped":
        return "no verdict"
    if record.get("error") in PROVES_NOTHING:
        return "proves nothing"
    if process_ended(record.get("reason")):
        return "the process ends"
    stages = {"export": "not exported", "declare": "not exported", "compare": "wrong"}
    return stages.get(str(record.get("stage")), "does not run")


def by_operator(found: Sequence[OfSample]) -> dict[Exporter, dict[str, list[OfSample]]]:
    """Return the samples of each operator by exporter and outcome, the one that decides first."""
    grouped: dict[Exporter, dict[str, list[OfSample]]] = {exporter: defaultdict(list) for exporter in EXPORTERS}
    order = ("wrong", "the process ends", "does not run", "not exported", "no verdict", "proves nothing", "right")
    for one in sorted(found, key=lambda one: (one.operator, order.index(one.outcome), one.sample)):
        grouped[one.exporter][one.operator].append(one)
    return grouped


def rows(quick: bool) -> Iterator[Row]:
    found, seconds, _ = study(quick)
    yield Row("core-seconds of this run, less where the store has models", f"{seconds:.0f}", f"{len(found)} exports")
    for exporter, operators in by_operator(found).items():
        counted = Counter(of_operator[0].outcome for of_operator in operators.values())
        for outcome in OUTCOMES:
            yield Row(f"{exporter}: operators {outcome}", str(counted[outcome]), f"{len(operators)} operators")


TEXT = """# PyTorch's operators

Made by `tox run -e dev -- python -m evidence operators`. Each operator of `torch.op_db`, by two of the samples that
PyTorch tests it with, as cases that `evidence/operators` declares: sizes and values vary as far as PyTorch takes them
([samples](../case-reference.md#samples)). TorchScript exports at opset 17, dynamo at 20; ONNX Runtime computes in
float32. The worst of an operator's samples stands for it. *Wrong* are values, shapes or dtypes, whoever is at fault.
[All samples as data](operators.json); `conformance support MODULE` says which of them a model calls.

{table}

{lists}

{where}
"""


def write(where: str) -> None:
    """Write the page and the data; ``where`` says on what host and with which versions."""
    found, _, header = study(False)
    grouped = by_operator(found)
    lists = []
    for exporter, operators in grouped.items():
        for outcome in ("wrong", "does not run", "not exported"):
            names = [
                f"`{name}`{f' ({samples[0].error})' if outcome == 'wrong' else ''}"
                for name, samples in operators.items()
                if samples[0].outcome == outcome
            ]
            lists.append(f"## {EXPORTERS[exporter]}: {outcome}\n\n{', '.join(names) or 'None.'}")
    table = "\n".join((HEAD, *(row.line() for row in rows(False))))
    PAGE.write_text(TEXT.format(table=table, lists="\n\n".join(lists), where=where), encoding="utf-8")
    write_data(found, called_by_samples(sorted(FOLDER.glob("*.yaml"))), header)


def write_data(found: Sequence[OfSample], calls: Mapping[tuple[str, int], Sequence[str]], header: Data) -> None:
    """Write what came of all samples, and the table of the package."""
    data = as_data(of_samples(found), calls, header)
    DATA.write_text(lines_of(data), encoding="utf-8")
    FILE.write_text(lines_of(shipped(data)), encoding="utf-8")


def of_samples(found: Sequence[OfSample]) -> dict[tuple[str, int], Data]:
    """Return by operator and sample what came of it with each exporter."""
    data: dict[tuple[str, int], Data] = defaultdict(dict)
    for one in found:
        if one.outcome != "the process ends":  # these are counted, and not named
            said = {"outcome": one.outcome, "error": one.error}
            data[one.operator, one.sample][one.exporter] = {key: value for key, value in said.items() if value}
    return data
