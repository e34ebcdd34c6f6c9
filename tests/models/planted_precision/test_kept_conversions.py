"""What the record tells of a conversion, and when the store has to convert anew."""

import numpy as np
import pytest

from conformance.models.precision import convert
from tests.kit.calls import count_calls
from tests.models.planted_precision.support import BODY, all_of, cell_of


def test_the_record_tells_how_the_model_was_converted(bench):
    says = "int8: {exclude: /first/Conv, calibration: {method: entropy, samples: 18, batch: 4}}"
    body = BODY.replace("int8: {}", says)
    records = all_of(bench, body)
    told = records["fidelity int8"].conversion
    assert told["tool"].startswith("onnxruntime 1.") and told["calibration"]["source"] == "drawn from the case"
    assert told["calibration"]["samples"] >= 18 and told["calibration"]["batch"] == 4
    assert (told["method"], told["quantized"], told["kept"]) == ("entropy", 2, ["/first/Conv"])
    assert records["accuracy int8"].conversion == told and records["accuracy fp32"].conversion is None
    shas = [records[f"{check} int8"].graph["sha"] for check in ("fidelity", "accuracy")]
    assert shas[0] == shas[1] != records["accuracy fp32"].graph["sha"]


def test_a_model_is_converted_once_for_all_its_cells_and_runs(bench):
    with count_calls(convert.convert) as conversions:
        first = all_of(bench, BODY)
        second = all_of(bench, BODY)  # another folder: nothing of it is in the memory of this process
    assert conversions["convert"] == 2, "one for each precision"
    for name, record in first.items():
        assert second[name].graph == record.graph and second[name].conversion == record.conversion
        assert second[name].fidelity == record.fidelity


SIZES = np.linspace(0.2, 3, 32, dtype="float32").reshape(-1, 1, 1, 1)
ORDERED = np.random.default_rng(0).normal(size=(32, 3, 6, 6)).astype("float32") * SIZES


@pytest.mark.parametrize("one, other", [
    pytest.param("samples: 16, batch: 1", "samples: 16, batch: 4", id="batch"),
    pytest.param("method: percentile, percentile: 99", "method: percentile, percentile: 90", id="percentile"),
    pytest.param("data: data.npy, method: percentile", "data: backwards.npy, method: percentile", id="order"),
])  # fmt: skip
def test_calibrating_in_another_way_makes_another_model(bench, one, other):
    records = []
    with count_calls(convert.convert) as conversions:
        for says in (one, other, one):
            cell = cell_of(bench, "fidelity", "int8", BODY.replace("int8: {}", f"int8: {{calibration: {{{says}}}}}"))
            np.save(cell.case.folder / "data.npy", ORDERED)
            np.save(cell.case.folder / "backwards.npy", ORDERED[::-1])
            records.append(bench.run_cell(cell, examples=0))
    first, second, again = records
    assert conversions["convert"] == 2
    assert first.graph["sha"] != second.graph["sha"] and first.conversion != second.conversion
    assert first.graph == again.graph and first.conversion == again.conversion
