"""Model files that are kept as they are: the same bytes, the same facts, and the same accusations."""

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from conformance.models.exporters import graph
from conformance.models.exporters.taken_file import TakenFile, declared
from conformance.models.kept.model_store import Store, sha_of_model
from conformance.models.reference.float64_model import load, load_mapped
from conformance.process.disk.onnx_models import WEIGHTS, serialized
from conformance.process.disk.stores import leave
from conformance.process.errors import Stopped
from conformance.runtimes.onnxgraph import mapped
from tests.kit.models import model_of

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is read as a large one is, and every weight of 300 bytes is large."""
    monkeypatch.setattr(mapped, "SMALL", 0)
    monkeypatch.setattr(mapped, "LARGE", 300)


def net(**more: np.ndarray) -> ModelProto:
    weights = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    text = "g (float[n, 8] x) => (float[n, 12] y) { z = MatMul (x, w) y = Relu (z) }"
    return model_of(text, w=weights, **more)


def write(folder: Path, model: ModelProto, **options: object) -> Path:
    onnx.save(onnx.ModelProto.FromString(model.SerializeToString()), folder / "net.onnx", **options)
    return folder / "net.onnx"


def taken(file: Path) -> tuple[ModelProto, TakenFile]:
    found = load_mapped(file)
    assert found.weights
    return found.model, TakenFile(found)


def facts(file: Path) -> tuple[dict, dict]:
    """The facts of a file that is taken as it is, and those of the model that onnx reads of it."""
    model = load(file)
    found = graph.read(*taken(file)).as_dict(), graph.read(model, serialized(model)).as_dict()
    return tuple({name: value for name, value in one.items() if name != "sha"} for one in found)


# ---- what is kept --------------------------------------------------------------------------------------------
def test_a_file_is_kept_byte_for_byte_under_the_hash_of_its_bytes(tmp_path):
    file = write(tmp_path, net())
    file.write_bytes(
        file.read_bytes() + ModelProto(doc_string="a field that a writer would sort").SerializeToString()
    )
    model, data = taken(file)
    stored = Store(tmp_path / "store").put("key", data, graph.read(model, data), {})
    assert stored.file.read_bytes() == file.read_bytes()
    assert data.sha == sha_of_model(stored.file.parent) and stored.facts.sha == data.sha[:16]
    assert Store(tmp_path / "store").get("key") == stored
    leave()


def test_what_is_small_and_lies_beside_the_file_is_kept_with_it(tmp_path):
    file = write(tmp_path, net(small=np.arange(4.0)))
    model = onnx.load(file)
    tensor = model.graph.initializer[1]
    (tmp_path / "own.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="own.bin")
    file.write_bytes(model.SerializeToString())
    _, data = taken(file)
    (tmp_path / "kept").mkdir()
    kept = onnx.load(data.write(tmp_path / "kept"))
    assert [numpy_helper.to_array(one).tolist() for one in kept.graph.initializer][1] == [0, 1, 2, 3]
    assert data.sha == sha_of_model(tmp_path / "kept")


def test_a_weight_that_is_an_output_in_a_type_without_numpy_is_read(tmp_path):
    """It has another name once the output is cast."""
    model = net()
    wide = np.arange(256).reshape(16, 16).astype(ml_dtypes.bfloat16)
    model.graph.initializer.append(numpy_helper.from_array(wide, "v"))
    model.graph.output.append(helper.make_tensor_value_info("v", TensorProto.BFLOAT16, [16, 16]))
    file = write(tmp_path, model)
    found = load_mapped(file)
    assert not found.weights
    assert found.model.SerializeToString(deterministic=True) == load(file).SerializeToString(deterministic=True)


BESIDE = {"save_as_external_data": True, "location": "own.bin", "size_threshold": 0}


@pytest.mark.parametrize("options", [BESIDE, {}], ids=["weights beside", "an interface in other types"])
def test_other_models_are_kept_with_a_file_of_their_weights(tmp_path, options):
    model = net(half=np.arange(200, dtype=np.float16).reshape(10, 20))
    if not options:
        for value in (model.graph.input[0], model.graph.output[0]):
            value.type.tensor_type.elem_type = TensorProto.BFLOAT16
        model.graph.node.insert(0, helper.make_node("Cast", ["x"], ["wide"], to=1))
        model.graph.node[1].input[0] = "wide"
        model.graph.node[2].output[0] = "narrow"
        model.graph.node.append(helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.BFLOAT16))
    file = write(tmp_path, model, **options)
    light, data = taken(file)
    (tmp_path / "kept").mkdir()
    back = onnx.load(data.write(tmp_path / "kept"))
    assert data.sha == sha_of_model(tmp_path / "kept") and (tmp_path / "kept" / WEIGHTS).is_file()
    if options:  # a file that holds little else is copied as it is
        assert (tmp_path / "kept" / WEIGHTS).read_bytes() == (tmp_path / options["location"]).read_bytes()
    wanted = load(file)
    for tensor in (*back.graph.initializer, *wanted.graph.initializer):
        tensor.ClearField("data_location")
    assert back.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)
    assert graph.read(light, data).invalid is None


def test_of_a_file_that_others_share_only_the_own_weights_are_kept(tmp_path):
    file = write(tmp_path, net(), **BESIDE)
    with (tmp_path / BESIDE["location"]).open("ab") as shared:
        shared.write(bytes(10_000))
    _, data = taken(file)
    (tmp_path / "kept").mkdir()
    data.write(tmp_path / "kept")
    assert data.sha == sha_of_model(tmp_path / "kept")
    assert (tmp_path / "kept" / WEIGHTS).stat().st_size < 10_000


@pytest.mark.parametrize("options", [{}, BESIDE])
def test_a_file_that_changes_while_it_is_checked_is_not_kept(tmp_path, options):
    file = write(tmp_path, net(), **options)
    _, before = taken(file)
    _, hashed = taken(file)
    assert hashed.sha
    place = tmp_path / options.get("location", "net.onnx")
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(Stopped, match=r"net.onnx cannot be read: .* has changed since the model was read"):
        _ = before.sha
    with pytest.raises(Stopped, match="has changed since the model was read"):
        hashed.write(tmp_path)


# ---- what is said of it --------------------------------------------------------------------------------------
def test_the_facts_of_a_sound_file_are_those_of_the_model(tmp_path):
    one, other = facts(write(tmp_path, net()))
    assert one == other and one["invalid"] is one["doubted"] is None


def _type(model: ModelProto, values: str, *dims: int, kind: int = TensorProto.FLOAT) -> None:
    """Say of the weight that it has this type."""
    getattr(model.graph, values).append(helper.make_tensor_value_info("w", kind, dims))


def _old(model: ModelProto) -> None:
    model.ir_version = 3


def _old_and_right(model: ModelProto) -> None:
    model.ir_version = 3
    _type(model, "input", 8, 12)


def _twice_sparse(model: ModelProto) -> None:
    sparse = model.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "i"))


def _unknown(model: ModelProto) -> None:
    model.graph.node[0].op_type = "NoSuchOperator"


def _made_twice(model: ModelProto) -> None:
    model.graph.node[0].output[0] = "w"


def _other_type(model: ModelProto) -> None:
    tensor = numpy_helper.from_array(np.zeros((8, 12), np.float64), "w")
    model.graph.initializer[0].CopyFrom(tensor)


def _other_size(model: ModelProto) -> None:
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((9, 12), np.float32), "w"))


def _doubtful(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7


DEFECTS: dict[str, tuple[Callable[[ModelProto], None], bool]] = {
    "no input in an old version": (_old, True), "an input in an old version": (_old_and_right, False),
    "a sparse one of its name": (_twice_sparse, True), "an unknown operator": (_unknown, True),
    "a node of its name": (_made_twice, True), "another type": (_other_type, True),
    "another size": (_other_size, True), "an output of another size": (_doubtful, True),
    "an input of its size": (lambda model: _type(model, "input", 8, 12), False),
    "an input of another size": (lambda model: _type(model, "input", 8, 9), True),
    "an input of another type": (lambda model: _type(model, "input", 8, 12, kind=TensorProto.DOUBLE), True),
    "a value of another rank": (lambda model: _type(model, "value_info", 8), True),
    "an output of another size than it has": (lambda model: _type(model, "output", 8, 9), True),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFECTS)
def test_whoever_refuses_a_model_refuses_the_file_in_the_same_words(tmp_path, name):
    spoil, is_wrong = DEFECTS[name]
    model = net()
    spoil(model)
    one, other = facts(write(tmp_path, model))
    assert one == other
    assert bool(one["invalid"] or one["doubted"]) is is_wrong


def test_an_input_takes_the_place_of_a_weight_where_only_its_type_is_asked_for(tmp_path):
    file = write(tmp_path, net())
    found = load_mapped(file)
    bare = onnx.load_model_from_string(declared(found.model, found.weights))
    assert [value.name for value in bare.graph.input] == ["x", "w"] and not bare.graph.initializer
    assert len(found.model.graph.initializer) == 1, "the model stays as it is"
