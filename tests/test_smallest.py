"""The smallest model that still fails: the nodes, shapes and values of a defect, its script and its text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.bundle.layout import Bundle
from conformance.bundle.replay import replay
from conformance.checks import accuracy
from conformance.checks.reduce import trial
from conformance.checks.reduce.cut import Cut, Cutter, reference_values
from conformance.checks.reduce.search import fewest
from conformance.checks.reduce.simpler import constants, simplified
from conformance.checks.reduce.trial import Failure, Trials, difference, kind_of
from conformance.checks.reduce.written import MOST_LINES, issue, script, shows
from conformance.records.record import Record
from conformance.records.shape import record_of
from tests.optimizer import models
from tests.optimizer.models import model, node, normal
from tests.optimizer.planting import wrong
from tests.support import details, say, verdict

UNOPTIMIZED = "onnxruntime-unoptimized"


def cutter_of(whole: onnx.ModelProto, x: Any, folder: Path) -> Cutter:
    return Cutter(whole, reference_values(whole, UNOPTIMIZED, (), {"x": x}, 60.0, folder))


def trials(failure: Failure | None = None, *, alone: bool = False, seconds: float = 120.0) -> Trials:
    return Trials(failure or Failure("values", UNOPTIMIZED, 1e-3), trial.time.monotonic() + seconds, alone=alone)


class Planted(Trials):
    """Trials in which just those models fail that have certain nodes, by their names."""

    def __init__(self, needs: Sequence[str], *, never: Sequence[str] = ()) -> None:
        super().__init__(Failure("values", UNOPTIMIZED, 1e-3), float("inf"), alone=False)
        self._needs, self._never = {*needs}, {*never}

    def fails(self, cut: Cut | None) -> bool:
        self.count += 1
        names = set() if cut is None else {one.name for one in cut.model.graph.node}
        return self._needs <= names and not (self._never and self._never <= names)


def chain(length: int) -> onnx.ModelProto:
    names = ["x", *(f"t{number}" for number in range(1, length)), "y"]
    nodes = [node("Sin" if n % 2 else "Cos", names[n], names[n + 1]) for n in range(length)]
    return model(nodes, [2, 3])


# ---- cutting ---------------------------------------------------------------------------------------------------


def test_what_is_cut_has_the_references_inputs_constants_and_sinks(tmp_path: Path) -> None:
    cutter = cutter_of(models.layer_norm(), models.normal(3, 8), tmp_path)
    cut = cutter.of([1, 2])  # x - mean, to the power of p
    assert cut is not None
    graph = cut.model.graph
    assert [value.name for value in graph.input] == ["x", "mean"] == [*cut.feeds]
    assert [tensor.name for tensor in graph.initializer] == ["p"]
    assert [value.name for value in graph.output] == ["power"], "what another node of the cut takes is no output"
    onnx.checker.check_model(cut.model, full_check=True)
    np.testing.assert_allclose(cut.feeds["mean"], models.normal(3, 8).mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_the_models_own_outputs_stay_outputs_of_a_cut(tmp_path: Path) -> None:
    whole = model([node("Abs", "x", "a"), node("Sin", "a", "b"), node("Cos", "b", "y")], [2])
    whole.graph.output.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [2]))
    cut = cutter_of(whole, normal(2), tmp_path).of([0, 1])
    assert cut is not None and [value.name for value in cut.model.graph.output] == ["a", "b"]


def test_symbolic_dims_of_inputs_stay(tmp_path: Path) -> None:
    whole = models.PLANTED["ReshapeFusion"]
    cut = cutter_of(whole, normal(3, 2, 4), tmp_path).of(range(5))
    assert cut is not None and cut.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


# ---- choosing nodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("needs", [["n_t7"], ["n_t3", "n_t4"], ["n_t2", "n_t30"], ["n_t5", "n_t6", "n_t7", "n_t20"]])
def test_the_nodes_that_it_takes_are_left(tmp_path: Path, needs: list[str]) -> None:
    cutter = cutter_of(chain(40), normal(2, 3), tmp_path)
    tried = Planted(needs)
    found = fewest(cutter, tried)
    assert found is not None and found[1]
    assert [cutter.nodes[number].name for number in found[0]] == needs


def test_one_node_of_many_takes_as_many_trials_at_most(tmp_path: Path) -> None:
    cutter = cutter_of(chain(120), normal(2, 3), tmp_path)
    tried = Planted(["n_t77", "n_t78"])
    fewest(cutter, tried)
    assert tried.count < 120 + 50


def test_where_less_is_more_often_wrong_a_few_nodes_are_left_all_the_same(tmp_path: Path) -> None:
    """Beginnings of some lengths do not fail though shorter ones do."""
    cutter = cutter_of(chain(24), normal(2, 3), tmp_path)

    class Odd(Planted):
        def fails(self, cut: Cut | None) -> bool:
            return super().fails(cut) and cut is not None and len(cut.model.graph.node) % 3 != 1

    found = fewest(cutter, Odd(["n_t10", "n_t15"]))
    assert found is not None
    assert {"n_t10", "n_t15"} <= {cutter.nodes[number].name for number in found[0]} and len(found[0]) <= 8


def test_what_does_not_fail_once_it_is_cut_is_left_alone(tmp_path: Path) -> None:
    assert fewest(cutter_of(chain(6), normal(2, 3), tmp_path), Planted(["there is none"])) is None


def test_without_time_the_smallest_so_far_is_told_as_unfinished(tmp_path: Path) -> None:
    cutter = cutter_of(chain(30), normal(2, 3), tmp_path)

    class Late(Planted):
        def fails(self, cut: Cut | None) -> bool:
            if self.count > 33:
                raise trial.OutOfTime
            return super().fails(cut)

    found = fewest(cutter, Late(["n_t3", "n_t4"]))
    assert found is not None and not found[1] and len(found[0]) < 30


# ---- known defects of the pinned ONNX Runtime ------------------------------------------------------------------


def around(inner: onnx.ModelProto, before: int = 6, after: int = 6) -> onnx.ModelProto:
    """A model with more nodes before it, which negate its input an even number of times, and behind it."""
    for one in inner.graph.node:
        one.name = f"inner_{one.name}"
        one.input[:] = ["x0" if name == "x" else name for name in one.input]
        one.output[:] = ["y0" if name == "y" else name for name in one.output]
    head = ["x", *(f"h{n}" for n in range(before - 1)), "x0"]
    tail = ["y0", *(f"e{n}" for n in range(after - 1)), "y"]
    first = [node("Neg", head[n], head[n + 1]) for n in range(before)]
    last = [node("Abs", tail[n], tail[n + 1]) for n in range(after)]
    nodes = [*first, *inner.graph.node, *last]
    del inner.graph.node[:]
    inner.graph.node.extend(nodes)
    return inner


REAL: dict[str, tuple[Callable[[], onnx.ModelProto], Any, int]] = {
    "LayerNormFusionL1": (models.layer_norm, normal(3, 8), 9),
    "DivMulFusion": (lambda: models.integer_division("Identity"), models.integers(6), 2),
    "Pad_Fusion": (models.padded_pool, -np.abs(normal(1, 2, 5, 5)) - 1, 2),
}


@pytest.mark.parametrize("name", REAL)
def test_a_known_defect_is_cut_to_its_pattern_and_its_script_shows_it(tmp_path: Path, name: str) -> None:
    make, x, nodes = REAL[name]
    whole = around(make())
    cutter = cutter_of(whole, x, tmp_path)
    failure = Failure("values", UNOPTIMIZED, 1e-3, passes=(name,))
    tried = trials(failure)
    found = fewest(cutter, tried)
    assert found is not None
    cut = cutter.of(found[0])
    assert cut is not None and len(cut.model.graph.node) <= nodes + 1
    small = simplified(cut, tried)
    assert tried.fails(small) and len(small.model.graph.node) <= nodes
    assert sum(array.size for array in small.feeds.values()) <= x.size
    text = script(small, failure, expected_of(small, tmp_path))
    assert text is not None and text.count("\n") <= MOST_LINES
    file = tmp_path / "repro.py"
    file.write_text(text, encoding="utf-8")
    lives, said = shows(file)
    assert lives, said
    mended = tmp_path / "mended.py"
    mended.write_text(text.replace("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"), encoding="utf-8")
    assert subprocess.run([sys.executable, str(mended)], check=False, timeout=120).returncode == 0
    told = issue(text, said, failure, {"operators": ["Div"]}, {"onnxruntime": "1", "onnx": None})
    assert f"disabled_optimizers=['{name}']" in told and text.strip() in told and "- onnxruntime 1" in told


def expected_of(cut: Cut, folder: Path) -> list[Any]:
    from conformance.runtimes import opener

    onnx.save(cut.model, folder / "small.onnx")
    with opener(UNOPTIMIZED)(folder / "small.onnx", ()) as session:
        return session.run(cut.feeds)


def test_shapes_and_values_become_simple(tmp_path: Path) -> None:
    x = -np.abs(normal(1, 4, 9, 9)) - 1
    whole = models.padded_pool()
    whole.graph.input[0].type.tensor_type.shape.CopyFrom(
        onnx.helper.make_tensor_value_info("x", 1, x.shape).type.tensor_type.shape
    )
    cutter = cutter_of(whole, x, tmp_path)
    cut = cutter.of([0, 1])
    assert cut is not None
    small = simplified(cut, trials())
    assert [*small.feeds] == ["x"] and small.feeds["x"].shape == (1, 1, 1, 1)
    assert {*constants(small)} == {"c0", "c1"}
    assert [one.name for one in small.model.graph.node] == ["n0", "n1"]


# ---- judging ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("divisor", "undefined"), [(0, True), (3, False)])
def test_no_model_rests_on_a_whole_number_divided_by_zero(divisor: int, undefined: bool) -> None:
    """What a runtime gives there is nobody's fault; a float has an infinity to give."""
    for kind in (np.int64, np.float32):
        by = np.full(2, divisor, kind)
        x, y = (
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(by.dtype), [2]) for n in "xy"
        )
        for feeds, constants_ in (({"x": by}, [onnx.numpy_helper.from_array(by, "c")]), ({"x": by, "c": by}, [])):
            graph = onnx.helper.make_graph([node("Div", "x c", "y")], "g", [x], [y], constants_)
            cut = Cut(onnx.helper.make_model(graph), feeds)
            assert trial.divides_by_zero(cut) == (undefined and kind is np.int64)


