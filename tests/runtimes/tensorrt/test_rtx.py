"""TensorRT for RTX parses and builds what a case that names TensorRT exports, and runs nothing."""

import re

import pytest

from conformance.case.plan.catalogue import Selection, plan, selection
from conformance.cells.replay.compile_trial import Refusing, stop
from conformance.process.disk.value_store import KeptValues
from conformance.process.errors import Unavailable
from conformance.runtimes import registry
from conformance.runtimes.tensorrt import rtx
from conformance.runtimes.tensorrt.build_options import Build
from tests.kit.bundles import pack, replay
from tests.kit.cases import details, load_case, say, verdict, write_case
from tests.kit.models import model_of
from tests.kit.runs import run_command, run_suite
from tests.runtimes.tensorrt.support import LINEAR, PRECISIONS, PYTHON, saved

real = pytest.mark.skipif(rtx.absence() is not None, reason=f"{rtx.absence()}")
TAKEN = ("passed", None, None, None)
DET = say(
    'forward: "torch.linalg.det(x) + x.sum((-1, -2))"', 'inputs: {x: "float32[batch, 3, 3]"}',
    "dims: {batch: 1..4}", "runtimes: [onnxruntime, tensorrt]", "export: {torchscript: [17]}",
)  # fmt: skip
LENGTHS = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(3, 4, batch_first=True)
    def forward(self, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return torch.nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=5)[0]
"""


@real
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("check", ["parse", "build"])
def test_a_model_that_is_taken_says_by_whom_and_that_nothing_was_run(bench, check, precision):
    record = bench.run_cell(bench.cell(say(LINEAR, PRECISIONS), PYTHON, check=check, precision=precision))
    assert verdict(record) == TAKEN and record.examples == 0
    by = f"TensorRT for RTX {record.compiled['by'].split()[-1]}"
    commands = record.compiled.pop("commands", [])
    assert [command.split()[0] for command in commands] == ([] if check == "parse" else ["tensorrt_rtx"])
    targets = {"targets": ["sm80"]} if check == "build" else {}
    assert record.compiled == {"by": by, "parsed": True, **targets}
    done = f"parsed and built by {by} for sm80" if targets else f"parsed by {by}"
    assert f"{done}; nothing was run" in details(record)


def test_the_main_run_builds_one_model_of_a_case_and_a_run_of_this_runtime_all(tmp_path):
    says = say(LINEAR.replace("{torchscript: [17]}", "{torchscript: [13, 17], dynamo: [18, 20]}"), PRECISIONS)
    cells = [cell for cell in plan(load_case(tmp_path, says)) if cell.runtime == registry.RTX]
    every = {(cell.check, cell.exporter, cell.opset, cell.precision) for cell in cells}
    models = {("torchscript", 17), ("dynamo", 20)}
    assert every == {
        (check, *model, precision)
        for check in ("parse", "build", "meaning") for model in models for precision in ("fp32", "fp16", "int8")
    }  # fmt: skip
    main = [cell for cell in cells if Selection().keeps(cell)]
    assert {cell.precision for cell in main if cell.check == "parse"} == {"fp32", "fp16", "int8"}
    assert not [cell for cell in main if cell.check == "meaning"]
    (built,) = (cell for cell in main if cell.check == "build")
    assert (built.exporter, built.precision) == ("dynamo", "fp32")
    assert [cell for cell in cells if selection({"runtime": registry.RTX}).keeps(cell)] == cells


@real
def test_an_operator_that_it_lacks_skips_the_cell_with_the_node_and_is_a_failure_where_it_is_required(tmp_path):
    write_case(tmp_path / "cases", DET)
    arguments = ("--isolation", "none", "--runtime", registry.RTX, "-k", "parse")
    done = run_suite(tmp_path, *arguments)
    (record,) = done.records.values()
    assert record["status"] == "skipped" and "lacks Det: node Det /Det: UNSUPPORTED_NODE" in record["reason"]
    required = run_suite(tmp_path, *arguments, "--require", registry.RTX)
    (record,) = required.records.values()
    assert (record["status"], record["error"], required.code) == ("failed", "NotRun", 1)


@real
def test_it_is_no_tensorrt_for_who_requires_that(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, "--isolation", "none", "--require", "tensorrt", "-k", "tensorrt")
    found = {(one["runtime"], one["status"]) for one in done.records.values()}
    assert found == {("tensorrt", "failed"), (registry.RTX, "passed")} and done.code == 1


@real
def test_a_refusal_names_the_node_its_line_the_code_and_a_model_that_is_taken(bench):
    body = say(
        'forward: "F.max_pool2d(x, 2, return_indices=True)"', 'inputs: {x: "float32[batch, 1, 4, 4]"}',
        "dims: {batch: 1..3}", "runtimes: [onnxruntime, tensorrt]", "export: {dynamo: [20]}",
        "precisions: {fp16: {}}",
    )  # fmt: skip
    record = bench.run_cell(bench.cell(body, check="build", precision="fp32"))
    assert verdict(record) == ("failed", "load", "UnsupportedModel", "runtime")
    refused = record.compiled["refused"][0]
    assert (refused["code"], refused["operator"], refused["lacks"]) == ("UNSUPPORTED_NODE", "MaxPool", False)
    assert refused["line"].endswith("planted.yaml:1") and refused["line"] in record.reason
    assert record.parts_at["how"] == "refused" and record.compiled["parsed"] is False
    converted = bench.run_cell(bench.cell(body, check="parse", precision="fp16"))
    assert converted.fault == "runtime"  # the model before its conversion is refused as well


@real
def test_a_recurrent_layer_with_lengths_is_taken_in_fp16(bench):
    """In fp16 TensorRT's parser selects between fp16 and fp32 there, so that the conversion leaves it alone."""
    body = say(
        "module: beside.Net",
        'inputs: {x: "float32[batch, 5, 3]", lengths: {type: "int64[batch]", values: {integers: {low: 1, high: 5}}}}',
        "dims: {batch: 1..3}", "runtimes: [onnxruntime, tensorrt]", "export: {torchscript: [17]}",
        "precisions: {fp16: {}}",
    )  # fmt: skip
    record = bench.run_cell(bench.cell(body, LENGTHS, check="parse", precision="fp16"))
    assert verdict(record) == TAKEN, record.reason


