"""A wrong runtime, a wrong exporter and outputs that prove nothing, at every precision."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path

import numpy as np
import pytest

from conformance.checks import models as cellrun
from conformance.precision import convert
from conformance.records import text
from conformance.runtimes import onnxruntime
from tests.planted_precision.support import BODY, CONVERTED, all_of, assert_blamed, change_initializer, returning, run
from tests.support import PASSED, say, verdict

# ---- a wrong runtime ---------------------------------------------------------------------------------------------


def ten_percent(inputs, outputs):
    return [one * np.float32(1.1) for one in outputs]


def two_rows_swapped(inputs, outputs):
    found = [one.copy() for one in outputs]
    if len(found[0]) > 1:
        found[0][[0, 1]] = found[0][[1, 0]]
    return found


def one_element_far_off(inputs, outputs):
    found = [one.copy() for one in outputs]
    found[0].flat[-1] += 3
    return found


def one_nan(inputs, outputs):
    found = [one.copy() for one in outputs]
    found[0].flat[0] = np.nan
    return found


def one_infinity(inputs, outputs):
    found = [one.copy() for one in outputs]
    found[0].flat[0] = np.inf
    return found


@pytest.mark.parametrize("alter, error", [
    pytest.param(ten_percent, "WrongValue", id="10 percent"),
    pytest.param(two_rows_swapped, "WrongValue", id="rows"),
    pytest.param(one_element_far_off, "WrongValue", id="one element"),
    pytest.param(one_nan, "WrongNaN", id="NaN"),
    pytest.param(one_infinity, "WrongInf", id="infinity"),
])  # fmt: skip
@CONVERTED
def test_a_runtime_that_does_not_compute_what_the_graph_means_is_at_fault_and_the_precision_is_not(
    bench, break_runtime, precision, alter, error
):
    break_runtime(alter)
    record = run(bench, "accuracy", precision)
    assert verdict(record) == ("failed", "compare", error, "runtime")
    assert list(record.loss) == ["export", "conversion", "optimizer"]
    assert record.worst["ratio"] > 1
    shown = text.failure(record.as_dict())
    assert "at fault: the runtime" in shown
    assert "loss by stage" in shown
    if error == "WrongValue":
        assert_blamed(record, error, "runtime", "optimizer")
    assert verdict(run(bench, "fidelity", precision)) == PASSED


@pytest.mark.parametrize("alter, error", [
    pytest.param(lambda inputs, outputs: [], "WrongCount", id="no output"),
    pytest.param(lambda inputs, outputs: [outputs[0].astype("float16")], "WrongDtype", id="dtype"),
    pytest.param(lambda inputs, outputs: [outputs[0][..., :1]], "WrongShape", id="shape"),
])  # fmt: skip
@CONVERTED
def test_a_runtime_whose_outputs_have_another_form_is_at_fault(bench, break_runtime, precision, alter, error):
    break_runtime(alter)
    assert verdict(run(bench, "accuracy", precision)) == ("failed", "compare", error, "runtime")


@pytest.mark.parametrize("times, expected", [(10.0, ("failed", "compare", "WrongValue", "runtime")), (0.5, PASSED)])
@CONVERTED
def test_a_runtime_may_add_noise_below_that_of_the_conversion_and_not_ten_times_as_much(
    bench, break_runtime, precision, times, expected
):
    own = 10 ** (-run(bench, "fidelity", precision).fidelity["sqnr"] / 20)

    def noisy(inputs, outputs):
        rng = np.random.default_rng(zlib.crc32(outputs[0].tobytes()))
        size = float(np.sqrt(np.mean(np.square(outputs[0], dtype="float64"))))
        return [outputs[0] + (times * own * size * rng.normal(size=outputs[0].shape)).astype("float32")]

    break_runtime(noisy)
    record = run(bench, "accuracy", precision)
    assert verdict(record) == expected


@CONVERTED
def test_a_runtime_that_is_more_exact_than_the_graph_is_not_accused(bench, break_runtime, monkeypatch, precision):
    exported = []
    original = convert.source
    monkeypatch.setattr(convert, "source", lambda file, *more: exported.append(file) or original(file, *more))
    in_fp32 = []

    def exact(inputs, outputs):
        in_fp32.append(1)
        return onnxruntime.OnnxRuntimeSession(exported[0], [], optimize=True).run(inputs)

    break_runtime(exact)
    record = run(bench, "accuracy", precision)
    assert verdict(record) == PASSED
    assert 0.4 < record.worst["ratio"] < 1
    assert in_fp32


def test_a_runtime_that_does_not_load_a_converted_model_is_at_fault(bench, monkeypatch):
    original = onnxruntime.open_optimized

    def refuse(model, libraries, **options):
        if b"QuantizeLinear" in Path(model).read_bytes():
            raise RuntimeError("planted: no kernel")
        return original(model, libraries, **options)

    monkeypatch.setattr(onnxruntime, "open_optimized", refuse)
    records = all_of(bench, BODY)
    assert verdict(records["accuracy int8"]) == ("failed", "load", "RuntimeError", "runtime")
    assert "planted: no kernel" in records["accuracy int8"].reason
    others = [record for name, record in records.items() if name != "accuracy int8"]
    assert {verdict(record) for record in others} == {PASSED}


# ---- a wrong exporter, and outputs that prove nothing --------------------------------------------------------------


@CONVERTED
def test_a_wrong_exported_model_is_the_exporters_fault_at_every_precision(bench, monkeypatch, precision):
    original = cellrun.export

    def doubled(*arguments, **options):
        exported = original(*arguments, **options)
        for name in ("second.weight", "second.bias"):
            change_initializer(exported.model, name, lambda values: values * 2)
        return dataclasses.replace(exported)

    monkeypatch.setattr(cellrun, "export", doubled)
    record = run(bench, "fidelity", precision)
    assert_blamed(record, "LowFidelity", "exporter", "export")
    assert record.loss["conversion"] > 25
    assert verdict(run(bench, "accuracy", precision)) == PASSED  # the runtime computes what it was given


@pytest.mark.parametrize("constant", ["0.0", "3.5"])
@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
@CONVERTED
def test_a_constant_output_is_vacuous_at_every_precision(bench, precision, check, constant):
    python = returning(f"self.last(x.permute(0, 2, 3, 1)) * 0 + {constant}")
    record = run(bench, check, precision, python=python)
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")
    assert record.reason.startswith("output 0: ")
    assert verdict(run(bench, check, precision, say(BODY, "vacuous: it is meant to be"), python)) == PASSED


@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_an_offset_that_drowns_the_noise_is_vacuous(bench, check):
    python = returning("self.last(x.permute(0, 2, 3, 1)) + 1000")
    assert verdict(run(bench, check, "int8", python=python)) == ("failed", "compare", "Vacuous", "case")
