"""Outputs that are lists of tensors, which a scripted module's model gives as sequences."""

import numpy as np
import pytest

from conformance.front import cli
from conformance.results.records.run_file import read_run
from tests.kit.cases import PASSED, say, verdict, with_symbolic, write_case
from tests.kit.modules import net_of
from tests.kit.runtimes import ANY_OPTIMIZER, wrong_runtime

PYTHON = """
import torch
from typing import List, Tuple
class Looped(torch.nn.Module):
    def forward(self, x):
        parts: List[torch.Tensor] = []
        for i in range(3):
            parts.append(torch.tanh(x) * (0.3 * i + 1))
        return parts
class Nested(torch.nn.Module):
    def forward(self, x) -> Tuple[torch.Tensor, List[torch.Tensor], Tuple[torch.Tensor, torch.Tensor]]:
        return x * 2.5, [x + 1.5, x[:, :1] - 1], (x * 3, torch.sin(x))
class Rows(torch.nn.Module):
    def forward(self, x):
        rows: List[torch.Tensor] = []
        for i in range(x.size(0)):
            rows.append(x[i] * 0.3)
        return rows
class Split(torch.nn.Module):
    def forward(self, x):
        return torch.cos(x), torch.split(torch.tanh(x), 2), x * 2.5
class Empty(torch.nn.Module):
    def forward(self, x):
        rows: List[torch.Tensor] = []
        for i in range(x.size(0) - 1):
            rows.append(torch.tanh(x[i]) * 0.3)
        return rows
class Two(torch.nn.Module):
    def forward(self, x):
        return torch.split(x, 2), torch.unbind(x)
def wrong(g, x):
    return g.op("Atan", x)
"""
INPUTS = say("script: true", 'inputs: {x: "float32[n, 4]"}', "dims: {n: 1..4}", "export: {torchscript: [17]}")
LOOPED = say("module: beside.Looped", INPUTS)
NESTED = say("module: beside.Nested", INPUTS)


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
@pytest.mark.parametrize("body", [
    LOOPED, say(NESTED, "outputs: [a, parts, d, e]"), say(NESTED, "outputs: [a, b, c, d, e]"),
])  # fmt: skip
def test_the_tensors_of_a_list_are_compared_one_by_one(bench, body, runtime):
    assert verdict(bench.run(body, PYTHON, check="export")) == PASSED
    assert verdict(bench.run(body, PYTHON, runtime=runtime)) == PASSED


def one_off(parts):
    return [parts[0], parts[1] + np.float32(1e-3), parts[2]]


@pytest.mark.parametrize("alter, error, place", [
    pytest.param(one_off, "WrongValue", 1, id="one value"),
    pytest.param(lambda parts: parts[:2], "WrongCount", None, id="a tensor is missing"),
    pytest.param(lambda parts: [parts[1], parts[0], parts[2]], "WrongValue", 0, id="another order"),
])  # fmt: skip
def test_what_a_runtime_makes_of_a_list_is_its_fault(bench, alter, error, place):
    with wrong_runtime(lambda _, parts: alter(parts), *ANY_OPTIMIZER):
        record = bench.run(LOOPED, PYTHON)
    assert verdict(record) == ("failed", "compare", error, "runtime")
    assert place is None or record.worst["output"] == place


@pytest.mark.parametrize("module, outputs", [
    ("Rows", ""), ("Split", ""), ("Split", "outputs: [a, parts, b]"), ("Empty", "outputs: [rows]"),
])  # fmt: skip
@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
def test_a_list_may_have_a_length_that_depends_on_the_inputs(bench, module, outputs, runtime):
    body = say(f"module: beside.{module}", INPUTS, outputs)
    assert verdict(bench.run(body, PYTHON, check="export")) == PASSED
    assert verdict(bench.run(body, PYTHON, runtime=runtime)) == PASSED


@pytest.mark.parametrize("alter, error, said", [
    pytest.param(lambda parts: parts[:-1], "WrongLength", "a list of 0 tensors instead of 1", id="too short"),
    pytest.param(lambda parts: [*parts, parts[-1]], "WrongLength", "of 2 tensors instead of 1", id="too long"),
    pytest.param(lambda parts: [*parts[:-1], parts[-1] + np.float32(1e-3)], "WrongValue", "output rows[0]: ",
                 id="one value"),
    pytest.param(lambda parts: parts[::-1], "WrongValue", "output rows[0]: ", id="another order"),
    pytest.param(lambda parts: [*parts[:2], *(part + np.float32(1e-3) for part in parts[2:])], "WrongValue",
                 "output rows[2]: ", id="a later tensor"),
])  # fmt: skip
def test_what_a_runtime_makes_of_a_list_of_any_length_is_its_fault(bench, alter, error, said):
    with wrong_runtime(lambda _, parts: alter(parts), *ANY_OPTIMIZER):
        record = bench.run(say("module: beside.Rows", INPUTS, "outputs: [rows]"), PYTHON)
    assert verdict(record) == ("failed", "compare", error, "runtime") and said in record.reason
    assert error == "WrongLength" or f"output {record.worst['output']}: " == said


