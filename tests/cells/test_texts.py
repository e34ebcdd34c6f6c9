"""Files that take or give texts: words are drawn, compared exactly, and shown in quotes."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from conformance.case.draw.draw import Draw, Maker
from conformance.case.draw.graph_values import HARD, NUMERALS, words_of
from conformance.case.files.case_file import load
from conformance.case.plan.catalogue import plan
from conformance.front.cli import main
from conformance.process.arrays import in_dtype_of, same
from conformance.runtimes import openvino
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime

JOINED = "net (string[n] a, string[n] b) => (string[n] y) { y = StringConcat (a, b) }"
EQUAL = 'net (string[n, 2] x) => (bool[n, 2] y) <string[1] word = {"red"}> { y = Equal (x, word) }'
CAST = "net (string[n] x) => (float[n] y) { y = Cast <to: int = 1> (x) }"


def case_of(folder, text, more=""):
    onnx.save(model_of(text, 20), folder / "net.onnx")
    (folder / "net.yaml").write_text(f"net:\n  about: texts\n  onnx: net.onnx\n{more}", encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return case


def accuracy(case):
    return next(cell for cell in plan(case) if cell.check == "accuracy")


def check(folder, *files):
    """Run ``conformance check`` on files of the folder, or with other words, in fp32."""
    words = [str(folder / one) if one.endswith(".onnx") else one for one in files]
    return main(["check", *words, "--store", str(folder / ".store"), "--examples", "2", "--precision", "fp32"])


def test_words_of_the_model_and_texts_that_are_hard_to_get_right_are_drawn(tmp_path):
    case = case_of(tmp_path, EQUAL)
    make = Maker(case, lambda _: None)
    drawn = np.concatenate([make(Draw({"n": 8}, "plain", seed))["x"].reshape(-1) for seed in range(40)])
    assert drawn.dtype.kind == "U" and {"red", "RED", *HARD} <= {*drawn.tolist()}
    assert {*make(Draw({"n": 8}, "zero", 0))["x"].reshape(-1)} == {""}
    assert np.array_equal(make(Draw({"n": 3}, "ties", 7))["x"], make(Draw({"n": 3}, "ties", 7))["x"])


def test_what_is_read_as_a_number_is_one(tmp_path, bench):
    case = case_of(tmp_path, CAST)
    drawn = Maker(case, lambda _: None)(Draw({"n": 8}, "plain", 0))["x"]
    assert {*drawn.tolist()} <= {*NUMERALS}
    assert verdict(bench.run_cell(accuracy(case), examples=2)) == PASSED


def test_names_of_modes_are_no_words():
    node = onnx.helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", stopwords=["monday"])
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.STRING, None) for name in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:1], values[1:]))
    assert words_of(model) == ["monday"]


def test_texts_are_verified_and_a_wrong_one_is_found_wherever_it_stands(tmp_path, bench):
    cell = accuracy(case_of(tmp_path, JOINED))
    assert verdict(bench.run_cell(cell, examples=2)) == PASSED

    def spoil(inputs, outputs):
        text = outputs[0].astype("U99")
        text.reshape(-1)[-1:] = np.char.add(text.reshape(-1)[-1:], "!")  # longer than any right one
        return [text]

    with wrong_runtime(spoil):
        record = bench.run_cell(cell, examples=2)
    assert (record.status, record.error) == ("failed", "WrongValue")
    assert "texts are exact" in str(record.reason) and str(record.worst["got"]).endswith("!'")


def test_a_file_that_joins_texts_in_another_order_is_found_and_both_texts_are_shown(tmp_path, capsys, monkeypatch):
    onnx.save(model_of(JOINED, 20), tmp_path / "a.onnx")
    onnx.save(model_of(JOINED.replace("(a, b) }", "(b, a) }"), 20), tmp_path / "b.onnx")
    assert check(tmp_path, "a.onnx", "b.onnx") == 1
    told = capsys.readouterr().out
    assert "b.onnx is wrong" in told and "a = string ['" in told and "its input 0 is b, in a.onnx a" in told
    (line,) = [line for line in told.splitlines() if "conformance replay" in line]
    monkeypatch.chdir(tmp_path)
    assert main(line.partition("conformance ")[2].split()) == 1  # with the texts of the bundle
    assert "WrongValue" in capsys.readouterr().out


@pytest.mark.parametrize(("said", "error"), [
    ("inputs: {x: {type: 'string[n, 2]', values: {choice: [1, 2]}}}", "values of texts are texts"),
    ("inputs: {x: {type: 'string[n, 2]', values: {texts: []}}}", "texts: 0 are given, at least 1 are needed"),
    ("inputs: {x: {type: 'string[n, 2]', values: {texts: [1]}}}", "texts has to be text, not 1"),
])  # fmt: skip
def test_values_of_another_kind_are_refused(tmp_path, said, error):
    with pytest.raises(Exception, match=error):
        case_of(tmp_path, EQUAL, f"  {said}\n")


def test_texts_for_numbers_are_refused(tmp_path):
    said = "  inputs: {x: {type: 'float32[n]', values: {texts: [a]}}}\n"
    with pytest.raises(Exception, match="texts are no values of float32"):
        case_of(tmp_path, "net (float[n] x) => (float[n] y) { y = Abs (x) }", said)


def test_given_words_are_the_only_ones(tmp_path, capsys):
    onnx.save(model_of(JOINED, 20), tmp_path / "net.onnx")
    assert check(tmp_path, "net.onnx", "--input", "b=red,green") == 0
    assert "right: onnxruntime in fp32" in capsys.readouterr().out
    case = case_of(tmp_path, JOINED, "  inputs: {b: {type: 'string[n]', values: {texts: [red, green]}}}\n")
    assert [*case.says.inputs] == ["a", "b"]  # in the order of the file, whichever are given
    assert {*Maker(case, lambda _: None)(Draw({"n": 8}, "plain", 0))["b"].tolist()} <= {"red", "green"}


def test_recorded_words_are_drawn(tmp_path):
    words = np.array([["red", "sky"], ["blue", "sea"]], dtype=object)
    place = tmp_path / "test_data_set_0"
    place.mkdir()
    (place / "input_0.pb").write_bytes(numpy_helper.from_array(words).SerializeToString())
    (place / "output_0.pb").write_bytes(numpy_helper.from_array(words == "red").SerializeToString())
    case = case_of(tmp_path, EQUAL, "  recorded: test_data_set_0\n")
    drawn = Maker(case, lambda _: None)(Draw({"n": 8}, "plain", 0))["x"]
    assert {*drawn.reshape(-1).tolist()} <= {*words.reshape(-1).tolist()}


@pytest.mark.parametrize(("second", "code"), [("sea", 0), ("sky", 2)])
def test_texts_recorded_by_numpy_are_compared(tmp_path, capsys, second, code):
    """Outputs that nobody gives are another model's."""
    onnx.save(model_of(JOINED, 20), tmp_path / "net.onnx")
    right = np.array(["red sky", f"blue {second}"])
    np.savez(tmp_path / "one.npz", a=np.array(["red ", "blue "]), b=np.array(["sky", "sea"]), y=right)
    assert check(tmp_path, "net.onnx", "--data", str(tmp_path / "one.npz")) == code
    assert ("is blue sea instead of blue sky" in " ".join("".join(capsys.readouterr()).split())) == bool(code)


