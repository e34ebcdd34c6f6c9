"""``-k`` of a command selects what pytest's ``-k`` selects."""

from __future__ import annotations

import pytest
from _pytest.mark.expression import Expression

from conformance.errors import UserError
from conformance.plan.catalogue import plan
from conformance.plan.words import Words
from tests.kit.cases import load_case

pytestmark = pytest.mark.smoke

BODY = """
forward: torch.sin(x)
tags: [Quick, nightly]
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..4}
export: {torchscript: [9, 17], dynamo: [20]}
"""
TEXTS = (
    "op17", "OP17", "not not op17", "export or specials and not dynamo", "(export or specials) and not dynamo",
    "accuracy[planted-torchscript-op17-onnxruntime-fp32]", "test_accuracy and onnxruntime-fp32]",
    "quick and torchscript-op9", "sine", "None or op9", "op1:7", "lambda",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_it_selects_what_pytest_selects(tmp_path, text):
    cells, expression = list(plan(load_case(tmp_path, BODY))), Expression.compile(text)
    assert len(cells) >= 12

    def wanted(cell):
        names = [name.lower() for name in (f"test_{cell.id}", *cell.case.says.tags)]
        return expression.evaluate(lambda word, /, **more: any(word.lower() in name for name in names))

    assert [cell.id for cell in cells if Words(text).keeps(cell)] == [cell.id for cell in cells if wanted(cell)]
    assert all(map(Words("  ").keeps, cells))


@pytest.mark.parametrize("text", ["a and", "a b", "(a", "()", "a()", "a & b", "a == 'b'", "a\n;b", "(" * 500 + "a"])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(UserError, match="-k"):
        Words(text)
