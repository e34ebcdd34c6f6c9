"""Recorded data: how it is read, whether it fits a model, and what a runtime that does not give it shows."""

import base64
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser, save
from polygraphy.comparator import RunResults
from polygraphy.comparator.struct import IterationResult
from polygraphy.json import save_json

from conformance.case.files.case_file import load, read
from conformance.case.plan.catalogue import plan
from conformance.compare.recorded_values import difference
from conformance.front.cli import main
from conformance.process.disk.recorded_data import read_recorded
from conformance.process.disk.recorded_tensors import TensorKind, read_interface, read_value
from conformance.process.errors import CaseFileError, UserError
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime

NET = "net (float[n, 3] x) => (float[n, 3] y) { y = Abs (x) }"
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
BODY = "net:\n  about: a file\n  onnx: net.onnx\n  recorded: test_data_set_0\n"


def write_set(folder: Path, inputs: list[np.ndarray], outputs: list[np.ndarray], number: int = 0) -> Path:
    """Write a set in ONNX's layout."""
    place = folder / f"test_data_set_{number}"
    place.mkdir(parents=True)
    for what, arrays in (("input", inputs), ("output", outputs)):
        for at, array in enumerate(arrays):
            (place / f"{what}_{at}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
    return place


def saved(folder: Path, made: ModelProto | str = NET, outputs: list[np.ndarray] | None = None) -> Path:
    """Write a model with a set beside it."""
    save(model_of(made) if isinstance(made, str) else made, folder / "net.onnx")
    write_set(folder, [X], [np.abs(X)] if outputs is None else outputs)
    return folder / "net.onnx"


def cells(folder: Path, body: str = BODY):
    (folder / "net.yaml").write_text(body, encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return list(plan(case))


def check(folder: Path, *words: str) -> int:
    store = ("--store", str(folder / ".store"), "--examples", "1", "--precision", "fp32")
    return main(["check", str(folder / "net.onnx"), *words, *store])


# ---- how it is read ------------------------------------------------------------------------------------------
TYPES = [number for name, number in TensorProto.DataType.items() if name != "UNDEFINED"]


@pytest.mark.parametrize("number", TYPES, ids=[TensorProto.DataType.Name(number) for number in TYPES])
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_of_every_type_are_read_as_onnx_reads_them(tmp_path, number, raw):
    values = [b"a", "é".encode(), b""] if number == TensorProto.STRING else [1, 0, 1, 1, 0]
    if raw and number != TensorProto.STRING:
        dtype = helper.tensor_dtype_to_np_dtype(number)
        tensor = numpy_helper.from_array(np.array(values).astype(dtype), "x")
    else:
        tensor = helper.make_tensor("x", number, [len(values)], values)
    (tmp_path / "x.pb").write_bytes(tensor.SerializeToString())
    name, array = read_value(tmp_path / "x.pb", TensorKind("tensor"))
    wanted = numpy_helper.to_array(tensor)
    assert name == "x" and array.shape == wanted.shape
    if number == TensorProto.STRING:
        assert [*array] == ["a", "é", ""]
    else:
        assert array.dtype == wanted.dtype and array.tobytes() == wanted.tobytes()


def test_sequences_optionals_and_maps_are_read(tmp_path):
    arrays = [np.arange(3, dtype=np.int64), np.ones((2, 2), np.float32)]
    (tmp_path / "s.pb").write_bytes(numpy_helper.from_list(arrays[:1] * 2, "s").SerializeToString())
    (tmp_path / "o.pb").write_bytes(numpy_helper.from_optional(arrays[1], "o").SerializeToString())
    (tmp_path / "e.pb").write_bytes(numpy_helper.from_optional(None, "e").SerializeToString())
    (tmp_path / "m.pb").write_bytes(numpy_helper.from_dict({7: arrays[0], 9: arrays[0]}, "m").SerializeToString())
    name, value = read_value(tmp_path / "s.pb", TensorKind("sequence"))
    assert name == "s" and len(value) == 2 and np.array_equal(value[1], arrays[0])
    assert np.array_equal(read_value(tmp_path / "o.pb", TensorKind("optional"))[1], arrays[1])
    assert read_value(tmp_path / "e.pb", TensorKind("optional"))[1] is None
    assert read_value(tmp_path / "m.pb", TensorKind("map"))[1].keys() == {7, 9}


def test_no_bytes_of_a_value_make_more_than_a_sentence(tmp_path):
    data = numpy_helper.from_array(np.arange(20, dtype=np.float32).reshape(4, 5), "x").SerializeToString()
    rng, file = np.random.default_rng(0), tmp_path / "x.pb"
    for kind in ("tensor", "sequence", "optional", "map"):
        for _ in range(100):
            spoilt = bytearray(data)
            for place in rng.integers(len(data), size=rng.integers(1, 6)):
                spoilt[place] = rng.integers(256)
            file.write_bytes(spoilt[: rng.integers(1, len(data) + 1)])
            try:
                read_value(file, TensorKind(kind))
            except UserError as error:
                assert str(error).startswith(str(file))


def test_sizes_that_no_memory_holds_are_refused_before_any_is_taken(tmp_path):
    tensor = TensorProto(dims=[2**40, 2**40], data_type=TensorProto.FLOAT, raw_data=b"1234")
    (tmp_path / "x.pb").write_bytes(tensor.SerializeToString())
    with pytest.raises(UserError, match="it has 4 bytes of values"):
        read_value(tmp_path / "x.pb", TensorKind("tensor"))
    with (tmp_path / "x.pb").open("wb") as stream:
        stream.truncate(2**31)
    with pytest.raises(UserError, match="larger than 1,024 MiB"):
        read_value(tmp_path / "x.pb", TensorKind("tensor"))


def test_npz_and_polygraphy_are_read_by_name(tmp_path):
    interface = read_interface(saved(tmp_path))
    np.savez(tmp_path / "set.npz", x=X, y=np.abs(X))
    (one,) = read_recorded([tmp_path / "set.npz"], interface).sets
    assert np.array_equal(one.inputs["x"], X) and np.array_equal(one.outputs["y"], np.abs(X))
    save_json([{"x": X}, {"x": -X}], str(tmp_path / "in.json"))
    results, outputs = RunResults(), [{"y": np.abs(X)}, {"y": np.abs(X)}]
    results.append(("runner", [IterationResult(each, runtime=0.1, runner_name="runner") for each in outputs]))
    results.save(str(tmp_path / "out.json"))
    sets = read_recorded([tmp_path / "in.json", tmp_path / "out.json"], interface).sets
    assert len(sets) == 2 and np.array_equal(sets[1].inputs["x"], -X) and sets[1].outputs.keys() == {"y"}


def test_nothing_in_an_archive_is_executed_and_none_is_unpacked_that_is_too_large(tmp_path):
    interface = read_interface(saved(tmp_path))
    np.savez(tmp_path / "objects.npz", x=np.array([{"a": 1}], dtype=object), y=X)
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("x.npy", "w") as part,
    ):
        for _ in range(1100):
            part.write(bytes(2**20))
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object))
    array = {"array": base64.b64encode(pickled.getvalue()).decode(), "polygraphy_class": "ndarray"}
    (tmp_path / "objects.json").write_text(json.dumps([{"x": array}]), encoding="utf-8")
    (tmp_path / "odd.json").write_text('[{"x": {"array": "%%%"}}]', encoding="utf-8")
    (tmp_path / "list.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "none.json").write_text("{", encoding="utf-8")
    for name, said in (
        ("objects.npz", "is no .npz of plain arrays"), ("bomb.npz", "at most 1,024 are read"),
        ("objects.json", "is not what polygraphy run"), ("odd.json", "is not what polygraphy run"),
        ("list.json", "is not what polygraphy run"), ("none.json", "is no JSON"),
    ):  # fmt: skip
        left_out = []
        try:
            left_out = read_recorded([tmp_path / name], interface).left_out
        except UserError as error:
            left_out = [str(error)]
        assert said in "".join(left_out), name


# ---- how it is compared --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("got", "wanted", "error"), [
    (np.float32(1.0005), np.float32(1), None), (np.float32(1.002), np.float32(1), "WrongValue"),
    (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), None),
    (np.array(-np.inf), np.array(np.inf), "WrongValue"),
    (np.array(np.nan), np.array(0.0), "WrongValue"), (np.array([7]), np.array([8]), "WrongValue"),
    (np.array([1000001]), np.array([1000000]), "WrongValue"), (np.float64(1), np.float32(1), "WrongDtype"),
    (np.zeros((2, 1)), np.zeros((1, 2)), "WrongShape"), (np.array(["a"]), np.array(["b"], object), "WrongValue"),
    (np.array(["a"]), np.array(["a"], object), None), (np.array(1 + 1j), np.array(1 + 2j), "WrongValue"),
    (np.float16(0.3984375), np.float16(0.39794921875), None), (np.float16(0.4), np.float16(0.402), "WrongValue"),
    (np.array([4e-5, 450], "f4"), np.array([0, 450], "f4"), None),
    (np.array([4e-3, 450], "f4"), np.array([0, 450], "f4"), "WrongValue"),
    (np.zeros(0), np.zeros(0), None), (np.array([True]), np.array([False]), "WrongValue"),
])  # fmt: skip
def test_values_are_compared_by_kind(got, wanted, error):
    found = difference([got], {"y": wanted}, 1e-3, 1e-7)
    assert (found and found.error) == error


