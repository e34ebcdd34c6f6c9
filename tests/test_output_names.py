"""Every text about an output calls it by the name that the case gives it."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.records import text
from conformance.report import annotations, html, markdown
from tests.kit.cases import case_of, say
from tests.kit.runtimes import wrong_runtime
from tests.report.support import HEADER

PLAIN = case_of("(torch.sin(x), torch.cos(x))", "export: {torchscript: [17]}\n", dims="batch: 1..8")
BODY = say(PLAIN, "outputs: [sines, cosines]")
FP16 = say(BODY, "precisions: {fp16: {}}")


def spoiled(alter, *names):
    """The second output of these runtimes is what ``alter`` makes of it."""
    return wrong_runtime(lambda _, got: [got[0], alter(got[1])], *names)


def off(array):
    return array + np.float32(1e-2)


@pytest.mark.parametrize("alter, error, body", [
    (off, "WrongValue", BODY), (off, "WrongValue", FP16),
    (lambda array: array * np.float32("nan"), "WrongNaN", BODY),
    (lambda array: array[None], "WrongShape", BODY),
    (lambda array: array.astype("float64"), "WrongDtype", BODY),
])  # fmt: skip
def test_a_wrong_output_is_called_by_its_name(bench, alter, error, body):
    with spoiled(alter):
        record = bench.run(body, precision="fp16" if body is FP16 else "fp32", examples=2).as_dict()
    assert (record["error"], record["outputs"]) == (error, ["sines", "cosines"])
    assert record["reason"].startswith("output cosines")
    told = text.failure(record)
    assert ("output cosines[" in told) == (error in ("WrongValue", "WrongNaN"))
    for said in (told, *annotations.github([record]), markdown.summary(HEADER, [record])):
        assert "output cosines" in said
        assert "output 1" not in said
    assert '"outputs"' in html.page([("run", HEADER, [record])])


def test_without_a_name_an_output_has_its_number(bench):
    with spoiled(off):
        record = bench.run(PLAIN, examples=2)
    assert record.outputs == []
    assert "output 1[" in text.failure(record.as_dict())


def test_noise_and_vacuous_outputs_are_called_by_their_names(bench):
    with spoiled(lambda array: array * np.float32(0.5), "onnxruntime-literal"):
        noisy = bench.run(FP16, check="fidelity")
    assert noisy.error == "LowFidelity"
    assert noisy.reason.startswith("output cosines: SQNR ")
    vacuous = bench.run(BODY.replace("torch.cos(x)", "x * 0"))
    assert vacuous.error == "Vacuous"
    assert vacuous.reason.startswith("output cosines: ")