@real
@pytest.mark.parametrize("graph, fault", [
    ("(float[N,3] x) => (float[N,3] y) <float s = {0.5}, int8 o = {1}> "
     "{ [q] q = QuantizeLinear(x, s, o)  [d] y = DequantizeLinear(q, s, o) }", "case"),
    ("(float[N,3] x) => (float[N,3] y) { [r] y = Relu(x) }", None),
])  # fmt: skip
def test_who_made_a_file_is_at_fault_for_a_zero_point(bench, tmp_path, graph, fault):
    import onnx

    onnx.save(model_of(f"g {graph}"), tmp_path / "net.onnx")
    case = load_case(tmp_path, say("onnx: net.onnx", "dims: {N: 1..4}", "runtimes: [onnxruntime, tensorrt-rtx]"))
    record = bench.run_cell(next(cell for cell in plan(case) if cell.check == "parse"))
    assert record.fault == fault and (record.status == "passed") is (fault is None)
    assert fault is None or "Non-zero zero point is not supported" in record.reason


@real
def test_a_target_that_nothing_is_built_for_is_a_mistake_of_the_case(bench):
    record = bench.run_cell(bench.cell(say(LINEAR, "tensorrt: {targets: [sm80, sm90]}"), PYTHON, check="build"))
    assert verdict(record) == ("failed", "declare", "UnknownTarget", "case")
    assert "builds for no sm90; did you mean 'sm" in record.reason or "known: " in record.reason


