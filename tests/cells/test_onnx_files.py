"""Cases whose model is an ONNX file: what it means by ONNX's evaluator is what runtimes, and other files, are held
against."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, save
from onnx.reference import ReferenceEvaluator

from conformance.case.draw.draw import Draw, Maker
from conformance.case.files.case_file import load, read
from conformance.case.files.onnx_header import NotOnnx, Tensor, header
from conformance.case.plan.catalogue import plan
from conformance.case.plan.cell import Cell
from conformance.cells import file_sizes
from conformance.front.cli import main
from conformance.models.reference.float64_model import in_float64
from conformance.process.errors import CaseFileError
from conformance.results.records import text
from conformance.runtimes import registry
from tests.kit.cases import PASSED, verdict
from tests.kit.models import model_of
from tests.kit.runtimes import wrong_runtime

NET = "net:\n  about: a file\n  onnx: net.onnx\n"
TABLE = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)


def net(activation: str = "Relu", opset: int = 17, axis: int = 0) -> ModelProto:
    """Looks up rows of a table, adds x, and cuts off or bends what is negative."""
    nodes = f"rows = Gather <axis = {axis}> (table, ids) sum = Add (rows, x) y = {activation} (sum)"
    values = "(int64[batch, seq] ids, float[batch, seq, 6] x) => (float[batch, seq, 6] y)"
    return model_of(f"net {values} {{ {nodes} }}", opset, table=TABLE)


def cells(folder: Path, body: str = NET, **files: ModelProto) -> list[Cell]:
    for name, made in files.items():
        save(made, folder / f"{name}.onnx")
    (folder / "net.yaml").write_text(body, encoding="utf-8")
    (case,) = load(folder / "net.yaml")
    return list(plan(case))


def problem(folder: Path, body: str = NET) -> str:
    (folder / "net.yaml").write_text(body, encoding="utf-8")
    _, problems = read(folder / "net.yaml")
    return str(CaseFileError(problems))


# ---- what the file says --------------------------------------------------------------------------------------
def test_the_interface_is_read_without_onnx(tmp_path):
    save(net(), tmp_path / "net.onnx")
    told = header(tmp_path / "net.onnx")
    assert told.opset == 17
    assert told.inputs == [Tensor("ids", "int64", ("batch", "seq")), Tensor("x", "float32", ("batch", "seq", 6))]
    assert told.outputs == [Tensor("y", "float32", ("batch", "seq", 6))]
    assert told.beside == {}


def test_a_case_says_no_more_than_the_name_of_the_file(tmp_path):
    planned = cells(tmp_path, net=net())
    says = planned[0].case.says
    assert [cell.id for cell in planned] == [
        "export[net-onnx-op17]",
        "accuracy[net-onnx-op17-onnxruntime-fp32]",
        "specials[net-onnx-op17-onnxruntime-fp32]",
    ]
    assert list(says.dims) == ["batch", "seq"] and [output.name for output in says.outputs] == ["y"]
    for seed in range(8):
        rows = Maker(planned[0].case, lambda _: None)(Draw({"batch": 4, "seq": 5}, "plain", seed))["ids"]
        assert -7 <= rows.min() <= rows.max() < 7, "indices stay within the table"


def test_indices_along_an_axis_counted_from_the_end_stay_on_it(tmp_path):
    text = "net (float[3, 7, 2] x, int64[9] i) => (float[3, 7, 9] y) { y = Gather <axis = -1> (x, i) }"
    (case,) = {cell.case.name: cell.case for cell in cells(tmp_path, net=model_of(text))}.values()
    drawn = [Maker(case, lambda _: None)(Draw({}, "plain", seed))["i"] for seed in range(8)]
    assert {*np.concatenate(drawn)} == {-2, -1, 0, 1}


def test_what_the_case_says_itself_goes_before(tmp_path):
    x = "{type: 'float32[batch, seq, 6]', values: {uniform: {low: 0, high: 1}}}"
    body = f"{NET}  dims: {{batch: 2..3}}\n  inputs: {{x: {x}}}\n"
    says = cells(tmp_path, body, net=net())[0].case.says
    assert str(says.dims["batch"]) != str(says.dims["seq"])
    assert list(says.inputs) == ["ids", "x"] and says.inputs["x"].values.uniform is not None


def test_sizes_without_a_name_get_one(tmp_path):
    made = model_of("net (float[?, b, 3] x) => (float[?, ?, 3] y) { y = Abs (x) }")
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "a-b"
    assert list(cells(tmp_path, net=made)[0].case.says.dims) == ["x_0", "a_b"]


def test_weights_beside_the_file_are_what_the_case_depends_on(tmp_path, bench):
    weights = np.ones((64, 64), np.float32)
    made = model_of("net (float[n, 64] x) => (float[n, 64] y) { y = MatMul (x, w) }", w=weights)
    save(made, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    (tmp_path / "net.yaml").write_text(NET, encoding="utf-8")
    (case,) = load(tmp_path / "net.yaml")
    assert case.says.depends == ["net.onnx", "net.data"]
    _, accuracy, _ = plan(case)
    assert verdict(bench.run_cell(accuracy, examples=3)) == PASSED


def test_weights_that_are_not_there_are_the_fault_of_the_case(tmp_path, bench):
    export, *_ = cells(tmp_path, net=net())
    big = net()
    big.graph.initializer[0].ClearField("raw_data")
    big.graph.initializer[0].data_location = TensorProto.EXTERNAL
    big.graph.initializer[0].external_data.add(key="location", value="gone.data")
    (tmp_path / "net.onnx").write_bytes(big.SerializeToString())
    record = bench.run_cell(export)
    assert verdict(record) == ("failed", "declare", "BadModel", "case") and "gone.data" in str(record.reason)


# ---- what is found -------------------------------------------------------------------------------------------
def test_a_sound_file_passes(tmp_path, bench):
    values = "(int64[batch, seq] ids, float[batch, seq, 6] x) => (float[batch, seq, 5] y)"
    nodes = "rows = Gather (table, ids) more = Add (rows, x) relu = Relu (more) z = MatMul (relu, w) y = Tanh (z)"
    weights = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    made = model_of(f"net {values} {{ {nodes} }}", table=TABLE, w=weights)
    wide = "  onnxruntime: {config: {session.x64quantprecision: 1}}\n"  # kernels that saturate on no processor
    planned = cells(tmp_path, f"{NET}  precisions: {{fp16: {{}}, int8: {{}}}}\n{wide}", net=made)
    assert len(planned) == 7
    for cell in planned:
        record = bench.run_cell(cell, examples=4)
        assert verdict(record) == PASSED and record.examples, cell.id


def test_another_file_is_held_against_the_meaning_of_the_first(tmp_path, bench):
    body = f"{NET}  export: {{onnx: {{opsets: [17], file: other.onnx}}}}\n"
    _, accuracy, _ = cells(tmp_path, body, net=net(), other=net("LeakyRelu"))
    record = bench.run_cell(accuracy, examples=4)
    assert verdict(record) == ("failed", "compare", "WrongValue", "exporter")
    told = text.failure(record).replace("without PyTorch", "")
    assert "at fault: other.onnx" in told and "PyTorch" not in told
    assert "other.onnx" in accuracy.case.says.depends
    (tmp_path / "same").mkdir()
    _, accuracy, _ = cells(tmp_path / "same", body, net=net(), other=net())
    assert verdict(bench.run_cell(accuracy, examples=4)) == PASSED


@pytest.mark.smoke
def test_a_wrong_runtime_is_at_fault(tmp_path, bench):
    _, accuracy, _ = cells(tmp_path, net=net())
    with wrong_runtime(lambda inputs, outputs: [outputs[0] + np.float32(0.01)]):
        record = bench.run_cell(accuracy, examples=4)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert record.operator is None, "nobody has exported it"


def test_a_file_that_is_not_valid_is_the_fault_of_the_case(tmp_path, bench):
    broken = net()
    broken.graph.node[1].input[0] = "nowhere"
    export, *_ = cells(tmp_path, net=broken)
    record = bench.run_cell(export)
    assert (record.status, record.fault) == ("failed", "case")


def test_where_the_evaluator_has_no_say_the_record_says_who_computed(tmp_path, bench):
    mode = 'mode = "linear", coordinate_transformation_mode = "align_corners"'
    made = model_of(f"net (float[n, 1, 3, 4] x) => (float[n, 1, 6, 8] y) {{ y = Resize <{mode}> (x, , s) }}",
                    s=np.array([1, 1, 2, 2], np.float32))  # fmt: skip
    export, accuracy, *_ = cells(tmp_path, net=made)
    record = bench.run_cell(export)
    assert verdict(record) == PASSED
    (warning,) = record.warnings
    assert "has no say on Resize" in warning["text"] and "computed by ONNX Runtime" in warning["text"]
    assert verdict(bench.run_cell(accuracy, examples=4)) == PASSED


def test_float64_goes_through_constants_casts_and_branches():
    made = model_of("""g (int64[n] i, bool c) => (float[n] y) {
        cast = Cast <to = 1> (i)
        y = If (c) <
            then_branch = t () => (float[n] yes) { a = Constant <value_float = 0.1> () yes = Mul (cast, a) },
            else_branch = e () => (float[n] no) { b = Constant <value_float = 0.2> () no = Mul (cast, b) }
        >
    }""")
    feeds = {"i": np.array([3]), "c": np.array(True)}
    (rounded,) = ReferenceEvaluator(made).run(None, feeds)
    (exact,) = ReferenceEvaluator(in_float64(made)).run(None, feeds)
    assert rounded.dtype == np.float32 and exact.dtype == np.float64
    assert exact == pytest.approx(3 * np.float64(np.float32(0.1)), rel=1e-15)


# ---- what cannot be run --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("content", "said"), [
    (lambda file: None, "cannot be read: No such file"), (Path.mkdir, "it is no file"),
    (os.mkfifo, "it is no file"), (b"", "the file is empty"), (b"not a model at all", "no ONNX model"),
    (net().SerializeToString()[:150], "cut off"), (net(opset=6).SerializeToString(), "is at opset 6"),
    (model_of("g (complex64[2] x) => (complex64[2] y) { y = Identity (x) }").SerializeToString(),
     "the input x has a type that is not drawn"),
])  # fmt: skip
def test_what_is_no_model_or_cannot_be_drawn_is_refused_with_a_sentence(tmp_path, content, said):
    if isinstance(content, bytes):
        (tmp_path / "net.onnx").write_bytes(content)
    else:
        content(tmp_path / "net.onnx")
    assert said in problem(tmp_path)


def test_no_bytes_of_a_model_make_more_than_a_sentence(tmp_path):
    data, rng = net().SerializeToString(), np.random.default_rng(0)
    for _ in range(200):
        spoilt = bytearray(data)
        for place in rng.integers(len(data), size=rng.integers(1, 6)):
            spoilt[place] = rng.integers(256)
        (tmp_path / "net.onnx").write_bytes(spoilt[: rng.integers(1, len(data) + 1)])
        try:
            header(tmp_path / "net.onnx")
        except NotOnnx as error:
            assert str(error)
        assert "mistake in the harness" not in problem(tmp_path)


@pytest.mark.parametrize(("more", "said"), [
    ("mode: train", "mode is about a module of PyTorch"), ("forward: x", "one of them"),
    ("export: {torchscript: [17]}", "an ONNX file is not exported"),
    ("dims: {nothing: 1..3}", "no input, range or condition uses the dim 'nothing'"),
])  # fmt: skip
def test_what_is_about_modules_is_refused(tmp_path, more, said):
    save(net(), tmp_path / "net.onnx")
    assert said in problem(tmp_path, f"{NET}  {more}\n")


# ---- conformance check ---------------------------------------------------------------------------------------
def check(folder: Path, *arguments: str) -> int:
    return main(["check", *arguments, "--store", str(folder / "store"), "--examples", "3"])


# the second dim has to be a multiple of 16
ROWS_OF_16 = model_of(
    "net (float[n, k] x) => (float[n, ?, 16] y) { z = Reshape (x, shape) y = Abs (z) }", shape=np.array([0, -1, 16])
)
IMAGES = model_of("net (float[n, 3, h, w] x) => (float[n, 3, h, w] y) { y = Abs (x) }")


@pytest.mark.parametrize(("made", "precisions", "parts"), [
    (net(), "fp32,fp16", ["sizes: batch 1..8, seq 1..8", "passed  accuracy[net-onnx-op17-onnxruntime-fp16]",
                          "loss: SQNR against the file itself; times: an example, of"]),
    (ROWS_OF_16, "fp32", ["sizes: n 1..20, k 16..32 step 16"]),
    (IMAGES, "fp32", ["sizes: n 1..8, h 32..68, w 32..68"]),
], ids=["two dims", "rows of 16", "images of the size of images"])  # fmt: skip
def test_check_needs_no_case_file_and_finds_the_sizes_that_work(tmp_path, capsys, made, precisions, parts):
    save(made, tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--precision", precisions) == 0
    told = capsys.readouterr().out
    assert all(part in told for part in parts)


@pytest.mark.parametrize("words, code", [((), 0), (("--precision", "int8"), 1)])
def test_int8_that_nobody_asked_for_is_told_and_fails_nothing(tmp_path, capsys, words, code):
    """A fourth power, of which 8 bits leave nothing below 1."""
    powers = "s = Mul (x, x) t = Mul (s, s) m = MatMul (t, w) a = Abs (m) r = Sqrt (a) y = Sqrt (r)"
    made = model_of(f"net (float[n, 8] x) => (float[n, 8] y) {{ {powers} }}", w=np.eye(8, dtype=np.float32))
    save(made, tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--dim", "n=1..4", *words) == code
    told = capsys.readouterr().out
    assert ("not counted: fidelity[net-onnx-op17-int8]: " in told) is not bool(code)
    assert re.search(r"^int8 +-?[\d.]+ dB +", told, re.M)


def test_a_reason_stands_once_and_what_counts_for_nothing_stands_behind_the_verdicts(tmp_path, capsys):
    """The file draws random numbers, so that nobody says what it means, and it has nothing to quantize."""
    made = model_of("net (float[n] x) => (float[n] y) { r = RandomNormalLike (x) y = Add (x, r) }")
    save(made, tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--dim", "n=1..4") == 5
    told = capsys.readouterr().out
    reason = next(line for line in told.splitlines() if line.startswith("  ") and "random" in line)
    assert told.count(reason) == 1 and "\n  for the same reason\n" in told


def test_a_check_in_which_nothing_is_compared_is_no_success(tmp_path, monkeypatch):
    """No cell fails, and none that runs the model has run."""
    monkeypatch.setattr(registry, "absence", lambda runtime: "it is not here" if runtime else None)
    save(net(), tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--precision", "fp32") == 5


@pytest.mark.parametrize(("off", "fault"), [(1e-4, None), (0.3, "runtime")], ids=["80 dB", "10 dB"])
def test_a_quantized_file_that_is_a_step_off_accuses_nobody(tmp_path, bench, off, fault):
    nodes = "q = QuantizeLinear (x, scale, zero) d = DequantizeLinear (q, scale, zero) y = Add (d, d)"
    body = f"net (float[batch, 6] x) => (float[batch, 6] y) {{ {nodes} }}"
    quantized = model_of(body, scale=np.float32(0.05), zero=np.int8(0))
    (cell,) = (one for one in cells(tmp_path, net=quantized) if one.check == "accuracy")
    with wrong_runtime(lambda inputs, outputs: [outputs[0] * np.float32(1 + off)]):
        record = bench.run_cell(cell, examples=2)
    assert (record.status, record.stage, record.fault) == ("failed", "compare", fault)


def of_another_converter(operator):
    """A model whose tensors have names that are no names of parameters."""
    graph = f"""net (float[n, 3] x, int64[k] axes) => (float[m] y)
        {{ part = {operator} (x, axes) flat = Constant <value = int64[1] {{-1}}> () y = Reshape (part, flat) }}"""
    made = model_of(graph, 18)
    names = {"x": "gpu_0/data_0", "axes": "input ids:0", "part": "sum::1", "y": "Identity:0"}
    for value in (*made.graph.input, *made.graph.output):
        value.name = names.get(value.name, value.name)
    for node in made.graph.node:
        node.input[:], node.output[:] = ([names.get(one, one) for one in ends] for ends in (node.input, node.output))
    return made


def test_tensors_may_have_any_name_that_other_converters_give_them(tmp_path, capsys, monkeypatch):
    save(of_another_converter("ReduceSum"), tmp_path / "net.onnx")
    save(of_another_converter("ReduceMean"), tmp_path / "other.onnx")
    given = ["--input", "input ids:0=1", "--precision", "fp32"]
    assert check(tmp_path, str(tmp_path / "net.onnx"), *given) == 0
    assert check(tmp_path, str(tmp_path / "net.onnx"), str(tmp_path / "other.onnx"), *given) == 1
    told = capsys.readouterr().out
    assert "output Identity:0[" in told and "gpu_0/data_0 = float32" in told
    (line,) = [line for line in told.splitlines() if "conformance replay" in line]
    monkeypatch.chdir(tmp_path)
    assert main(line.partition("conformance ")[2].split()) == 1


PAIR = "net (float[n] {a}, float[n] {b}) => (float[n] {s}, float[n] {d}) {{ sum = Add (a, b)  diff = Sub (a, b) }}"


@pytest.mark.parametrize(("ends", "code", "told"), [
    (("b", "a", "diff", "sum"), 0, "compared with what net.onnx says"),
    (("p", "q", "sum", "diff"), 1, "are not those of net.onnx"),
])  # fmt: skip
def test_inputs_and_outputs_of_two_files_are_matched_by_name(tmp_path, capsys, ends, code, told):
    """By their places the same model would be another one, and of other names nobody knows which is which."""
    order = PAIR.format(a="a", b="b", s="sum", d="diff")
    save(model_of(order), tmp_path / "net.onnx")
    a, b, s, d = ends
    body = PAIR.format(a=a, b=b, s=s, d=d)
    save(model_of(body if a == "b" else body.replace("(a, b)", "(p, q)")), tmp_path / "other.onnx")
    files = str(tmp_path / "net.onnx"), str(tmp_path / "other.onnx")
    assert check(tmp_path, *files, "--precision", "fp32") == code
    assert told in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("name", "dim", "told"), [
    ("0", "1x", "dim_0_0 1..8"), ("x", "for", "x_0 1..8"), ("x", "batch size", "batch_size 1..8"),
    ("x", -1, "x_0 1..8"), ("x", "-1", "x_0 1..8"), ("a/" * 40, "?", "dim_"),
])  # fmt: skip
def test_dims_may_have_any_name_or_none_or_be_written_as_minus_one(tmp_path, capsys, name, dim, told):
    made = model_of("net (float[n, 3] x) => (float[n, 3] y) { y = Abs (x) }")
    made.graph.input[0].name = made.graph.node[0].input[0] = name
    for value in (made.graph.input[0], made.graph.output[0]):
        size = value.type.tensor_type.shape.dim[0]
        size.Clear()
        setattr(size, "dim_value" if isinstance(dim, int) else "dim_param", dim)
    save(made, tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--precision", "fp32") == 0
    assert f"sizes: {told}" in capsys.readouterr().out


def test_no_more_different_axes_are_drawn_than_there_are(tmp_path, capsys):
    save(of_another_converter("ReduceSum"), tmp_path / "net.onnx")
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--precision", "fp32") == 0
    assert re.search(r"sizes: n 1..\d, k [12]\b", capsys.readouterr().out)
    assert check(tmp_path, str(tmp_path / "net.onnx"), "--precision", "fp32", "--dim", "k=3") == 2
    assert "3 different axes are asked for, of a tensor that has 2" in capsys.readouterr().err


def test_check_holds_one_file_against_another(tmp_path, capsys):
    save(net(), tmp_path / "net.onnx")
    (tmp_path / "elsewhere").mkdir()
    save(net("LeakyRelu", opset=16), tmp_path / "elsewhere" / "other.onnx")
    arguments = [str(tmp_path / "net.onnx"), str(tmp_path / "elsewhere" / "other.onnx"), "--precision", "fp32"]
    assert check(tmp_path, *arguments) == 1
    assert "other.onnx is wrong" in capsys.readouterr().out
    shutil.copy(tmp_path / "net.onnx", tmp_path / "elsewhere" / "other.onnx")
    assert check(tmp_path, *arguments) == 0


def test_check_says_what_is_wrong_with_what_it_is_given(tmp_path, capsys):
    save(net(), tmp_path / "net.onnx")
    file = str(tmp_path / "net.onnx")
    for arguments, said in (
        (["none.onnx"], "cannot be read"),
        ([file, "--dim", "batch"], "write NAME=VALUE"),
        ([file, "--dim", "other=1..3"], "uses the dim 'other'"),
        ([file, "--precision", "fp8"], "there is no 'fp8'"),
    ):
        assert check(tmp_path, *arguments) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("graph, given, code, said", [
    ("net (float[2] x) => (float[2] y) { y = Relu (x) }", "x=-1,-3", 5, "the values that were given do not show"),
    ("net (float[2] x) => (float[2] y) { y = Exp (x) }", "x=0,3", 0, "right: onnxruntime in fp32"),
])  # fmt: skip
def test_values_that_a_user_gives_are_no_reason_to_be_red(tmp_path, capsys, graph, given, code, said):
    save(model_of(graph, 17), tmp_path / "net.onnx")
    words = ["--store", str(tmp_path / ".store"), "--runtime", "onnxruntime", "--precision", "fp32", "--input", given]
    assert main(["check", str(tmp_path / "net.onnx"), *words]) == code
    assert said in capsys.readouterr().out


def test_an_operator_whose_own_function_onnx_refuses_is_no_fault_of_the_file(tmp_path, capsys):
    """ONNX's function for MeanVarianceNormalization lacks the default of ``axes``; runtimes have it."""
    save(
        model_of("net (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) { y = MeanVarianceNormalization (x) }", 13),
        tmp_path / "net.onnx",
    )
    words = ["--store", str(tmp_path / ".store"), "--examples", "1", "--precision", "fp32"]
    assert main(["check", str(tmp_path / "net.onnx"), *words]) == 0
    assert "right: onnxruntime" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("node", "sizes"), [("y = Reshape (x, two)", "2..6 step 2"), ("y = NonMaxSuppression (x)", "1..8")]
)
def test_open_dims_of_a_file_that_onnx_runtime_does_not_take_are_tried_by_others(tmp_path, monkeypatch, node, sizes):
    """By ONNX's evaluator, if it runs the file; if nobody does, the cells say why they are skipped."""
    text = f"net (float[n] x) => (float[a, b] y) <int64[2] two = {{2, -1}}> {{ {node} }}"
    save(model_of(text, 17), tmp_path / "net.onnx")
    (tmp_path / "net.yaml").write_text("net:\n  about: a file\n  onnx: net.onnx\n", encoding="utf-8")
    (case,) = load(tmp_path / "net.yaml")

    def lacking(file):
        raise RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation")

    monkeypatch.setattr(file_sizes, "open_unoptimized", lacking)
    assert file_sizes.working_sizes(case, ())[0] == {"n": sizes}


@pytest.mark.parametrize("values, code", [("0,0,0,0", 5), ("0,1,2,3", 0)])
def test_values_that_somebody_gives_are_no_reason_to_be_red_and_no_fault_of_the_file(tmp_path, capsys, values, code):
    """Not where all are 0, of which nothing can be measured; and that they fit one size alone is not the file's."""
    product = "net (float[n, 4] x) => (float[n, 3] y) { y = MatMul (x, w) }"
    save(model_of(product, w=np.eye(4, 3, dtype=np.float32)), tmp_path / "net.onnx")
    given = ["--input", f"x={values}", "--runtime", "onnxruntime", "--store", str(tmp_path / "store")]
    assert main(["check", str(tmp_path / "net.onnx"), *given]) == code
    assert "needs a change" not in (out := capsys.readouterr().out) and "not verified" not in out
