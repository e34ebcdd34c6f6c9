"""A wrong runtime, a wrong exporter and outputs that prove nothing, at every precision."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from conformance.runtimes import onnxruntime
from tests.kit.cases import PASSED, say, verdict
from tests.kit.runtimes import replaced_runtime
from tests.models.planted_precision.support import BODY, CONVERTED, NET, all_of, assert_blamed, returning, run


def one_value(change):
    """Changes one value of the first output."""

    def alter(inputs, outputs):
        first = outputs[0].copy()
        first.flat[-1] = change(first.flat[-1])
        return [first, *outputs[1:]]

    return alter


@pytest.mark.parametrize("precision, alter, error", [
    pytest.param("fp16", lambda inputs, outputs: [one * np.float32(1.1) for one in outputs], "WrongValue", id="10 %"),
    pytest.param("int8", one_value(lambda value: value + 3), "WrongValue", id="one element"),
    pytest.param("int8", one_value(lambda value: np.nan), "WrongNaN", id="NaN"),
    pytest.param("fp16", one_value(lambda value: np.inf), "WrongInf", id="infinity"),
    pytest.param("int8", lambda inputs, outputs: [], "WrongCount", id="no output"),
    pytest.param("fp16", lambda inputs, outputs: [outputs[0].astype("float16")], "WrongDtype", id="dtype"),
])  # fmt: skip
def test_a_runtime_that_does_not_compute_what_the_graph_means_is_at_fault_and_the_precision_is_not(
    bench, break_runtime, precision, alter, error
):
    break_runtime(alter)
    record = run(bench, "accuracy", precision)
    assert verdict(record) == ("failed", "compare", error, "runtime")
    if error == "WrongValue":
        assert_blamed(record, error, "runtime", "optimizer")
    assert verdict(run(bench, "fidelity", precision)) == PASSED


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
def test_a_runtime_that_is_more_exact_than_the_graph_is_not_accused(bench, break_runtime, precision):
    export = bench.cell(BODY, NET, check="export")
    assert verdict(bench.run_cell(export)) == PASSED
    (exported,) = bench.store.glob("*/model.onnx")
    break_runtime(lambda inputs, outputs: onnxruntime.OnnxRuntimeSession(exported, [], optimize=True).run(inputs))
    record = run(bench, "accuracy", precision)
    assert verdict(record) == PASSED
    assert 0.4 < record.worst["ratio"] < 1, "it computes in fp32"


def test_a_runtime_that_does_not_load_a_converted_model_is_at_fault(bench):
    def refuse(original):
        def opened(model, libraries, **options):
            if b"QuantizeLinear" in Path(model).read_bytes():
                raise RuntimeError("planted: no kernel")
            return original(model, libraries, **options)

        return opened

    with replaced_runtime(refuse):
        records = all_of(bench, BODY)
    assert verdict(records["accuracy int8"]) == ("failed", "load", "RuntimeError", "runtime")
    assert "planted: no kernel" in records["accuracy int8"].reason
    others = [record for name, record in records.items() if name != "accuracy int8"]
    assert {verdict(record) for record in others} == {PASSED}


@pytest.mark.parametrize("precision, change", [
    pytest.param("int8", "* 0", id="constant at int8"), pytest.param("fp16", "* 0 + 3.5", id="constant at fp16"),
    pytest.param("int8", "+ 1000", id="an offset that drowns the noise"),
])  # fmt: skip
def test_an_output_that_proves_nothing_is_vacuous_at_every_precision(bench, precision, change):
    python = returning(f"self.last(x.permute(0, 2, 3, 1)) {change}")
    for check in ("fidelity", "accuracy"):
        assert verdict(run(bench, check, precision, python=python)) == ("failed", "compare", "Vacuous", "case")
    assert verdict(run(bench, "fidelity", precision, say(BODY, "vacuous: it is meant to be"), python)) == PASSED