def test_complex_numbers_are_refused_in_a_sentence(tmp_path, capsys):
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.COMPLEX64, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    assert check(tmp_path, "net.onnx") == 2
    assert "complex numbers, which no runtime takes" in " ".join("".join(capsys.readouterr()).split())


def test_maps_are_compared_by_key_and_value(tmp_path, bench):
    """As classifiers give their probabilities: a list of maps, one for each row."""
    node = onnx.helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["cat", "dog"])
    kind = onnx.helper.make_map_type_proto(
        onnx.TensorProto.STRING, onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    )
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])],
        [onnx.helper.make_value_info("y", onnx.helper.make_sequence_type_proto(kind))],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    (tmp_path / "net.yaml").write_text("net:\n  about: maps\n  onnx: net.onnx\n", encoding="utf-8")
    (case,) = load(tmp_path / "net.yaml")
    assert verdict(bench.run_cell(accuracy(case), examples=2)) == PASSED
    with wrong_runtime(lambda inputs, outputs: [outputs[0][::-1], outputs[1]]):  # other keys, in order of their own
        assert bench.run_cell(accuracy(case), examples=2).status == "failed"


@pytest.mark.parametrize("check", ["fidelity", "accuracy"])
def test_texts_of_a_converted_file_are_counted_like_whole_numbers(tmp_path, bench, check):
    """A label that fp16 leaves as it is, and a text that fp16 does not touch."""
    text = """net (float[n, 3] x, string[n] s) => (string[n] y, string[n] t)
        <string[3] labels = {"red", "green", "blue"}> {
            i = ArgMax <axis: int = 1, keepdims: int = 0> (x)
            y = Gather (labels, i)
            t = Identity (s)
        }"""
    case = case_of(tmp_path, text, "  precisions: {fp16: {}}\n")
    cell = next(cell for cell in plan(case) if (cell.check, cell.precision) == (check, "fp16"))
    assert verdict(bench.run_cell(cell, examples=2)) == PASSED


