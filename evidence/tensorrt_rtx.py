"""Count what TensorRT for RTX makes of the shipped catalogue, and whether planted faults are found at their nodes.

Every case that names TensorRT has its models parsed and built, in fp32, fp16 and int8, by both exporters; nothing is
run. Each plant is a model of which one node, known by its name, is what TensorRT does not take; the answer has to
name that node and the parser's own code.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Row, table
from conformance.process.disk.value_store import KeptValues
from conformance.results.records.words import base_of
from conformance.runtimes.registry import RTX
from conformance.runtimes.tensorrt.build_options import Build
from conformance.runtimes.tensorrt.rtx import USUAL, Job, RtxTrial, tried

PAGE = ROOT / "docs" / "evidence" / "tensorrt-rtx.md"


@dataclass(frozen=True)
class Plant:
    """A model with one fault, at the node or the input ``at``."""

    name: str
    graph: str
    """The graph in ONNX's textual form; nodes are named in brackets."""
    code: str
    """The code that the parser has for it (``ErrorCode``); ``BUILD`` where it is refused after parsing."""
    at: str = "bad"
    opset: int = 21
    shapes: Mapping[str, Sequence[tuple[int, ...]]] | None = None


def _elementwise(operator: str) -> Plant:
    graph = f"(float[2] x, float16[2] z) => (float[2] y) {{ [ok] a = Neg(x)  [bad] y = {operator}(a, z) }}"
    return Plant(f"{operator} of float32 and float16", graph, "INVALID_NODE")


def _unknown(operator: str, graph: str, code: str = "UNSUPPORTED_NODE") -> Plant:
    return Plant(f"{operator}, which has no importer", graph, code)


_X = "(float[2,2] x) => (float[2,2] y)"
_Q = "(float[2] x) => (float[2] y)"
_PROFILED = "(float[N,3] x) => (float[N,3] y) { [ok] y = Relu(x) }"

