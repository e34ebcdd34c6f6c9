"""The smallest model that still fails: the nodes, shapes and values of a defect, its script and its text."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.cells import red
from conformance.cells.replay.replay_bundle import replay
from conformance.diagnose.search import Asking, OutOfTime, ask_here
from conformance.diagnose.smallest.model_script import reproduction
from conformance.diagnose.smallest.model_trial import ModelFailure, ModelTrials, difference, divides_by_zero
from conformance.diagnose.smallest.reproduction import MOST_LINES, shows
from conformance.diagnose.smallest.smallest import fewest, reference_values, simplified
from conformance.models.bundle.bundle_layout import Bundle
from conformance.process.worker import aside
from conformance.results.records.record import Record
from conformance.runtimes import outputs_of
from conformance.runtimes.onnxgraph.cut import Cut, Cutter
from tests.diagnose.optimizer import models
from tests.diagnose.optimizer.models import model, node, normal
from tests.kit.cases import Bench, details, say, verdict
from tests.kit.planting import planted, wrapping
from tests.plants.passes.planting import of_onnxruntime
from tests.plants.plant import Planted
from tests.plants.planting import kernel

UNOPTIMIZED = "onnxruntime-unoptimized"


def cutter_of(whole: onnx.ModelProto, x: Any) -> Cutter:
    return Cutter(whole, reference_values(whole, UNOPTIMIZED, (), {"x": x}, 60.0))


def trials(*passes: str, ask: Asking = ask_here) -> ModelTrials:
    return ModelTrials(ModelFailure("values", UNOPTIMIZED, 1e-3, passes=passes), float("inf"), ask)


class Needing(ModelTrials):
    """Trials in which just those models fail that have certain nodes, by their names."""

    def __init__(self, *needs: str, most: int = 10**6) -> None:
        super().__init__(ModelFailure("values", UNOPTIMIZED, 1e-3), float("inf"))
        self._needs, self._most = {*needs}, most

    def fails(self, cut: Cut | None) -> bool:
        if self.count > self._most:
            raise OutOfTime
        self.count += 1
        return cut is not None and self._needs <= {one.name for one in cut.model.graph.node}


def chain(length: int) -> onnx.ModelProto:
    names = ["x", *(f"t{number}" for number in range(1, length)), "y"]
    nodes = [node("Sin" if n % 2 else "Cos", names[n], names[n + 1]) for n in range(length)]
    return model(nodes, [2, 3])


def test_what_is_cut_has_the_references_inputs_constants_and_sinks():
    cutter = cutter_of(models.layer_norm(), models.normal(3, 8))
    cut = cutter.of([1, 2])  # x - mean, to the power of p
    assert cut is not None
    graph = cut.model.graph
    assert [value.name for value in graph.input] == ["x", "mean"] == [*cut.feeds]
    assert [tensor.name for tensor in graph.initializer] == ["p"]
    assert [value.name for value in graph.output] == ["power"], "what another node of the cut takes is no output"
    onnx.checker.check_model(cut.model, full_check=True)
    np.testing.assert_allclose(cut.feeds["mean"], models.normal(3, 8).mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)


def found_in(length: int, tried: ModelTrials) -> tuple[list[str], bool] | None:
    """The names of the nodes that are left of a chain, and whether the search came to its end."""
    cutter = cutter_of(chain(length), normal(2, 3))
    found = fewest(cutter, tried)
    return None if found is None else ([cutter.nodes[number].name for number in found[0]], found[1])


@pytest.mark.parametrize("needs", [["n_t7"], ["n_t3", "n_t4"], ["n_t2", "n_t30"], ["n_t5", "n_t6", "n_t7", "n_t20"]])
def test_the_nodes_that_it_takes_are_left(needs):
    assert found_in(40, Needing(*needs)) == (needs, True)


def test_once_each_node_was_tried_alone_a_range_is_found_in_few_trials():
    needs = ["n_t4", "n_t5"]
    assert found_in(40, Needing(*needs, most=40 + 20)) == (needs, True)


def test_without_time_the_smallest_so_far_is_told_as_unfinished():
    found = found_in(30, Needing("n_t3", "n_t4", most=33))
    assert found is not None and not found[1] and len(found[0]) < 30


def around(inner: onnx.ModelProto, more: int = 6) -> onnx.ModelProto:
    """A model with more nodes before it, which negate its input an even number of times, and behind it."""
    for one in inner.graph.node:
        one.name = f"inner_{one.name}"
        one.input[:] = ["x0" if name == "x" else name for name in one.input]
        one.output[:] = ["y0" if name == "y" else name for name in one.output]
    head = ["x", *(f"h{n}" for n in range(more - 1)), "x0"]
    tail = ["y0", *(f"e{n}" for n in range(more - 1)), "y"]
    first = [node("Neg", head[n], head[n + 1]) for n in range(more)]
    last = [node("Abs", tail[n], tail[n + 1]) for n in range(more)]
    nodes = [*first, *inner.graph.node, *last]
    del inner.graph.node[:]
    inner.graph.node.extend(nodes)
    return inner


REAL: dict[str, tuple[Callable[[], onnx.ModelProto], Any, int]] = {
    "LayerNormFusionL1": (models.layer_norm, normal(3, 8), 9),
    "DivMulFusion": (models.integer_division, models.integers(6), 2),
}


@pytest.mark.parametrize("name", REAL)
def test_a_known_defect_is_cut_to_its_pattern_and_its_script_shows_it(tmp_path, name):
    make, x, nodes = REAL[name]
    whole = around(make())
    cutter = cutter_of(whole, x)
    tried = trials(name)
    found = fewest(cutter, tried)
    assert found is not None
    cut = cutter.of(found[0])
    assert cut is not None and len(cut.model.graph.node) <= nodes + 1
    small = simplified(cut, tried)
    assert tried.fails(small) and len(small.model.graph.node) <= nodes
    assert sum(array.size for array in small.feeds.values()) <= x.size
    about = reproduction(small, tried.failure, expected_of(small))
    assert about is not None
    text = about.script
    assert text.count("\n") <= MOST_LINES and "model.onnx" not in text
    file = tmp_path / "repro.py"
    file.write_text(text, encoding="utf-8")
    lives, said = shows(file, 120)
    assert lives, said
    mended = tmp_path / "mended.py"
    mended.write_text(text.replace("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"), encoding="utf-8")
    assert subprocess.run([sys.executable, str(mended)], check=False, timeout=120).returncode == 0
    told = about.issue(said, {"onnxruntime": "1", "onnx": None})
    assert f"disabled_optimizers=['{name}']" in told and text.strip() in told and "- onnxruntime 1" in told


def expected_of(cut: Cut) -> list[Any]:
    return outputs_of(cut.model, UNOPTIMIZED, (), cut.feeds)


def test_shapes_and_values_become_simple():
    cut = cutter_of(models.integer_division(), np.full_like(models.integers(6), 4)).of([0, 1, 2])
    assert cut is not None
    small = simplified(cut, trials())
    assert [*small.feeds] == ["x"] and small.feeds["x"].shape == (1,) and {*small.constants} == {"c0", "c1"}
    assert [one.name for one in small.model.graph.node] == ["n0", "n1"]


def test_no_model_rests_on_a_whole_number_divided_by_zero():
    """What a runtime gives there is nobody's fault; a float has an infinity to give."""
    for kind, divisor, undefined in ((np.int64, 0, True), (np.int64, 3, False), (np.float32, 0, False)):
        by = np.full(2, divisor, kind)
        made = model([node("Div", "x c", "y")], [2], {"c": by}, dtype="f" if kind is np.float32 else "i")
        assert divides_by_zero(Cut(made, {"x": by})) == undefined


