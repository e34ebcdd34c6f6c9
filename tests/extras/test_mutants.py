"""Mutants of exported models: they are valid and are other models, and what survives is told."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from conformance.extras.mutants.kinds import KINDS, View, choose, mutated, tensors
from conformance.extras.mutants.probe import MadeMutant
from conformance.extras.mutants.study import hasty_worker
from evidence.mutants.named import Named, named
from evidence.mutants.run import Study, add_model
from tests.kit.cases import QUICK, Bench, case_of
from tests.kit.models import model_of

X = np.random.default_rng(0).standard_normal((3, 2, 5, 4), dtype=np.float32)


def small_model() -> onnx.ModelProto:
    """A convolution, a difference, a softmax and a flattening by a computed shape: every kind has a place here."""
    weight = np.random.default_rng(1).standard_normal((2, 2, 3, 3), dtype=np.float32)
    integers = {name: np.array([value]) for name, value in (("zero", 0), ("one", 1), ("rest", -1))}
    model = model_of("""small (float[batch, 2, h, w] x) => (float[batch, m] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, weight) r = Relu (x) d = Sub (c, r) s = Softmax <axis = 1> (d)
        all = Shape (s) batch = Slice (all, zero, one) shape = Concat <axis = 0> (batch, rest) y = Reshape (s, shape)
    }""", weight=weight, **integers)  # fmt: skip
    onnx.checker.check_model(model, full_check=True)
    return model


def open_session(data: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


def view_of(model: onnx.ModelProto) -> View:
    def traced(names: Sequence[str]) -> list[np.ndarray]:
        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        del shown.graph.output[:]
        shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return open_session(shown.SerializeToString()).run(None, {"x": X})

    return View(model, traced)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_makes_valid_models_with_one_change(kind):
    sound = small_model()
    before = [one.SerializeToString() for one in sound.graph.node]
    sites = list(KINDS[kind](view_of(sound)))
    found = [
        onnx.load_from_string(data) for site in sites if (data := mutated(sound, site, open_session)) is not None
    ]
    assert found, "no site gave a model that loads"
    for model in found:
        onnx.checker.check_model(model, full_check=True)
        nodes = [one.SerializeToString() for one in model.graph.node]
        constants = tensors(model)
        changed = sum(a != b for a, b in zip(before, nodes, strict=True))
        changed += sum(constants[name].raw_data != one.raw_data for name, one in tensors(sound).items())
        assert changed == 1
    assert len({model.SerializeToString() for model in found}) == len(found), "two sites are the same change"
    assert before == [one.SerializeToString() for one in sound.graph.node], "the sound model was changed"
    if kind not in ("size baked in", "attribute left out", "integer off by one"):
        assert any(differs(model, sound) for model in found)


def differs(model: onnx.ModelProto, sound: onnx.ModelProto) -> bool:
    (wanted,) = open_session(sound.SerializeToString()).run(None, {"x": X})
    with contextlib.suppress(Fail, InvalidArgument):  # one that loads, and stops at this input
        return not np.array_equal(open_session(model.SerializeToString()).run(None, {"x": X})[0], wanted)
    return False


def test_a_baked_size_is_right_at_the_traced_shape_only():
    sound = small_model()
    (site,) = (site for site in KINDS["size baked in"](view_of(sound)) if site.node.startswith("Reshape"))
    assert site.what == "input 1 is always [3, -1]"
    data = mutated(sound, site, open_session)
    assert data is not None
    mutant, right = open_session(data), open_session(sound.SerializeToString())
    np.testing.assert_array_equal(mutant.run(None, {"x": X})[0], right.run(None, {"x": X})[0])
    twice = {"x": np.concatenate([X, X])}
    assert right.run(None, twice)[0].shape == (6, 40) and mutant.run(None, twice)[0].shape == (3, 80)


def test_kinds_take_turns_and_a_seed_decides():
    def drawn(seed: int, count: int) -> list[tuple[str, str, str]]:
        return [
            (kind, site.node, site.what)
            for kind, site, _ in choose(view_of(small_model()), seed, count, open_session)
        ]

    first = drawn(1, len(KINDS))
    assert sorted(kind for kind, *_ in first) == sorted(KINDS) and drawn(1, len(KINDS)) == first
    assert drawn(2, len(KINDS)) != first


def test_what_does_not_load_is_no_mutant():
    def refuses(data: bytes) -> None:
        raise RuntimeError("no kernel")

    assert list(choose(view_of(small_model()), 0, 3, refuses)) == []


FLATTENED = case_of(
    "torch.flatten(x * 2, 1, 2)", QUICK, "examples: {shapes: 0, values: 2, boundary: 1}", x="[batch, 3, 4, 5]"
)


@pytest.fixture(scope="module")
def flattened(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Study:
    """The mutants of a case that runs only the traced shape, and cannot see a size that is baked in."""
    folder, found = tmp_path_factory.mktemp("flattened"), Study()
    cells = [one for one in Bench(folder, store).cells(FLATTENED) if one.check == "accuracy"]
    with hasty_worker() as worker:
        add_model(found, worker, folder / "mutants", cells, 6)
    return found


def test_the_node_of_a_mutant_is_found_as_if_the_exporter_had_made_it(flattened):
    caught = [one for one in flattened.defects if one.found]
    assert {one.record.fault for one in caught if one.record is not None} == {"exporter"}
    assert caught and {one.named.place for one in caught} <= {"changed", "neighbour"}


def place(folder: Path, label: str, operator: dict[str, Any]) -> Named:
    """Where the node of a record stands for a change of the small model at ``label``."""
    model = small_model()
    for node in model.graph.node:
        node.name = f"n_{node.output[0]}"
    (folder / "models" / "key").mkdir(parents=True)
    onnx.save(model, folder / "models" / "key" / "model.onnx")
    return named(None, MadeMutant("weights changed", label, "", folder / "models"), operator, None)


@pytest.mark.parametrize("label, operator, found", [
    ("Sub d", {"node": "n_d"}, "changed"), ("Sub d", {"node": "n_c"}, "neighbour"),
    ("Sub d", {"node": "n_s"}, "neighbour"), ("Sub d", {"node": "n_all"}, "elsewhere"),
    ("Sub d", {"node": "n_nowhere"}, "open"),
    ("Sub d", {"node": "n_all", "among": ["Sub n_d", "And n_all"]}, "among"),
    ("constant weight", {"tensor": "c"}, "changed"), ("constant weight", {"node": "n_d"}, "neighbour"),
])  # fmt: skip
def test_a_named_node_is_the_changed_one_next_to_it_or_elsewhere(tmp_path, label, operator, found):
    assert place(tmp_path, label, operator).place == found
