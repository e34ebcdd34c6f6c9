"""The exporter's own pass that makes a graph wrong: a rule or a pass of dynamo's optimizer, or a simplifier."""

import contextlib
import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import onnx.parser
import pytest
from onnxscript import rewriter
from onnxscript.optimizer import _constant_folding as folding
from onnxscript.rewriter import pattern

from conformance.diagnose.operators.rewrites import name_of_rule
from conformance.diagnose.smallest.lines import Exporting, exporting
from tests.kit.cases import case_of, details, say, verdict
from tests.kit.planting import planted, wrapping

pytestmark = pytest.mark.own_store

CLIPPED = case_of(
    "torch.relu(torch.clamp(x, -1, 1)) + torch.tanh(x)",
    "runtimes: onnxruntime",
    "specials: false",
    dims="batch: 1..4",
    x="[batch, 4]",
)


def named(record: Any) -> tuple[Any, Any]:
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    return record.operator["stage"], record.operator["passes"]


@contextlib.contextmanager
def fused_as(operator: str, name: str | None = "FuseSuccessiveReluClip") -> Iterator[None]:
    """Clip and Relu are fused to this operator in place of Clip, by a rule of that name; none: that raises."""

    def wrong(original: Any, match: Any) -> Any:
        made = original(match)
        for node in made.new_nodes if made is not None else ():
            if not operator:
                raise RuntimeError("not thought of")
            node.op_type = operator if node.op_type == "Clip" else node.op_type
        return made

    (rule,) = (one for one in rewriter._DEFAULT_REWRITE_RULES if str(one) == "FuseSuccessiveReluClip")
    with (
        planted(wrapping(rule._replacement_pattern, "get_replacement", wrong)),
        mock.patch.object(rule, "name", name),
    ):
        yield


def test_a_wrong_rule_is_named_without_which_the_model_stays_right(bench):
    with fused_as("Max"):
        record = bench.run(say(CLIPPED, "export: {dynamo: [18]}"))
    assert named(record) == ("optimizer", ["FuseSuccessiveReluClip"])
    (line,) = [line for line in details(record) if "the exporter's own passes" in line]
    assert line.endswith(", and without FuseSuccessiveReluClip it stays right")


@pytest.mark.thorough
def test_an_operator_that_a_rule_takes_out_is_named_and_not_the_one_after(bench):
    rule = next(one for one in rewriter._DEFAULT_REWRITE_RULES if "redundant_slice" in f"{one._condition_function}")
    with planted(wrapping(rule, "_condition_function", lambda original, *args, **kwargs: True)):
        record = bench.run(say(case_of("torch.tanh(x)[:, ::2] * 2"), "export: {dynamo: [18]}"))
    assert record.operator is not None and (record.error, record.operator["removed"]) == ("WrongShape", True)
    assert [record.operator[key] for key in ("operator", "type", "stage")] == ["aten.slice", "Slice", "optimizer"]


@pytest.mark.parametrize("operator, found, how", [
    pytest.param("NoSuchOperator", ("check", "ValidationError"), "refused", id="an invalid node"),
    pytest.param("", ("export", "PassError"), "raises", id="an exception"),
])  # fmt: skip
@pytest.mark.thorough
def test_a_rule_that_makes_no_valid_model_is_named_and_without_a_name_by_its_function(bench, operator, found, how):
    with fused_as(operator, None):
        record = bench.run(say(CLIPPED, "export: {dynamo: [18]}"), check="export")
    assert verdict(record) == ("failed", *found, "exporter")
    told = record.operator or {}
    assert (told["how"], told["stage"]) == (how, "optimizer")
    (rule,) = told["passes"]
    assert re.fullmatch(r"[\w.]+ at onnxscript/rewriter/rules/common/_fuse_relus_clips\.py:\d+", rule)
    assert any(rule in line for line in details(record))


def test_a_rule_without_a_name_is_called_by_its_function_and_file():
    def replaced(op: Any, x: Any) -> Any:
        return op.Identity(x)

    rule = pattern.RewriteRule(lambda op, x: op.Relu(x), functools.partial(replaced))
    code = replaced.__code__
    assert name_of_rule(rule) == f"{code.co_qualname} at {code.co_filename}:{code.co_firstlineno}"


def test_a_wrong_pass_is_named(bench):
    """A folding of constants that adds one to those that it makes."""

    def wrong(original: Any, self: Any, node: Any, name: str, array: Any) -> Any:
        return original(self, node, name, array + 1 if array.dtype == np.float32 and array.size == 4 else array)

    body = CLIPPED.replace("+ torch.tanh(x)", "+ x * torch.arange(4.0).sin()")
    with planted(wrapping(folding.FoldConstantsPass, "_prepare_folded_tensor", wrong)):
        record = bench.run(say(body, "export: {dynamo: [18]}"))
    assert named(record) == ("optimizer", ["FoldConstantsPass"])


@pytest.fixture
def simplifiers(monkeypatch) -> dict[str, Any]:
    """onnxsim, and a double of onnxslim, which returns the model that it has changed, as that does."""
    import onnxsim

    def slim(model: Any) -> Any:
        model.producer_name = "slim"
        return model

    double: Any = ModuleType("onnxslim")
    double.slim = slim
    monkeypatch.setitem(sys.modules, "onnxslim", double)
    return {"onnxsim": onnxsim, "onnxslim": double}


SIMPLIFIED = [("true", "onnxsim", "simplify"), ("onnxsim", "onnxsim", "simplify"), ("onnxslim", "onnxslim", "slim")]


@pytest.mark.parametrize("said, package, function", SIMPLIFIED)
def test_a_wrong_simplifier_is_named(bench, simplifiers, said, package, function):
    def wrong(original: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        result = original(model, *arguments, **options)
        for node in (result if package == "onnxslim" else result[0]).graph.node:
            node.op_type = {"Tanh": "Atan"}.get(node.op_type, node.op_type)
        return result

    body = say(CLIPPED, f"export: {{torchscript: {{opsets: [17], simplify: {said}}}}}")
    assert replace(bench, store=bench.folder / "sound").run(body).status == "passed"
    with planted(wrapping(simplifiers[package], function, wrong)):
        record = bench.run(body)
    assert named(record) == ("optimizer", [package])


@pytest.mark.parametrize("package, function", [each[1:] for each in SIMPLIFIED[1:]])
@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_a_script_simplifies_the_model_as_the_case_does(simplifiers, package, function, exporter):
    nothing: Any = SimpleNamespace(steps=[], inputs={}, constants={}, own=[], traced={}, dynamic=False)
    *_, line = exporting(nothing, Exporting(exporter, 18, {}, {}, {}, (), package))
    text = '<ir_version: 8, opset_import: ["": 18]> net (float[2] x) => (float[2] y) { y = Abs(x) }'
    model = onnx.parser.parse_model(text)
    space = {"onnx": onnx, package: simplifiers[package], "model": model.SerializeToString()}
    with planted(wrapping(simplifiers[package], function, lambda original, given: original(given))):
        exec(line, space)
    assert [node.op_type for node in onnx.load_from_string(space["model"]).graph.node] == ["Abs"]


@pytest.mark.parametrize("package", ["onnxsim", "onnxslim"])
def test_a_simplifier_that_is_not_installed_skips_the_cell(bench, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    record = bench.run(say(CLIPPED, f"export: {{dynamo: {{opsets: [18], simplify: {package}}}}}"))
    said = f"simplify needs the package {package}, which is not installed"
    assert (record.status, record.reason) == ("skipped", said)
