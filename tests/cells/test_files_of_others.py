"""Models that somebody else has converted, compared with their originals: what is sound passes with its decibels, and
what is planted is found by the limit that is there for it."""

import re
import shutil

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from conformance.case.plan.catalogue import plan
from conformance.case.plan.settings import Settings
from conformance.cells.runner import Runner
from conformance.compare.channels import Channels, channel_axis
from conformance.front.cli import main
from conformance.models.exporters.graph import refusal
from conformance.models.kept import installed
from conformance.models.precision.by_others import precision_of
from conformance.process.errors import CaseFileError
from conformance.process.worker.warm import new_worker
from tests.kit import converted
from tests.kit.cases import load_case, say
from tests.kit.converted import SOUND, check, pair, quantized, scaled
from tests.kit.runtimes import wrong_runtime


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_conversion_is_right_beside_its_original_and_its_decibels_are_told(tmp_path, capsys, name):
    precision, make = SOUND[name]
    code, out = check(capsys, tmp_path, make())
    assert code == 0, out
    assert f"net_small.onnx is a model in {precision}: compared with net.onnx in decibels" in out
    assert "loss: SQNR against net.onnx" in out and "worst channel " in out and "stand out" not in out
    rows = {row[0]: row[1:] for row in map(str.split, out.splitlines()) if row and row[0] in ("fp32", precision)}
    assert rows["fp32"][1] == "KiB" and float(rows[precision][0]) > 10 and rows[precision][1] == "dB", out
    assert float(rows[precision][2]) < float(rows["fp32"][0]) and rows[precision][5] == "x", out


def test_what_is_planted_in_a_conversion_is_named_with_its_decibels(tmp_path, capsys):
    code, out = check(capsys, tmp_path, quantized(scaled("W2_s", 2.0, column=3)))
    said = " ".join(out.split())
    assert code == 1 and "net_small.onnx is not net.onnx converted: W2 of W2_dq, channel 3 of axis 1" in said, out
    assert "its scale is 2 times what fits the original" in said and "worst channel 3: " in said


@pytest.mark.parametrize("limit, said", [("channel_sqnr=90", ": SQNR"), ("bias=1e-9", "all values are off by")])
def test_limits_of_a_case_hold_for_a_sound_conversion_too(tmp_path, capsys, limit, said):
    code, out = check(capsys, tmp_path, quantized(), "--tolerance", f"int8:{limit}")
    assert code == 1 and "net_small.onnx loses too much" in out and said in " ".join(out.split()), out


def test_two_files_of_one_precision_are_compared_as_before(tmp_path, capsys):
    code, out = check(capsys, tmp_path, converted.original())
    assert code == 0 and "is a model in" not in out
    assert precision_of(converted.original()) is None


CASE = "onnx: net.onnx\nruntimes: onnxruntime\nspecials: false"


def test_a_case_names_the_file_of_a_precision(tmp_path, bench):
    pair(tmp_path, quantized())
    case = load_case(tmp_path, say(CASE, "precisions: {int8-modelopt: {file: net_small.onnx}}"))
    assert any(name.endswith("net_small.onnx") for name in case.says.depends)
    records = [bench.run_cell(cell) for cell in plan(case) if cell.converted]
    assert [(record.check, record.status, record.shipped) for record in records] == [
        ("fidelity", "passed", "net_small.onnx"), ("accuracy", "passed", "net_small.onnx")
    ]  # fmt: skip


@pytest.mark.parametrize("precision, entry, said", [
    ("bf16", "{}", "the suite converts to fp16 and int8; say which file has it"),
    ("int8", "{file: net_small.onnx, operators: MatMul}", "operators is for a conversion that the suite makes"),
    ("int8", "{file: net_small.onnx, by: converters.quantize}", "file and by exclude one another"),
    ("fp12", "{file: net_small.onnx}", "is not a precision"),
])  # fmt: skip
def test_what_cannot_be_said_of_a_conversion_is_refused(tmp_path, precision, entry, said):
    pair(tmp_path, quantized())
    with pytest.raises(CaseFileError, match=said):
        load_case(tmp_path, say(CASE, f"precisions: {{{precision}: {entry}}}"))


