"""Evaluate the networks that TensorRT's parser makes of ONNX's own node tests and of the shipped catalogue, and those
in which faults were planted.

The tests are compared with the recorded outputs. One that the parser refuses is tried again with its inputs of whole
numbers as constants, then with all but the first, then with all. Each runs in a process of its own, as the parser may
end that.
"""

from __future__ import annotations

import functools
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, Row, adopt_orphans, core_seconds, table
from conformance.process.errors import NoVerdict, attempt, summarize
from conformance.process.worker import aside
from conformance.results.records.words import base_of
from conformance.runtimes.tensorrt.network.looks import OtherOutputs, UnreadAttribute, UnreadInput, check_looks
from conformance.runtimes.tensorrt.network.network_session import RenamedInput, open_network
from evidence import parsed_jax
from evidence.changed_networks import Planted, is_found, planted
from evidence.counts import enough, none
from evidence.parsed_outputs import SECONDS, compared
from evidence.tensorrt_rtx import catalogue

PAGE = ROOT / "docs" / "evidence" / "parsed-networks.md"
KEPT = ROOT / "reports" / "parsed-networks"
"""The run of the catalogue, from which one that was cut off goes on."""
QUICK = KEPT.with_name("parsed-networks-quick")
_OWN = ("load", "run", "compare")
_REFUSED, _NOT_COVERED = "which the check parse is about", "not written down here"
_WORDS = ("right", "wrong", "not covered", "failed", "refused")

READINGS = {
    "attention_.*nonpad": "no layer reads `nonpad_kv_seqlen`",
    "attention_(bidirectional|local)_window": "the window of opset 28 is not read; the parser takes any opset",
    "averagepool_2d_ceil_last|maxpool_2d_ceil_output_size": "a window that begins in the padding is not left out",
    "(gru|lstm|simple_rnn)_batchwise": "`layout=1` is not read",
    "loop11": "an input of the model has the name that the loop's body gives it",
    "quantizelinear": "a zero point of uint8 gives int8, of which the parser warns",
    "selu_default": "the defaults are 1.6732 and 1.0507",
    "spacetodepth_crd": "`mode=CRD` of opset 28 is not read",
    "triu": "`upper`, which is 1 where it is left out, is taken for 0",
    "gridsample_bicubic|stft": "no mistake: recorded with four digits, or off by rounding in float32",
}
"""By a pattern of names of tests what was found on looking at those whose values differ."""


@dataclass(frozen=True)
class NodeTest:
    """A test of ONNX: its model and the first of its data sets."""

    name: str
    model: Any
    inputs: Mapping[str, Any]
    outputs: Sequence[Any]


def node_tests(quick: bool) -> list[NodeTest]:
    """Return ONNX's node tests; a few of them where it is to be quick."""
    from onnx import TensorProto, numpy_helper
    from onnx.backend.test.case.node import collect_testcases

    def array(value: Any) -> Any:
        return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = [test for test in collect_testcases(None) if test.model is not None and test.data_sets]
    found = []
    for test in every[:: 40 if quick else 1]:
        given, wanted = test.data_sets[0]
        names = [value.name for value in test.model.graph.input]
        inputs = dict(zip(names, map(array, given), strict=False))
        found.append(NodeTest(test.name, test.model, inputs, [*map(array, wanted)]))
    return found


Outcome = tuple[str, str, str]
"""The outcome of a test in one word, the text about it, and what the looks without values say."""


def outcome(test: NodeTest) -> Outcome:
    """Return what became of a test."""
    values = [*test.inputs.values(), *test.outputs]
    if not all(isinstance(value, np.ndarray | np.generic) for value in values):
        return "refused", "sequences", ""
    whole = [name for name, value in test.inputs.items() if np.asarray(value).dtype.kind in "iub"]
    found = "refused", "", ""
    for constants in ([], whole, [*test.inputs][1:], [*test.inputs]):
        found = _outcome(test, constants)
        if found[0] != "refused":
            break
    return found