def test_tensors_of_a_sequence_are_compared_one_by_one():
    wanted = {"y": [np.zeros(2), np.ones(2)], "none": None}
    assert difference([np.zeros(2), np.ones(2)], wanted, 0, 0) is None
    found = difference([np.zeros(2), np.zeros(2)], wanted, 0, 0)
    assert found is not None and "output y[1][0] is 0.0 instead of 1.0" in found.text
    assert difference([np.zeros(2)], wanted, 0, 0).error == "WrongCount"


# ---- the check -----------------------------------------------------------------------------------------------
def test_a_case_with_recorded_data_has_a_check_of_it_and_draws_around_it(tmp_path, bench):
    saved(tmp_path)
    planned = cells(tmp_path)
    assert planned[0].id == "recorded[net-onnx-op17-onnxruntime-fp32]"
    says = planned[0].case.says
    assert (says.inputs["x"].values.uniform.low, says.inputs["x"].values.uniform.high) == (-6.0, 5.0)
    assert str(says.dims["n"]) == "2" and "test_data_set_0/input_0.pb" in says.depends
    for cell in planned:
        assert verdict(bench.run_cell(cell, examples=2)) == PASSED, cell.id


def test_recorded_data_alone_draws_nothing(tmp_path, bench):
    saved(tmp_path)
    (cell,) = cells(tmp_path, BODY.replace("test_data_set_0", "{data: test_data_set_0, only: true}"))
    record = bench.run_cell(cell)
    assert verdict(record) == PASSED and record.examples == 1


