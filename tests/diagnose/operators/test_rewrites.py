"""Which of the exporter's own passes makes a graph wrong: a rule or a pass of dynamo's optimizer, or onnxsim."""

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from onnxscript import rewriter
from onnxscript.optimizer import _constant_folding as folding
from onnxscript.rewriter import pattern

from conformance.diagnose.operators.rewrites import name_of_rule
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


def test_a_wrong_simplifier_is_named(bench):
    import onnxsim

    def wrong(original: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        simplified, sound = original(model, *arguments, **options)
        for node in simplified.graph.node:
            node.op_type = {"Tanh": "Atan"}.get(node.op_type, node.op_type)
        return simplified, sound

    with planted(wrapping(onnxsim, "simplify", wrong)):
        record = bench.run(say(CLIPPED, "export: {torchscript: {opsets: [17], simplify: true}}"))
    assert named(record) == ("optimizer", ["onnxsim"])
