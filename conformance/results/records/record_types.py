"""The types of what a run file holds; ``docs/records.md`` says what the fields of a record mean.

A run is validated against them where it is read. Keys that are not ``Required`` are missing where they do not matter,
and in runs of earlier versions.
"""
# ruff: noqa: UP013 (a key of several is a Python keyword, and a table is easier to take in than classes are)

from __future__ import annotations

from typing import Annotated

from typing_extensions import Required, TypedDict

from conformance.results.records.validation import Measure, Misfit, Scalar, Trusted

Text = str | None
Texts = list[str]
Count = int | None
Number = float | None

Place = TypedDict("Place", {"file": Text, "line": Count, "own": bool}, total=False)
Declared = TypedDict("Declared", {
    "outcome": Required[str], "dims": dict[str, object], "place": Trusted, "stage": Trusted, "error": Trusted,
    "at": Scalar, "because": Scalar, "line": Scalar,
}, total=False)  # fmt: skip
Answered = TypedDict("Answered", {
    "runtime": Required[str], "answer": Required[str], "config": dict[str, str] | None, "error": Text, "reason": Text,
    "model": Text,
}, total=False)  # fmt: skip
Node = TypedDict("Node", {
    "operator": Required[str], "how": Required[str], "node": Text, "line": Text, "by": Text, "why": Text,
}, total=False)  # fmt: skip
Optimizer = TypedDict("Optimizer", {
    "of": Required[str], "passes": Required[Texts], "level": Text, "changed": Count, "more": Count, "alone": bool,
    "together": bool, "unfinished": bool, "helpers": Texts, "removed": Texts, "added": Texts,
}, total=False)  # fmt: skip
Parting = TypedDict("Parting", {
    "operator": Text, "line": Text, "file": Text, "source": Text, "module": Text, "within": Text, "stage": Text,
    "how": Text, "node": Text, "type": Text, "tensor": Text, "dtype": Text, "rules": Text, "unable": Text,
    "detail": Text, "inside": Text, "change": Text, "breaks": Text, "place": Text, "lacks": Text,
    "untied": Texts, "passes": Texts, "among": Texts, "others": Texts, "other_inputs": bool, "index": list[int],
    "differ": tuple[int, int], "call": tuple[int, int], "arguments": list[Scalar],
}, total=False)  # fmt: skip


class OperatorFields(Parting, total=False):
    second: Parting | None


