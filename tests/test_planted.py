"""Plants a defect in an export or a runtime and checks where it is found and who gets the blame.

Every defect has a sound twin that passes, so that no test holds for a harness that fails everything.
"""

from __future__ import annotations

import pytest

from tests.support import PASSED, say, verdict, with_symbolic

WRONG = ("failed", "compare", "WrongValue", "exporter")


# ---- wrong symbolics -------------------------------------------------------------------------------------

LEAKY = say(
    """
    forward: F.leaky_relu(x, 0.2)
    inputs: {x: "float32[batch, 5]"}
    dims: {batch: 1..9}
    """,
    with_symbolic('"aten::leaky_relu"'),
)

SUB = say(
    """
    forward: x - y
    inputs: {x: "float32[batch, 3]", y: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """,
    with_symbolic('"aten::sub"'),
)

SOFTMAX = say(
    """
    forward: torch.softmax(x, 1)
    inputs: {x: "float32[batch, 4]"}
    dims: {batch: 1..9}
    """,
    with_symbolic('"aten::softmax"'),
)


@pytest.mark.parametrize("body, wrong, right", [
    pytest.param(LEAKY, "g.op('LeakyRelu', x)", "g.op('LeakyRelu', x, alpha_f=0.2)", id="dropped attribute"),
    pytest.param(SUB, "g.op('Sub', rest[0], x)", "g.op('Sub', x, rest[0])", id="swapped inputs"),
    pytest.param(SOFTMAX, "g.op('Softmax', x, axis_i=0)", "g.op('Softmax', x, axis_i=1)", id="wrong axis"),
])  # fmt: skip
def test_a_wrong_symbolic_is_the_exporters_fault_and_its_right_twin_passes(bench, body, wrong, right):
    symbolic = "def symbolic(g, x, *rest):\n    return {}\n"
    assert verdict(bench.run(body, symbolic.format(wrong))) == WRONG
    assert verdict(bench.run(body, symbolic.format(right))) == PASSED


def test_a_symbolic_that_is_right_at_one_opset_only_fails_at_the_others(bench):
    """Below opset 13, Softmax normalizes over all axes from ``axis`` on."""
    body = """
    forward: torch.softmax(x, 1)
    inputs: {x: "float32[batch, 4, 3]"}
    dims: {batch: 1..9}
    """
    body = say(body, with_symbolic('"aten::softmax"', "[12, 13, 17]"))
    python = "def symbolic(g, x, dim, dtype=None):\n    return g.op('Softmax', x, axis_i=1)\n"
    found = {opset: verdict(bench.run(body, python, opset=opset)) for opset in (12, 13, 17)}
    assert found == {12: WRONG, 13: PASSED, 17: PASSED}


HYPOT = say(
    """
    forward: torch.hypot(x, y)
    inputs: {x: "float32[batch, 3]", y: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """,
    with_symbolic('"aten::hypot"', without="UnsupportedOperatorError"),
)


def test_a_symbolic_that_ignores_an_input_is_found_by_its_values_and_by_its_registration(bench):
    wrong = "def symbolic(g, x, y):\n    return g.op('Abs', x)\n"
    right = "def symbolic(g, x, y):\n    return g.op('Sqrt', g.op('Add', g.op('Mul', x, x), g.op('Mul', y, y)))\n"
    assert verdict(bench.run(HYPOT, wrong)) == WRONG
    registration = bench.run(HYPOT, wrong, check="registration")
    assert verdict(registration) == ("failed", "check", "IgnoredInput", "case")
    assert "ignores other of aten::hypot" in registration.reason
    assert verdict(bench.run(HYPOT, right)) == PASSED
    assert verdict(bench.run(HYPOT, right, check="registration")) == PASSED


def test_a_symbolic_that_changes_nothing_was_not_needed(bench):
    python = "def symbolic(g, x, y, alpha=None):\n    return g.op('Sub', x, y)\n"
    record = bench.run(SUB, python, check="registration")
    assert verdict(record) == ("failed", "check", "NotNeeded", "case")
    other = "def symbolic(g, x, y, alpha=None):\n    return g.op('Add', x, g.op('Neg', y))\n"
    assert verdict(bench.run(SUB, other, check="registration")) == PASSED


