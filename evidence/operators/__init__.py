"""Run PyTorch's own samples of its operators through both exporters and ONNX Runtime, and count what comes of each.

The cases are the files of this folder. A run that was cut off goes on from the records that it has. Where values are
wrong, others are asked once all verdicts are known: who is at fault, and where.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import HEAD, ROOT, Row, core_seconds_of, process_ended
from conformance.results.records.operator_table import EXPORTERS, FILE
from conformance.results.records.run_file import LINES
from conformance.results.records.words import Exporter
from evidence.operators.table import Data, as_data, called_by_samples, header_of, lines_of, sample_of, shipped

FOLDER = Path(__file__).parent
PAGE = ROOT / "docs" / "evidence" / "operators.md"
DATA = ROOT / "docs" / "evidence" / "operators.json"
KEPT = ROOT / "reports" / "operators"
"""The run, from which one that was cut off goes on."""
QUICK = " or ".join(
    f"{name}-" for name in (
        "tensors-any", "tensors-cumsum", "tensors-floor_divide", "tensors-index_put", "tensors-log1p",
        "functional-nn.functional.elu",
    )
)  # fmt: skip
"""Six operators, five of which some exporter or runtime has wrong."""
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
    fault: str | None = None
    """Of a wrong one the exporter, the runtime, PyTorch, or that it is open; None where nobody was asked."""
    place: str | None = None
    """The first wrong operator or node, or the passes of an optimizer."""
    ratio: float | str | None = None
    """The worst error over what is allowed."""
    ulp: int | None = None
    """The same error in units in the last place of float32."""


@dataclass(frozen=True)
class Study:
    """Hold what came of every sample, and what it took."""

    found: list[OfSample]
    verdicts: float
    """Core-seconds of this run until all verdicts were known."""
    explanations: float
    explained: int
    """Wrong cells of which others were asked in this run."""
    header: Data
    """The date and the versions of the measurement."""


@functools.cache
def study(quick: bool) -> Study:
    """Run all samples, or those of a few operators, and then ask others about what is wrong."""
    chosen = ["-k", QUICK] if quick else []
    if (KEPT / LINES).exists() and not quick:
        chosen += ["--reuse", str(KEPT)]
    report = KEPT.with_name("operators-quick") if quick else KEPT
    verdicts = _run(report, "conformance", "--explain", "none", *chosen)
    header, *records = _lines(report)
    known, asked, seconds = _explained(header, records, report.with_name(f"{report.name}-explained"))
    opsets = {record["exporter"]: record["opset"] for record in records}
    found = outcomes([known.get(record["id"], record) for record in records])
    return Study(found, verdicts, seconds, asked, header_of(header, opsets))


def _run(report: Path, *arguments: str) -> float:
    """Run the suite, and return the core-seconds that it took."""
    command = [
        sys.executable, "-m", "pytest", *arguments, "--cases", str(FOLDER), "-q", "--report", str(report),
    ]  # fmt: skip
    run = functools.partial(subprocess.run, command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    return core_seconds_of(run)


def _lines(report: Path) -> list[Data]:
    return [json.loads(line) for line in (report / LINES).read_text(encoding="utf-8").splitlines()]


def _explained(header: Data, records: Sequence[Data], folder: Path) -> tuple[dict[str, Data], int, float]:
    """Return the explained records of wrong cells by id, how many were asked about now, and the core-seconds. A run
    below ``folder`` that was broken off leaves what it has for the next."""
    wrong = {record["id"]: record["error"] for record in records if _outcome(record) == "wrong"}
    count, environment = len([*folder.glob("*")]), header["environment"]
    missing = wrong.keys() - _known(folder, wrong, environment).keys()
    cells = [f"conformance/test_suite.py::test_{cell}" for cell in sorted(missing)]
    seconds = _run(folder / str(count), *cells, "--explain", "all") if cells else 0.0
    return _known(folder, wrong, environment), len(cells), seconds


def _known(folder: Path, wrong: Mapping[str, str], environment: Data) -> dict[str, Data]:
    """Return what runs of the same code and versions have of cells that fail alike."""
    found = {}
    for file in sorted(folder.glob(f"*/{LINES}")):
        header, *records = _lines(file.parent)
        if all(header["environment"][name] == environment[name] for name in ("code", "versions")):
            found |= {one["id"]: one for one in records if wrong.get(one["id"]) == one["error"] and _asked(one)}
    return found


def _asked(record: Mapping[str, Any]) -> bool:
    return not record.get("unexplained", True)


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
    outcome = _outcome(of_run)
    found = OfSample(operator, sample, exporter, outcome, error, reason, examples)
    return dataclasses.replace(found, **_blamed(of_run)) if outcome == "wrong" else found


FAULTS = {"reference": "PyTorch", None: "open"}


def _blamed(record: Mapping[str, Any]) -> Data:
    """Return who is at fault for wrong values, where, and how wrong the worst is."""
    worst = record.get("worst") or {}
    said: Data = {"ratio": worst.get("ratio"), "ulp": ulp(worst.get("got"), worst.get("wanted"))}
    if not _asked(record):
        return said
    fault, operator, node = record.get("fault"), record.get("operator") or {}, record.get("parts_at") or {}
    passes = (record.get("optimizer") or {}).get("passes") or []
    place = operator.get("within") or operator.get("operator") or node.get("operator")
    return {**said, "fault": FAULTS.get(fault, fault), "place": ", ".join(passes) or place}


def ulp(got: object, wanted: object) -> int | None:
    """Return how many float32 numbers lie between two finite ones; None where one is none."""
    if not all(isinstance(value, float) and math.isfinite(value) for value in (got, wanted)):
        return None
    near, far = (int(np.float32(value).view(np.int32)) for value in (got, wanted))
    return abs(_in_order(near) - _in_order(far))


def _in_order(bits: int) -> int:
    """Return the bits of a float32 as whole numbers that grow as it does."""
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


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

    def badness(one: OfSample) -> tuple[str, int, float]:
        return one.operator, order.index(one.outcome), -float(one.ratio or 0)

    for one in sorted(found, key=badness):
        grouped[one.exporter][one.operator].append(one)
    return grouped


def rows(quick: bool) -> Iterator[Row]:
    done = study(quick)
    exports = f"{len(done.found)} exports"
    yield Row("core-seconds of verdicts, less where the store has models", f"{done.verdicts:.0f}", exports)
    yield Row("core-seconds of explanations", f"{done.explanations:.0f}", f"{done.explained} wrong cells")
    for exporter, operators in by_operator(done.found).items():
        first = [samples[0] for samples in operators.values()]
        counted = Counter(one.outcome for one in first)
        for outcome in OUTCOMES:
            yield Row(f"{exporter}: operators {outcome}", str(counted[outcome]), f"{len(operators)} operators")
        faults = Counter(one.fault or "nobody was asked" for one in first if one.outcome == "wrong")
        for fault, count in faults.most_common():
            yield Row(f"{exporter}: wrong, {fault}", str(count), f"{counted['wrong']} wrong operators")


TEXT = """# PyTorch's operators

