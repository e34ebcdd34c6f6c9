"""Plants one wrong layer in a network, in the ways that a graph can be wrong, and checks that it is the one named."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from benchmarks.culprits.planting import exported
from conformance.align.matching import Place
from conformance.align.parting import at_fp32
from conformance.compare.judges import Tolerances
from conformance.compare.tolerance import DEFAULTS, Tolerance
from tests.align.support import Trial, chain, kinds, parting, rows, said, sub_calls
from tests.kit.networks import BOTH, DYNAMO_THOROUGH, FP16, IMAGES, INT8, network, wrong
from tests.kit.planting import planted


def test_a_wrong_symbolic_is_the_first_parting_and_what_follows_is_not(trial):
    answer = trial(wrong("Network", "symbolic", IMAGES))
    assert answer.alignment.parts and parting(answer) == "act"
    found = rows(answer)
    assert {name for name, row in found.items() if row.parts} == {"act", "head"}
    assert [name for name, row in found.items() if row.begins] == ["act"]
    lines = said(answer)
    assert "they part first at act (Hardswish), node /act/Mul, operators HardSwish, Mul:" in lines
    assert "it is computed from layers.1.relu, call 2 (error/allowed" in lines


@DYNAMO_THOROUGH
@pytest.mark.parametrize("layer, node", [(3, "layers.1.bn1"), (5, "head")])
def test_a_wrong_weight_in_the_graph_is_named(tmp_path, exporter, layer, node):
    """The weight of a convolution with its batch norm is named with the batch norm's output."""

    def change(model: onnx.ModelProto) -> int:
        weights = {one.name: one for one in model.graph.initializer}
        users = [one for one in model.graph.node if one.op_type in ("Conv", "Gemm", "MatMul")]
        weight = weights[users[layer].input[1]]
        array = numpy_helper.to_array(weight).copy()
        array.flat[0] += 0.5
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))
        return 1

    with planted(exported(change)):
        answer = Trial(tmp_path, tmp_path / "store")(network("Network", IMAGES), exporter=exporter)
    assert parting(answer) == node and [name for name, row in rows(answer).items() if row.begins] == [node]


def test_partings_that_do_not_follow_from_the_first_are_told(trial):
    answer = trial(wrong("Branches", "symbolic"))
    assert parting(answer) == "one" and {name for name, row in rows(answer).items() if row.begins} == {"one", "two"}
    assert not rows(answer)["sound"].parts
    assert "1 more part though what they are computed from agrees: two" in said(answer)


def test_a_graph_that_does_not_run_is_refused(trial):
    with pytest.raises(ValueError, match=r"onnxruntime-literal: .*Add"):  # of two tensors that have no common shape
        trial(wrong("Network", "flat", IMAGES))


@pytest.mark.parametrize("name, symbolic, text", [
    ("Last", "flat", "it has shape (1, 12) instead of (3, 4)"),
    ("Branches", "poisoned", "are NaN or infinite on one side only"),
])  # fmt: skip
def test_a_wrong_shape_and_nan_that_only_the_graph_has_are_named(trial, name, symbolic, text):
    answer = trial(wrong(name, symbolic))
    assert parting(answer) in ("act", "one", "two") and text in said(answer)


@pytest.mark.parametrize("moves, parts", [(1e-3, False), (0.0, True)])
def test_what_the_rounding_of_inputs_moves_as_far_does_not_part(moves, parts):
    """PyTorch's float32 may be exact by luck, and is no measure then."""
    (call, *_) = sub_calls(1)
    graph = chain([("sub", "HardSwish")])
    place = Place(call, 0, "own", "t1")
    wanted, asked = call.outputs[0], []

    def moved(effort: str) -> dict[tuple[int, int], Any]:
        asked.append(effort)
        return {(call.id, 0): np.full(wanted.shape, moves)}

    def aligned(got: Any) -> Any:
        exact = {(call.id, 0): wanted.astype(np.float64)}
        return at_fp32(graph, [place], {"t1": got}, exact, Tolerances((), ()), moved)

    assert not aligned(wanted).parts
    assert not asked
    assert aligned(wanted + np.float32(1e-3)).parts is parts and asked == (["some", "all"] if parts else ["some"])


@pytest.mark.parametrize("tolerance, parts", [(Tolerance(0.0, 1e-2), False), (DEFAULTS["float32"], True)])
def test_an_output_of_the_model_has_the_tolerance_that_is_declared(tolerance, parts):
    (whole,) = (call for call in sub_calls(1) if not call.path)
    place, got = Place(whole, 0, "own", "t1"), whole.outputs[0] + np.float32(1e-3)
    judge = Tolerances((tolerance,), (False,))
    assert at_fp32(chain([("sub", "HardSwish")]), [place], {"t1": got}, {}, judge, lambda effort: {}).parts is parts


@pytest.mark.parametrize("values", ["nan", "large"])
def test_special_values_do_not_make_a_sound_network_part(trial, values):
    answer = trial(network("Twice"), values=values)
    assert answer.draw.regime == values and not answer.alignment.parts


def test_the_layer_that_overflows_in_fp16_is_named(trial):
    assert not trial(FP16).alignment.parts
    answer = trial(FP16, precision="fp16")
    assert answer.alignment.parts and parting(answer) == "loud"
    assert "values are NaN or infinite; in PyTorch the largest is" in said(answer)
    assert rows(answer)["first"].sqnr > 60 and rows(answer)["last"].parts


def test_the_layer_that_loses_most_in_int8_is_named(trial):
    answer = trial(INT8, precision="int8")
    assert answer.alignment.parts and parting(answer) == "gather"
    found = rows(answer)
    assert found["spread"].sqnr > 25 > 20 > found["gather"].sqnr
    assert found["gather"].drop == pytest.approx(min(found["spread"].sqnr, 40) - found["gather"].sqnr)
    assert "most is lost at gather (Conv2d), node /gather/Conv" in said(answer)


@DYNAMO_THOROUGH
def test_a_sound_conversion_does_not_part(trial, exporter):
    body = network("Network", IMAGES, BOTH, "precisions: {fp16: {}, int8: {}}")
    for precision in ("fp16", "int8"):
        answer = trial(body, precision=precision, exporter=exporter)
        assert "unmatched" not in kinds(answer).values()
        assert all(row.sqnr is not None and row.sqnr > 20 for row in answer.alignment.compared)
        assert not answer.alignment.parts