def test_a_symbolic_that_no_node_calls_is_reported_as_unused(bench):
    body = SUB.replace("x - y", "x * y")
    python = "def symbolic(g, x, y, alpha=None):\n    return g.op('Add', x, g.op('Neg', y))\n"
    record = bench.run(body, python, check="registration")
    assert record.status == "failed"
    assert record.stage == "check"
    assert record.error in ("UnusedSymbolic", "NotNeeded")


# ---- outputs of another kind -----------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
def test_an_output_of_another_dtype_is_wrong_whatever_its_values(bench, runtime):
    body = """
    forward: torch.asinh(x)
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """
    body = say(body, with_symbolic('"aten::asinh"'))
    wrong = bench.run(
        body, "def symbolic(g, x):\n    return g.op('Cast', g.op('Asinh', x), to_i=11)\n", runtime=runtime
    )
    assert verdict(wrong) == ("failed", "compare", "WrongDtype", "exporter")
    assert "float64 instead of float32" in wrong.reason
    right = "def symbolic(g, x):\n    return g.op('Asinh', x)\n"
    assert verdict(bench.run(body, right, runtime=runtime)) == PASSED


def test_a_nan_that_only_the_runtime_gives_is_found_among_large_values(bench):
    body = """
    forward: torch.sigmoid(x)
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """
    body = say(body, with_symbolic('"aten::sigmoid"'))
    wrong = """
    def symbolic(g, x):
        e = g.op("Exp", x)
        one = g.op("CastLike", g.op("Constant", value_t=__import__("torch").tensor(1.0)), x)
        return g.op("Div", e, g.op("Add", one, e))
    """
    record = bench.run(body, wrong)
    assert verdict(record) == ("failed", "compare", "WrongNaN", "exporter")
    assert record.draw["regime"] == "large"
    assert verdict(bench.run(body, "def symbolic(g, x):\n    return g.op('Sigmoid', x)\n")) == PASSED


# ---- tracing ---------------------------------------------------------------------------------------------


def test_a_size_that_became_a_constant_is_found_in_the_graph_and_by_its_values(bench):
    body = """
    forward: x / int(x.shape[0])
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """
    found = bench.run(body, check="export")
    assert verdict(found) == ("failed", "check", "ShapeBakedIn", "exporter")
    assert verdict(bench.run(body)) == WRONG
    twin = body.replace("int(x.shape[0])", "x.shape[0]")
    assert verdict(bench.run(twin, check="export")) == PASSED
    assert verdict(bench.run(twin)) == PASSED


def test_a_reshape_to_a_traced_size_stops_where_it_is_run(bench):
    body = """
    forward: x.reshape(int(x.shape[0]), 6)
    inputs: {x: "float32[batch, 2, 3]"}
    dims: {batch: 1..9}
    """
    record = bench.run(body)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "exporter")
    assert record.draw["dims"] == {"batch": 1}
    assert verdict(bench.run(body.replace("int(x.shape[0])", "-1"))) == PASSED


PATH = """
forward: "x * 2 if x.sum() > 0 else x - 1"
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..9}
"""


def test_a_path_that_depends_on_data_is_wrong_when_traced_and_right_when_scripted(bench):
    assert verdict(bench.run(PATH)) == WRONG
    scripted = """
    module: beside.Path
    script: true
    inputs: {x: "float32[batch, 3]"}
    dims: {batch: 1..9}
    """
    python = """
    import torch

    class Path(torch.nn.Module):
        def forward(self, x):
            if bool(x.sum() > 0):
                y = x * 2
            else:
                y = x - 1
            return y
    """
    assert verdict(bench.run(scripted, python)) == PASSED
    selected = PATH.replace("x * 2 if x.sum() > 0 else x - 1", "torch.where(x.sum() > 0, x * 2, x - 1)")
    assert verdict(bench.run(selected)) == PASSED


def test_a_path_that_depends_on_data_stops_the_dynamo_export(bench):
    record = bench.run(say(PATH, "export: {dynamo: [20]}"), exporter="dynamo")
    assert (record.status, record.stage, record.fault) == ("failed", "export", "exporter")
    assert record.reason