def test_a_file_of_another_model_is_refused_with_both_interfaces(tmp_path, capsys):
    other = quantized()
    other.graph.output[0].name = "z"
    other.graph.node[-1].output[0] = "z"
    del other.graph.output[0].type.tensor_type.shape.dim[1]
    other.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    code, out = check(capsys, tmp_path, other)
    assert code == 1 and "the outputs of net_small.onnx are not those of net.onnx" in out, out


def cast(dtype=np.int8):
    """Levels that a Reshape and a Cast make floats of and a Mul multiplies by their scales, as torchao's are."""
    model = quantized()
    graph = model.graph
    for name in ("W1", "W2"):
        (levels,) = (one for one in graph.initializer if one.name == f"{name}_q")
        array = numpy_helper.to_array(levels)
        sizes = array.shape
        levels.CopyFrom(numpy_helper.from_array(array.reshape(2, -1, sizes[1]).astype(dtype), levels.name))
        graph.initializer.append(numpy_helper.from_array(np.array(sizes), f"{name}_sizes"))
        (place,) = (at for at, node in enumerate(graph.node) if node.name == f"{name}_dq")
        del graph.node[place]
        for node in (
            helper.make_node("Mul", [f"{name}_float", f"{name}_s"], [name]),
            helper.make_node("Cast", [f"{name}_flat"], [f"{name}_float"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Reshape", [f"{name}_q", f"{name}_sizes"], [f"{name}_flat"]),
        ):
            graph.node.insert(0, node)
    onnx.checker.check_model(model, full_check=True)
    return model


def test_levels_that_are_cast_and_multiplied_are_a_conversion_and_masks_without_a_sign_are_none(tmp_path, capsys):
    code, out = check(capsys, tmp_path, cast())
    assert code == 0 and "net_small.onnx is a model in int8: compared with net.onnx in decibels" in out, out
    assert precision_of(cast(np.uint8)) is None
    table = cast()
    for node in table.graph.node:
        if node.op_type == "Mul":
            node.op_type = "Add"
    assert precision_of(table) is None


def test_a_file_of_another_model_of_the_same_interface_is_called_one(tmp_path, capsys):
    rng = np.random.default_rng(9)

    def of_another(parts):
        parts |= {name: rng.integers(-127, 128, parts[name].shape).astype(np.int8) for name in ("W1_q", "W2_q")}

    code, out = check(capsys, tmp_path, quantized(of_another))
    said = " ".join(out.split())
    assert code == 1 and "none of its 2 weights is like the original's" in said and "of another model" in said, out


def test_channels_are_the_second_axis_and_of_sequences_the_last():
    assert [channel_axis(rank) for rank in range(5)] == [None, None, 1, 2, 1]
    rng = np.random.default_rng(0)
    seen = Channels()
    for batch in (2, 5):
        right = rng.standard_normal((batch, 3, 4, 4)).astype(np.float32)
        wrong = right.copy()
        wrong[:, 1] *= np.float32(1.1)
        seen.see(right, wrong)
    assert seen.worst() == (1, pytest.approx(20, abs=0.01))
    seen.see(np.ones((1, 4, 4, 4), np.float32), np.ones((1, 4, 4, 4), np.float32))
    assert seen.worst() is None  # as many channels as there are positions: none can be told apart


CONVERTERS = """
import numpy as np, onnx
from onnx import numpy_helper

def quantize(file, batches):
    assert len(batches) == 4 and batches[0]["x"].shape == (8, 64), [batch["x"].shape for batch in batches]
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 2:
            values = numpy_helper.to_array(tensor)
            step = np.abs(values).max() / 127
            tensor.CopyFrom(numpy_helper.from_array(np.round(values / step) * step, tensor.name))
    onnx.save(model, file + ".small")
    return file + ".small"

def renaming(file, batches):
    model = onnx.load(file)
    model.graph.input[0].name = model.graph.node[0].input[0] = "other"
    return model

def renaming_both(file, batches):
    model = onnx.load(file)
    for number, value in enumerate(model.graph.input):
        for node in model.graph.node:
            node.input[:] = [f"in{number}" if name == value.name else name for name in node.input]
        value.name = f"in{number}"
    return model

def nothing(file, batches):
    pass

def missing(file, batches):
    import a_package_that_nobody_has

def absent(file, batches):
    return file + ".never"

def too_low(file, batches):
    model = onnx.load(file)
    model.graph.initializer[0].data_type = onnx.TensorProto.INT4
    model.opset_import[0].version = 18
    return model

def unrunnable(file, batches):
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if tensor.name == "W2":
            tensor.CopyFrom(numpy_helper.from_array(np.zeros((127, 16), np.float32), "W2"))
    return model

def broken(file, batches):
    model = onnx.load(file)
    model.graph.node[0].op_type = "NoSuchOperator"
    return model
"""


@pytest.mark.parametrize("function, result, said", [
    ("quantize", ("passed", None, None), None), ("renaming", ("passed", None, None), None),
    ("nothing", ("failed", "NoModel", "case"), "converters.nothing returns NoneType; it has to return an ONNX model"),
    ("missing", ("failed", "MissingPackage", "case"), "needs the package a_package_that_nobody_has"),
    ("absent", ("failed", "NoModel", "case"), ".never, and has written no such file"),
    ("too_low", ("failed", "InferenceError", "precision"), "onnx.checker refuses the model of converters.too_low"),
    ("unrunnable", ("failed", "InferenceError", "precision"), "onnx.checker refuses the model"),
    ("broken", ("failed", "ValidationError", "precision"), "onnx.checker refuses the model of converters.broken"),
])  # fmt: skip
def test_a_function_beside_the_case_converts_and_what_it_makes_is_judged(tmp_path, bench, function, result, said):
    pair(tmp_path, quantized())
    (tmp_path / "converters.py").write_text(CONVERTERS, encoding="utf-8")
    case = load_case(tmp_path, say(CASE, f"precisions: {{int8-own: {{by: converters.{function}}}}}"))
    (fidelity,) = (cell for cell in plan(case) if cell.check == "fidelity")
    record = bench.run_cell(fidelity)
    assert (record.status, record.error, record.fault) == result, record.reason
    assert said is None or said in str(record.reason)


def test_a_converter_that_changed_converts_again_and_one_that_did_not_is_not_called(tmp_path, worker):
    pair(tmp_path, quantized())
    python, run = tmp_path / "converters.py", Runner(Settings(store=tmp_path / "store", examples=1), 60, worker)
    case = load_case(tmp_path, say(CASE, "precisions: {int8-own: {by: converters.quantize}}"))
    (fidelity,) = (cell for cell in plan(case) if cell.check == "fidelity")
    made = []
    for step in (127, 127, 15):
        python.write_text(CONVERTERS.replace("/ 127", f"/ {step}"), encoding="utf-8")
        record = run(fidelity)
        made.append((record.status, record.fidelity["sqnr"], "convert" in record.seconds))
        run.renew()
    assert made[0][:2] == made[1][:2] and made[0][1] > made[2][1] + 10


def calls_of(folder, worker, case, *changes):
    """Run the cell ``fidelity`` at first and after each change, and return what each run shows: its status, its
    decibels, and how often the converter has been called by then."""
    settings = Settings(store=folder / "store", examples=1)
    shown = []
    for change in (None, *changes):
        if change is not None:
            change()
        run = Runner(settings, 60, worker)  # which reads the case again
        (fidelity,) = (cell for cell in plan(load_case(folder, case)) if cell.check == "fidelity")
        record = run(fidelity)
        run.renew()
        called = folder / "called.txt"
        shown.append((record.status, record.fidelity["sqnr"], len(called.read_text()) if called.exists() else 0))
    return shown


NEEDS_PACKAGE = """
import onnx, quantizing
from onnx import numpy_helper

def quantize(file, batches):
    with open(__file__.replace("converters.py", "called.txt"), "a") as log:
        log.write(".")
    model = onnx.load(file)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 2:
            values = numpy_helper.to_array(tensor)
            step = quantizing.step(batches)
            tensor.CopyFrom(numpy_helper.from_array((values / step).round() * step, tensor.name))
    return model
"""
PACKAGE = """
def step(batches):
    return {divisor} * abs(batches[0]["x"]).max()
"""


def test_other_calibration_data_and_another_release_of_the_converters_package_convert_again(tmp_path, worker):
    pair(tmp_path, quantized())
    (tmp_path / "converters.py").write_text(NEEDS_PACKAGE, encoding="utf-8")
    data = np.random.default_rng(0).standard_normal((32, converted.INPUT)).astype(np.float32)

    def package(divisor):
        (tmp_path / "quantizing.py").write_text(PACKAGE.replace("{divisor}", str(divisor)), encoding="utf-8")

    def calibration(by):
        np.save(tmp_path / "data.npy", data * np.float32(by))

    package(1e-3)
    calibration(1)
    case = say(CASE, "precisions: {int8-own: {by: converters.quantize, calibration: {data: data.npy}}}")
    shown = calls_of(tmp_path, worker, case, lambda: None, lambda: calibration(16), lambda: package(1e-2))
    assert [called for *_, called in shown] == [1, 1, 2, 3], shown
    decibels = [each for _, each, _ in shown]
    assert decibels[0] == decibels[1] > decibels[2] + 10 and decibels[2] > decibels[3] + 10, shown


def test_a_converter_is_called_again_with_another_release_of_an_installed_package(tmp_path, monkeypatch):
    """Of the same Python in both releases, as where compiled code or data beside it is what changed."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    pair(tmp_path, quantized())
    (tmp_path / "converters.py").write_text(NEEDS_PACKAGE, encoding="utf-8")
    made = []
    (site / "quantizing.py").write_text(PACKAGE.replace("{divisor}", "1e-3"), encoding="utf-8")
    for version in ("1.0", "1.0", "1.1"):
        for old in site.glob("*.dist-info"):
            shutil.rmtree(old)
        (info := site / f"quantizing-{version}.dist-info").mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: quantizing\nVersion: {version}\n")
        (info / "RECORD").write_text(f"quantizing.py,,\n{info.name}/METADATA,,\n")
        installed.forget()
        with new_worker() as worker:
            made += calls_of(tmp_path, worker, say(CASE, "precisions: {int8-own: {by: converters.quantize}}"))
    installed.forget()
    assert [called for *_, called in made] == [1, 1, 2], made


def test_a_converted_file_of_other_bytes_is_judged_again(tmp_path, worker):
    pair(tmp_path, quantized())

    def spoil():
        onnx.save(quantized(scaled("W2_s", 2.0)), tmp_path / "net_small.onnx")

    case = say(CASE, "precisions: {int8-own: {file: net_small.onnx}}")
    shown = calls_of(tmp_path, worker, case, lambda: None, spoil)
    assert [status for status, *_ in shown] == ["passed", "passed", "failed"], shown
    assert shown[0][1] == shown[1][1] > shown[2][1] + 10


@pytest.mark.parametrize("alike", [True, False])
def test_inputs_that_a_converter_renames_are_matched_by_shape_and_refused_where_two_are_alike(tmp_path, bench, alike):
    model = converted.original()
    shape = ["n", converted.INPUT] if alike else ["n", converted.OUTPUT]
    model.graph.input.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, shape))
    model.graph.node[-1].output[0] = "made"
    summed = helper.make_node("ReduceSum", ["z", "axes"], ["of_z"])
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    model.graph.node.extend([summed, helper.make_node("Sub", ["made", "of_z"], ["y"])])
    onnx.save(model, tmp_path / "net.onnx")
    (tmp_path / "converters.py").write_text(CONVERTERS, encoding="utf-8")
    case = load_case(tmp_path, say(CASE, "precisions: {int8-own: {by: converters.renaming_both}}"))
    (fidelity,) = (cell for cell in plan(case) if cell.check == "fidelity")
    record = bench.run_cell(fidelity)
    assert (record.status == "failed") is alike, record.reason
    if alike:
        said = " ".join(record.reason.split())
        assert "the inputs of the model of converters.renaming_both are not those of net.onnx" in said, said
        assert "in1: float32[n, 64] give them the same names in both files" in said, said


@pytest.mark.parametrize("name", ["fp16", "int8 weights", "int4 weights"])
def test_a_converted_file_by_itself_is_compared_with_what_it_means(tmp_path, capsys, name):
    precision, make = SOUND[name]
    file = tmp_path / "net.onnx"
    onnx.save(make(), file)
    code = main(["check", str(file), "--runtime", "onnxruntime", "--store", str(tmp_path / "store")])
    out = capsys.readouterr().out
    assert code == 0, out
    assert f"net.onnx is a model in {precision} already: compared with what it means" in out
    assert "compared with what the file itself says" in out
    judged = "fp32" if precision == "fp16" else precision  # value by value, or in decibels
    assert re.findall(r"accuracy\[net-onnx-op21-onnxruntime-(\w+)\]", out) == [judged]


def of_opset_17():
    """Q/DQ of whole tensors at an opset of which ONNX's evaluator has no DequantizeLinear."""
    nodes = [
        helper.make_node("DequantizeLinear", ["W2_q", "scale"], ["W2"]),
        helper.make_node("MatMul", ["x", "W2"], ["y"]),
    ]
    weights = np.random.default_rng(0).integers(-127, 128, (converted.INPUT, converted.OUTPUT)).astype(np.int8)
    model = converted.network(nodes, {"W2_q": weights, "scale": np.float32(0.01)})
    model.opset_import[0].version = 17
    return model


def of_onnxruntime_alone():
    """Weights of 4 bits in an operator of ONNX Runtime's own, which ONNX's evaluator does not know."""
    rng = np.random.default_rng(0)
    inputs, outputs = converted.INPUT, converted.OUTPUT
    model = converted.network(converted.layers(), converted.weights())
    sizes = {"K": inputs, "N": outputs, "bits": 4, "block_size": 16}
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", **sizes)
    packed = rng.integers(0, 256, (outputs, inputs // 16, 8), np.uint8)
    scales = rng.uniform(0.01, 0.1, outputs * inputs // 16).astype(np.float32)
    kept = [numpy_helper.from_array(packed, "b"), numpy_helper.from_array(scales, "s")]
    graph = helper.make_graph([node], "network", model.graph.input, model.graph.output, kept)
    imports = [*model.opset_import, helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def quantized_in_another_domain():
    """The same network, as ONNX Runtime's quantizer writes 16 bits below opset 21: ONNX's evaluator has no such
    domain."""
    model = quantized()
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for node in model.graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            node.domain = "com.microsoft"
    return model


WRONG_OPENVINO = {
    "all of it": (["openvino", "openvino-float32"], quantized_in_another_domain, "skipped"),
    "but in float32": (["openvino"], quantized_in_another_domain, "failed"),
    "by ONNX's evaluator too": (["openvino", "openvino-float32"], quantized, "failed"),
}


@pytest.mark.parametrize("names, make, status", WRONG_OPENVINO.values(), ids=WRONG_OPENVINO)
def test_a_runtime_is_not_accused_by_onnx_runtimes_word_alone(tmp_path, bench, names, make, status):
    """What a converted file means is computed by ONNX Runtime, by whose kernels another runtime is not wrong yet."""
    (tmp_path / "small.onnx").write_bytes(make().SerializeToString())
    onnx.save(converted.original(), tmp_path / "net.onnx")
    precision = precision_of(make())
    lines = ["onnx: net.onnx", "runtimes: openvino", "specials: false",
             f"precisions: {{{precision}: {{file: small.onnx}}}}"]  # fmt: skip
    (cell,) = (one for one in plan(load_case(tmp_path, say(*lines))) if one.check == "accuracy" and one.converted)
    sound = bench.run_cell(cell)
    assert sound.status == "passed", sound.reason
    with wrong_runtime(lambda _, outputs: [outputs[0] * np.float32(1.5)], *names):
        record = bench.run_cell(cell)
    assert record.status == status, record.reason
    assert status == "failed" or "nobody else computes the file" in record.reason


IN_BFLOAT16 = """
import ml_dtypes
from onnx import TensorProto, helper, load, numpy_helper

def narrowed(file, batches):
    model = load(file)
    for node in model.graph.node:  # of which there is a MatMul
        node.input[:] = [f"{name}_small" for name in node.input]
        node.output[:] = [f"{name}_small" for name in node.output]
    for tensor in model.graph.initializer:
        small = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16)
        tensor.CopyFrom(numpy_helper.from_array(small, f"{tensor.name}_small"))
    (given,), (made,) = model.graph.input, model.graph.output
    cast = helper.make_node("Cast", [given.name], [f"{given.name}_small"], to=TensorProto.BFLOAT16)
    model.graph.node.insert(0, cast)
    model.graph.node.append(helper.make_node("Cast", [f"{made.name}_small"], [made.name], to=TensorProto.FLOAT))
    del model.graph.value_info[:]
    return model
"""


def test_a_runtime_without_kernels_for_what_a_module_was_converted_to_is_skipped(tmp_path, bench):
    body = """
    module: torch.nn.Linear
    with: {in_features: 4, out_features: 3, bias: false}
    inputs: {input: "float32[batch, 4]"}
    dims: {batch: 1..4}
    export: {torchscript: [17]}
    runtimes: [onnxruntime, openvino]
    precisions: {bf16: {by: beside.narrowed}}
    """
    cells = plan(load_case(tmp_path, body, IN_BFLOAT16))
    by_runtime = {cell.runtime: cell for cell in cells if cell.converted and cell.check == "accuracy"}
    unable, able = (bench.run_cell(by_runtime[name]) for name in ("onnxruntime", "openvino"))
    assert able.status == "passed", able.reason
    assert unable.status == "skipped" and "ONNX Runtime does not take the model" in unable.reason
    with wrong_runtime(lambda _, outputs: [outputs[0] * np.float32(1.5)], "openvino", "openvino-float32"):
        alone = bench.run_cell(by_runtime["openvino"])
    assert alone.status == "skipped" and "OpenVINO and ONNX's evaluator give other values" in alone.reason


@pytest.mark.parametrize("make", [of_opset_17, of_onnxruntime_alone])
def test_a_converted_file_that_the_evaluator_does_not_read_is_no_mistake_of_anybody(tmp_path, bench, make):
    file = tmp_path / "net.onnx"
    onnx.save(make(), file)
    precision = precision_of(make())
    body = say(
        "onnx: net.onnx",
        "runtimes: onnxruntime",
        "specials: false",
        f"precisions: {{{precision}: {{file: net.onnx}}}}",
    )
    (cell,) = (one for one in plan(load_case(tmp_path, body)) if one.check == "accuracy" and one.converted)
    sound = bench.run_cell(cell)
    assert sound.status != "failed", sound.reason
    with wrong_runtime(lambda _, outputs: [outputs[0] * np.float32(1.05)]):
        record = bench.run_cell(cell)
    assert (record.status, record.fault) == ("failed", "runtime"), record.reason


@pytest.mark.parametrize("opset, said", [
    (17, "Conv takes bfloat16 from opset 22 on"), (21, "Conv takes bfloat16 from opset 22 on"), (22, None)
])  # fmt: skip
def test_a_type_that_an_operator_takes_later_is_refused_with_the_opset(opset, said):
    weight = numpy_helper.from_array(np.ones((2, 3, 3, 3), ml_dtypes.bfloat16), "w")
    nodes = [helper.make_node("Cast", ["x"], ["given"], to=onnx.TensorProto.BFLOAT16),
             helper.make_node("Conv", ["given", "w"], ["made"]),
             helper.make_node("Cast", ["made"], ["y"], to=onnx.TensorProto.FLOAT)]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", channels, size, size])
            for name, channels, size in (("x", 3, 8), ("y", 2, 6))]  # fmt: skip
    graph = helper.make_graph(nodes, "bf16", ends[:1], ends[1:], [weight])
    found = refusal(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))
    assert found is None if said is None else found is not None and found[1].endswith(f"tensor(bfloat16); {said}")
