"""Explanations that anybody may add: those of this package, and one of somebody else's."""

import os
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from conformance.diagnose import explanations as folder
from conformance.diagnose.explanations import denormals, explanations, threads
from conformance.explanations import Question
from conformance.results.records import text
from tests.kit.cases import say

TWICE = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {y = Add(x, x)}'


def question(place: Path, x: list[float], wanted: list[float], **config: str) -> Question:
    """The question about a model that adds its input to itself."""
    onnx.save(onnx.parser.parse_model(TWICE), place / "net.onnx")
    right = np.array(wanted, np.float32)
    return Question(
        "net", "torchscript", 17, "onnxruntime", "fp32", "compare", "WrongValue", "runtime", place / "net.onnx", (),
        config, {"x": np.array(x, np.float32)}, [right], lambda outputs: np.array_equal(outputs[0], right),
    )  # fmt: skip


FLUSH = {denormals.OPTION: "1"}


@pytest.mark.parametrize("wanted, config, told", [
    ([0.0, 2.0], {}, f"right where denormal numbers are flushed to zero ({denormals.OPTION}: 1)"),
    ([2e-39, 2.0], FLUSH, f"right where denormal numbers are kept ({denormals.OPTION}: 0)"),
    ([0.0, 3.0], {}, None),
])  # fmt: skip
def test_denormal_numbers_are_told_where_they_explain_all(tmp_path, wanted, config, told):
    assert denormals.explain(question(tmp_path, [1e-39, 1.0], wanted, **config)) == told


@pytest.mark.parametrize("wanted, told", [
    ([2.0, 4.0], "right with 4 threads, and wrong with one"), ([2.0, 5.0], None),
])  # fmt: skip
def test_several_threads_are_told_where_they_are_right(tmp_path, wanted, told):
    assert threads.explain(question(tmp_path, [1.0, 2.0], wanted)) == told


STRANGER = """
def explain(question):
    return f"{question.error} of {question.case} at opset {question.opset}"
def raises(question):
    raise KeyError("nothing of the kind")
"""
WRONG = """
    import torch
    class Wrong(torch.nn.Module):
        def forward(self, x):
            return x + 1 if torch.onnx.is_in_onnx_export() else x + 2
"""


def test_a_package_of_somebody_else_adds_one(bench, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text(STRANGER)
    about = tmp_path / "stranger-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{folder.GROUP}]\nown = stranger:explain\nbroken = stranger:raises\n")
    monkeypatch.syspath_prepend(tmp_path)
    record = bench.run(say("module: beside.Wrong", 'inputs: {x: "float32[n]"}', "dims: {n: 2..9}"), WRONG)
    said = text.failure(record)
    assert "WrongValue of planted at opset 17 (by the explanation own)" in said
    assert "the explanation broken raised KeyError" in said  # which keeps nobody from an answer
    assert len(record.explained) == 2  # denormals and threads explain nothing of it


def test_what_is_asked_apart_may_crash(tmp_path):
    asked = question(tmp_path, [1.0, 2.0], [2.0, 4.0])
    assert asked.run_apart(lambda: os.kill(os.getpid(), 9)) is None and asked.run_apart(lambda: 3) == 3
    assert not asked.is_right(None)


def test_each_file_of_the_folder_is_one():
    files = {file.stem for file in Path(folder.__file__).parent.glob("[a-z]*.py")}
    assert {"denormals", "threads"} <= files <= {name for name, _ in explanations()}
