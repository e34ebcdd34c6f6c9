"""Which of the exporter's own passes makes a graph wrong: a rule or a pass of dynamo's optimizer, or onnxsim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.kit.cases import Bench, details, say, verdict
from tests.kit.planting import planted, wrapping

pytestmark = pytest.mark.own_store

CLIPPED = """
forward: torch.relu(torch.clamp(x, -1, 1)) + torch.tanh(x)
inputs: {x: "float32[batch, 4]"}
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
"""


def named(record: Any) -> tuple[Any, Any]:
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    return record.operator["stage"], record.operator["passes"]


def test_a_wrong_rule_is_named_without_which_the_model_stays_right(bench: Bench) -> None:
    """Clip and Relu are made a Max of what the Clip would have."""
    from onnxscript import rewriter

    def wrong(original: Any, match: Any) -> Any:
        made = original(match)
        for node in made.new_nodes if made is not None else ():
            if node.op_type == "Clip":
                node.op_type = "Max"
        return made

    (rule,) = (one for one in rewriter._DEFAULT_REWRITE_RULES if str(one) == "FuseSuccessiveReluClip")
    with planted(wrapping(rule._replacement_pattern, "get_replacement", wrong)):
        record = bench.run(say(CLIPPED, "export: {dynamo: [18]}"))
    assert named(record) == ("optimizer", ["FuseSuccessiveReluClip"])
    (line,) = [line for line in details(record) if "the exporter's own passes" in line]
    assert line.endswith(", and without FuseSuccessiveReluClip it stays right")


def test_a_wrong_pass_is_named(bench: Bench) -> None:
    """A folding of constants that adds one to those that it makes."""
    from onnxscript.optimizer import _constant_folding as folding

    def wrong(original: Any, self: Any, node: Any, name: str, array: Any) -> Any:
        return original(self, node, name, array + 1 if array.dtype == np.float32 and array.size == 4 else array)

    body = CLIPPED.replace("+ torch.tanh(x)", "+ x * torch.arange(4.0).sin()")
    with planted(wrapping(folding.FoldConstantsPass, "_prepare_folded_tensor", wrong)):
        record = bench.run(say(body, "export: {dynamo: [18]}"))
    assert named(record) == ("optimizer", ["FoldConstantsPass"])


def test_a_wrong_simplifier_is_named(bench: Bench) -> None:
    import onnxsim

    def wrong(original: Any, model: Any, *arguments: Any, **options: Any) -> Any:
        simplified, sound = original(model, *arguments, **options)
        for node in simplified.graph.node:
            node.op_type = {"Tanh": "Atan"}.get(node.op_type, node.op_type)
        return simplified, sound

    with planted(wrapping(onnxsim, "simplify", wrong)):
        record = bench.run(say(CLIPPED, "export: {torchscript: {opsets: [17], simplify: true}}"))
    assert named(record) == ("optimizer", ["onnxsim"])