def test_outputs_differ_in_kinds():
    one = np.ones((2, 3), np.float32)
    assert difference([one], [one, one], 1e-3) == "WrongCount"
    assert difference([one], [one.astype(np.float64)], 1e-3) == "WrongDtype"
    assert difference([one[:1]], [one], 1e-3) == "WrongShape"
    assert difference([one + np.float32(1e-4)], [one], 1e-3) is None
    assert difference([one * np.float32(1.01)], [one], 1e-3) == "values"
    assert difference([one * np.float32("nan")], [one], 1e-3) == "values"
    assert difference([np.array([1])], [np.array([2])], 1e-3) == "values"
    assert difference([one * np.float32("inf")], [one * np.float32("inf")], 1e-3) is None
    assert difference([one * np.float32("-inf")], [one * np.float32("inf")], 1e-3) == "values"
    assert difference([one * np.float32("nan")], [one * np.float32("inf")], 1e-3) == "values"


def test_another_pass_is_another_defect():
    cutter = cutter_of(models.layer_norm(), normal(3, 8))
    cut = cutter.of(range(9))
    assert trials("LayerNormFusionL1").fails(cut) and not trials("GeluFusionL2").fails(cut)


def test_a_model_that_takes_its_process_along_does_not_fail_alike():
    cut = cutter_of(models.layer_norm(), normal(3, 8)).of(range(9))
    with kernel(lambda model: os.abort())(Planted()):
        assert not trials(ask=aside.ask).fails(cut)
    assert trials(ask=aside.ask).fails(cut)


