"""What a case calls its outputs is what every text about them says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from conformance.bundle.layout import Bundle
from conformance.bundle.replay import run_entry
from conformance.records import text
from conformance.report import annotations, html, markdown
from conformance.runtimes import onnxruntime
from conformance.worker.progress import Progress
from tests.report.support import HEADER
from tests.support import altered
from tests.test_bundle import pack

BODY = """
forward: (torch.sin(x), torch.cos(x))
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..8}
outputs: [sines, cosines]
precisions: {fp16: {}}
export: {torchscript: [17]}
"""
WRONG = {
    "WrongValue": lambda array: array + np.float32(1e-2),
    "WrongNaN": lambda array: array * np.float32("nan"),
    "WrongInf": lambda array: array / np.float32(0),
    "WrongShape": lambda array: array[None],
    "WrongDtype": lambda array: array.astype("float64"),
}


def spoil(monkeypatch, opener, alter):
    sound = getattr(onnxruntime, opener)
    with np.errstate(all="ignore"):
        monkeypatch.setattr(onnxruntime, opener, altered(sound, lambda _, got: [got[0], alter(got[1])]))


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("error", WRONG)
def test_whatever_is_wrong_with_an_output_is_said_by_its_name(bench, monkeypatch, error):
    spoil(monkeypatch, "open_optimized", WRONG[error])
    for precision in ("fp32", "fp16"):
        (cell,) = (
            cell for cell in bench.cells(BODY)
            if (cell.check, cell.runtime, cell.precision) == ("accuracy", "onnxruntime", precision)
        )  # fmt: skip
        record = bench.run_cell(cell, examples=8).as_dict()
        assert record["error"] == error
        assert record["outputs"] == ["sines", "cosines"]
        assert record["reason"].startswith("output cosines")
        told = text.failure(record)
        assert ("output cosines[" in told) == (error in ("WrongValue", "WrongNaN", "WrongInf"))
        shown = [told, *annotations.github([record]), markdown.summary(HEADER, [record])]
        for said in shown:
            assert "output cosines" in said
            assert "output 1" not in said
        assert '"outputs"' in html.page([("run", HEADER, [record])])


def test_without_a_name_an_output_has_its_number(bench, monkeypatch):
    spoil(monkeypatch, "open_optimized", WRONG["WrongValue"])
    record = bench.run(BODY.replace("outputs: [sines, cosines]\n", "").replace("precisions: {fp16: {}}\n", ""))
    assert record.outputs == []
    assert "output 1[" in text.failure(record.as_dict())


def test_noise_and_vacuous_outputs_are_told_by_name(bench, monkeypatch):
    spoil(monkeypatch, "open_literal", lambda array: array * np.float32(0.5))
    (cell,) = (cell for cell in bench.cells(BODY) if cell.check == "fidelity")
    record = bench.run_cell(cell, examples=8)
    assert record.error == "LowFidelity"
    assert record.reason.startswith("output cosines: SQNR ")
    vacuous = bench.run(BODY.replace("torch.cos(x)", "x * 0").replace("precisions: {fp16: {}}\n", ""))
    assert vacuous.error == "Vacuous"
    assert vacuous.reason.startswith("output cosines: ")


def test_a_bundle_has_the_names(tmp_path, monkeypatch):
    _, place = pack(tmp_path, BODY, "", "--runtime", "onnxruntime")
    spoil(monkeypatch, "open_optimized", WRONG["WrongValue"])
    for entry in Bundle(place).entries:
        record = run_entry(Progress(), place, entry, "onnxruntime", tmp_path / "store").as_dict()
        assert record["reason"].startswith("output cosines: ")
        assert "output cosines[" in text.failure(record)


def test_a_bundle_of_an_earlier_version_has_none_and_replays(tmp_path, monkeypatch):
    _, place = pack(tmp_path, BODY, "", "--runtime", "onnxruntime")
    head = json.loads((place / "bundle.json").read_text())
    for entry in head["entries"]:
        del entry["judge"]["names"]
        assert entry["judge"].keys() <= {"kind", "tolerances", "budgets", "any_order"}
    (place / "bundle.json").write_text(json.dumps(head))
    for entry in Bundle(place).entries:
        assert run_entry(Progress(), place, entry, "onnxruntime", tmp_path / "store").status == "passed"
    spoil(monkeypatch, "open_optimized", WRONG["WrongValue"])
    for entry in Bundle(place).entries:
        record = run_entry(Progress(), place, entry, "onnxruntime", tmp_path / "store")
        assert record.reason.startswith("output 1: ")
