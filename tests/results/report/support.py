"""Records of every kind, also with hostile text in every field, and what a page holds of them."""

import json
import re
from typing import Any

from conformance.results.baseline.change import Change
from conformance.results.records.record import Record, cell_id, cell_label
from conformance.results.records.record_types import Header

HEADER: Header = {
    "schema": 1,
    "started": "2026-01-02T03:04:05+00:00",
    "environment": {"python": "3.11", "versions": {"torch": "2.9", "tensorrt": None}, "flags": ["conformance", "-q"]},
    "seconds": 12.5,
}
KILLED: Header = {**HEADER}
del KILLED["seconds"]

HOSTILE = {
    "script": "<script>alert(1)</script>", "attribute": '"><img src=x onerror=alert(1)>',
    "end of script": "</script><script>alert(1)</script>", "comment": "<!--<script>",
    "template": "{{7*7}}{% if 1 %}", "terminal": "\x1b[31mred\x1b]0;title\x07",
    "reordered": "user\u202eexe.cod\u2066", "null": "a\x00b", "surrogate": "half \ud800 of a pair",
    "separators": "one\u2028two\u2029three", "long": "x" * 10_000, "table": "a | b \\| c",
    "fences": "`one` ``two`` ```three``` `",
    "markdown": "[link](https://example.org) **bold** @octocat #1 https://example.org <b>",
    "lines": "first\r\n::error::second\n- third", "prototype": "__proto__", "constructor": "constructor",
}  # fmt: skip
"""What text of a record may contain."""


def record(case: str = "asinh", **values: Any) -> Record:
    """A record; of the accuracy of ONNX Runtime where nothing else is said."""
    which = {"exporter": "dynamo", "opset": 20, "runtime": "onnxruntime", "precision": "fp32", "check": "accuracy"}
    which |= {name: values.pop(name) for name in list(which) if name in values}
    label = cell_label(case, which["exporter"], which["opset"], which["runtime"], which["precision"])
    found = {
        "id": cell_id(which["check"], label), "case": case, "source": {"file": f"cases/{case}.yaml", "line": 7},
        "examples": 24, "command": f"pytest conformance -k '{label}'", "seconds": {"export": 0.5, "run": 0.25},
        **which,
    }  # fmt: skip
    return Record.from_dict(found | values)


def failed(case: str = "asinh", **values: Any) -> Record:
    given = {
        "status": "failed", "stage": "compare", "error": "WrongValue",
        "reason": "3 of 24 elements of output 0 differ", "fault": "runtime",
        "witnesses": [{"runtime": "onnx-reference", "answer": "agrees"}],
        "worst": {"output": 0, "index": [1, 2], "got": 0.5, "wanted": 0.25, "error": 0.25, "ratio": 125000.0,
                  "dims": {"batch": 2}},
        "draw": {"dims": {"batch": 2}, "regime": "offset", "seed": 5, "index": 3},
    }  # fmt: skip
    return record(case, **(given | values))


