"""Models whose large weights stay in their files: they mean what they mean to onnx, down to the last bit."""

import os
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from conformance.process.errors import attempt
from conformance.runtimes.onnxgraph import mapped as module
from conformance.runtimes.onnxgraph.mapped import FileChanged, MappedModel, mapped, read_graph
from conformance.runtimes.onnxreference import ReferenceSession
from tests.kit.models import model_of

pytestmark = pytest.mark.smoke
RNG = np.random.default_rng(0)
PACKED = ("UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2", "FLOAT6E2M3", "FLOAT6E3M2")
"""Types of which several elements share a byte."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is read as a large one is, and every weight of 64 bytes is large."""
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module, "LARGE", 64)


def weight(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def net(**more: np.ndarray) -> ModelProto:
    text = "g (float[n, 8] x) => (float[n, 8] y) { z = MatMul (x, w) y = Add (z, b) }"
    return model_of(text, w=weight(8, 8), b=weight(1, 8), **more)


def write(folder: Path, model: ModelProto, *, beside: bool = False, attributes: bool = False) -> Path:
    """The file of a model, with its weights, or the values of its attributes too, in ``net.data`` beside it."""
    file = folder / "net.onnx"
    where = {"location": "net.data", "size_threshold": 0, "convert_attribute": attributes}
    more = {"save_as_external_data": True, **where} if beside else {}
    onnx.save(onnx.ModelProto.FromString(model.SerializeToString()), file, **more)
    return file


def whole(found: MappedModel) -> ModelProto:
    """The model with the values of its weights in it again."""
    model = onnx.ModelProto.FromString(found.model.SerializeToString())
    for tensor in model.graph.initializer:
        if tensor.name in found.weights:
            tensor.raw_data = found.weights[tensor.name].tobytes()
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
            tensor.ClearField("data_location")
    return model


def told(read: Callable[[], ModelProto]) -> object:
    """The result of reading: the model, or what is said of it."""
    result = attempt(read)
    if isinstance(result, Exception):
        return type(result), str(result)
    for tensor in result.graph.initializer:
        if not tensor.data_location:
            tensor.ClearField("data_location")
    return result.SerializeToString(deterministic=True)


def both(file: Path) -> tuple[object, object]:
    return told(lambda: whole(mapped(file))), told(lambda: onnx.load(file))


# ---- the same values -----------------------------------------------------------------------------------------
TYPES = [name for name, number in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]


@pytest.mark.parametrize("beside", [False, True], ids=["in the file", "beside it"])
@pytest.mark.parametrize("name", TYPES)
def test_a_weight_of_every_type_has_the_same_bits(tmp_path, name, beside):
    number = TensorProto.DataType.Value(name)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(number))
    bits = {"4": 2, "2": 4}.get(name.removesuffix("E2M1")[-1:], 1) if name in PACKED else 1
    count = 24 * 16
    size = count * 6 // 8 if "FLOAT6" in name else count * dtype.itemsize // bits
    raw = RNG.integers(0, 2 if name == "BOOL" else 120, size, dtype=np.uint8).tobytes()
    model = net()
    model.graph.initializer.append(TensorProto(name="v", data_type=number, dims=[24, 16], raw_data=raw))
    file = write(tmp_path, model, beside=beside)
    found = mapped(file)
    assert ("v" in found.weights) == (name not in PACKED and not name.startswith("COMPLEX")), "read, or left in place"
    one, other = both(file)
    assert one == other
    wanted = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(file).graph.initializer}
    for key, array in found.weights.items():
        assert array.dtype == wanted[key].dtype and array.shape == wanted[key].shape
        assert array.tobytes() == wanted[key].tobytes() and not array.flags.writeable
        assert array.ctypes.data % 16 == 0, "kernels may add up in another order elsewhere"
    assert "w" in found.weights


@pytest.mark.parametrize(("kind", "values"), [
    (TensorProto.FLOAT, weight(24, 16)), (TensorProto.INT32, np.arange(384).reshape(24, 16)),
    (TensorProto.INT8, np.arange(-64, 64).reshape(8, 16)), (TensorProto.FLOAT16, weight(24, 16, dtype=np.float16)),
    (TensorProto.BFLOAT16, weight(24, 16).astype(ml_dtypes.bfloat16)), (TensorProto.INT64, np.arange(384)),
])  # fmt: skip
def test_values_that_are_no_bytes_stay_in_the_model(tmp_path, kind, values):
    model = net()
    model.graph.initializer.append(helper.make_tensor("v", kind, values.shape, values.ravel().tolist(), raw=False))
    file = write(tmp_path, model)
    assert [*mapped(file).weights] == ["w"]
    one, other = both(file)
    assert one == other


def test_what_may_be_sizes_stays_in_the_model_as_shape_inference_computes_with_it(tmp_path):
    model = net(sizes=np.arange(64), places=np.arange(64, dtype=np.int32), table=np.arange(64).reshape(8, 8))
    assert [*mapped(write(tmp_path, model)).weights] == ["w", "table"]