def test_a_model_that_a_script_would_not_hold_lies_beside_it():
    weights = normal(40, 40)
    whole = model([node("MatMul", "x w", "p"), node("Sin", "p", "y")], [3, 40], {"w": weights})
    cut = cutter_of(whole, normal(3, 40)).of([0, 1])
    assert cut is not None
    about = reproduction(cut, ModelFailure("values", UNOPTIMIZED, 1e-3), [normal(3, 40)])
    assert about is not None and "model.onnx" in about.script and about.script.count("\n") <= MOST_LINES


NET = """
import torch
class Normal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.weight = torch.nn.Parameter(torch.ones(8))
        self.bias = torch.nn.Parameter(torch.zeros(8))
    def forward(self, x):
        x = torch.relu(self.first(x)) + torch.sin(x)
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred**4).mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias
"""
BODY = say("module: beside.Normal", 'inputs: {x: "float32[batch, 8]"}', "dims: {batch: 2..3}")


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Record:
    folder = tmp_path_factory.mktemp("failing")
    return Bench(folder, folder / "store").run(BODY, NET, smallest=True)


def test_a_cell_leaves_the_smallest_model_with_a_script_and_a_text(failing):
    record = failing
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    told = record.smallest
    assert told is not None and told["nodes"] == 9 < told["of"] and told["passes"] == ["LayerNormFusionL1"], told
    repro = Path(told["repro"])
    assert subprocess.run([sys.executable, repro.name], cwd=repro.parent, check=False, timeout=120).returncode == 1
    text = Path(told["issue"]).read_text(encoding="utf-8")
    assert "LayerNormFusionL1" in text and repro.read_text(encoding="utf-8").strip() in text
    lines = details(record)
    assert any(line.startswith("smallest model that fails alike: 9 of ") for line in lines)
    assert any(told["repro"] in line and told["issue"] in line for line in lines)


def test_the_smallest_model_is_a_bundle_that_fails_where_it_is_replayed(failing, tmp_path):
    assert failing.smallest is not None
    bundle = Bundle(Path(failing.smallest["bundle"]))
    (again,) = replay(bundle, "onnxruntime", tmp_path / "report", tmp_path / "store")
    assert (again.status, again.error, again.conclusion) == ("failed", "WrongValue", "optimizer")
    assert again.optimizer["passes"] == ["LayerNormFusionL1"]


def test_a_kernel_that_is_wrong_is_cut_out_alone_and_held_to_who_is_right(bench):
    """ONNX Runtime's Elu of tiny values is exp(x) - 1, where expm1 is right."""
    elu = "F.elu(torch.sin(torch.cos(x) * 0.001), 1.5) * 2"
    body = say(f"forward: {elu}", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 2..3}")
    record = bench.run(body, smallest=True)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    told = record.smallest
    assert told is not None and (told["operators"], told["passes"]) == (["Elu"], [])
    script = Path(told["repro"]).read_text(encoding="utf-8")
    assert "ReferenceEvaluator" in script and "torch" not in script
    text = Path(told["issue"]).read_text(encoding="utf-8")
    assert "the ONNX specification's evaluator computes the expected outputs" in text


GELU = say("forward: F.gelu(x)", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..2}")


def test_what_no_script_shows_is_not_claimed(bench):
    """A planted pass is wrong in this process alone."""
    with planted(of_onnxruntime("GeluFusionL2")):
        record = bench.run(GELU, smallest=True)
    told = record.smallest
    assert told is not None and "repro" not in told and "the outputs are right" in told["why_not"]
    assert not (Path(told["bundle"]) / "repro.py").exists() and not (Path(told["bundle"]) / "issue.md").exists()
    assert any("no script shows it by itself" in line for line in details(record))


def test_a_mistake_while_a_model_is_made_smaller_costs_no_failure_and_no_bundle(bench):
    def breaks(*arguments: Any) -> None:
        raise ValueError("planted")

    with planted(of_onnxruntime("GeluFusionL2"), wrapping(red, "leave_smallest", breaks)):
        record = bench.run(GELU, smallest=True)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.bundle is not None and record.no_bundle is None
    assert record.smallest == {"why_not": "ValueError: planted"}
