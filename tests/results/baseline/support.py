"""Runs and baselines of a few cells, of which a test changes what it is about."""

import copy
from pathlib import Path
from typing import Any

from conformance.results.baseline.baseline_file import BaselineEntry, head, write
from conformance.results.baseline.change import Limits
from conformance.results.baseline.line import compact, dump, fields_of
from conformance.results.baseline.run_comparison import compare_runs
from conformance.results.records.record import Record
from conformance.results.records.run_file import RunWriter

HEADER: dict[str, Any] = {
    "schema": 1, "started": "2026-11-01T10:00:00+00:00", "seconds": 12.5,
    "environment": {"conformance": "0.1.0", "python": "3.11.7", "platform": "Linux",
        "cpu": {"name": "A", "instructions": ["avx2", "avx512f"]}, "cores": 2, "gpu": None,
        "versions": {"torch": "2.15.0", "onnx": "1.23.2", "tensorrt": None}, "flags": ["conformance"]},
}  # fmt: skip
GRAPH = {"opset": 17, "nodes": {"Asinh": 1, "Cast": 2, "Constant": 3}, "sha": "aa"}


def record(name: str = "accuracy[one-dynamo-op20-onnxruntime-fp32]", **more: Any) -> Record:
    """A cell that passed, with the given fields changed."""
    fields = fields_of(name)
    source = {"file": f"cases/{fields['case']}.yaml", "line": 3}
    worst = {"output": 0, "index": [0], "got": 1.0, "wanted": 1.0, "error": 1e-7, "ratio": 0.2, "dims": {}}
    seconds = {"declare": 0.1, "run": 0.4}
    base = {"id": name, "source": source, "examples": 48, "worst": worst, "seconds": seconds, **fields}
    return Record.from_dict({**base, **more})


FAILED = {"status": "failed", "stage": "compare", "error": "WrongValue", "reason": "output 0", "fault": "runtime"}
CRASHED = {"status": "failed", "stage": "run", "error": "Crash", "reason": "SIGSEGV", "fault": "runtime"}
XFAILED = {"status": "xfailed", "stage": "export", "error": "Unsupported", "reason": "because", "fault": "exporter"}
XPASSED = {"status": "xpassed", "reason": "it works, but", "fault": "case"}
SKIPPED = {"status": "skipped", "stage": "load", "reason": "no GPU"}


def run(*records: Record, **header: Any) -> tuple[Any, list[Record]]:
    return {**copy.deepcopy(HEADER), **header}, list(records)


def environment(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(HEADER["environment"]), **changes}


def worst(ratio: Any) -> dict[str, Any]:
    return {"worst": {"output": 0, "ratio": ratio}}


def latency(median: float, low: float, high: float) -> dict[str, Any]:
    return {"latency": {"own": {"median": median, "interval": [low, high]}}}


def kinds(before: Any, after: Any, **how: Any) -> list[str]:
    return [change.kind for change in compare_runs(before, after, limits=Limits(**how))]


def of_one(before: dict[str, Any], after: dict[str, Any], **how: Any) -> Any:
    """The only change from one record to another."""
    (change,) = compare_runs(run(record(**before)), run(record(**after)), limits=Limits(**how))
    return change


def beside(own: float, other: float, name: str = "pytorch fp32") -> dict[str, Any]:
    samples = [own * factor for factor in (0.95, 0.98, 1, 1.02, 1.05) for _ in range(10)]
    return {
        "latency": {
            "own": {"median": own, "samples": samples},
            "other": {"name": name, "median": other, "samples": []},
        }
    }


def write_baseline(file: Path, header: Any, records: Any) -> None:
    """Write a whole baseline, in which nothing is accepted."""
    lines = [compact(one) for one in records]
    write(file, dump(head(header)), [BaselineEntry(line, dump(line)) for line in lines])


def written(folder: Path, *records: Record) -> Path:
    file = folder / "reports" / "baseline.jsonl"
    write_baseline(file, HEADER, records)
    return file


def cells(count: int = 4) -> list[Record]:
    """Two cells of each case, in an order that is not that of their ids."""
    names = [f"{check}[case{n}-dynamo-op20{of}]" for n in range(count) for check, of in
             (("export", ""), ("accuracy", "-onnxruntime-fp32"))]  # fmt: skip
    return [record(name, graph=GRAPH) for name in reversed(names)]


def put(folder: Path, records: Any, finished: bool = True, **header: Any) -> Path:
    head = {key: value for key, value in {**HEADER, **header}.items() if key not in ("schema", "seconds")}
    writer = RunWriter(folder, head)
    for one in records:
        writer.add(one.as_dict())
    writer.close(3.0 if finished else None)
    return folder


def flags(*more: str) -> dict[str, Any]:
    return {"environment": environment(flags=["conformance", *more])}