GRAPHS = {
    "plain": "g (float[n, 8] x) => (float[n, 8] y) { z = MatMul (x, w) y = Add (z, b) }",
    "an input too": "g (float[n, 8] x, float[8, 8] w) => (float[n, 8] y) { z = MatMul (x, w) y = Add (z, b) }",
    "an output": "g (float[n, 8] x) => (float[n, 8] y, float[8, 8] w) { z = MatMul (x, w) y = Add (z, b) }",
    "in a branch": """g (float[n, 8] x, bool c) => (float[n, 8] y) {
        y = If (c) <then_branch = t () => (float[n, 8] p) { p = MatMul (x, w) },
                    else_branch = e () => (float[n, 8] q) { q = Add (x, b) }>
    }""",
    "in a loop": """g (float[8, 8] x, int64 n) => (float[8, 8] y) {
        y = Loop (n, , x) <body = l (int64 i, bool go, float[8, 8] s) => (bool on, float[8, 8] t) {
            on = Identity (go) t = MatMul (s, w) }>
    }""",
    "old softmax": "g (float[n, 8] x) => (float[n, 8] y) { z = MatMul (x, w) y = Softmax <axis = 0> (z) }",
    "sums": "g (float[n, 8] x) => (float[8] y) { s = ReduceSum <keepdims = 0, axes = [0]> (w) y = Add (s, s) }",
}


@pytest.mark.parametrize("beside", [False, True], ids=["in the file", "beside it"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_evaluator_computes_the_same_bits(tmp_path, name, beside):
    opset = 11 if name in ("old softmax", "sums") else 17
    model = model_of(GRAPHS[name], opset, w=weight(8, 8), b=weight(1, 8), unused=weight(4, 8))
    file = write(tmp_path, model, beside=beside)
    found = mapped(file)
    sessions = ReferenceSession(found.model, found.weights), ReferenceSession(onnx.load(file))
    orders = [[*session._evaluator.rt_inits_] for session in sessions]
    assert orders[0] == orders[1] == ["w", "b", "unused"], "units are drawn in this order"
    feeds = {"x": weight(8, 8), "c": np.array(True), "n": np.array(3)}
    for inputs in (feeds, {**feeds, "c": np.array(False)}, {**feeds, "w": weight(8, 8)}):
        one, other = (session.run(inputs) for session in sessions)
        assert [array.tobytes() for array in one] == [array.tobytes() for array in other]
    assert {"w", "unused"} <= {*found.weights}


def test_weights_of_bodies_are_read(tmp_path):
    body = model_of("e () => (float[8, 8] q) { q = Identity (v) }", v=weight(8, 8)).graph
    model = model_of("g (bool c) => (float[8, 8] y) { z = Identity (w) }", w=weight(8, 8))
    model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body))
    model.graph.node.append(helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(weight(8, 8))))
    for beside in (False, True):
        file = write(tmp_path, model, beside=beside, attributes=True)
        one, other = both(file)
        assert one == other and [*mapped(file).weights] == ["w"]
        assert mapped(file).is_file is not beside


# ---- what is refused -----------------------------------------------------------------------------------------
def test_bytes_of_another_size_are_for_onnx_to_refuse(tmp_path):
    model = net()
    model.graph.initializer[0].dims[0] = 9
    file = write(tmp_path, model)
    assert not mapped(file).weights
    one, other = both(file)
    assert one == other


def test_two_weights_of_one_name_and_bytes_in_two_parts_are_read_as_onnx_reads_them(tmp_path):
    twice = net(u=weight(8, 8))
    twice.graph.initializer.append(numpy_helper.from_array(weight(8, 8), "w"))
    file = write(tmp_path, twice)
    assert [*mapped(file).weights] == ["u"] and both(file)[0] == both(file)[1]
    model = net()
    data = model.SerializeToString()
    tensor = model.graph.initializer[0].SerializeToString()
    more = TensorProto(raw_data=bytes(64)).SerializeToString()  # which takes the place of the bytes before
    parts = ModelProto()
    parts.CopyFrom(model)
    del parts.graph.initializer[:]
    graph = b"".join(b"\x2a" + _length(len(one)) + one for one in (tensor + more, tensor))
    file.write_bytes(parts.SerializeToString() + b"\x3a" + _length(len(graph)) + graph)
    assert len(data) and both(file)[0] == both(file)[1]


def _length(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7]) if number > 0x7F else bytes([number])