def test_a_wrong_tensor_in_a_list_of_any_length_is_blamed_on_the_exporter(bench):
    body = say("module: beside.Split", INPUTS.replace("export: {torchscript: [17]}", ""))
    record = bench.run(say(body, with_symbolic('"aten::tanh"')), PYTHON + "\nsymbolic = wrong\n")
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter") and "output 1[0]" in record.reason


@pytest.mark.parametrize("body, error, reason", [
    (say("module: beside.Two", INPUTS), "VaryingOutputs", "return a tuple of a fixed length, or stack them"),
    (say(NESTED, "outputs: [a, b]"), "WrongOutputs",
     "outputs declares 2 names, forward returns 5 tensors (2 of them in lists)"),
], ids=["a length that depends on the inputs", "too few names"])  # fmt: skip
def test_what_a_list_cannot_be_is_the_cases_mistake_before_any_export(bench, body, error, reason):
    record = bench.run(body, PYTHON)
    assert verdict(record) == ("failed", "declare", error, "case") and reason in record.reason


@pytest.mark.parametrize("outputs, named, other", [
    ("outputs: [parts]", "parts", None), ("outputs: [parts]", "parts.1", "parts.0"),
    ("outputs: [a, b, c]", "b", "a"), ("outputs: [parts]", "1", "0"),
])  # fmt: skip
def test_a_tolerance_may_be_about_a_list_or_about_one_of_its_tensors(bench, outputs, named, other):
    body = say(LOOPED, outputs, "tolerance: {fp32: {because: a test, outputs: {NAMED: {atol: 0.01}}}}")
    with wrong_runtime(lambda _, parts: one_off(parts), *ANY_OPTIMIZER):
        assert verdict(bench.run(body.replace("NAMED", named), PYTHON)) == PASSED
        assert other is None or bench.run(body.replace("NAMED", other), PYTHON).status == "failed"


def test_what_is_said_of_a_list_is_said_of_its_tensors(bench):
    python = PYTHON.replace("(0.3 * i + 1)", "0.0")
    assert bench.run(LOOPED, python).error == "Vacuous"
    body = say(LOOPED, "outputs: [{name: parts, vacuous: all zeros}]")
    assert verdict(bench.run(body, python)) == PASSED


@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_int8_keeps_a_list_and_fp16_refuses_it(bench, check):
    body = say("module: beside.Net", INPUTS, "precisions: {fp16: {}, int8: {}}")
    dense = net_of("[y, torch.relu(y)]", "y = self.layer(x)", layer="Linear(4, 4)")
    int8, fp16 = (bench.run(body, dense, check=check, precision=name) for name in ("int8", "fp16"))
    assert verdict(int8) == PASSED
    assert verdict(fp16) == ("failed", "convert", "SequenceOutput", "case")


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_model_with_a_list_of_any_length_is_not_converted_and_says_so(bench, precision):
    body = say("module: beside.Net", INPUTS, "precisions: {fp16: {}, int8: {}}")
    rows = net_of("torch.unbind(torch.relu(y))", "y = self.layer(x)", layer="Linear(4, 4)")
    record = bench.run(body, rows, precision=precision)
    assert (record.status, record.error) == ("skipped", None), record.reason
    assert "length depends on the inputs" in record.reason


def test_a_bundle_with_a_list_replays(tmp_path):
    write_case(tmp_path / "cases", say(NESTED, "runtimes: [onnxruntime, tensorrt]"), PYTHON)
    place, store = str(tmp_path / "bundle"), str(tmp_path / "store")
    assert cli.main(["pack", place, "--cases", str(tmp_path / "cases"), "--store", store]) == 0
    report = tmp_path / "replayed"
    replay = ["replay", place, "--runtime", "onnxruntime", "--report", str(report), "--store", store]
    assert cli.main(replay) == 0
    (record,) = read_run(report)[1]
    assert record.status == "passed" and record.examples >= 8
