"""Which of the exporter's own passes makes a graph wrong: a rule or a pass of dynamo's optimizer, or onnxsim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import Bench, details, say, verdict


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, tmp_path / "store")


CLIPPED = """
forward: torch.relu(torch.clamp(x, -1, 1)) + torch.tanh(x)
inputs: {x: "float32[batch, 4]"}
dims: {batch: 1..4}
runtimes: onnxruntime
specials: false
"""


def rule(name: str) -> Any:
    from onnxscript import rewriter

    return next(one for one in rewriter._DEFAULT_REWRITE_RULES if str(one) == name)


@pytest.fixture
def wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clip and Relu are made a Max of what the Clip would have."""
    replacement = rule("FuseSuccessiveReluClip")._replacement_pattern
    original = replacement.get_replacement

    def planted(match: Any) -> Any:
        made = original(match)
        for node in made.new_nodes if made is not None else ():
            if node.op_type == "Clip":
                node.op_type = "Max"
        return made

    monkeypatch.setattr(replacement, "get_replacement", planted)


def named(record: Any) -> tuple[Any, Any]:
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    return record.operator["stage"], record.operator["passes"]


@pytest.mark.usefixtures("wrong_rule")
def test_a_wrong_rule_is_named_without_which_the_model_stays_right(bench: Bench) -> None:
    record = bench.run(say(CLIPPED, "export: {dynamo: [18]}"))
    assert named(record) == ("optimizer", ["FuseSuccessiveReluClip"])
    (line,) = [line for line in details(record) if "the exporter's own passes" in line]
    assert line.endswith(", and without FuseSuccessiveReluClip it stays right")


def test_a_wrong_pass_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folding of constants that adds one to those that it makes."""
    import numpy as np
    from onnxscript.optimizer import _constant_folding as folding

    original = folding.FoldConstantsPass._prepare_folded_tensor

    def planted(self: Any, node: Any, name: str, array: Any) -> Any:
        return original(self, node, name, array + 1 if array.dtype == np.float32 and array.size == 4 else array)

    monkeypatch.setattr(folding.FoldConstantsPass, "_prepare_folded_tensor", planted)
    body = CLIPPED.replace("+ torch.tanh(x)", "+ x * torch.arange(4.0).sin()")
    assert named(bench.run(say(body, "export: {dynamo: [18]}"))) == ("optimizer", ["FoldConstantsPass"])


@pytest.mark.parametrize("exporter", ["dynamo: {opsets: [18]", "torchscript: {opsets: [17]"])
def test_a_wrong_simplifier_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch, exporter: str) -> None:
    import onnxsim

    original = onnxsim.simplify

    def planted(model: Any, *arguments: Any, **options: Any) -> Any:
        simplified, sound = original(model, *arguments, **options)
        for node in simplified.graph.node:
            node.op_type = {"Tanh": "Atan"}.get(node.op_type, node.op_type)
        return simplified, sound

    monkeypatch.setattr(onnxsim, "simplify", planted)
    record = bench.run(say(CLIPPED, f"export: {{{exporter}, simplify: true}}}}"))
    assert named(record) == ("optimizer", ["onnxsim"])


@pytest.mark.usefixtures("wrong_rule")
def test_where_time_runs_out_none_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.align.operators import rewrites

    monkeypatch.setattr(rewrites, "SECONDS", -1.0)
    assert named(bench.run(say(CLIPPED, "export: {dynamo: [18]}"))) == ("optimizer", [])
