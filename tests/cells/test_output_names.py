"""Outputs by their names; such as are random on purpose, and inputs that are NaN or infinite by choice."""

import numpy as np
import pytest

from conformance.case.draw import value_regimes
from conformance.case.files.inputs import Input
from conformance.results.records import text
from conformance.results.report import annotations, html, markdown
from tests.kit.cases import PASSED, case_of, problems_of, say, verdict
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime
from tests.results.report.support import HEADER

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
    (lambda array: array * np.float32("nan"), "WrongNaN", BODY), (lambda array: array[None], "WrongShape", BODY),
    (lambda array: array.astype("float64"), "WrongDtype", BODY),
])  # fmt: skip
def test_a_wrong_output_is_called_by_its_name(bench, alter, error, body):
    with spoiled(alter):
        record = bench.run(body, precision="fp16" if body is FP16 else "fp32", examples=2)
    assert (record.error, record.outputs) == (error, ["sines", "cosines"])
    assert record.reason.startswith("output cosines")
    told = text.failure(record)
    assert ("output cosines[" in told) == (error in ("WrongValue", "WrongNaN"))
    for said in (told, *annotations.github([record]), markdown.summary(HEADER, [record])):
        assert "output cosines" in said and "output 1" not in said
    assert '"outputs"' in html.page([("run", HEADER, [record])])


def test_without_a_name_an_output_has_its_number(bench):
    with spoiled(off):
        record = bench.run(PLAIN, examples=2)
    assert record.outputs == [] and "output 1[" in text.failure(record)


def test_noise_and_vacuous_outputs_are_called_by_their_names(bench):
    with spoiled(lambda array: array * np.float32(0.5), "onnxruntime-literal"):
        noisy = bench.run(FP16, check="fidelity")
    assert noisy.error == "LowFidelity" and noisy.reason.startswith("output cosines: SQNR ")
    vacuous = bench.run(BODY.replace("torch.cos(x)", "x * 0"))
    assert vacuous.error == "Vacuous" and vacuous.reason.startswith("output cosines: ")


NOISY = """
    forward: (x * 2, torch.rand_like(x), torch.rand_like(x) > 0.5)
    inputs: {x: "float32[batch, 30]"}
    dims: {batch: 2..4}
    specials: false
"""
SAID = "outputs: [kept, {name: noise, random: a sampler draws it}, {name: flags, random: so are they}]"


def test_random_outputs_are_compared_in_dtype_shape_and_range_and_reported(bench):
    record = bench.run(say(NOISY, SAID))
    assert verdict(record) == PASSED
    told = [warning["text"] for warning in record.warnings if warning["error"] == "Random"]
    assert len(told) == 2 and "output noise is random on purpose (a sampler draws it)" in told[0]
    undeclared = bench.run(NOISY)
    assert verdict(undeclared) == ("failed", "declare", "NotDeterministic", "case")
    assert "random: why" in undeclared.reason


@pytest.mark.parametrize("alter, error", [
    pytest.param(lambda kept, noise, flags: [kept * 1.01, noise, flags], "WrongValue", id="the other output"),
    pytest.param(lambda kept, noise, flags: [kept, noise * 9 - 4, flags], "WrongValue", id="another range"),
    pytest.param(lambda kept, noise, flags: [kept, noise * np.float32("nan"), flags], "WrongValue", id="nan"),
    pytest.param(lambda kept, noise, flags: [kept, noise[:, 1:], flags], "WrongShape", id="another shape"),
    pytest.param(lambda kept, noise, flags: [kept, noise, flags.astype("int64")], "WrongDtype", id="another dtype"),
])  # fmt: skip
def test_what_is_wrong_beside_or_beyond_random_values_is_found(bench, alter, error):
    with wrong_runtime(lambda _, parts: alter(*parts), *ANY_OPTIMIZER):
        record = bench.run(say(NOISY, SAID))
    assert (record.status, record.error) == ("failed", error)


CHOICE = '{type: "DTYPE[4, 25]", values: {choice: [0.0, .nan, -.inf, 1.5]}}'


def test_a_choice_may_be_of_nan_and_infinities(bench, tmp_path):
    body = f"forward: torch.relu(x)\ninputs: {{x: {CHOICE}}}\nspecials: false"
    assert verdict(bench.run(body.replace("DTYPE", "float32"))) == PASSED
    with wrong_runtime(lambda _, parts: [np.nan_to_num(part) for part in parts], *ANY_OPTIMIZER):
        assert bench.run(body.replace("DTYPE", "float32")).error == "WrongNaN"
    said = Input.model_validate({"type": "float32[4, 25]", "values": {"choice": [0.0, np.nan, -np.inf, 1.5]}})
    drawn = value_regimes.make(said, {}, "plain", np.random.default_rng(0))
    assert np.isnan(drawn).any() and np.isneginf(drawn).any() and (drawn == 1.5).any()
    (problem,) = problems_of(
        tmp_path, f"one: {{about: x, forward: x, inputs: {{x: {CHOICE}}}}}".replace("DTYPE", "int64")
    )
    assert "nan is no int64" in problem.message