Made by `tox run -e dev -- python -m evidence operators`. Each operator of `torch.op_db`, by two of the samples that
PyTorch tests it with, as cases that `evidence/operators` declares: sizes and values vary as far as PyTorch takes them
([samples](../case-reference.md#samples)). TorchScript exports at opset 17, dynamo at 20; ONNX Runtime computes in
float32. The worst of an operator's samples stands for it. *Wrong* are values, shapes or dtypes.
[All samples as data](operators.json); `conformance support MODULE` says which of them a model calls.

{table}

{lists}

{where}
"""


def write(where: str) -> None:
    """Write the page and the data; ``where`` says on what host and with which versions."""
    done = study(False)
    lists = []
    for exporter, operators in by_operator(done.found).items():
        lists.append(f"## {EXPORTERS[exporter]}: wrong\n\n{wrong_table(operators)}")
        for outcome in ("does not run", "not exported"):
            names = [f"`{name}`" for name, samples in operators.items() if samples[0].outcome == outcome]
            lists.append(f"## {EXPORTERS[exporter]}: {outcome}\n\n{', '.join(names) or 'None.'}")
    table = "\n".join((HEAD, *(row.line() for row in rows(False))))
    PAGE.write_text(TEXT.format(table=table, lists="\n\n".join(lists), where=where), encoding="utf-8")
    write_data(done.found, called_by_samples(sorted(FOLDER.glob("*.yaml"))), done.header)


def wrong_table(operators: Mapping[str, Sequence[OfSample]]) -> str:
    """Return the wrong operators by fault as a table, or a sentence where there is none."""
    wrong = [samples[0] for samples in operators.values() if samples[0].outcome == "wrong"]
    lines = [
        f"| {one.fault or 'nobody was asked'} | `{one.operator}` | {one.error} | {one.place or ''} "
        f"| {_short(one.ratio)} | {_short(one.ulp)} |"
        for one in sorted(wrong, key=lambda one: (one.fault or "~", one.operator))
    ]
    head = "| at fault | operator | error | first wrong | × tolerance | ULP |\n|---|---|---|---|---|---|"
    return "\n".join((head, *lines)) if lines else "None."


def _short(number: float | str | None) -> str:
    return "" if number is None else f"{float(number):.3g}"


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
            said = {name: getattr(one, name) for name in ("outcome", "error", "fault", "place", "ratio", "ulp")}
            data[one.operator, one.sample][one.exporter] = {
                name: value for name, value in said.items() if value is not None
            }
    return data
