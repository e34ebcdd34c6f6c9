"""What to try first where a cell proves nothing: what the text proposes is pasted into the case, which passes."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.results.records import text
from tests.kit.cases import PASSED, verdict, write_case
from tests.kit.runtimes import wrong_runtime

ZERO_BY_INIT = """
import torch
class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = torch.nn.Linear(3, 3)
        torch.nn.init.zeros_(self.branch.weight)
        torch.nn.init.zeros_(self.branch.bias)
    def forward(self, x):
        return self.branch(torch.relu(x))
"""
X = 'inputs: {x: "float32[batch, 3]"}\ndims: {batch: 1..8}'


def says(values):
    return f'inputs: {{x: {{type: "float32[batch, 3]", values: {values}}}}}\ndims: {{batch: 1..8}}'


VACUOUS = {
    "saturated": (f'forward: "torch.clamp(x, 0, 1)"\n{says("{uniform: {low: 5, high: 9}}")}', "values"),
    "one index": ('forward: "torch.arange(9.0).reshape(3, 3)[i]"\n'
        'inputs: {i: {type: "int64[batch]", values: {integers: {low: 1, high: 1}}}}\ndims: {batch: 2..8}', "values"),
    "one draw": ('forward: x + 1\ninputs: {x: "float32[3]"}\nexamples: {values: 1, shapes: 0}', "draws"),
    "a tolerance above the values": (
        f'forward: torch.tanh(x)\n{X}\ntolerance: {{fp32: {{atol: 5, because: "of a reason"}}}}', "tolerance",
    ),
    "zero by init": (f"module: beside.Residual\n{X}", "weights"),
    "constant": (f"forward: torch.ones_like(x)\n{X}", "excuse"),
    "a large threshold": (f"forward: x > 1e9\n{X}", "values"),
    "infinities alone": (f"forward: torch.isinf(x)\n{X}", "excuse of finite values"),
    "NaN alone": (f"forward: torch.isnan(x)\n{X}", "excuse of finite values"),
    "the size of a fixed dim": (f'forward: "(x * 2, torch.tensor(x.shape[1:]))"\n{X}', "excuse"),
    "two outputs that are all true": ('forward: "(x * 2, x == x, x < 1e30)"\ninputs: {x: "float32[4, 3]"}\n'
        "outputs: [y, same, {name: small, rows: in any order}]", "excuse of finite values"),
}  # fmt: skip


def cell_of(bench, file):
    (case,) = load(file)
    return next(cell for cell in plan(case) if (cell.check, cell.runtime) == ("accuracy", "onnxruntime"))


def with_lines(file: Path, yaml: str, python: str) -> Path:
    """The case with more lines in its file and in the Python beside it, in a folder of its own."""
    edited = file.parent / "edited"
    edited.mkdir()
    case = YAML(typ="safe").load(file.read_text())["planted"] | (YAML(typ="safe").load(yaml) or {})
    (edited / "beside.py").write_text((file.parent / "beside.py").read_text() + f"\n{python}\n")
    with (edited / "planted.yaml").open("w") as stream:
        YAML(typ="safe").dump({"planted": case}, stream)
    return edited / "planted.yaml"


def pasted(file: Path, record) -> Path:
    """The case with what its failure proposes, as somebody would paste it: text that stands in the failure."""
    yaml, python = (record.remedy.get(part) or "" for part in ("yaml", "python"))
    assert yaml in text.failure(record) and "whatever the inputs" not in yaml
    return with_lines(file, yaml, python)


@pytest.mark.parametrize("name", VACUOUS)
def test_the_edit_that_is_proposed_for_a_vacuous_output_helps(bench, tmp_path, name):
    body, kind = VACUOUS[name]
    file = write_case(tmp_path, f"{body}\nexport: {{torchscript: [17]}}\nspecials: false", ZERO_BY_INIT)
    given = {} if kind == "draws" else {"examples": 6}
    record = bench.run_cell(cell_of(bench, file), **given)
    assert verdict(record) == ("failed", "compare", "Vacuous", "case")
    assert re.fullmatch(r"output \w+: .* would have passed every one of \d+ examples?", record.reason)
    assert record.remedy["kind"] == kind
    assert verdict(bench.run_cell(cell_of(bench, pasted(file, record)), **given)) == PASSED


@pytest.mark.parametrize("forward, fact", [
    ("x * 0", "it is 0 in every example"),
    ("torch.arange(3) + 0 * x.sum()", "it is the same in all examples of a shape, whatever the inputs"),
    ("x[:0]", "it has no values"),
    ("1e3 + x.clamp(-1e-3, 1e-3)", "its values lie closer together than is allowed"),
])  # fmt: skip
def test_what_a_vacuous_output_is_like_is_said(bench, forward, fact):
    record = bench.run(f'forward: "{forward}"\n{X}\nspecials: false')
    assert record.error == "Vacuous" and f"  {fact}" in text.failure(record).split("\n")


DECLARED = "{uniform: {low: 0.5, high: 0.9}}"
LOSSY = '"(x + 4096.0) - 4096.0"'
FIRST = "\ndef first(g, x, *rest):\n    return g.op('Identity', x)\n"
EXACT = 'export: {torchscript: {opsets: [17], symbolics: {"aten::add": beside.first, "aten::sub": beside.first}}}'
NOTHING = {
    "negative logarithms": (f'forward: "torch.log(x)"\n{says("{uniform: {low: -9, high: -1}}")}', "values"),
    "digits cancel": (f"forward: {LOSSY}\n{says(DECLARED)}\n{EXACT}", "tolerance to declare"),
    "all digits cancel": (f"forward: {LOSSY}\n{says('{uniform: {low: 0.0001, high: 0.0002}}')}\n{EXACT}", None),
}  # fmt: skip


def test_specials_that_prove_nothing_are_left_out(bench):
    body = f"forward: \"x * float('nan')\"\n{X}\nspecials: true"
    record = bench.run(body, check="specials")
    assert record.error == "NothingVerified" and "    specials: false\n" in text.failure(record)


def test_what_is_ill_conditioned_shows_all_sides_and_a_tolerance(bench, tmp_path):
    body, _ = NOTHING["digits cancel"]
    record = bench.run(body, ZERO_BY_INIT + FIRST)
    assert verdict(record) == ("failed", "compare", "IllConditioned", "case")
    told = text.failure(record)
    assert re.search(
        r"output 0\[\d, \d\]: got 0\.\d+, PyTorch in float32 has 0\.\d+; PyTorch in float64 has 0\.\d+", told
    )
    assert record.conditioning["float64"] == pytest.approx(record.worst["got"], abs=1e-7)
    assert "the ONNX specification's evaluator: is off by more than the ordinary tolerance too" in told
    assert re.search(r"at none of \d+ sizes does any of \d+ examples agree", told)


def off_by(much: Callable[[int], float]) -> contextlib.AbstractContextManager[None]:
    """ONNX Runtime is off by what ``much`` says of the number of rows."""
    return wrong_runtime(lambda inputs, outputs: [one + np.float32(much(len(inputs["x"]))) for one in outputs])


def test_a_runtime_that_alone_is_off_is_not_the_cases_fault(bench):
    """Within what float64 excuses, at some sizes; the other runtimes agree with PyTorch."""
    body = f"forward: {LOSSY}\n{says(DECLARED)}"
    assert verdict(bench.run(body)) == PASSED
    with off_by(lambda rows: 2e-4 if rows > 3 else 0):
        record = bench.run(body)
    assert verdict(record) == ("failed", "compare", "IllConditioned", None) and record.conclusion == "apart"
    for size in record.conditioning["sizes"]:
        assert bool(size["ill_conditioned"]) == (size["dims"]["batch"] > 3)
        assert bool(size["verified"]) == (size["dims"]["batch"] <= 3)
    told = text.failure(record)
    assert "so ONNX Runtime alone is off" in told and re.search(r"at batch=1: (\d+) of \1 examples agree", told)


def test_what_is_wrong_beyond_rounding_goes_before_what_is_ill_conditioned(bench):
    with off_by(lambda rows: 2e-4 if rows < 8 else 0.1):
        record = bench.run(f"forward: {LOSSY}\n{says(DECLARED)}")
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


def test_integers_on_which_float32_decides_otherwise_are_nobodys_fault(bench):
    body = f'forward: "torch.floor(((x + 4096.0) - 4096.0) * 100000).to(torch.int64)"\n{says(DECLARED)}\n{EXACT}'
    record = bench.run(body, ZERO_BY_INIT + FIRST)
    assert verdict(record) == ("failed", "compare", "IllConditioned", None) and record.remedy is None
    assert "declare values that are better conditioned" in text.failure(record)


@pytest.mark.parametrize("forward", ["torch.isinf(x)", "torch.isnan(x * 2)"])
def test_an_excuse_says_what_was_tried_and_that_an_infinity_shows_more(bench, forward):
    record = bench.run(f'forward: "{forward}"\n{X}')
    assert (record.error, record.remedy["kind"]) == ("Vacuous", "excuse of finite values")
    told = text.failure(record)
    assert "no finite values show more; NaN and infinities do" in told and "neither more draws" not in told


SMALL = """
import torch
from torch import nn
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = {}
    def forward(self, x):
        return torch.cos(x) * self.scale + torch.sin(torch.tanh(x)) * 1e-9
"""


@pytest.mark.parametrize("weighted", [True, False])
def test_nobody_is_told_to_wake_weights_that_are_not_there(bench, weighted):
    record = bench.run(
        f"module: beside.Small\n{X}", SMALL.format("nn.Parameter(torch.ones(3))" if weighted else "1.0")
    )
    assert record.error == "Hollow" and ("weights: awake" in text.failure(record)) is weighted
