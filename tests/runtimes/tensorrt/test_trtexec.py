"""The command that builds the engine of a cell again with NVIDIA's own tools."""

import shlex
from typing import Any

import pytest

from conformance.results.records.details import details
from conformance.results.records.record import Record
from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt.build_options import Build, BuildOptions
from conformance.runtimes.tensorrt.rtx import Job
from conformance.runtimes.tensorrt.trtexec import rtx_commands, tensorrt_rtx, trtexec
from tests.kit.cases import say
from tests.kit.models import model_of
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, LINEAR, PRECISIONS, run, saved


def graph_of(inputs: str) -> Any:
    return model_of(f"g ({inputs}) => (float[N,3] y) {{ y = Neg(x) }}").graph


def test_shapes_are_those_of_inputs_with_open_sizes_and_options_those_of_the_case(tmp_path):
    shapes: Any = {"x": ((1, 3), (2, 3), (4, 3)), "fixed": ((3, 3),) * 3}
    plugin = "/opt/my plugins/libgate.so"
    options = BuildOptions(
        workspace=512, optimization_level=4, hardware_compatibility="ampere_plus", plugins=(plugin,), tf32=True
    )
    model = tmp_path / "it's a model.onnx"
    told = shlex.split(trtexec(model, Build(shapes, options=options), graph_of("float[N,3] x, float[3,3] fixed"), []))
    assert told == [
        "trtexec", f"--onnx={model}", "--saveEngine=model.engine", "--minShapes=x:1x3", "--optShapes=x:2x3",
        "--maxShapes=x:4x3", "--memPoolSize=workspace:512", "--builderOptimizationLevel=4",
        "--hardwareCompatibilityLevel=ampere+", f"--staticPlugins={plugin}", "--skipInference",
    ]  # fmt: skip


def test_an_engine_of_fixed_shapes_has_no_ranges_and_tf32_is_off_unless_the_case_wants_it(tmp_path):
    build = Build({"x": ((2, 3),) * 3})
    told = shlex.split(trtexec(tmp_path / "model.onnx", build, graph_of("float[2,3] x"), ["--fp16"]))
    assert told[3:] == ["--fp16", "--noTF32", "--skipInference"]


@pytest.mark.parametrize("name, written", [("x.1", "x.1:1x3"), ("args[0]; rm", "'args[0]; rm':1x3")])
def test_a_name_that_means_something_to_a_shell_or_to_trtexec_is_quoted_for_both(tmp_path, name, written):
    graph = graph_of("float[N,3] x")
    graph.input[0].name = name
    build = Build({name: ((1, 3), (2, 3), (4, 3))})
    assert f"--minShapes={written}" in shlex.split(trtexec(tmp_path / "model.onnx", build, graph, []))


def test_an_engine_of_tensorrt_for_rtx_is_built_for_its_target(tmp_path):
    told = shlex.split(tensorrt_rtx(tmp_path / "model.onnx", BATCHES, graph_of("float[N,3] x"), "sm120"))
    assert told[0] == "tensorrt_rtx" and told[-2:] == ["--computeCapabilities=120", "--skipInference"]


def test_each_build_for_rtx_has_a_command_and_parsing_has_none(tmp_path):
    model = saved(tmp_path, AFFINE)
    told = rtx_commands(model, [Job(), Job(BATCHES, "sm80"), Job(BATCHES, "sm89")])
    assert [shlex.split(command)[-2] for command in told] == ["--computeCapabilities=80", "--computeCapabilities=89"]
    assert all("--maxShapes=x:4x3" in shlex.split(command) for command in told)


@pytest.mark.parametrize("release, precision, typed", [
    ("8.6.0", "fp32", []), ("8.6.0", "int8", ["--int8"]), ("10.12.0", "int8", ["--stronglyTyped"]),
    ("11.0.0", "int8", ["--stronglyTyped"]),
])  # fmt: skip
def test_dtypes_bind_by_the_option_that_this_tensorrt_has(bench, double, release, precision, typed):
    double(release)
    record = run(bench, say(LINEAR, PRECISIONS), precision=precision)
    told = shlex.split(record.arithmetic["command"])
    kinds = [option for option in told if option in ("--stronglyTyped", "--int8", "--fp16")]
    assert kinds == typed and "--minShapes=x:1x6" in told and "--maxShapes=x:8x6" in told
    assert [line for line in details(record) if "trtexec --onnx=" in line]


def test_what_a_session_says_of_its_engine_names_the_model(double, tmp_path):
    double()
    model = saved(tmp_path, AFFINE)
    with runtime.open_model(model, (), BATCHES) as session:
        assert f"--onnx={model}" in shlex.split(session.arithmetic["command"])


def made(**fields):
    return Record("accuracy[a]", "a", "dynamo", 20, "tensorrt", "fp32", "accuracy", {}, **fields)


def test_a_record_of_somebody_else_shows_only_commands_that_are_text():
    assert not [line for line in details(made(arithmetic={"command": 3})) if "NVIDIA" in line]
    told = details(made(compiled={"by": "TensorRT for RTX", "parsed": True, "commands": ["tensorrt_rtx --onnx=a"]}))
    assert "the same build by NVIDIA's tool: tensorrt_rtx --onnx=a" in told