PLANTS = (
    Plant("a zero point of 1", f"{_Q} <float s = {{0.5}}, int8 o = {{1}}> "
          "{ [bad] q = QuantizeLinear(x, s, o)  [after] y = DequantizeLinear(q, s, o) }", "INVALID_NODE"),
    Plant("a zero point of uint8", f"{_Q} <float s = {{0.5}}, uint8 o = {{128}}> "
          "{ [bad] q = QuantizeLinear(x, s, o)  [after] y = DequantizeLinear(q, s, o) }", "INVALID_NODE"),
    Plant("a zero point of one channel", f"{_Q} <float[2] s = {{0.5, 0.5}}, int8[2] o = {{0, 3}}> "
          "{ [bad] q = QuantizeLinear<axis=0>(x, s, o)  [after] y = DequantizeLinear<axis=0>(q, s, o) }",
          "INVALID_NODE"),
    Plant("a zero point of weights", f"{_Q} <int8[2] w = {{1, 2}}, float s = {{0.5}}, int8 o = {{2}}> "
          "{ [bad] v = DequantizeLinear(w, s, o)  [ok] y = Mul(x, v) }", "INVALID_NODE"),
    *map(_elementwise, ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    Plant("MatMul of float32 and float16",
          "(float[2,2] x, float16[2,2] z) => (float[2,2] y) { [bad] y = MatMul(x, z) }", "INVALID_NODE"),
    Plant("Where of float32 and float16",
          "(bool[2] c, float[2] x, float16[2] z) => (float[2] y) { [bad] y = Where(c, x, z) }", "INVALID_NODE"),
    Plant("Concat of float32 and float16",
          "(float[2] x, float16[2] z) => (float[4] y) { [bad] y = Concat<axis=0>(x, z) }", "INVALID_NODE"),
    Plant("PRelu of float32 and float16",
          "(float[2] x, float16[2] z) => (float[2] y) { [bad] y = PRelu(x, z) }", "INVALID_NODE"),
    Plant("a custom operator", f"{_X} {{ [ok] a = Neg(x)  [bad] y = own.Foo(a) }}", "INVALID_NODE"),
    Plant("another custom operator",
          f"{_X} {{ [bad] y = com.acme.Gate <alpha = 0.5> (x) }}", "INVALID_NODE"),
    _unknown("Det", "(float[2,2] x) => (float y) { [bad] y = Det(x) }"),
    _unknown("Unique", "(float[4] x) => (float[N] y) { [bad] y = Unique(x) }"),
    _unknown("Compress", "(float[4] x, bool[4] c) => (float[N] y) { [bad] y = Compress(x, c) }"),
    _unknown("BitwiseAnd", "(int32[4] x, int32[4] z) => (int32[4] y) { [bad] y = BitwiseAnd(x, z) }"),
    _unknown("DynamicQuantizeLinear",
             "(float[4] x) => (uint8[4] y, float s, uint8 o) { [bad] y, s, o = DynamicQuantizeLinear(x) }"),
    _unknown("MatMulInteger", "(int8[2,2] x, int8[2,2] z) => (int32[2,2] y) { [bad] y = MatMulInteger(x, z) }"),
    _unknown("CenterCropPad",
             "(float[4,4] x) => (float[2,2] y) <int64[2] s = {2, 2}> { [bad] y = CenterCropPad(x, s) }"),
    _unknown("MaxUnpool", "(float[1,1,2,2] x, int64[1,1,2,2] i) => (float[1,1,4,4] y) "
             "{ [bad] y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(x, i) }"),
    Plant("int16", "(int16[4] bad) => (int16[4] y) { [ok] y = Abs(bad) }", "UNSUPPORTED_NODE"),
    Plant("uint16", "(uint16[4] bad) => (uint16[4] y) { [ok] y = Identity(bad) }", "UNSUPPORTED_NODE"),
    Plant("uint64", "(uint64[4] bad) => (uint64[4] y) { [ok] y = Identity(bad) }", "UNSUPPORTED_NODE"),
    Plant("MaxPool with two outputs", "(float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i) "
          "{ [bad] y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }", "UNSUPPORTED_NODE"),
    Plant("AveragePool with dilations", "(float[1,1,8,8] x) => (float[1,1,6,6] y) "
          "{ [bad] y = AveragePool<kernel_shape=[2,2], dilations=[2,2]>(x) }", "UNSUPPORTED_NODE"),
    Plant("LpPool of order 3", "(float[1,1,4,4] x) => (float[1,1,3,3] y) "
          "{ [bad] y = LpPool<kernel_shape=[2,2], p=3>(x) }", "UNSUPPORTED_NODE"),
    Plant("BatchNormalization in training", "(float[2,3] x) => (float[2,3] y) "
          "<float[3] s = {1,1,1}, float[3] b = {0,0,0}, float[3] m = {0,0,0}, float[3] v = {1,1,1}> "
          "{ [bad] y, rm, rv = BatchNormalization<training_mode=1>(x, s, b, m, v) }", "UNSUPPORTED_NODE"),
    Plant("ScatterElements that adds", "(float[4] x, int64[2] i, float[2] u) => (float[4] y) "
          '{ [bad] y = ScatterElements<reduction="add">(x, i, u) }', "UNSUPPORTED_NODE_ATTR"),
    Plant("ScatterND that adds", "(float[4] x, int64[2,1] i, float[2] u) => (float[4] y) "
          '{ [bad] y = ScatterND<reduction="add">(x, i, u) }', "UNSUPPORTED_NODE_ATTR"),
    Plant("Resize with antialiasing", "(float[1,1,8,8] x) => (float[1,1,4,4] y) <float[4] s = {1, 1, 0.5, 0.5}> "
          '{ [bad] y = Resize<antialias=1, mode="linear">(x, , s) }', "UNSUPPORTED_NODE_ATTR"),
    Plant("Resize of a kept aspect ratio", "(float[1,1,8,8] x) => (float[1,1,4,4] y) <int64[4] z = {1, 1, 4, 4}> "
          '{ [bad] y = Resize<keep_aspect_ratio_policy="not_larger">(x, , , z) }', "UNSUPPORTED_NODE_ATTR"),
    Plant("an unknown operator in a branch", "(float[2,2] x, bool c) => (float y) { [if] y = If(c) "
          "<then_branch = t () => (float p) { [ok] p = ReduceSum<keepdims=0>(x) }, "
          "else_branch = e () => (float q) { [bad] q = Det(x) }> }",
          "UNSUPPORTED_NODE"),
    Plant("types that do not fit in a branch", "(float[2] x, float16[2] z, bool c) => (float[2] y) { [if] y = If(c) "
          "<then_branch = t () => (float[2] p) { [ok] p = Neg(x) }, "
          "else_branch = e () => (float[2] q) { [bad] q = Add(x, z) }> }", "INVALID_NODE"),
    Plant("NonMaxSuppression, which has no kernel", "(float[1,6,4] b, float[1,1,6] s) => (int64[K,3] y) "
          "<int64 m = {3}, float i = {0.5}, float t = {0.0}> { [bad] y = NonMaxSuppression(b, s, m, i, t) }",
          "BUILD"),
    Plant("a profile out of order", _PROFILED, "BUILD", "x", shapes={"x": [(4, 3), (2, 3), (1, 3)]}),
    Plant("a profile with a negative size", _PROFILED, "BUILD", "x", shapes={"x": [(-1, 3), (2, 3), (4, 3)]}),
    Plant("a profile of sizes that the graph lacks", _PROFILED, "BUILD", "x", shapes={"x": [(1, 4), (2, 4), (4, 4)]}),
)  # fmt: skip


def model_of(plant: Plant) -> bytes:
    """Return the model of a plant."""
    from onnx import parser

    text = f'<ir_version: 10, opset_import: ["" : {plant.opset}, "own" : 1, "com.acme" : 1]> g {plant.graph}'
    data: bytes = parser.parse_model(text).SerializeToString()
    return data


def outcome(plant: Plant, folder: Path) -> RtxTrial:
    """Return what becomes of the model of a plant."""
    file = folder / "model.onnx"
    file.write_bytes(model_of(plant))
    shapes = {name: tuple(tuple(shape) for shape in three) for name, three in (plant.shapes or {}).items()}
    job = Job(Build(shapes), USUAL)  # type: ignore[arg-type]  # three shapes each
    return tried(file, "", job, KeptValues(None))


def is_found(plant: Plant, trial: RtxTrial) -> bool:
    """Return whether the answer names the plant's node or input, and the code of the parser."""
    word = re.compile(rf"\b{plant.at}\b")
    named = [one for one in trial.refusals if one.node == plant.at or (not one.node and word.search(one.text))]
    return any(one.code == plant.code for one in named)


def catalogue(
    checks: Sequence[str], named: str | None = None, kept: Path | None = None
) -> tuple[list[dict[str, Any]], float]:
    """Return the records of TensorRT for RTX in the cells of these checks of the shipped catalogue, or of those that
    are ``named`` so, and the seconds of that run. A run that was cut off goes on from what is ``kept``."""
    with tempfile.TemporaryDirectory(prefix="conformance-rtx-") as name:
        report = kept or Path(name)
        # by their tests, since workers import dynamo beforehand only where no -k is given
        chosen = [f"conformance/test_suite.py::test_{check}" for check in checks]
        chosen += ["--report", str(report), *(["-k", named] if named else [])]
        if (report / "records.jsonl").exists():
            chosen += ["--reuse", str(report)]
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "--runtime", RTX, "-q", *chosen]
        subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        lines = (report / "records.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        return [record for record in records if record.get("runtime") == RTX], seconds


def status(record: Mapping[str, Any]) -> str:
    """Return what became of a model in one word."""
    words = {"passed": "taken", "failed": "refused", "xfailed": "refused", "xpassed": "taken", "skipped": "lacks"}
    return words[record["status"]] if record["stage"] in (None, "load") else "no model"


@functools.cache
def study(quick: bool) -> tuple[list[dict[str, Any]], float, list[tuple[Plant, RtxTrial]]]:
    """Return the records of the catalogue, the seconds of that run, and what became of the plants."""
    records, seconds = catalogue(("parse", "build"), "asinh" if quick else None)
    with tempfile.TemporaryDirectory(prefix="conformance-rtx-") as name:
        return records, seconds, [(plant, outcome(plant, Path(name))) for plant in PLANTS]


def rows(quick: bool) -> Iterator[Row]:
    records, seconds, trials = study(quick)
    found = [plant for plant, trial in trials if is_found(plant, trial)]
    yield Row(
        "planted faults, refused at the node and by the code that was planted", f"{len(found)}",
        f"{len(PLANTS)} plants", target="at least 38", met=len(found) >= 38,
    )  # fmt: skip
    yield Row(
        "seconds of all cells, from the models in the store", f"{seconds:.0f} s", target="at most 300 s",
        met=seconds <= 300,
    )  # fmt: skip
    for check in ("parse", "build"):
        counted = Counter(
            (record["exporter"], base_of(record["precision"]), status(record))
            for record in records
            if record["check"] == check
        )
        for exporter, precision in sorted({key[:2] for key in counted}):
            numbers = {word: counted[exporter, precision, word] for word in _WORDS}
            told = ", ".join(f"{number} {word}" for word, number in numbers.items() if number)
            yield Row(f"{check}: {exporter}, {precision}", told)


def write(where: str) -> None:
    """Write ``docs/evidence/tensorrt-rtx.md``; ``where`` says on what host and with which versions."""
    records, _, trials = study(False)
    PAGE.write_text(
        TEXT.format(
            targets=table(rows(False)), target=USUAL,
            operators="\n".join(_by_operator(records)),
            plants="\n".join(f"| {one.name} | {_said(trial)} | {_found(one, trial)} |" for one, trial in trials),
            where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip


TEXT = """# TensorRT for RTX and the shipped catalogue

Made by `tox run -e dev -- python -m evidence tensorrt_rtx`.

{targets}

Nothing was run: a model is parsed, and built for {target}, on a host without a GPU. *Taken* says that. *Refused* is
a failure, declared in its case. *Lacks* is an operator for which TensorRT for RTX has no plugin or kernel. *No model*
is a declared failure before.

## By operator

Models of the catalogue that have the operator, as *built / all* of the check `build`.

| operator | fp32 | fp16 | int8 | refused for |
|---|---|---|---|---|
{operators}

## Planted faults

| planted | said of it | found |
|---|---|---|
{plants}

{where}
"""

_WORDS = ("taken", "refused", "lacks", "no model")


def _found(plant: Plant, trial: RtxTrial) -> str:
    return "yes" if is_found(plant, trial) else "no"


def _said(trial: RtxTrial) -> str:
    return textwrap.shorten(trial.reason or "taken", 200, placeholder=" …").replace("|", "/")


def _by_operator(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counted: Counter[tuple[str, str, bool]] = Counter()
    why: dict[str, set[str]] = {}
    for record in records:
        if record["check"] != "build" or status(record) == "no model" or not record.get("graph"):
            continue
        built = status(record) == "taken"
        for operator in record["graph"]["nodes"]:
            counted[operator, base_of(record["precision"]), built] += 1
        for refused in (record.get("compiled") or {}).get("refused", ()):
            why.setdefault(str(refused.get("operator")), set()).add(str(refused["text"]))
    for operator in sorted({key[0] for key in counted}):
        cells = []
        for precision in ("fp32", "fp16", "int8"):
            good, bad = counted[operator, precision, True], counted[operator, precision, False]
            cells.append(f"{good} / {good + bad}" if good + bad else "")
        yield f"| {operator} | {' | '.join(cells)} | {'; '.join(sorted(why.get(operator, ())))} |"
