"""The guilty pass of ONNX Runtime's optimizer is named, for known defects and for planted ones."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from conformance.diagnose.nodes.guilty_pass import Broken, guilty
from conformance.diagnose.nodes.other_runtime import Asked
from conformance.diagnose.search import part
from conformance.runtimes import opener
from tests.diagnose.optimizer import models
from tests.kit.cases import details, say, verdict
from tests.kit.planting import planted
from tests.plants.passes.planting import of_onnxruntime, off_by_a_quarter
from tests.plants.plant import Planted
from tests.plants.planting import answering

X = models.normal(3, 8)


def wrong(*passes: str, by: Callable[[Iterable[bool]], bool] = any) -> contextlib.AbstractContextManager[None]:
    """Which may be met in another process alone, that answers whether a pass is guilty."""
    return of_onnxruntime(*passes, by=by)(Planted())


@contextlib.contextmanager
def crashing_at(level: str) -> Iterator[None]:
    """A model that is loaded at that level of optimization ends the process."""
    import onnxruntime

    original = onnxruntime.InferenceSession

    def loaded(model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> Any:
        if sess_options is not None and sess_options.graph_optimization_level.name == f"ORT_ENABLE_{level}":
            os.abort()
        return original(model, sess_options, *arguments, **options)

    with mock.patch.object(onnxruntime, "InferenceSession", loaded):
        yield


def inputs_of(model: ModelProto) -> Any:
    shape = [dim.dim_value or 3 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return models.normal(*shape)


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., dict[str, Any] | None]:
    """What is known of the passes that break a model, whose outputs without the optimizer are right."""

    def ask(model: ModelProto, x: Any, **limits: Any) -> dict[str, Any] | None:
        file = tmp_path / "model.onnx"
        onnx.save(model, file)
        with opener("onnxruntime-unoptimized")(file, ()) as session:
            right = session.run({"x": x})

        def outcome(answer: Asked) -> str:
            if answer.outputs is None:
                return "other"
            return "right" if np.allclose(answer.outputs[0], right[0], 1e-4, 1e-4) else "alike"

        return guilty(Broken(file, (), {"x": x}, {}, outcome), **limits)

    return ask


KNOWN = {
    "a power of 4 taken for 2": (models.layer_norm(), X, "LayerNormFusionL1", []),
    "an integer quotient, behind an Identity": (
        models.integer_division(), models.integers(6), "DivMulFusion", ["EliminateIdentity"],
    ),
    "quantized twice by two scales": (models.twice_quantized(), models.normal(4, 16), "DoubleQDQPairsRemover", []),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_the_pass_of_a_known_defect_is_named_and_helpers_are_told_apart(asked, name):
    model, x, guilty_pass, helpers = KNOWN[name]
    told = asked(model, x)
    assert (told["of"], told["level"]) == ("onnxruntime", "basic")
    assert (told["passes"], told["alone"], told["helpers"]) == ([guilty_pass], True, helpers)
    assert told["removed"] and told["added"]


def test_the_nodes_before_and_after_a_pass_are_told(asked):
    told = asked(models.layer_norm(), X)
    operators = [node.split()[0] for node in told["removed"]]
    assert operators == ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
    assert ([node.split()[0] for node in told["added"]], told["more"]) == (["LayerNormalization"], 0)


@pytest.mark.parametrize("name", models.PLANTED)
def test_the_pass_that_is_made_wrong_is_named(asked, name):
    model = models.PLANTED[name]
    with wrong(name):
        told = asked(model, inputs_of(model))
    assert told["passes"] == [name] and told["alone"]


def two_passes() -> ModelProto:
    """A model that MatMulAddFusion and CommonSubexpressionElimination change, and others."""
    nodes = [
        models.node("MatMul", "x w", "p"), models.node("Add", "p b", "a"), models.node("Identity", "a", "i"),
        models.node("Neg", "i", "n"), models.node("Sin", "n", "s"), models.node("Sin", "n", "t"),
        models.node("Mul", "s t", "y"),
    ]  # fmt: skip
    return models.model(nodes, [3, 4], {"w": models.normal(4, 5), "b": models.normal(5)})


def test_passes_that_break_a_model_together_are_all_named(asked):
    """Whichever of them comes first: without any one of them it is right, and none breaks anything by itself."""
    model = two_passes()
    with wrong("MatMulAddFusion", "CommonSubexpressionElimination", by=all):
        told = asked(model, inputs_of(model))
    assert sorted(told["passes"]) == ["CommonSubexpressionElimination", "MatMulAddFusion"]
    assert (told["together"], told["alone"], told["helpers"]) == (True, False, [])


def test_where_no_single_pass_heals_the_smallest_set_is_named(asked):
    model = two_passes()
    with wrong("MatMulAddFusion", "CommonSubexpressionElimination"):
        told = asked(model, inputs_of(model))
    assert sorted(told["passes"]) == ["CommonSubexpressionElimination", "MatMulAddFusion"]
    assert not told["alone"] and told["helpers"] == []
    assert told["removed"] and told["added"]


def test_a_pass_that_ends_the_process_is_no_answer_and_none_of_ours(asked):
    with crashing_at("BASIC"):
        told = asked(models.layer_norm(), X)
    assert (told["level"], told["passes"]) == ("extended", ["LayerNormFusionL1"])


def test_a_model_that_fails_at_no_level_has_no_guilty_pass_and_without_time_none_is_named(asked):
    assert asked(models.PLANTED["MatMulAddFusion"], inputs_of(models.PLANTED["MatMulAddFusion"])) is None
    assert asked(models.layer_norm(), X, seconds=0.0) is None


@pytest.mark.parametrize("wanted", [[], [0], [9], [3, 4], [1, 5, 8], list(range(10))])
def test_the_smallest_part_that_holds_is_found(wanted):
    asked_for: list[tuple[int, ...]] = []

    def holds(part: Any) -> bool:
        asked_for.append(tuple(part))
        return {*wanted} <= {*part}

    found = part(range(10), holds)
    assert found == wanted if wanted else len(found or []) <= 1
    assert len(asked_for) == len({*asked_for}), "no part is asked about twice"


GELU = say("forward: F.gelu(x)", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..3}")


def test_a_cell_that_the_optimizer_breaks_names_the_pass_and_says_so_in_words(bench):
    with planted(of_onnxruntime("GeluFusionL2")):
        record = bench.run(GELU)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime") and record.conclusion == "optimizer"
    lines = details(record)
    at = lines.index(
        "pass GeluFusionL2 of ONNX Runtime's optimizer, from level extended on: the outputs are right without it, "
        "and with no other pass it fails alike"
    )
    assert lines[at + 1].startswith("  it makes com.microsoft::Gelu ") and "Erf" in lines[at + 1]
    sound = bench.run(GELU)
    assert (sound.status, sound.optimizer) == ("passed", None)


def test_a_cell_that_is_right_without_memory_used_twice_lays_it_to_the_runtime(bench):
    def reuses(original: Any, model: Any, session: Any, options: dict[str, Any]) -> bool:
        return session is None or session.enable_mem_reuse

    with planted(answering(reuses, off_by_a_quarter)):
        record = bench.run(GELU)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert (record.conclusion, record.optimizer) == ("memory", None)
    assert any("enable_mem_reuse" in line for line in details(record))


@pytest.mark.parametrize("right", [True, False])
def test_a_cell_that_stops_and_is_right_without_memory_used_twice_has_no_operator(bench, right):
    """A model that runs without that and gives wrong values has more wrong than memory."""

    def reuses(original: Any, model: Any, session: Any, options: dict[str, Any]) -> bool:
        return session is None or session.enable_mem_reuse

    def stop(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
        raise RuntimeError("a shape that was another tensor's")

    with contextlib.ExitStack() as stack:
        stack.enter_context(answering(reuses, stop)(Planted()))
        if not right:
            stack.enter_context(answering(lambda *_: True, off_by_a_quarter)(Planted()))
        record = bench.run(GELU)
    assert verdict(record)[:3] == ("failed", "run", "RuntimeError")
    assert ((record.fault, record.conclusion) == ("runtime", "memory")) is right
    if right:
        assert not record.operator and any("enable_mem_reuse" in line for line in details(record))