@real
def test_a_limit_of_workspace_that_is_too_low_is_a_mistake_of_the_case(bench):
    body = say(
        'forward: "F.softmax(F.conv2d(x, torch.ones(64, 3, 3, 3)), 1)"', 'inputs: {x: "float32[batch, 3, 32, 32]"}',
        "dims: {batch: 1..64}", "runtimes: [onnxruntime, tensorrt]", "tensorrt: {workspace: 1 MiB}",
        "export: {torchscript: [17]}",
    )  # fmt: skip
    record = bench.run_cell(bench.cell(body, check="build"))
    assert verdict(record) == ("failed", "load", "BuildFailed", "case")
    assert "within workspace limit" in record.reason


@real
def test_another_version_tries_again(tmp_path, monkeypatch):
    model, kept = saved(tmp_path, "(float[3] x) => (float[3] y) { y = Relu(x) }"), KeptValues(tmp_path / "builds")
    assert rtx.tried(model, "one", rtx.Job(), kept).error is None
    model.write_bytes(b"no model")
    monkeypatch.setattr("tensorrt_rtx.__version__", "9.9")
    assert rtx.tried(model, "one", rtx.Job(), kept).error == "UnsupportedModel"


@real
def test_shapes_out_of_order_and_garbage_are_refused_with_what_they_are_about(tmp_path):
    model = saved(tmp_path, "(float[N,3] x) => (float[N,3] y) { y = Relu(x) }")
    disordered = rtx.Job(Build({"x": ((4, 3), (2, 3), (1, 3))}), "sm80")
    trial = rtx.tried(model, "", disordered, KeptValues(None))
    assert trial.error == "BadProfile" and "x in (4, 3) to (1, 3)" in trial.reason and "MIN<=OPT<=MAX" in trial.reason
    assert "cudaError" not in trial.reason
    model.write_bytes(b"no model")
    assert rtx.tried(model, "", rtx.Job(), KeptValues(None)).refusals[0].code == "MODEL_DESERIALIZE_FAILED"


@real
def test_an_input_whose_value_decides_a_shape_is_named(tmp_path):
    model = saved(tmp_path, "(float[N,3] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }")
    trial = rtx.tried(model, "", rtx.Job(Build({"x": ((1, 3),) * 3, "s": ((2,),) * 3}), "sm80"), KeptValues(None))
    assert trial.error == "ShapeInput" and "input s decides a shape" in trial.reason


@real
def test_what_became_of_a_model_is_kept_and_no_engine(tmp_path):
    model, kept = saved(tmp_path, "(float[3] x) => (float[3] y) { y = Relu(x) }"), tmp_path / "builds"
    first = rtx.tried(model, "one", rtx.Job(Build({}), "sm80"), KeptValues(kept))
    (file,) = (file for file in kept.iterdir() if not file.name.startswith("."))
    assert first.error is None and file.stat().st_size < 2000
    model.write_bytes(b"no model")  # nobody looks at it again
    assert rtx.tried(model, "one", rtx.Job(Build({}), "sm80"), KeptValues(kept)) == first
    assert rtx.tried(model, "another", rtx.Job(), KeptValues(kept)).error == "UnsupportedModel"
    file.write_bytes(b"damaged")
    assert rtx.tried(model, "one", rtx.Job(Build({}), "sm80"), KeptValues(kept)).error == "UnsupportedModel"


def test_without_it_the_cells_are_skipped_with_the_command_to_type(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'tensorrt_rtx' else find(name, *more)\n"
    )
    done = run_suite(tmp_path, "--runtime", registry.RTX, own_process=True, PYTHONPATH=str(hidden))
    found = {one["check"]: one for one in done.records.values() if one["runtime"] == registry.RTX}
    assert {one["status"] for one in found.values()} == {"skipped"} and {*found} == {"parse", "build", "meaning"}
    assert all("onnx-export-conformance[tensorrt-rtx]" in one["reason"] for one in found.values())


