"""What the record tells of a conversion, and when the store has to convert anew."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.precision import convert
from tests.planted_precision.support import BODY, all_of, cell_of, run
from tests.support import PASSED, verdict


def test_the_record_tells_how_the_model_was_converted(bench):
    says = "int8: {exclude: /first/Conv, calibration: {method: entropy, samples: 18, batch: 4}}"
    body = BODY.replace("int8: {}", says)
    records = all_of(bench, body)
    told = records["fidelity int8"].conversion
    assert told["tool"].startswith("onnxruntime 1.")
    assert told["calibration"].keys() == {"source", "samples", "batch", "sha"}
    assert told["calibration"]["source"] == "drawn from the case"
    assert told["calibration"]["samples"] >= 18
    assert told["calibration"]["batch"] == 4
    assert (told["method"], told["quantized"], told["kept"]) == ("entropy", 2, ["/first/Conv"])
    assert records["accuracy int8"].conversion == told
    assert records["accuracy fp32"].conversion is None
    shas = [records[f"{check} int8"].graph["sha"] for check in ("fidelity", "accuracy")]
    assert shas[0] == shas[1] != records["accuracy fp32"].graph["sha"]


@pytest.fixture
def conversions(monkeypatch):
    """The conversions that were made, not taken from the store."""
    made: list[str] = []
    original = convert.convert

    def counted(given, feeds, measured):
        made.append(given.precision)
        return original(given, feeds, measured)

    monkeypatch.setattr(convert, "convert", counted)
    return made


def test_a_model_is_converted_once_for_all_its_cells_and_runs(bench, conversions):
    first = all_of(bench, BODY)
    assert sorted(conversions) == ["fp16", "int8"]
    second = all_of(bench, BODY)  # another folder: nothing of it is in the memory of this process
    assert len(conversions) == 2
    for name, record in first.items():
        assert second[name].graph == record.graph
        assert second[name].conversion == record.conversion
        assert second[name].fidelity == record.fidelity


ORDERED = np.random.default_rng(0).normal(size=(32, 3, 6, 6)).astype("float32") * np.linspace(
    0.2, 3, 32, dtype="float32"
).reshape(-1, 1, 1, 1)


@pytest.mark.parametrize("one, other", [
    pytest.param("samples: 16, batch: 1", "samples: 16, batch: 4", id="batch"),
    pytest.param("samples: 8", "samples: 64", id="samples"),
    pytest.param("method: minmax", "method: entropy", id="method"),
    pytest.param("method: percentile, percentile: 99", "method: percentile, percentile: 90", id="percentile"),
    pytest.param("data: data.npy, method: percentile", "data: backwards.npy, method: percentile", id="order"),
    pytest.param("data: data.npy, method: percentile, batch: 8", "data: data.npy, method: percentile, batch: 2",
                 id="batch of a file"),
])  # fmt: skip
def test_calibrating_in_another_way_makes_another_model(bench, conversions, one, other):
    records = []
    for says in (one, other, one):
        cell = cell_of(bench, "fidelity", "int8", BODY.replace("int8: {}", f"int8: {{calibration: {{{says}}}}}"))
        np.save(cell.case.folder / "data.npy", ORDERED)
        np.save(cell.case.folder / "backwards.npy", ORDERED[::-1])
        records.append(bench.run_cell(cell, examples=0))
    first, second, again = records
    assert len(conversions) == 2
    assert first.graph["sha"] != second.graph["sha"]
    assert first.graph == again.graph
    assert first.conversion != second.conversion
    assert first.conversion == again.conversion


def test_a_damaged_converted_model_is_made_again(bench, conversions):
    first = run(bench, "fidelity", "int8")
    for file in bench.store.glob("*/model.onnx"):
        if b"QuantizeLinear" in file.read_bytes():
            file.write_bytes(file.read_bytes()[:-7])
    second = run(bench, "fidelity", "int8")
    assert len(conversions) == 2
    assert second.graph == first.graph
    assert verdict(second) == PASSED