@pytest.mark.smoke
def test_a_runtime_that_does_not_give_recorded_outputs_which_others_give_is_wrong(tmp_path, bench):
    saved(tmp_path)
    cell, *_ = cells(tmp_path)
    with wrong_runtime(lambda inputs, outputs: [outputs[0] + np.float32(0.1)]):
        record = bench.run_cell(cell)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert "test_data_set_0: output y[0, 0] is 1.1" in record.reason and "of 6 values differ" in record.reason
    assert {one["runtime"]: one["answer"] for one in record.witnesses}["onnx-reference"] == "agrees"


def test_data_of_another_model_accuses_no_runtime(tmp_path, bench, capsys):
    saved(tmp_path, outputs=[-X])
    cell, *_ = cells(tmp_path)
    record = bench.run_cell(cell)
    assert verdict(record) == ("failed", "declare", "ForeignData", "case")
    assert "the recorded outputs are not this model's" in record.reason
    assert check(tmp_path, "--recorded") == 2
    assert "not this model's" in capsys.readouterr().out


def test_a_random_model_accuses_nobody(tmp_path, bench):
    made = model_of("net (float[n, 3] x) => (float[n, 3] y) { r = RandomNormalLike (x) y = Add (x, r) }")
    saved(tmp_path, made)
    cell, *_ = cells(tmp_path)
    record = bench.run_cell(cell)
    assert record.status == "skipped" and "no two runs have to agree" in record.reason


def test_drawn_values_have_no_verdict_where_the_evaluator_contradicts_recorded_data(tmp_path, bench):
    saved(tmp_path, outputs=[X])
    accuracy = next(cell for cell in cells(tmp_path) if cell.check == "accuracy")
    record = bench.run_cell(accuracy, examples=1)
    assert record.status == "skipped" and "does not give the recorded outputs" in record.reason


def test_values_that_may_be_axes_or_settings_stay_as_recorded(tmp_path, bench):
    made = model_of("net (float[2, 3] x, int64[1] axes) => (float[2, 1] y) { y = ReduceSum (x, axes) }", 18)
    save(made, tmp_path / "net.onnx")
    write_set(tmp_path, [X, np.array([1])], [X.sum(axis=1, keepdims=True)])
    planned = cells(tmp_path)
    assert planned[0].case.says.inputs["axes"].values.recorded
    assert {verdict(bench.run_cell(cell, examples=2)) for cell in planned} == {PASSED}


# ---- conformance check ---------------------------------------------------------------------------------------
def test_data_beside_a_model_is_found_and_sizes_go_around_the_recorded_ones(tmp_path, capsys):
    saved(tmp_path)
    assert check(tmp_path) == 0
    told = capsys.readouterr().out
    assert "sizes: n 1..6" in told and "passed  recorded[net-onnx-op17-onnxruntime-fp32]" in told
    assert check(tmp_path, "--recorded") == 0
    told = capsys.readouterr().out
    assert "recorded[" in told and "accuracy[" not in told