def _outcome(test: NodeTest, constants: Sequence[str]) -> Outcome:
    from onnx import numpy_helper, save

    model = type(test.model)()
    model.CopyFrom(test.model)
    for value in [one for one in model.graph.input if one.name in constants]:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(test.inputs[value.name]), value.name))
        model.graph.input.remove(value)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        save(model, file)
        arrays = {name: np.asarray(value) for name, value in test.inputs.items()}
        got = attempt(functools.partial(_outputs, file, arrays))
        look = attempt(functools.partial(_look, file, arrays))
    seen = str(look) if isinstance(look, OtherOutputs | UnreadInput | UnreadAttribute) else ""
    if isinstance(got, NoVerdict):
        words = {_REFUSED: "refused", _NOT_COVERED: "not covered"}
        return next((word for part, word in words.items() if part in str(got)), "failed"), str(got), seen
    if isinstance(got, RenamedInput | OtherOutputs | UnreadInput | UnreadAttribute):
        return "wrong", str(got), seen
    if isinstance(got, Exception):
        return "failed", summarize(got), seen
    return *compared(got, test.outputs), seen


def _outputs(file: Path, inputs: Mapping[str, Any]) -> list[Any]:
    with open_network(file, (), doubles=True) as session:
        return session.run(inputs)


def _look(file: Path, inputs: Mapping[str, Any]) -> None:
    with open_network(file, (), doubles=True) as session:
        check_looks(session.network, file, (), inputs)


def _asked(test: NodeTest) -> Outcome:
    answer = attempt(lambda: aside.ask(functools.partial(outcome, test), SECONDS))
    return ("failed", summarize(answer), "") if isinstance(answer, Exception) else answer


@functools.cache
def study(quick: bool) -> dict[str, Outcome]:
    """Return what became of each test."""
    return {test.name: _asked(test) for test in node_tests(quick)}


def _reading(name: str) -> str:
    return next((text for pattern, text in READINGS.items() if re.search(pattern, name)), "not looked at")


def rows(quick: bool) -> Iterator[Row]:
    found = study(quick)
    counted = Counter(word for word, *_ in found.values())
    parsed = sum(counted.values()) - counted["refused"]
    for word in _WORDS:
        about = f"{parsed} tests parsed" if word != "refused" else f"{len(found)} tests"
        few = word == "not covered"
        met = counted[word] <= parsed / 10 if few else None
        yield Row(f"ONNX's node tests: {word}", f"{counted[word]}", about,
                  **({"target": "at most 10 %", "met": met} if few else {}))  # fmt: skip
    seen = [word for word, _, look in found.values() if look]
    yield Row("networks of them that the looks without values accuse", f"{len(seen)}", f"{parsed} tests parsed")
    yield none("of these, with the right values", seen.count("right"))
    faults = planted(quick)
    yield enough("planted faults that are found", sum(map(is_found, faults)), 57, f"of {len(faults)}")
    if not quick:  # which would install JAX
        yield from parsed_jax.rows()
    yield from _catalogue_rows(quick)


@functools.cache
def _records(quick: bool) -> list[dict[str, Any]]:
    return catalogue(("meaning",), "asinh" if quick else None, QUICK if quick else KEPT)[0]


@functools.cache
def _from_the_store(quick: bool) -> tuple[list[dict[str, Any]], float, float]:
    """Return the records of the catalogue of which the store has all, the seconds of that run, and its core-seconds:
    measured once, for the rows that are printed and those of the page."""
    _records(quick)
    return _timed(quick, None)


@functools.cache
def _from_verdicts(quick: bool) -> tuple[list[dict[str, Any]], float, float]:
    """Return the same of a run that takes the records which ``_records`` has left."""
    _records(quick)
    return _timed(quick, QUICK if quick else KEPT)


def _timed(quick: bool, kept: Path | None) -> tuple[list[dict[str, Any]], float, float]:
    adopt_orphans()
    before = core_seconds()
    records, seconds = catalogue(("meaning",), "asinh" if quick else None, kept)
    return records, seconds, core_seconds() - before


def _catalogue_rows(quick: bool) -> Iterator[Row]:
    records = _records(quick)
    for precision in ("fp32", "fp16", "int8"):
        for exporter in ("torchscript", "dynamo", "onnx"):
            of = [one for one in records if (one["exporter"], base_of(one["precision"])) == (exporter, precision)]
            counted = Counter(map(_became, of))
            told = ", ".join(f"{count} {word}" for word, count in counted.items())
            if told:
                yield Row(f"catalogue: {exporter}, {precision}", told)
    sound = [one for one in records if _became(one) in ("right", "accused")]
    wrongly = sum(_became(one) == "accused" for one in sound)
    yield none("sound models of the catalogue that are accused", wrongly, f"of {len(sound)}", len(sound))
    same, seconds, cores = _from_verdicts(quick)
    about = f"{sum(one['reused'] for one in same)} of {len(same)} verdicts taken over; {cores:.0f} core-seconds"
    yield Row("seconds of the whole run once more with `--reuse`: nothing has changed, and verdicts are taken over",
              f"{seconds:.0f} s", about, target="at most 30 s", met=seconds <= 30)  # fmt: skip
    again, seconds, cores = _from_the_store(quick)
    yield Row("without it: each verdict is reached again, from kept models, PyTorch's answers and networks' outputs",
              f"{seconds:.0f} s", f"{len(again)} cells; {cores:.0f} core-seconds")  # fmt: skip
    own = sum(one["seconds"].get(word, 0.0) for one in again for word in _OWN)
    yield Row("of these, in parsing, computing and comparing networks", f"{own:.0f} s", "summed over its processes")