def hostile(poison: str, **values: Any) -> Record:
    """A record with the same text in every place that holds text from outside; unique by its id."""
    places = {"place": poison, "stage": poison, "error": poison, "at": poison, "because": poison, "line": poison}
    return Record.from_dict({
        "id": f"accuracy[{poison}]", "case": poison, "exporter": poison, "opset": 20, "runtime": poison,
        "precision": poison, "check": poison, "source": {"file": poison, "line": 7}, "status": "failed",
        "stage": poison, "error": poison, "reason": poison, "fault": poison,
        "worst": {"output": poison, "index": [poison], "got": poison, "wanted": poison, "error": poison,
                  "ratio": 3.5, "dims": {poison: poison}},
        "draw": {"dims": {poison: poison}, "regime": poison, "seed": poison, "index": 0},
        "signal": poison, "graph": {"opset": 20, "nodes": {poison: 2}, "sha": poison},
        "arithmetic": {poison: poison}, "fidelity": {"output": poison, "sqnr": poison},
        # a dot in the path of a submodule is a level of the tree
        "coverage": {"seen": 0, "of": 1, "blind": [
            {"module": poison.replace(".", ""), "at": poison, "op": poison, "count": 1}],
            "hidden": [{"module": poison, "tensor": poison, "why": poison}]},
        "conversion": {poison: [poison]}, "loss": {poison: poison}, "engine": {poison: {poison: poison}},
        "latency": {"runtime": poison, "at": {poison: poison}, "unit": poison,
                    "budgets": [{"text": f"1.2 x {poison}", "verdict": poison, "ratio": 1.0, "low": 0.9, "high": 1.1,
                                 "limit": 1.2}],
                    "own": {"median": 0.1, "samples": [0.1, 0.2], "rounds": poison},
                    "other": {"median": 0.2, "samples": [0.1, 0.3], "rounds": poison},
                    "throughput": [{"batch": poison, "per_second": poison}]},
        "observed": poison, "conclusion": poison, "no_bundle": poison, "own_code": [poison],
        "inputs": {poison: poison}, "findings": [poison, poison], "hints": [poison],
        "output": [poison], "traceback": [poison],
        "declared": [{"outcome": outcome, **places} for outcome in ("otherwise", "confirmed", "another")],
        "witnesses": [{"runtime": poison, "answer": poison},
            {"runtime": poison, "answer": poison, "config": {poison: poison}},
            {"runtime": poison, "answer": "stops", "error": poison},
            {"runtime": poison, "answer": "abstains", "reason": poison}],
        "histogram": {"edges": [-1, 0, 1], "counts": [1, 2]}, "seconds": {poison: 1.0}, "command": poison,
        "bundle": poison, "bundle_libraries": [poison], "fingerprint": poison, "reused": False,
        "worker": {"name": poison, "host": poison, "cpu": {"name": poison, "instructions": [poison]}},
    } | values)  # fmt: skip


def hostile_header(poison: str) -> dict[str, Any]:
    environment = {poison: poison, "versions": {poison: poison}, "flags": [poison], "cpu": {poison: [poison]}}
    return {"schema": 1, "started": poison, "seconds": 1.0, "environment": environment}


def change(id: str, kind: str, regression: bool = True, accepted: bool = False, **more: Any) -> Change:
    """What differs between a run and the baseline."""
    return Change(id, kind, regression, accepted=accepted, **{"text": "x", **more})


def hostile_change(poison: str, **more: Any) -> Change:
    return change(f"accuracy[{poison}]", poison, text=poison, before=poison, after=poison, **more)


def data_of(page_text: str) -> Any:
    """What the script reads: the content of the data element, as a browser sees it."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page_text, re.DOTALL)
    return json.loads(found)


def cells_of(column: dict[str, list[Any]]) -> list[Any]:
    return [column["values"][row] for row in column["rows"]] if "rows" in column else column["values"]


def mixed() -> list[Record]:
    """Every sign of the matrix, and a runtime that was not run."""
    export = {"check": "export", "runtime": None}
    return [
        record("a", **export), record("a"), record("a", check="specials", status="failed"),
        record("b", **export, status="failed"), record("b", status="skipped", reason="no model"),
        record("c", status="xpassed"), record("c", check="specials", status="xfailed"),
        record("d", check="specials", status="xfailed"), record("d"), record("d", opset=18, status="xfailed"),
        record("e", precision="int8", check="fidelity", runtime=None, status="xfailed"),
        record("e", precision="int8"), record("e", precision="int8", runtime="onnx-reference"),
        record("f", precision="fp16", check="fidelity", runtime=None),
        record("a", runtime="tensorrt", status="skipped", reason="tensorrt is not installed"),
        record("b", exporter="torchscript", opset=9), record("b", check="registration", runtime=None, opset=9),
    ]  # fmt: skip
