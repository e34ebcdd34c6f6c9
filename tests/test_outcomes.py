"""What earlier runs found of declared failures: taken where all is as it was, and never in place of a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.checks import models
from conformance.disk.keeping import leave
from conformance.disk.values import KeptValues
from conformance.runtimes import onnxruntime
from conformance.worker import aside
from tests.support import PASSED, Bench, altered, say, verdict

SOUND = """
forward: torch.sin(x)
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..9}
export: {torchscript: [17]}
"""
DECLARED = "fails: [{stage: %s, because: it is planted}]"
WRONG = say(SOUND.replace("torch.sin(x)", "x / int(x.shape[0])"), DECLARED % "compare")
UNKNOWN = say(SOUND.replace("torch.sin(x)", "torch.asinh(x)"), DECLARED % "export")
LOSES = say(SOUND.replace("torch.sin(x)", "(x + 1000) - 1000"), "precisions: {fp16: {}}")
LOSES = say(LOSES, "fails: [{stage: compare, when: {precision: fp16}, because: it cancels}]")


@pytest.fixture(autouse=True)
def released():
    yield
    leave()


@pytest.fixture
def questions(monkeypatch):
    """What was asked in processes of their own, and exported."""
    asked: list[str] = []

    def spied(place: Any, name: str, what: str) -> None:
        original = getattr(place, name)

        def spy(*arguments: Any, **named: Any) -> Any:
            asked.append(what)
            return original(*arguments, **named)

        monkeypatch.setattr(place, name, spy)

    spied(aside, "ask", "witness")
    spied(models, "export", "export")
    return asked


class Again:
    """Runs a cell of a case again and again; in the process, nothing is known of earlier runs."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.folder = bench, bench.folder / "outcomes"

    def __call__(self, body: str, check: str = "accuracy", precision: str = "fp32", **settings: Any) -> Any:
        (cell,) = (
            cell
            for cell in self.bench.cells(body)
            if (cell.check, cell.precision) == (check, precision) and cell.runtime in (None, "onnxruntime")
        )
        return self.bench.run_cell(cell, **{"examples": 4, "outcomes": self.folder, **settings})

    def kept(self) -> list[Path]:
        return sorted(self.folder.glob("[!.]*"))


@pytest.fixture
def again(bench):
    return Again(bench)


def told(record: Any) -> dict[str, Any]:
    """All that a record says but for times, and for the folder, of which each run here has its own."""
    fields = record.as_dict()
    for name in ("seconds", "source"):
        del fields[name]
    return fields


@pytest.mark.parametrize(
    ("body", "check", "precision", "question"),
    [
        pytest.param(WRONG, "accuracy", "fp32", "witness", id="a wrong value"),
        pytest.param(LOSES, "fidelity", "fp16", "witness", id="a loss of precision"),
        pytest.param(UNKNOWN, "accuracy", "fp32", "export", id="an export"),
        pytest.param(UNKNOWN, "export", "fp32", "export", id="an export in its own check"),
    ],
)
def test_a_second_run_finds_no_cause_anew_and_says_the_same(again, questions, body, check, precision, question):
    first = again(body, check, precision)
    assert first.status == "xfailed", first.reason
    assert question in questions and again.kept()
    questions.clear()
    second = again(body, check, precision)
    assert question not in questions
    assert told(second) == told(first)


def test_a_graph_that_is_the_same_at_other_sizes_is_not_traced_again(again, questions):
    first = again(SOUND, "export")
    assert verdict(first) == PASSED and again.kept()
    questions.clear()
    assert told(again(SOUND, "export")) == told(first)
    assert not questions
    (file,) = again.kept()
    file.write_bytes(b"other")
    assert told(again(SOUND, "export")) == told(first)
    assert questions == ["export"]


def test_a_size_that_is_baked_in_is_found_in_every_run(again):
    body = SOUND.replace("torch.sin(x)", "x + sum(range(int(x.shape[0])))")
    for _ in range(2):
        assert again(body, "export").error == "ShapeBakedIn"
    assert again.kept() == []