def encoder(keys, values, **more):
    """A model of one LabelEncoder, of any kinds of keys and values."""
    kinds = {int: ("int64s", onnx.TensorProto.INT64), str: ("strings", onnx.TensorProto.STRING)}
    (key, given), (value, made) = kinds[type(keys[0])], kinds[type(values[0])]
    said = {f"keys_{key}": keys, f"values_{value}": values}
    node = onnx.helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **said, **more)
    infos = [onnx.helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in (("x", given), ("y", made))]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("right", "other"), [
    (encoder([1000, 2000, 3000], ["a", "b", "c"]), encoder([1000, 2000, 3000], ["a", "c", "b"])),
    pytest.param(
        encoder(["a", "b"], [0, 1], default_int64=-1), encoder(["a", "b", "c"], [0, 1, 5], default_int64=-1),
        marks=pytest.mark.thorough,
    ),
], ids=["keys that are numbers", "a word of the other file"])  # fmt: skip
def test_what_either_file_looks_up_is_drawn(tmp_path, right, other):
    onnx.save(right, tmp_path / "a.onnx")
    onnx.save(other, tmp_path / "b.onnx")
    assert check(tmp_path, "a.onnx", "a.onnx") == 0
    assert check(tmp_path, "a.onnx", "b.onnx") == 1


def test_one_text_in_all_draws_verifies_nothing(tmp_path, capsys):
    text = """net (float[n] x) => (string[n] y) <float[1] far = {1e30}, string[1] a = {"yes"}, string[1] b = {"no"}> {
        c = Greater (x, far)
        y = Where (c, a, b)
    }"""
    onnx.save(model_of(text, 17), tmp_path / "net.onnx")
    assert check(tmp_path, "net.onnx") in (1, 5)  # OpenVINO may be wrong on it
    assert "one text everywhere would have passed" in " ".join(capsys.readouterr().out.split())


def test_no_texts_that_openvino_gives_are_texts():
    """Its binding gives floats for them."""
    port = SimpleNamespace(get_element_type=lambda: SimpleNamespace(get_type_name=lambda: "string"))
    assert openvino._typed(port, np.zeros((0, 3))).dtype.kind == "U"


def test_a_longer_text_of_a_witness_is_another_one():
    right, longer = np.array(["ab"]), np.array(["abc"])
    assert not same([in_dtype_of(right, longer)], [right]) and same([in_dtype_of(longer, right)], [right])
    assert in_dtype_of(np.float32([1]), np.float64([2])).dtype == np.float32
