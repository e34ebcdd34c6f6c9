"""Explanations of declared failures kept by earlier runs: used where nothing has changed, never as a measurement."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.diagnose import remembered
from conformance.models import cell_run as models
from conformance.process.disk.stores import leave
from conformance.process.disk.value_store import KeptValues
from conformance.process.worker import aside
from conformance.results.records.record import Record
from tests.kit.calls import count_calls
from tests.kit.cases import PASSED, Bench, case_of, say, verdict
from tests.kit.runtimes import wrong_runtime

SOUND = case_of("torch.sin(x)", "export: {torchscript: [17]}")
DECLARED = "fails: [{stage: %s, because: it is planted}]"
WRONG = say(SOUND.replace("torch.sin(x)", "x / int(x.shape[0])"), DECLARED % "compare")
UNKNOWN = say(SOUND.replace("torch.sin(x)", "torch.asinh(x)"), DECLARED % "export")
LOSES = say(SOUND.replace("torch.sin(x)", "(x + 1000) - 1000"), "precisions: {fp16: {}}")
LOSES = say(LOSES, "fails: [{stage: compare, when: {precision: fp16}, because: it cancels}]")


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    leave()


class Again:
    """Runs a cell of a case again and again; in the process, nothing is known of earlier runs."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.folder = bench, bench.folder / "outcomes"
        self.asked: set[str] = set()
        """What the latest run asked: ``witness`` in a process of its own, ``export`` of an exporter."""

    def __call__(self, body: str, check: str = "accuracy", precision: str = "fp32", **settings: Any) -> Record:
        questions = {"ask": "witness", "export": "export"}
        with count_calls(aside.ask, models.export) as calls:
            record = self.bench.run(
                body, check=check, precision=precision, **{"examples": 4, "outcomes": self.folder, **settings}
            )
        self.asked = {questions[name] for name in calls}
        return record

    def kept(self) -> list[Path]:
        return sorted(self.folder.glob("[!.]*"))


@pytest.fixture
def again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Again:
    monkeypatch.setattr(remembered, "CERTAIN", float("inf"))  # or a busy machine decides what is kept
    return Again(bench)


def told(record: Any) -> dict[str, Any]:
    """All that a record says but for times, and for the folder, of which each run here has its own."""
    fields = record.as_dict()
    for name in ("seconds", "source"):
        del fields[name]
    return fields


@pytest.mark.parametrize("body, check, precision, question", [
    pytest.param(WRONG, "accuracy", "fp32", "witness", id="a wrong value"),
    pytest.param(LOSES, "fidelity", "fp16", "witness", id="a loss of precision"),
    pytest.param(UNKNOWN, "accuracy", "fp32", "export", id="an export"),
    pytest.param(UNKNOWN, "export", "fp32", "export", id="an export in its own check"),
])  # fmt: skip
def test_a_second_run_uses_the_explanation_of_the_first_and_says_the_same(again, body, check, precision, question):
    first = again(body, check, precision)
    assert first.status == "xfailed", first.reason
    assert question in again.asked and again.kept()
    second = again(body, check, precision)
    assert question not in again.asked
    assert told(second) == told(first)


def test_of_a_failure_that_is_declared_with_its_fault_nobody_is_asked_unless_all_is_to_be_explained(again):
    body = WRONG.replace("because:", "fault: exporter, because:")
    asked = again(body)
    assert (verdict(asked), "witness" in again.asked) == (("xfailed", "compare", "WrongValue", "exporter"), True)
    plain = again(body, explain_declared=False)
    assert not again.asked and plain.witnesses == []
    assert (verdict(plain), plain.worst) == (verdict(asked), asked.worst)
    body = body.partition("fails:")[0]
    assert verdict(again(body, explain_declared=False))[0] == "failed" and "witness" in again.asked


def test_a_graph_that_is_the_same_at_other_sizes_is_not_traced_again(again):
    first = again(SOUND, "export")
    assert verdict(first) == PASSED and again.kept()
    assert told(again(SOUND, "export")) == told(first) and not again.asked
    (file,) = again.kept()
    file.write_bytes(b"other")
    assert told(again(SOUND, "export")) == told(first) and again.asked == {"export"}


def test_a_size_that_is_baked_in_is_found_in_every_run(again):
    body = SOUND.replace("torch.sin(x)", "x + sum(range(int(x.shape[0])))")
    for _ in range(2):
        assert again(body, "export").error == "ShapeBakedIn"
    assert again.kept() == []


@pytest.mark.parametrize("body, question", [(WRONG, "witness"), (UNKNOWN, "export")])
def test_a_failure_that_nobody_has_declared_is_explained_in_every_run(again, body, question):
    assert again(body).status == "xfailed"
    body = body.partition("fails:")[0]
    for _ in range(2):
        assert again(body).status == "failed" and question in again.asked


def test_a_failure_that_has_gone_is_seen_and_one_that_is_another_is_explained(again):
    """The example is run and compared again, whatever is kept of its cause."""
    body = say(SOUND, DECLARED % "compare")
    for off in (0.5, 0.25):
        with wrong_runtime(lambda _, outputs, off=off: [outputs[0] + np.float32(off)]):
            assert verdict(again(body)) == ("xfailed", "compare", "WrongValue", "runtime")
        assert "witness" in again.asked and again.kept()
    assert again(body).status == "xpassed"


@pytest.mark.parametrize("body, settings", [
    pytest.param(WRONG, {"instructions": frozenset({"avx2"})}, id="another processor"),
    pytest.param(WRONG, {"examples": 2, "random": 7}, id="other draws"),
    pytest.param(WRONG.replace("1..9", "1..8"), {}, id="another case"),
])  # fmt: skip
def test_where_anything_is_different_the_cause_is_looked_for(again, body, settings):
    again(WRONG)
    again(body, **settings)
    assert "witness" in again.asked


@pytest.mark.parametrize("body", [WRONG, UNKNOWN])
def test_a_damaged_file_says_nothing_and_is_written_again(again, body):
    first = again(body)
    (file,) = again.kept()
    data = file.read_bytes()
    for spoilt in (data[:70], data.replace(b"exporter", b"runtime_")):
        file.write_bytes(spoilt)
        assert told(again(body)) == told(first) and again.asked
        assert file.read_bytes() == data


def test_a_witness_that_was_lost_is_asked_again(again):
    home = os.getpid()

    def dies_elsewhere(inputs, outputs):
        if os.getpid() != home:
            os.kill(os.getpid(), signal.SIGKILL)
        return outputs

    with wrong_runtime(dies_elsewhere, "onnxruntime-unoptimized"):
        record = again(WRONG)
    assert "lost" in {witness["answer"] for witness in record.witnesses}
    assert again.kept() == [] and "lost" not in {witness["answer"] for witness in again(WRONG).witnesses}


def test_a_folder_that_cannot_be_written_harms_nothing(again):
    again.folder.write_text("no folder", encoding="utf-8")
    assert again(WRONG).status == "xfailed" and again(UNKNOWN).status == "xfailed"


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