def test_a_damaged_file_gives_the_sentence_of_onnx_and_no_bytes_give_another_model(tmp_path):
    data, rng = net().SerializeToString(), np.random.default_rng(0)
    file, refused = tmp_path / "net.onnx", 0
    for turn in range(600):
        spoilt = bytearray(data)
        for place in rng.integers(len(data), size=rng.integers(0, 4)):
            spoilt[place] = rng.integers(256)
        file.write_bytes(spoilt[: rng.integers(1, len(data) + 1)] if turn % 2 else spoilt)
        one, other = both(file)
        assert one == other
        refused += isinstance(one, tuple)
    assert 100 < refused < 500, "both are tried"


SPOILT = {
    "gone": ("location", "gone.data"), "elsewhere": ("location", "../net.data"),
    "absolute": ("location", "/dev/zero"), "a folder": ("location", "."), "beyond": ("offset", "1000000"),
    "too long": ("length", "1000000"), "short": ("length", "100"), "negative": ("offset", "-4"),
    "no number": ("length", "many"), "long for it": ("length", "260"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_files_beside_the_model_are_refused_as_onnx_refuses_them(tmp_path, how):
    file = write(tmp_path, net(), beside=True)
    (tmp_path.parent / "net.data").write_bytes((tmp_path / "net.data").read_bytes())
    model = onnx.load(file, load_external_data=False)
    key, value = SPOILT[how]
    for entry in model.graph.initializer[0].external_data:
        entry.value = value if entry.key == key else entry.value
    file.write_bytes(model.SerializeToString())
    one, other = both(file)
    assert one == other
    assert isinstance(one, tuple) or how in ("short", "long for it")
    assert read_graph(file).graph.initializer[0].name == "w", "whoever reads the graph alone needs no values"


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_links_beside_the_model_are_refused_as_onnx_refuses_them(tmp_path, link):
    (tmp_path / "model").mkdir()
    file = write(tmp_path / "model", net(), beside=True)
    (tmp_path / "model" / "net.data").rename(tmp_path / "own.data")
    link(tmp_path / "model" / "net.data", tmp_path / "own.data")
    one, other = both(file)
    assert one == other and isinstance(one, tuple)


def test_without_offset_and_length_the_file_is_the_weight(tmp_path):
    model = model_of("g () => (float[8, 8] y) { y = Identity (w) }", w=weight(8, 8))
    file = write(tmp_path, model, beside=True)
    bare = onnx.load(file, load_external_data=False)
    for entry in [one for one in bare.graph.initializer[0].external_data if one.key != "location"]:
        bare.graph.initializer[0].external_data.remove(entry)
    file.write_bytes(bare.SerializeToString())
    (tmp_path / "net.data").write_bytes(model.graph.initializer[0].raw_data)
    assert [*mapped(file).weights] == ["w"] and both(file)[0] == both(file)[1]


# ---- what changes --------------------------------------------------------------------------------------------
def _cut(file: Path) -> None:
    os.truncate(file, 100)


def _rewrite(file: Path) -> None:
    state = file.stat()
    file.write_bytes(bytes(file.stat().st_size))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))


def _replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    other.replace(file)


@pytest.mark.parametrize("beside", [False, True], ids=["in the file", "beside it"])
@pytest.mark.parametrize("change", [_cut, _rewrite, _replace])
def test_no_weight_is_taken_of_a_file_that_has_changed(tmp_path, change, beside):
    file = write(tmp_path, net(), beside=beside)
    found = mapped(file)
    change(tmp_path / ("net.data" if beside else "net.onnx"))
    with pytest.raises(FileChanged, match="has changed since the model was read"):
        found.weights["w"]
    with pytest.raises(FileChanged):
        found.weights.check()


def test_a_small_file_is_left_to_onnx(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SMALL", 2**20)
    file = write(tmp_path, net())
    assert not mapped(file).weights and both(file)[0] == both(file)[1]
    file = write(tmp_path, net(), beside=True)
    assert [*mapped(file).weights] == ["w"], "whose weights may be large all the same"


def test_a_file_that_protobuf_does_not_read_for_its_size_is_left_to_onnx(tmp_path, monkeypatch):
    file = write(tmp_path, net())
    monkeypatch.setattr(module, "_MOST", file.stat().st_size - 1)
    assert not mapped(file).weights


def test_a_weight_that_has_values_in_two_places_is_for_onnx_to_read(tmp_path):
    file = write(tmp_path, net(), beside=True)
    model = onnx.load(file, load_external_data=False)
    model.graph.initializer[0].float_data.extend([1.0] * 64)
    file.write_bytes(model.SerializeToString())
    assert not mapped(file).weights and both(file)[0] == both(file)[1]


def test_the_graph_is_read_without_its_weights(tmp_path):
    model = read_graph(write(tmp_path, net()))
    assert [tensor.name for tensor in model.graph.initializer] == ["w", "b"]
    (large, small) = model.graph.initializer
    assert not large.raw_data and list(large.dims) == [8, 8] and len(small.raw_data) == 32
    with pytest.raises((onnx.checker.ValidationError, OSError, ValueError)):
        numpy_helper.to_array(large)
