"""Signatures of forward: what is passed, which of it is symbolic, and which name is whose in the graph.

Every module weighs its inputs differently, so that two names that change places show in the values.
"""

from __future__ import annotations

import pytest

from conformance.export import exporters
from tests.support import PASSED, say, verdict

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

class Words(torch.nn.Module):
    def forward(self, a, **words):
        return a + 2 * words["b"] + 3 * words["c"]

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
    @honest_wrapper
    def forward(self, a, b, c):
        return a + 2 * b + 3 * c

class Hidden(torch.nn.Module):
    @plain_wrapper
    def forward(self, a, b, c):
        return a + 2 * b + 3 * c

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


@pytest.mark.parametrize("module, inputs, export", [
    pytest.param("Star", POSITIONAL, DYNAMO, id="*args, dynamo"),
    pytest.param("Star", POSITIONAL, TORCHSCRIPT, id="*args, torchscript"),
    pytest.param("StarAfter", POSITIONAL, DYNAMO, id="*args after others, dynamo"),
    pytest.param("StarAfter", POSITIONAL, TORCHSCRIPT, id="*args after others, torchscript"),
    pytest.param("Words", BY_KEYWORD, DYNAMO, id="**kwargs, dynamo"),
    pytest.param("Both", BY_KEYWORD, DYNAMO, id="*args, keyword-only and **kwargs, dynamo"),
    pytest.param("Keywords", BY_KEYWORD, DYNAMO, id="keywords in another order, dynamo"),
    pytest.param("Keywords", BY_KEYWORD, TORCHSCRIPT, id="keywords in another order, torchscript"),
    pytest.param("Wrapped", POSITIONAL, DYNAMO, id="functools.wraps, dynamo"),
    pytest.param("Wrapped", BY_KEYWORD, DYNAMO, id="functools.wraps and keywords, dynamo"),
    pytest.param("Wrapped", BY_KEYWORD, TORCHSCRIPT, id="functools.wraps and keywords, torchscript"),
    pytest.param("Hidden", POSITIONAL, DYNAMO, id="a decorator that hides the signature, dynamo"),
    pytest.param("Hidden", BY_KEYWORD, DYNAMO, id="a decorator that hides the signature, keywords, dynamo"),
    pytest.param("Hidden", POSITIONAL, TORCHSCRIPT, id="a decorator that hides the signature, torchscript"),
    pytest.param("Partial", POSITIONAL, DYNAMO, id="functools.partial, dynamo"),
    pytest.param("Scripted", say(BY_KEYWORD, "script: true"), TORCHSCRIPT, id="scripted, keywords"),
])  # fmt: skip
def test_every_input_has_its_name_and_its_dims_in_the_graph(bench, module, inputs, export):
    body = say(f"module: beside.{module}", inputs, export)
    assert verdict(bench.run(body, PYTHON, check="export")) == PASSED
    assert verdict(bench.run(body, PYTHON)) == PASSED


def test_names_that_change_places_in_the_graph_are_found(bench):
    """The same module with weights that are those of another one in the graph."""
    python = PYTHON + "\ndef symbolic(g, x, y, alpha=None):\n    return g.op('Sub', x, y)\n"
    entry = '{torchscript: {opsets: [17], symbolics: {"aten::add": {function: beside.symbolic, without: another}}}}'
    record = bench.run(say("module: beside.Star", POSITIONAL, f"export: {entry}"), python)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")


def test_a_structure_that_torch_refuses_is_the_harness_own(bench, monkeypatch):
    python = PYTHON.replace("3 * xs[2]", "5 * xs[2]")  # no other test has this model in the store
    body = say("module: beside.Star", POSITIONAL, DYNAMO)

    def flat(reference, static):
        import torch

        return ({0: torch.export.Dim.DYNAMIC},) * 3

    monkeypatch.setattr(exporters, "dynamic_shapes", flat)
    record = bench.run(body, python, check="export")
    assert verdict(record) == ("failed", "export", "BadDynamicShapes", "harness")
    assert "`inputs` has 1 elements, but `dynamic_shapes` has 3 elements" in (record.reason or "")

    def lacking(reference, static):
        return {"other": ()}

    monkeypatch.setattr(exporters, "dynamic_shapes", lacking)
    record = bench.run(body, python, check="export")
    assert verdict(record) == ("failed", "export", "BadDynamicShapes", "harness")


@pytest.mark.parametrize("forward", [
    pytest.param("x + torch.ones(4, 1)[:x.shape[0] * 0 + 4]", id="a dim that an operator fixes"),
    pytest.param("x + 1 if x.sum() > 0 else x - 1", id="a branch on values"),
])  # fmt: skip
def test_what_torch_refuses_of_the_module_is_still_the_exporters(bench, forward):
    body = f"""
    forward: {forward}
    inputs: {{x: "float32[n, 2]"}}
    dims: {{n: 1..4}}
    trace: {{n: 4}}
    export: {{dynamo: [20]}}
    """
    record = bench.run(body, check="export")
    assert (record.stage, record.fault) == ("export", "exporter")


PREPARED = """
import torch

class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, xs, factor):
        return {"y": (xs[0] + xs[1]) * self.scale * factor}

def half(module):
    assert type(module) is Sum
    module.scale /= module([torch.ones(()), torch.ones(())], 1)["y"]
"""


def test_what_prepares_a_module_calls_it_as_it_is_written(bench):
    body = """
    module: beside.Sum
    prepare: beside.half
    inputs: {xs: ["float32[n]", "float32[n]"], factor: {constant: 3}}
    dims: {n: 1..5}
    returns: [y]
    """
    assert verdict(bench.run(body, PREPARED)) == PASSED