def test_outputs_differ_in_kinds() -> None:
    one = np.ones((2, 3), np.float32)
    assert difference([one], [one, one], 1e-3) == "WrongCount"
    assert difference([one], [one.astype(np.float64)], 1e-3) == "WrongDtype"
    assert difference([one[:1]], [one], 1e-3) == "WrongShape"
    assert difference([one + np.float32(1e-4)], [one], 1e-3) is None
    assert difference([one * np.float32(1.01)], [one], 1e-3) == "values"
    assert difference([one * np.float32("nan")], [one], 1e-3) == "values"
    assert difference([np.array([1])], [np.array([2])], 1e-3) == "values"
    assert difference([one * np.float32("inf")], [one * np.float32("inf")], 1e-3) is None
    assert (kind_of("compare", "WrongNaN"), kind_of("compare", "WrongShape"), kind_of("run", "Fail")) == (
        "values", "WrongShape", "stops Fail",
    )  # fmt: skip


def test_another_pass_is_another_defect(tmp_path: Path) -> None:
    cutter = cutter_of(models.layer_norm(), normal(3, 8), tmp_path)
    cut = cutter.of(range(9))
    assert trials(Failure("values", UNOPTIMIZED, 1e-3, passes=("LayerNormFusionL1",))).fails(cut)
    assert not trials(Failure("values", UNOPTIMIZED, 1e-3, passes=("GeluFusionL2",))).fails(cut)


