"""Signatures of forward: what is passed, which of it is symbolic, and which name is whose in the graph.

Every module weighs its inputs differently, so that two names that change places show in the values.
"""

import pytest
import torch

from conformance.models.exporters import exporters
from tests.kit.cases import PASSED, case_of, say, verdict

PYTHON = """
import functools
import torch
def plain_wrapper(function):
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner
def honest_wrapper(function):
    return functools.wraps(function)(plain_wrapper(function))
class Star(torch.nn.Module):
    def forward(self, *xs):
        return xs[0] + 2 * xs[1] + 3 * xs[2]
class StarAfter(torch.nn.Module):
    def forward(self, a, b=None, *xs):
        return a + 2 * b + 3 * xs[0]
class Both(torch.nn.Module):
    def forward(self, *xs, b, **words):
        return xs[0] + 2 * b + 3 * words["c"]
class Keywords(torch.nn.Module):
    def forward(self, a, b, unused=None, c=None):
        return a + 2 * b + 3 * c
class Scripted(torch.nn.Module):
    def forward(self, a, b, c):
        return a + 2 * b + 3 * c
class Wrapped(torch.nn.Module):
    forward = honest_wrapper(Scripted.forward)
class Lazy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.LazyLinear(3)
    def forward(self, a, b, c):
        return self.linear(a) + 2 * b + 3 * c
class Hidden(torch.nn.Module):
    forward = plain_wrapper(Scripted.forward)
class Partial(Scripted):
    def __init__(self):
        super().__init__()
        self.forward = functools.partial(self.scaled, scale=0.5)
    def scaled(self, a, b, c, scale):
        return scale * (a + 2 * b + 3 * c)
"""

POSITIONAL = """
inputs: {a: "float32[n, 3]", b: "float32[n, 3]", c: "float32[n, 3]"}
dims: {n: 1..7}
"""
BY_KEYWORD = """
inputs: {a: "float32[n, 3]", c: {type: "float32[n, 3]", as: c}, b: {type: "float32[n, 3]", as: b}}
dims: {n: 1..7}
"""
DYNAMO, TORCHSCRIPT = "export: {dynamo: [20]}", "export: {torchscript: [17]}"


def row(module: str, inputs: str, export: str, what: str, *marks: pytest.MarkDecorator):
    return pytest.param(
        module, inputs, export, id=f"{what}, {'dynamo' if export is DYNAMO else 'torchscript'}", marks=marks
    )


@pytest.mark.parametrize("module, inputs, export", [
    row("Star", POSITIONAL, DYNAMO, "*args"), row("Star", POSITIONAL, TORCHSCRIPT, "*args"),
    row("StarAfter", POSITIONAL, TORCHSCRIPT, "*args after others"),
    row("Both", BY_KEYWORD, DYNAMO, "*args, keyword-only and **kwargs"),
    row("Keywords", BY_KEYWORD, DYNAMO, "keywords in another order"),
    row("Keywords", BY_KEYWORD, TORCHSCRIPT, "keywords in another order"),
    row("Wrapped", BY_KEYWORD, DYNAMO, "functools.wraps and keywords", pytest.mark.thorough),
    row("Wrapped", BY_KEYWORD, TORCHSCRIPT, "functools.wraps and keywords"),
    row("Hidden", BY_KEYWORD, DYNAMO, "a decorator that hides the signature, keywords"),
    row("Hidden", POSITIONAL, TORCHSCRIPT, "a decorator that hides the signature"),
    row("Lazy", BY_KEYWORD, TORCHSCRIPT, "a lazy module, keywords"),
    row("Partial", POSITIONAL, DYNAMO, "functools.partial"),
    row("Scripted", say(BY_KEYWORD, "script: true"), TORCHSCRIPT, "scripted, keywords"),
])  # fmt: skip
def test_every_input_has_its_name_and_its_dims_in_the_graph(bench, module, inputs, export):
    body = say(f"module: beside.{module}", inputs, export)
    assert verdict(bench.run(body, PYTHON, check="export")) == PASSED and verdict(bench.run(body, PYTHON)) == PASSED


def test_a_structure_that_torch_refuses_is_the_harness_own(bench, monkeypatch):
    python = PYTHON.replace("3 * xs[2]", "5 * xs[2]")  # no other test has this model in the store
    monkeypatch.setattr(exporters, "dynamic_shapes", lambda reference, static: ({0: torch.export.Dim.DYNAMIC},) * 3)
    record = bench.run(say("module: beside.Star", POSITIONAL, DYNAMO), python, check="export")
    assert verdict(record) == ("failed", "export", "BadDynamicShapes", "harness")
    assert "`inputs` has 1 elements, but `dynamic_shapes` has 3 elements" in record.reason


@pytest.mark.parametrize("forward", [
    pytest.param("x + torch.ones(4, 1)[:x.shape[0] * 0 + 4]", id="a dim that an operator fixes"),
    pytest.param("x + 1 if x.sum() > 0 else x - 1", id="a branch on values"),
])  # fmt: skip
def test_what_torch_refuses_of_the_module_is_still_the_exporters(bench, forward):
    body = case_of(forward, "trace: {n: 4}", DYNAMO, dims="n: 1..4", x="[n, 2]")
    record = bench.run(body, check="export")
    assert (record.stage, record.fault) == ("export", "exporter")


def test_an_input_that_forward_takes_by_keyword_only_is_told_with_how_to_pass_it(bench):
    record = bench.run(say("module: beside.Both", POSITIONAL, TORCHSCRIPT), PYTHON, check="export")
    assert verdict(record) == ("failed", "declare", "TypeError", "case")
    assert "is given as b: {type: ..., as: b}" in str(record.reason) and "c: {type" not in str(record.reason)