def test_a_model_that_ends_the_parser_s_process_is_the_failure_of_its_cell(tmp_path):
    """Here by a package of that name whose parser aborts."""
    package = tmp_path / "other" / "tensorrt_rtx.py"
    package.parent.mkdir()
    package.write_text("import os\n__version__ = '9.9'\ndef __getattr__(name):\n    os.abort()\n")
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, "-k", "fp32", own_process=True, PYTHONPATH=str(package.parent))
    found = {(one["runtime"], one["check"]): one for one in done.records.values()}
    ended = found[registry.RTX, "parse"]
    assert (ended["status"], ended["stage"], ended["signal"]) == ("failed", "load", "SIGABRT")
    assert found["onnxruntime", "accuracy"]["status"] == "passed"


@real
def test_a_bundle_is_parsed_and_built_without_pytorch(tmp_path):
    code, bundle = pack(tmp_path, say(LINEAR, PRECISIONS), PYTHON)
    assert code == 0
    code, records = replay(bundle, "--runtime", registry.RTX)
    assert {(one["check"], one["precision"]) for one in records.values()} == {
        (check, precision) for check in ("parse", "build") for precision in ("fp32", "fp16", "int8")
    }
    assert code == 0 and {one["status"] for one in records.values()} == {"passed"}
    built = records["build[planted-torchscript-op17-tensorrt-rtx-fp32]"]
    assert built["compiled"]["targets"] == ["sm80"] and built["examples"] == 0


@real
def test_a_file_is_parsed_and_built_too(tmp_path):
    saved(tmp_path, "(float[N,3] x) => (float[N,3] y) { y = Relu(x) }")
    done = run_command(tmp_path, "check", tmp_path / "model.onnx", "--precision", "fp32", "--dim", "N=1..4")
    assert done.code == 0
    assert "passed  parse[model-onnx-op17-tensorrt-rtx-fp32]" in done.text
    assert "passed  build[model-onnx-op17-tensorrt-rtx-fp32]" in done.text
    assert "parsed and built by TensorRT for RTX" in done.text and "nothing was run" in done.text


@real
def test_a_file_that_is_refused_is_told_and_not_counted(tmp_path):
    """Nobody has asked for TensorRT, and the file is right."""
    graph = (
        "(float[N,1,4,4] x) => (float[N,1,2,2] y, int64[N,1,2,2] i) { [pool] y, i = MaxPool<kernel_shape=[2,2]>(x) }"
    )
    saved(tmp_path, graph.replace("[2,2]>", "[2,2], strides=[2,2]>"))
    done = run_command(tmp_path, "check", tmp_path / "model.onnx", "--precision", "fp32", "--dim", "N=1..4")
    assert done.code == 0, done.text
    assert "not counted: parse[model-onnx-op17-tensorrt-rtx-fp32]: node MaxPool pool: UNSUPPORTED_NODE" in done.text


@real
@pytest.mark.parametrize("graph, said", [
    ("(float[1,2,8,8] x, float[2,4] r, int64[2] b) => (float y) { y = RoiAlign(x, r, b) }",
     "RoiAlign cannot be tried without a GPU: the plugin of TensorRT for RTX"),
    ('(float[4] x, int64[2] i, float[2] u) => (float y) { y = ScatterElements<reduction="add">(x, i, u) }',
     r"lacks ScatterElements \(TensorRT itself has ScatterElements, by its documentation\)"),
])  # fmt: skip
def test_a_plugin_that_only_a_gpu_or_only_tensorrt_has_is_no_fault(tmp_path, graph, said):
    trial = rtx.tried(saved(tmp_path, graph), "", rtx.Job(), KeptValues(None))
    stopped = stop(Refusing(rtx.Job(), trial), "runtime")
    assert isinstance(stopped, Unavailable) and re.search(said, str(stopped))