def test_a_model_that_takes_its_process_along_does_not_fail_alike(tmp_path: Path, monkeypatch: Any) -> None:
    cutter = cutter_of(models.layer_norm(), normal(3, 8), tmp_path)
    monkeypatch.setattr(trial, "difference", lambda *arguments: os.abort())
    assert not trials(alone=True).fails(cutter.of(range(9)))


def test_a_model_that_a_script_would_not_hold_lies_beside_it(tmp_path: Path) -> None:
    weights = normal(40, 40)
    whole = model([node("MatMul", "x w", "p"), node("Sin", "p", "y")], [3, 40], {"w": weights})
    cut = cutter_of(whole, normal(3, 40), tmp_path).of([0, 1])
    assert cut is not None
    text = script(cut, Failure("values", UNOPTIMIZED, 1e-3), [normal(3, 40)])
    assert text is not None and "model.onnx" in text and text.count("\n") <= MOST_LINES


def test_a_script_that_cannot_run_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "repro.py").write_text("import there_is_no_such_module\n", encoding="utf-8")
    lives, said = shows(tmp_path / "repro.py")
    assert not lives and "there_is_no_such_module" in said


# ---- in a cell -------------------------------------------------------------------------------------------------

NET = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        y = 1 // torch.cumsum(x, 0) * 6
        return torch.abs(y) + torch.cumsum(y, 0)


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
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    from tests.support import Bench

    folder = tmp_path_factory.mktemp("failing")
    return Bench(folder, folder / "store").run(BODY, NET), folder