def test_sequences_run_with_recorded_data_though_none_are_drawn(tmp_path, capsys):
    made = model_of("net (seq(float[2]) s) => (float[2] y) { i = Constant <value_int = 1> () y = SequenceAt (s, i) }")
    save(made, tmp_path / "net.onnx")
    place = write_set(tmp_path, [], [np.ones(2, np.float32)])
    arrays = [np.zeros(2, np.float32), np.ones(2, np.float32)]
    (place / "input_0.pb").write_bytes(numpy_helper.from_list(arrays, "s").SerializeToString())
    assert check(tmp_path) == 0
    assert "passed  recorded[" in capsys.readouterr().out


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda place: (place / "output_0.pb").unlink(), "half a set: output_0.pb is missing"),
    (lambda place: (place / "input_0.pb").write_bytes(b"\xff\xff"), "the file is damaged"),
    (lambda place: (place / "input_0.pb").write_bytes(numpy_helper.from_array(X[0]).SerializeToString()),
     "the input x is float32[3], and the model has float32[n, 3] there"),
    (lambda place: (place / "input_0.pb").write_bytes(numpy_helper.from_array(X.astype("f8")).SerializeToString()),
     "the input x is float64[2, 3]"),
    (lambda place: (place / "input_1.pb").write_bytes((place / "input_0.pb").read_bytes()),
     "has input_1.pb, and the model has 1 inputs"),
])  # fmt: skip
def test_a_set_that_does_not_fit_is_left_out_where_found_and_refused_where_named(tmp_path, capsys, spoil, said):
    saved(tmp_path)
    spoil(tmp_path / "test_data_set_0")
    assert check(tmp_path) == 0
    assert said in capsys.readouterr().out
    assert check(tmp_path, "--data", str(tmp_path / "test_data_set_0")) == 2
    assert said in capsys.readouterr().err
    assert check(tmp_path, "--recorded") == 2
    (tmp_path / "net.yaml").write_text(BODY, encoding="utf-8")
    _, problems = read(tmp_path / "net.yaml")
    assert said in str(CaseFileError(problems)) and "net.yaml:4" in str(CaseFileError(problems))


def test_named_data_that_is_none_is_refused_with_a_sentence(tmp_path, capsys):
    saved(tmp_path)
    (tmp_path / "net.txt").touch()
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "odd.npz", z=X)
    np.savez(tmp_path / "half.npz", x=X)
    for place, said in (
        ("net.txt", "is no recorded data"), ("empty", "there is no recorded data"), ("gone.npz", "there is no such"),
        ("odd.npz", "has z, which the model does not have: x, y"),
        ("half.npz", "half a set: the output y is missing"),
    ):  # fmt: skip
        assert check(tmp_path, "--data", str(tmp_path / place)) == 2
        assert said in capsys.readouterr().err


# ---- models of other shapes ----------------------------------------------------------------------------------
def test_recorded_data_goes_with_values_in_another_file_functions_and_several_domains(tmp_path, bench):
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    made = model_of("net (float[n, 3] x) => (float[n, 3] y) { y = MatMul (x, w) }", w=weights)
    (tmp_path / "beside").mkdir()
    external = {"save_as_external_data": True, "location": "net.data", "size_threshold": 0}
    save(made, tmp_path / "beside" / "net.onnx", **external)
    write_set(tmp_path / "beside", [X], [X @ weights])
    function = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "own.domain" : 1]>
        net (float[n, 3] x) => (float[n, 3] y) { y = own.domain.Twice (x) }
        <domain: "own.domain", opset_import: ["" : 17]> Twice (a) => (b) { b = Add (a, a) }""")
    (tmp_path / "function").mkdir()
    saved(tmp_path / "function", function, [X + X])
    labels = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        net (float[n, 3] x) => (float[n, 3] y) { s = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (x) y = Abs (s)
        }""")
    (tmp_path / "domains").mkdir()
    saved(tmp_path / "domains", labels, [np.abs((X - 1) * 2)])
    for folder in ("beside", "function", "domains"):
        cell, *_ = cells(tmp_path / folder)
        assert verdict(bench.run_cell(cell)) == PASSED, folder