@pytest.mark.parametrize(("body", "question"), [(WRONG, "witness"), (UNKNOWN, "export")])
def test_what_nobody_has_declared_is_explained_anew(again, questions, body, question):
    assert again(body).status == "xfailed"
    body = body.partition("fails:")[0]
    for _ in range(2):
        questions.clear()
        assert again(body).status == "failed"
        assert question in questions


def test_a_failure_that_has_gone_is_seen(again, monkeypatch):
    """The example is run and compared again, whatever is kept of its cause."""
    body = say(SOUND, DECLARED % "compare")
    sound = onnxruntime.open_optimized
    wrong = altered(sound, lambda inputs, outputs: [outputs[0] + np.float32(0.5)])
    monkeypatch.setattr(onnxruntime, "open_optimized", wrong)
    assert verdict(again(body)) == ("xfailed", "compare", "WrongValue", "runtime")
    assert again.kept()
    monkeypatch.setattr(onnxruntime, "open_optimized", sound)
    assert again(body).status == "xpassed"


def test_a_runtime_that_is_wrong_otherwise_is_explained_anew(again, questions, monkeypatch):
    body = say(SOUND, DECLARED % "compare")
    sound = onnxruntime.open_optimized
    for error in (0.5, 0.25):
        wrong = altered(sound, lambda inputs, outputs, error=error: [outputs[0] + np.float32(error)])
        monkeypatch.setattr(onnxruntime, "open_optimized", wrong)
        questions.clear()
        assert again(body).status == "xfailed"
        assert "witness" in questions


@pytest.mark.parametrize("settings", [{"instructions": frozenset({"avx2"})}, {"examples": 2, "random": 7}])
def test_on_another_processor_and_for_other_draws_causes_are_found_anew(again, questions, settings):
    again(WRONG)
    questions.clear()
    again(WRONG, **settings)
    assert "witness" in questions


def test_another_case_is_explained_anew(again, questions):
    again(WRONG)
    questions.clear()
    again(WRONG.replace("1..9", "1..8"))
    assert "witness" in questions


@pytest.mark.parametrize("body", [WRONG, UNKNOWN])
def test_a_damaged_file_says_nothing(again, questions, body):
    first = again(body)
    (file,) = again.kept()
    data = file.read_bytes()
    for spoilt in (b"", data[:70], data.replace(b"exporter", b"runtime_"), b"null", file.name.encode()):
        file.write_bytes(spoilt)
        questions.clear()
        assert told(again(body)) == told(first)
        assert questions
        assert file.read_bytes() == data, "the file was mended"


def test_a_witness_that_was_lost_is_asked_again(again, monkeypatch):
    def lost(*_: Any, **__: Any) -> Any:
        raise aside.Lost("SIGKILL")

    with monkeypatch.context() as patched:
        patched.setattr(aside, "ask", lost)
        record = again(WRONG)
    assert "lost" in {witness["answer"] for witness in record.witnesses}
    assert again.kept() == []
    assert "lost" not in {witness["answer"] for witness in again(WRONG).witnesses}


def test_a_folder_that_cannot_be_written_harms_nothing(again):
    again.folder.write_text("no folder", encoding="utf-8")
    assert again(WRONG).status == "xfailed"
    assert again(UNKNOWN).status == "xfailed"


def test_no_flipped_bit_gives_another_value(tmp_path):
    values = KeptValues(tmp_path)
    value = {"loss": {"export": float("-inf")}, "witnesses": [{"runtime": "openvino"}], "fault": None}
    values.put("key", value)
    assert values.get("key") == value
    data = (tmp_path / "key").read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "key").write_bytes(flipped)
        assert values.get("key") is None, bit
    (tmp_path / "other").write_bytes(data)
    assert values.get("other") is None, "that of another key"


def test_what_is_no_plain_value_is_not_kept(tmp_path):
    values = KeptValues(tmp_path)
    values.put("key", {"array": np.zeros(2)})
    assert values.get("key") is None
    assert not [file for file in tmp_path.iterdir() if file.name != ".lock"]