def test_a_cell_leaves_the_smallest_model_with_a_script_and_a_text(failing: tuple[Record, Path]) -> None:
    record, _ = failing
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    told = record.smallest
    assert told is not None and told["nodes"] == 9 < told["of"], told
    assert told["passes"] == ["LayerNormFusionL1"]
    repro = Path(told["repro"])
    assert subprocess.run([sys.executable, repro.name], cwd=repro.parent, check=False, timeout=120).returncode == 1
    text = Path(told["issue"]).read_text(encoding="utf-8")
    assert "LayerNormFusionL1" in text and repro.read_text(encoding="utf-8").strip() in text
    lines = details(record)
    assert any(line.startswith("smallest model that fails alike: 9 of ") for line in lines)
    assert any(told["repro"] in line and told["issue"] in line for line in lines)
    assert record_of(record.as_dict())["smallest"] == told


def test_the_smallest_model_is_a_bundle_that_fails_where_it_is_replayed(
    failing: tuple[Record, Path], tmp_path: Path
) -> None:
    record, _ = failing
    assert record.smallest is not None
    bundle = Bundle(Path(record.smallest["bundle"]))
    (again,) = replay(bundle, "onnxruntime", tmp_path / "report", tmp_path / "store")
    assert (again["status"], again["error"], again["conclusion"]) == ("failed", "WrongValue", "optimizer")
    assert again["optimizer"]["passes"] == ["LayerNormFusionL1"]


def test_a_kernel_that_is_wrong_is_cut_out_alone_and_held_to_who_is_right(bench) -> None:
    """ONNX Runtime's Elu of tiny values is exp(x) - 1, where expm1 is right."""
    elu = "F.elu(torch.sin(torch.cos(x) * 0.001), 1.5) * 2"
    record = bench.run(say(f"forward: {elu}", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 2..3}"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    told = record.smallest
    assert told is not None and (told["operators"], told["passes"]) == (["Elu"], [])
    script = Path(told["repro"]).read_text(encoding="utf-8")
    assert "ReferenceEvaluator" in script and "torch" not in script
    text = Path(told["issue"]).read_text(encoding="utf-8")
    assert (
        "the ONNX specification's evaluator computes the expected outputs" in text
        and "optimizer" not in text.split()[3:9]
    )


def test_what_no_script_shows_is_not_claimed(bench) -> None:
    """A planted pass is wrong in this process alone."""
    with wrong("GeluFusionL2"):
        record = bench.run(say("forward: F.gelu(x)", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..2}"))
    told = record.smallest
    assert told is not None and "repro" not in told and "the outputs are right" in told["why_not"]
    assert not (Path(told["bundle"]) / "repro.py").exists() and not (Path(told["bundle"]) / "issue.md").exists()
    assert any("no script shows it by itself" in line for line in details(record))


def test_a_mistake_while_a_model_is_made_smaller_costs_no_failure_and_no_bundle(bench, monkeypatch) -> None:
    def breaks(*arguments: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(accuracy, "leave_smallest", breaks)
    with wrong("GeluFusionL2"):
        record = bench.run(say("forward: F.gelu(x)", 'inputs: {x: "float32[batch, 3]"}', "dims: {batch: 1..2}"))
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.bundle is not None and record.no_bundle is None
    assert record.smallest == {"why_not": "ValueError: planted"}