def _became(record: Mapping[str, Any]) -> str:
    """Return what became of a model of the catalogue."""
    reason = str(record["reason"])
    if record["status"] == "skipped":
        parts = {_REFUSED: "refused", _NOT_COVERED: "not covered", "rounds to float32": "rounded"}
        return next((word for part, word in parts.items() if part in reason), "no verdict")
    if record["status"] == "xfailed":
        return "wrong" if record["stage"] in ("run", "compare") else "no model"
    wrong = any(one["outcome"] == "confirmed" for one in record["declared"])
    return "accused" if record["status"] != "passed" else "wrong" if wrong else "right"


def write(where: str) -> None:
    """Write ``docs/evidence/parsed-networks.md``; ``where`` says on what host and with which versions."""
    found = study(False)
    told = {word: [(name, said) for name, (one, said, _) in found.items() if one == word] for word in _WORDS}
    looks = [(name, look) for name, (_, _, look) in found.items() if look]
    wrong = Counter(
        (one["case"], _why(one)) for one in _records(False) if _became(one) == "wrong"
    )  # fmt: skip
    open_ = Counter(
        (_became(one), _cell(str(one["reason"]))) for one in _records(False) if one["status"] == "skipped"
    )
    lacking = Counter(said.partition(" (")[2].replace(")", "", 1) for _, said in told["not covered"])
    PAGE.write_text(
        TEXT.format(
            targets=table(rows(False)),
            wrong="\n".join(f"| {name} | {_cell(said)} | {_reading(name)} |" for name, said in told["wrong"]),
            lacking="\n".join(f"| {_cell(text)} | {count} |" for text, count in lacking.most_common()),
            looks="\n".join(f"| {name} | {_cell(look)} |" for name, look in looks),
            planted="\n".join(map(_fault, planted(False))),
            jax="\n".join(
                f"| {name} | {word} | {_cell(said)} |"
                for name, word, said in parsed_jax.by_jax()[1]
                if word != "right"
            ),
            catalogue="\n".join(f"| {case} | {why} | {count} |" for (case, why), count in sorted(wrong.items())),
            skipped="\n".join(f"| {word} | {why} | {count} |" for (word, why), count in sorted(open_.items())),
            where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip


def _fault(one: Planted) -> str:
    found = "yes" if is_found(one) else "no"
    return f"| `{_cell(one.model)}` | {one.kind}: {one.what} | {_cell(one.said)} | {found} |"


def _why(record: Mapping[str, Any]) -> str:
    """Return the case's own reason of a declared failure."""
    parts = [str(one["because"]) for one in record["declared"] if one.get("because")]
    return _cell(" ".join(parts) or str(record["reason"]))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:160]


TEXT = """# What TensorRT's parser makes of ONNX's own tests and of the catalogue

Made by `tox run -e dev -- python -m evidence parsed_networks`.

{targets}

The network that the parser of TensorRT for RTX made of each test is computed in NumPy and compared with the
recorded outputs ([the check `meaning`](../tensorrt.md#without-a-gpu)). No kernel of TensorRT ran.

## Wrong

| test | difference | reading |
|---|---|---|
{wrong}

## Not covered

| layer | tests |
|---|---|
{lacking}

## Looks without values

What the sizes and dtypes of outputs, and inputs that no layer reads, say of the same networks.

| test | said |
|---|---|
{looks}

## The shipped catalogue

Wrong, each declared in its case:

| case | why | models |
|---|---|---|
{catalogue}

Skipped:

| what | reason | models |
|---|---|---|
{skipped}

## By a third exporter

Small functions of JAX by jax2onnx, held against what JAX computes. *Unsound* is a model of which ONNX Runtime
computes something else, or nothing.

| function | became | said |
|---|---|---|
{jax}

## Planted faults

One layer of a network is changed by TensorRT's API.

| model | planted | said | found |
|---|---|---|---|
{planted}

{where}
"""