Smallest = TypedDict("Smallest", {
    "seconds": Number, "unfinished": bool, "operators": Texts, "passes": Texts, "own_code": Texts, "differs": Texts,
    "nodes": Count, "calls": Count, "of": Count, "tried": Count, "bundle": Text, "repro": Text, "issue": Text,
    "why_not": Text, "detail": Text, "as": Text,
}, total=False)  # fmt: skip
LeftOut = TypedDict("LeftOut", {"examples": int, "seconds": float})
Explained = TypedDict("Explained", {"by": Required[str], "text": Text, "error": Text}, total=False)
Warned = TypedDict("Warned", {"name": Required[str], "agree": Texts, "error": Text, "text": Text}, total=False)
LookedUp = TypedDict("LookedUp", {"in": object, "got": Scalar, "wanted": Scalar}, total=False)
Worst = TypedDict("Worst", {
    "ratio": Required[Measure], "looked_up": LookedUp | None, "index": list[Scalar] | None,
    "rounding": Measure | None, "dims": dict[str, object] | None, "output": Scalar, "got": Scalar, "wanted": Scalar,
    "error": Scalar, "differ": tuple[int, int] | None,
}, total=False)  # fmt: skip
Drawn = TypedDict("Drawn", {
    "dims": Required[dict[str, Trusted]], "regime": Required[str], "seed": Required[Trusted], "index": Trusted,
    "flags": Text,
}, total=False)  # fmt: skip
Graph = TypedDict("Graph", {"opset": Count, "nodes": dict[str, int] | None, "sha": Text, "bytes": Count}, total=False)
Cause = TypedDict("Cause", {
    "name": Required[str], "lacks": Required[Texts], "shown_by": Required[dict[str, Trusted]], "costs": Measure,
}, total=False)  # fmt: skip
Changed = TypedDict("Changed", {
    "what": Required[str], "kind": Required[str], "when": Required[str], "outcome": Required[str], "before": str,
    "after": str,
}, total=False)  # fmt: skip
After = TypedDict("After", {
    "cells": Required[int], "cases": Required[Texts], "others": Required[int],
    "changed": Required[dict[str, list[str]]], "alone": Text, "stage": Text, "error": Text,
}, total=False)  # fmt: skip
Depends = TypedDict("Depends", {
    "files": dict[str, str], "folders": dict[str, str], "modules": dict[str, str], "packages": dict[str, str],
    "lowerings": dict[str, str], "variables": dict[str, str], "host": dict[str, str],
    "parts": dict[str, dict[str, str]], "missing": Texts, "fleeting": Texts, "says": str, "conditions": str,
}, total=False)  # fmt: skip
Size = TypedDict("Size", {
    "dims": Required[dict[str, object]], "verified": Required[int], "ill_conditioned": Required[int],
    "worst": Measure | None,
}, total=False)  # fmt: skip
Conditioning = TypedDict("Conditioning", {
    "sizes": Required[list[Size]], "float64": Scalar, "own": Measure | None,
}, total=False)  # fmt: skip
Fact = TypedDict("Fact", {"name": Required[str], "value": Scalar}, total=False)
Vacuous = TypedDict("Vacuous", {"output": Required[int], "passes": Required[Texts], "fact": Fact | None}, total=False)
Blind = TypedDict("Blind", {"module": Required[str], "op": Required[str], "at": Text, "count": int}, total=False)
Hidden = TypedDict("Hidden", {"module": Required[str], "tensor": Text, "why": Text}, total=False)
Coverage = TypedDict("Coverage", {
    "seen": Required[int], "of": Required[int], "blind": Required[list[Blind]], "beyond": list[Blind],
    "hidden": list[Hidden], "calls": int, "places": int, "unknown": Text, "why": Text,
}, total=False)  # fmt: skip
Remedy = TypedDict("Remedy", {
    "kind": Required[str], "parameters": Texts | None, "yaml": Text, "python": Text, "file": Text, "lacks": Text,
}, total=False)  # fmt: skip
NoisyRows = TypedDict("NoisyRows", {
    "axis": Required[int], "first": Required[int], "last": Required[int], "sqnr": Measure, "dims": dict[str, object],
}, total=False)  # fmt: skip
Apart = TypedDict("Apart", {
    "count": Required[int], "of": Required[int], "index": list[int], "dims": dict[str, object],
}, total=False)  # fmt: skip
Fidelity = TypedDict(
    "Fidelity",
    {
        "output": Count,
        "sqnr": Measure | None,
        "cosine": Measure | None,
        "magnitude": Measure | None,
        "bias": Number,
        "channel": Count,
        "channel_sqnr": Measure,
        "rows": NoisyRows,
        "apart": Apart,
        "changed": Number,
    },
    total=False,
)
Flipped = TypedDict("Flipped", {"sample": Required[int], "before": Measure, "after": Measure}, total=False)
Scored = TypedDict("Scored", {
    "of": Required[str], "before": Measure, "after": Measure, "drop": Measure, "interval": tuple[float, float],
    "allowed": Measure, "samples": int, "changed": int, "flipped": list[Flipped],
}, total=False)  # fmt: skip
Vanished = TypedDict("Vanished", {"was": Scalar, "constant": Text, "node": Text, "operator": Text}, total=False)
Beyond = TypedDict("Beyond", {
    "regime": Required[str], "output": Count, "of": list[Scalar] | None, "vanished": Vanished | None, "node": Text,
    "operator": Text, "gives": Text,
}, total=False)  # fmt: skip
Refused = TypedDict("Refused", {
    "code": Required[str], "text": Required[str], "function": Text, "operator": Text, "node": Text, "inside": Texts,
    "line": Text, "lacks": bool,
}, total=False)  # fmt: skip
Compiled = TypedDict("Compiled", {
    "by": Required[str], "parsed": Required[bool], "targets": Texts, "refused": list[Refused], "taken": Texts,
    "commands": Texts,
}, total=False)  # fmt: skip
Budget = TypedDict("Budget", {
    "text": str, "verdict": str, "ratio": Number, "seconds": Number, "percentile": Number, "low": Number,
    "high": Number, "limit": Number, "confidence": Number, "floor": Number,
}, total=False)  # fmt: skip
Side = TypedDict("Side", {
    "name": Text, "median": Number, "interval": tuple[float, float] | None, "samples": list[float] | None,
}, total=False)  # fmt: skip
Latency = TypedDict("Latency", {
    "budgets": list[Budget] | None, "own": Side | None, "other": Side | None,
}, total=False)  # fmt: skip
Processor = TypedDict("Processor", {"name": Text, "instructions": Texts | None}, total=False)
Worker = TypedDict("Worker", {"name": Required[str], "host": Required[str], "cpu": Processor | None}, total=False)

# ---- beside the records --------------------------------------------------------------------------------------

LONGEST_ID = 20_000
"""Characters of an id, which is taken apart by a regular expression."""


def _length(value: str) -> None:
    if not 0 < len(value) <= LONGEST_ID:
        raise Misfit(f"has {len(value)} characters, not 1 to {LONGEST_ID}")


Id = Annotated[str, _length]

Environment = TypedDict("Environment", {
    "conformance": Text, "code": Text, "python": Text, "platform": Text, "cores": Count,
    "cpu": Processor | str | None, "gpu": Processor | str | None, "versions": dict[str, str | None] | None,
    "flags": Texts | None, "workers": dict[str, str] | None,
}, total=False)  # fmt: skip
Part = TypedDict("Part", {"flags": Required[Texts]}, total=False)
Shard = TypedDict("Shard", {
    "count": Required[int], "cells": Required[int], "cut": Required[str], "files": str,
}, total=False)  # fmt: skip
Process = TypedDict("Process", {"pid": int, "host": str, "command": str}, total=False)
Header = TypedDict("Header", {
    "schema": Scalar, "baseline": Scalar, "started": Text, "seconds": float, "environment": Environment | None,
    "unfinished": Texts | None,
    "shards": list[Part] | None, "shard": Shard | None, "process": Process, "conditions": dict[str, str] | None,
}, total=False)  # fmt: skip
Change = TypedDict("Change", {
    "id": Required[Id], "kind": Required[str], "regression": bool, "accepted": bool, "text": Text,
    "source": Place | None,
}, total=False)  # fmt: skip
