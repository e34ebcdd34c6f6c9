"""``-k`` of a command selects what pytest's ``-k`` selects."""

from __future__ import annotations

import pytest
from _pytest.mark.expression import Expression

from conformance.errors import UserError
from conformance.plan.catalogue import plan
from conformance.plan.words import Words
from tests.support import load_case

BODY = """
forward: torch.sin(x)
tags: [Quick, nightly]
inputs: {x: "float32[batch, 3]"}
dims: {batch: 1..4}
export: {torchscript: [9, 17], dynamo: [20]}
"""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "op17",
        "OP17",
        "not op17",
        "export or specials and not dynamo",
        "(export or specials) and not dynamo",
        "not not export",
        "not (not (export))",
        "accuracy[planted-torchscript-op17-onnxruntime-fp32]",
        "test_accuracy and onnxruntime-fp32]",
        "quick and torchscript-op9",
        "nightly",
        "sine",
        "true",
        "None or op9",
        "op1:7",
        "w0",
        "lambda",
    ],
)
def test_it_selects_what_pytest_selects(tmp_path, text):
    cells = list(plan(load_case(tmp_path, BODY)))
    assert len(cells) >= 12
    words = Words(text)
    if text.strip():
        expression = Expression.compile(text)

        def wanted(cell):
            names = [name.lower() for name in (f"test_{cell.id}", *cell.case.says.tags)]
            return expression.evaluate(lambda word, /, **more: any(word.lower() in name for name in names))

    else:

        def wanted(cell):
            return True

    assert [cell.id for cell in cells if words.keeps(cell)] == [cell.id for cell in cells if wanted(cell)]


@pytest.mark.parametrize(
    "text",
    ["a and", "or a", "a b", "(a", "a)", "()", "a()", "(a)(b)", "not", "a & b", "a if b else c", "a == 'b'",
     "a, b", "[x for x in y]", "__import__('os')", "a\n;b", "(" * 500 + "a"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(UserError, match="-k"):
        Words(text)
