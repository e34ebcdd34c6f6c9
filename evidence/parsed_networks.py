"""Evaluate the networks that TensorRT's parser makes of ONNX's own node tests, and compare with the recorded outputs.

A test that the parser refuses is tried again with its inputs of whole numbers as constants, then with all but the
first, then with all. Each runs in a process of its own, as the parser may end that.
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

from benchmarks.common import ROOT, Row, table
from conformance.process.errors import NoVerdict, attempt, summarize
from conformance.process.worker import aside
from conformance.runtimes.tensorrt.network.network_session import RenamedInput, open_network

PAGE = ROOT / "docs" / "evidence" / "parsed-networks.md"
SECONDS = 60.0
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


def outcome(test: NodeTest) -> tuple[str, str]:
    """Return what became of a test in one word, and what there is to say of it."""
    values = [*test.inputs.values(), *test.outputs]
    if not all(isinstance(value, np.ndarray | np.generic) for value in values):
        return "refused", "sequences"
    whole = [name for name, value in test.inputs.items() if np.asarray(value).dtype.kind in "iub"]
    word, said = "refused", ""
    for constants in ([], whole, [*test.inputs][1:], [*test.inputs]):
        word, said = _outcome(test, constants)
        if word != "refused":
            break
    return word, said


def _outcome(test: NodeTest, constants: Sequence[str]) -> tuple[str, str]:
    from onnx import numpy_helper, save

    model = type(test.model)()
    model.CopyFrom(test.model)
    for value in [one for one in model.graph.input if one.name in constants]:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(test.inputs[value.name]), value.name))
        model.graph.input.remove(value)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        save(model, file)
        got = attempt(functools.partial(_outputs, file, test.inputs))
    if isinstance(got, NoVerdict):
        words = {_REFUSED: "refused", _NOT_COVERED: "not covered"}
        return next((word for part, word in words.items() if part in str(got)), "failed"), str(got)
    if isinstance(got, RenamedInput):
        return "wrong", str(got)
    if isinstance(got, Exception):
        return "failed", summarize(got)
    return _compared(got, test.outputs)


def _outputs(file: Path, inputs: Mapping[str, Any]) -> list[Any]:
    with open_network(file, (), doubles=True) as session:
        return session.run({name: np.asarray(value) for name, value in inputs.items()})


def _compared(got: Sequence[Any], wanted: Sequence[Any]) -> tuple[str, str]:
    for one, right in zip(got, map(np.asarray, wanted), strict=True):
        if one.shape != right.shape:
            return "wrong", f"shape {one.shape} for {right.shape}"
        floats = right.dtype.kind == "f" or "float" in right.dtype.name
        share = {1: 0.3, 2: 2e-2}.get(right.dtype.itemsize, 1e-5) if floats else 0.0
        a, b = one.astype(np.float64), right.astype(np.float64)
        same = np.isclose(a, b, rtol=share, atol=share / 10, equal_nan=True)
        if not same.all():
            at = tuple(np.argwhere(~same)[0])
            return "wrong", f"{int((~same).sum())} of {same.size} values, as {a[at]:.6g} for {b[at]:.6g}"
    return "right", ""


def _asked(test: NodeTest) -> tuple[str, str]:
    answer = attempt(lambda: aside.ask(functools.partial(outcome, test), SECONDS))
    return ("failed", summarize(answer)) if isinstance(answer, Exception) else answer


@functools.cache
def study(quick: bool) -> dict[str, tuple[str, str]]:
    """Return what became of each test."""
    return {test.name: _asked(test) for test in node_tests(quick)}


def _reading(name: str) -> str:
    return next((text for pattern, text in READINGS.items() if re.search(pattern, name)), "not looked at")


def rows(quick: bool) -> Iterator[Row]:
    found = study(quick)
    counted = Counter(word for word, _ in found.values())
    parsed = sum(counted.values()) - counted["refused"]
    for word in _WORDS:
        about = f"{parsed} tests parsed" if word != "refused" else f"{len(found)} tests"
        few = word == "not covered"
        met = counted[word] <= parsed / 10 if few else None
        yield Row(f"ONNX's node tests: {word}", f"{counted[word]}", about,
                  **({"target": "at most 10 %", "met": met} if few else {}))  # fmt: skip


def write(where: str) -> None:
    """Write ``docs/evidence/parsed-networks.md``; ``where`` says on what host and with which versions."""
    found = study(False)
    told = {word: [(name, said) for name, (one, said) in found.items() if one == word] for word in _WORDS}
    lacking = Counter(said.partition(" (")[2].replace(")", "", 1) for _, said in told["not covered"])
    PAGE.write_text(
        TEXT.format(
            targets=table(rows(False)),
            wrong="\n".join(f"| {name} | {_cell(said)} | {_reading(name)} |" for name, said in told["wrong"]),
            lacking="\n".join(f"| {_cell(text)} | {count} |" for text, count in lacking.most_common()),
            where=where,
        ),
        encoding="utf-8",
    )  # fmt: skip


def _cell(text: str) -> str:
    return text.replace("|", "/")[:160]


TEXT = """# What TensorRT's parser makes of ONNX's own tests

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

{where}
"""