def test_dropout_that_an_input_sets_to_training_accuses_nobody(tmp_path, bench):
    made = model_of("net (float[2, 3] x, bool t) => (float[2, 3] y) { r = Constant <value_float = 0.5> () "
                    "y = Dropout (x, r, t) }")  # fmt: skip
    save(made, tmp_path / "net.onnx")
    write_set(tmp_path, [X, np.array(True)], [np.full_like(X, 77)])  # which no draw gives
    cell, *_ = cells(tmp_path)
    record = bench.run_cell(cell)
    assert record.status == "skipped" and "Dropout in training" in record.reason
    write_set(tmp_path, [X, np.array(False)], [X], 1)
    cell, *_ = cells(tmp_path, BODY.replace("data_set_0", "data_set_1"))
    assert verdict(bench.run_cell(cell)) == PASSED


def test_what_the_evaluator_alone_gives_is_open_where_two_runtimes_give_others(tmp_path, bench):
    """Resize by scales with align_corners: ONNX's tests divide by a length that is no whole number."""
    pytest.importorskip("openvino")
    made = model_of(
        "net (float[1, 1, 2, 4] x) => (float[1, 1, 1, 2] y) { y = Resize <mode = \"linear\", "
        "coordinate_transformation_mode = \"align_corners\"> (x, , s) }", 19,
        s=np.array([1, 1, 0.6, 0.6], np.float32),
    )  # fmt: skip
    save(made, tmp_path / "net.onnx")
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    write_set(tmp_path, [x], [np.array([[[[1, 3.142857]]]], np.float32)])
    cell, *_ = cells(tmp_path)
    record = bench.run_cell(cell)
    assert record.status == "skipped" and "it is open what the standard means" in record.reason


def test_an_input_that_is_given_back_reaches_openvino_whatever_its_name_there(tmp_path, bench):
    pytest.importorskip("openvino")
    saved(tmp_path, "net (float[2, 3] x) => (float[2, 3] y) { y = Dropout (x) }", [X])
    body = BODY + "  runtimes: openvino\n"
    cell, *_ = cells(tmp_path, body)
    assert verdict(bench.run_cell(cell)) == PASSED


def test_recorded_values_that_onnx_leaves_open_accuse_nobody_and_others_do(tmp_path, bench):
    """A number that no integer holds: whoever recorded it got one value, and a runtime may get another."""
    text = "net (float[3] x) => (int32[3] y) { y = Cast <to: int = 6> (x) }"
    save(model_of(text), tmp_path / "net.onnx")
    values = np.array([3e10, 1.5, -2.5], np.float32)
    write_set(tmp_path, [values], [np.array([77, 1, -2], np.int32)])
    cell = next(cell for cell in cells(tmp_path) if cell.check == "recorded")
    record = bench.run_cell(cell)
    assert record.status == "skipped" and "which ONNX leaves open" in str(record.reason)

    def spoil(inputs, outputs):
        return [np.array([outputs[0][0], 1, -3], np.int32)]

    with wrong_runtime(spoil):
        assert bench.run_cell(cell).status == "failed", "one value that nothing leaves open is wrong too"


def test_draws_of_recorded_ranges_that_show_nothing_are_skipped_and_the_record_counts(tmp_path, capsys):
    """Nobody declared these values, so that no case is at fault for them."""
    save(model_of("net (float[2, 3] x) => (float[2, 3] y) { z = Sub (x, x)  y = Relu (z) }"), tmp_path / "net.onnx")
    write_set(tmp_path, [X], [np.zeros((2, 3), np.float32)])
    assert check(tmp_path) == 0
    told = capsys.readouterr().out
    assert "do not show whether the runtime is right" in " ".join(told.split()) and "FAILED" not in told


@pytest.mark.parametrize(("wrong", "found"), [(1.25, None), (1.5, "WrongValue")])
def test_recorded_numbers_of_8_bits_may_be_the_next_one_and_no_other(wrong, found):
    import ml_dtypes

    right, other = (np.array([one, 2.0], ml_dtypes.float8_e5m2) for one in (1.0, wrong))
    told = difference([other], {"y": right}, 1e-3, 1e-7)
    assert (told and told.error) == found


def test_a_file_that_the_fp16_converter_cannot_make_valid_is_skipped(tmp_path, bench):
    """It leaves what an operator of another domain gives in float32, beside what it has made float16."""
    node = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", scale=[2.0], offset=[1.0])
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, None]) for name in "xy"]
    graph = helper.make_graph(
        [node, helper.make_node("Concat", ["s", "x"], ["y"], axis=1)], "g", infos[:1], infos[1:]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    infos[0].type.tensor_type.shape.dim[1].dim_value = 3
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    body = "net:\n  about: a file\n  onnx: net.onnx\n  precisions: {fp16: {}}\n"
    cell = next(cell for cell in cells(tmp_path, body) if cell.check == "fidelity")
    record = bench.run_cell(cell)
    assert record.status == "skipped" and "makes no valid model of the file" in str(record.reason)
