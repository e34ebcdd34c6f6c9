"""Plants a defect in an export and checks where it is found and who is at fault.

Every defect has a sound twin that passes, so that no test holds for a harness that fails everything.
"""

import pytest

from tests.kit.cases import PASSED, case_of, say, verdict, with_symbolic

WRONG = ("failed", "compare", "WrongValue", "exporter")
WRONG_SYMBOLIC = ("failed", "compare", "WrongValue", "case")


def symbolic(returned: str, arguments: str = "x, *rest") -> str:
    return f"import torch\ndef symbolic(g, {arguments}):\n    return {returned}\n"


SUB = case_of("x - y", with_symbolic('"aten::sub"'), x="[batch, 3]", y="[batch, 3]")


@pytest.mark.parametrize("body, wrong, right", [
    pytest.param(case_of("F.leaky_relu(x, 0.2)", with_symbolic('"aten::leaky_relu"'), x="[batch, 5]"),
        "g.op('LeakyRelu', x)", "g.op('LeakyRelu', x, alpha_f=0.2)", id="dropped attribute"),
    pytest.param(SUB, "g.op('Sub', rest[0], x)", "g.op('Sub', x, rest[0])", id="swapped inputs"),
    pytest.param(case_of("torch.softmax(x, 1)", with_symbolic('"aten::softmax"'), x="[batch, 4]"),
        "g.op('Softmax', x, axis_i=0)", "g.op('Softmax', x, axis_i=1)", id="wrong axis"),
])  # fmt: skip
def test_a_wrong_symbolic_is_the_cases_fault_and_its_right_twin_passes(bench, body, wrong, right):
    assert verdict(bench.run(body, symbolic(wrong))) == WRONG_SYMBOLIC
    assert verdict(bench.run(body, symbolic(right))) == PASSED


def test_a_symbolic_that_is_right_at_one_opset_only_fails_at_the_others(bench):
    """Below opset 13, Softmax normalizes over all axes from ``axis`` on."""
    body = case_of("torch.softmax(x, 1)", with_symbolic('"aten::softmax"', "[12, 13, 17]"), x="[batch, 4, 3]")
    python = symbolic("g.op('Softmax', x, axis_i=1)")
    found = {opset: verdict(bench.run(body, python, opset=opset)) for opset in (12, 13, 17)}
    assert found == {12: WRONG_SYMBOLIC, 13: PASSED, 17: PASSED}


def test_a_symbolic_that_ignores_an_input_is_found_by_its_values_and_by_its_registration(bench):
    export = with_symbolic('"aten::hypot"', without="UnsupportedOperatorError")
    body = case_of("torch.hypot(x, y)", export, x="[batch, 3]", y="[batch, 3]")
    wrong = symbolic("g.op('Abs', x)", "x, y")
    right = symbolic("g.op('Sqrt', g.op('Add', g.op('Mul', x, x), g.op('Mul', y, y)))", "x, y")
    assert verdict(bench.run(body, wrong)) == WRONG_SYMBOLIC
    registration = bench.run(body, wrong, check="registration")
    assert verdict(registration) == ("failed", "check", "IgnoredInput", "case")
    assert "ignores other of aten::hypot" in registration.reason
    assert verdict(bench.run(body, right)) == PASSED
    assert verdict(bench.run(body, right, check="registration")) == PASSED


def test_a_symbolic_that_changes_nothing_was_not_needed(bench):
    same, other = symbolic("g.op('Sub', x, rest[0])"), symbolic("g.op('Add', x, g.op('Neg', rest[0]))")
    assert verdict(bench.run(SUB, same, check="registration")) == ("failed", "check", "NotNeeded", "case")
    assert verdict(bench.run(SUB, other, check="registration")) == PASSED


def test_a_symbolic_that_no_node_calls_is_reported_as_unused(bench):
    record = bench.run(SUB.replace("x - y", "x * y"), symbolic("g.op('Neg', x)"), check="registration")
    assert (record.status, record.stage) == ("failed", "check") and record.error in ("UnusedSymbolic", "NotNeeded")


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
def test_an_output_of_another_dtype_is_wrong_whatever_its_values(bench, runtime):
    body = case_of("torch.asinh(x)", with_symbolic('"aten::asinh"'))
    wrong = bench.run(body, symbolic("g.op('Cast', g.op('Asinh', x), to_i=11)"), runtime=runtime)
    assert verdict(wrong) == ("failed", "compare", "WrongDtype", "case")
    assert "float64 instead of float32" in wrong.reason
    assert verdict(bench.run(body, symbolic("g.op('Asinh', x)"), runtime=runtime)) == PASSED


@pytest.mark.smoke
def test_a_size_that_became_a_constant_is_found_in_the_graph_and_by_its_values(bench):
    body = case_of("x / int(x.shape[0])")
    assert verdict(bench.run(body, check="export")) == ("failed", "check", "ShapeBakedIn", "exporter")
    assert verdict(bench.run(body)) == WRONG
    twin = body.replace("int(x.shape[0])", "x.shape[0]")
    assert verdict(bench.run(twin, check="export")) == PASSED and verdict(bench.run(twin)) == PASSED


def test_a_reshape_to_a_traced_size_stops_where_it_is_run(bench):
    body = case_of("x.reshape(int(x.shape[0]), 6)", x="[batch, 2, 3]")
    record = bench.run(body)
    assert (record.status, record.stage, record.fault) == ("failed", "run", "exporter")
    assert record.draw["dims"] == {"batch": 1}
    assert verdict(bench.run(body.replace("int(x.shape[0])", "-1"))) == PASSED


PATH = case_of("x * 2 if x.sum() > 0 else x - 1")


def test_a_path_that_depends_on_data_is_wrong_when_traced_and_right_when_scripted(bench):
    assert verdict(bench.run(PATH)) == WRONG
    scripted = say("module: beside.Path\nscript: true", PATH.partition("\n")[2])
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
