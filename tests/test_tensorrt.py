"""The runtime ``tensorrt`` without a GPU: on doubles of TensorRT and pycuda that have the recorded surface of both.

The double computes with ONNX Runtime, so that its numbers are right unless a fault is planted in it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.errors import Unavailable
from conformance.records import text
from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt import build as building
from conformance.runtimes.tensorrt import session as running
from conformance.runtimes.tensorrt.absence import absence
from conformance.runtimes.tensorrt.cudagraph import captured
from conformance.runtimes.tensorrt.device import Memory, driver_release
from conformance.runtimes.tensorrt.engines import Engines, key
from conformance.runtimes.tensorrt.options import Build, Options, covering
from tests.support import PASSED, Bench, details, run_suite, say, verdict, write_case

DOUBLES = Path(__file__).parent / "doubles"
VERSIONS = ("8.6.0", "10.12.0", "11.0.0")

LINEAR = """
module: beside.Small
inputs: {x: "float32[batch, 6]"}
dims: {batch: 1..8}
runtimes: [onnxruntime, tensorrt]
export: {torchscript: [17]}
"""
PYTHON = """
import torch
class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 16), torch.nn.Linear(16, 4)
    def forward(self, x):
        return self.two(torch.relu(self.one(x)))
"""
PRECISIONS = "precisions: {fp16: {}, int8: {}}\ntolerance: {int8: {sqnr: 15 dB, because: a tiny network}}"


def forget_modules() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("tensorrt", "pycuda")]:
        del sys.modules[name]


@pytest.fixture(params=VERSIONS)
def version(request) -> str:
    return str(request.param)


@pytest.fixture
def double(monkeypatch) -> Iterator[Any]:
    """``double(version, fault)``: from now on TensorRT and pycuda are doubles."""

    def use(version: str = VERSIONS[1], fault: str = "", unsupported: str = "") -> None:
        forget_modules()
        monkeypatch.syspath_prepend(DOUBLES)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_TENSORRT", version)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", fault)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_UNSUPPORTED", unsupported)

    yield use
    forget_modules()


def run(
    bench: Bench, body: str = LINEAR, python: str = PYTHON, check: str = "accuracy", precision: str = "fp32"
) -> Any:
    """The record of the only such cell, with a store of its own: engines are kept between cells."""
    bench = Bench(bench.folder, Path(tempfile.mkdtemp(dir=bench.folder)) / "store")
    (cell,) = (
        cell
        for cell in bench.cells(body, python)
        if (cell.check, cell.runtime, cell.precision) == (check, "tensorrt", precision)
    )
    return bench.run_cell(cell, examples=3)


# ---- sound engines pass, on every version ---------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_sound_engine_passes_on_every_version_and_says_how_it_computes(bench, double, version, precision):
    double(version)
    record = run(bench, say(LINEAR, PRECISIONS), precision=precision)
    assert verdict(record) == PASSED, record.reason
    assert record.examples > 20
    told = record.arithmetic
    assert told["provider"].startswith(f"TensorRT {version}")
    assert "double" in told["gpu"]
    assert told["tf32"] is False
    assert told["arithmetic"] == ("chosen by the builder" if version == "8.6.0" else "as the model says")


def test_the_engine_check_passes_and_notes_layers_times_and_throughput(bench, double, version):
    double(version)
    record = run(bench, check="engine")
    assert verdict(record) == PASSED, record.reason
    assert len(record.engine["layers"]) >= 1
    assert {"name", "ms"} == record.engine["layers"][0].keys()
    assert [one["batch"] for one in record.engine["times"]] == [1, 4]  # 16 is beyond the case's dims
    assert all(one["with_transfers"] > 0 and one["rows"] > 0 for one in record.engine["times"])


def test_integers_that_8_6_has_no_dtype_for_are_cast_and_told(bench, double):
    body = """
    forward: x * 2 - 1
    inputs: {x: {type: "int64[batch, 3]", values: {integers: {low: -9, high: 9}}}}
    dims: {batch: 1..4}
    runtimes: tensorrt
    export: {torchscript: [17]}
    """
    double("8.6.0")
    record = run(bench, body, "")
    assert verdict(record) == PASSED, record.reason
    assert (
        record.arithmetic["casts"] == ["x: int64 as int32", "output0: int64 as int32"]
        or len(record.arithmetic["casts"]) == 2
    )
    double("10.12.0")
    assert run(bench, body, "").arithmetic["casts"] == []


def test_a_value_beyond_what_8_6_can_take_is_an_error_and_not_a_wrong_answer(bench, double):
    double("8.6.0")
    record = run(
        bench,
        """
        forward: x * 2
        inputs: {x: {type: "int64[batch]", values: {integers: {low: 4000000000, high: 4000000009}}}}
        dims: {batch: 1..4}
        runtimes: tensorrt
        export: {torchscript: [17]}
        """,
        "",
    )
    assert (record.status, record.stage, record.error) == ("failed", "run", "ValueError")
    assert "beyond int32" in record.reason


def test_an_output_whose_shape_depends_on_values_goes_through_an_allocator(bench, double, version):
    double(version)
    record = run(
        bench,
        """
        forward: torch.masked_select(x, x > 0)
        inputs: {x: "float32[n]"}
        dims: {n: 2..40}
        runtimes: tensorrt
        export: {torchscript: [17]}
        """,
        "",
    )
    assert verdict(record) == PASSED, record.reason


def _saved(folder: Path, text: str) -> Path:
    """A model in ONNX's textual form, as a file."""
    file = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'), file)
    return file


AFFINE = "(float[N,3] x) => (float[N,3] y, float[N,3] z) <float[3] w = {1, 2, 3}> { y = Mul(x, w)  z = Neg(y) }"
BATCHES = Build({"x": ((1, 3), (2, 3), (4, 3))})
SCALAR = "(float x, float[N,3] a) => (float y, float[N,3] b) { y = Neg(x)  b = Neg(a) }"


def test_layers_are_measured_where_contexts_cannot_share_a_profile(double, version, tmp_path):
    """As in TensorRT 8.6; afterwards the session runs as before."""
    double(version)
    with runtime.open_model(_saved(tmp_path, AFFINE), (), BATCHES) as session:
        x = np.ones((3, 3), np.float32)
        before = session.run({"x": x})
        assert {layer["name"] for layer in session.layers({"x": x})} == {"y", "z"}
        assert np.array_equal(session.run({"x": x})[0], before[0])


def test_a_layer_that_is_reported_twice_a_run_has_the_time_of_both(double, tmp_path, monkeypatch):
    double()
    with runtime.open_model(_saved(tmp_path, AFFINE), (), BATCHES) as session:

        def report(inputs: Any) -> None:
            profiler = session._context.profiler
            for _ in range(2 if profiler is not None else 0):
                profiler.report_layer_time("loop", 1.5)

        monkeypatch.setattr(session, "run", report)
        assert session.layers({}, rounds=4) == [{"name": "loop", "ms": 3.0}]


@pytest.mark.parametrize("transfers", [False, True])
def test_empty_and_0d_tensors_are_timed(double, version, transfers, tmp_path):
    double(version)
    build = Build({"x": ((), (), ()), "a": ((0, 3), (2, 3), (4, 3))})
    inputs = {"x": np.array(2, np.float32), "a": np.zeros((0, 3), np.float32)}
    with (
        runtime.open_model(_saved(tmp_path, SCALAR), (), build) as session,
        session.stopwatch(inputs, transfers=transfers) as once,
    ):
        assert once() > 0


def test_what_a_session_has_on_the_device_goes_with_it(double, version, tmp_path):
    """Though somebody holds it, as a traceback does."""
    double(version)
    from pycuda import _memory

    with runtime.open_model(_saved(tmp_path, AFFINE), (), BATCHES) as session:
        session.run({"x": np.ones((3, 3), np.float32)})
        assert _memory._live
    assert not _memory._live
    with pytest.raises(RuntimeError, match="NumPy has no dtype for") as held:
        _open_with_unknown_dtypes(tmp_path)
    assert held.tb
    assert not _memory._live


def _open_with_unknown_dtypes(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "DTYPES", {})
        with runtime.open_model(_saved(folder, AFFINE), (), BATCHES):
            pass


def test_plugins_always_have_a_logger_to_speak_to(double, tmp_path):
    double()
    for _ in range(2):
        with runtime.open_model(_saved(tmp_path, AFFINE), (), BATCHES):
            pass


def test_a_reason_is_not_that_of_an_engine_before(double, tmp_path, monkeypatch):
    double()
    model = _saved(tmp_path, AFFINE)
    with runtime.open_model(model, (), BATCHES) as session, pytest.raises(ValueError, match="is built for"):
        session.run({"x": np.ones((9, 3), np.float32)})
    monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", "build")  # in the same process, which has one logger
    with (
        pytest.raises(building.BuildFailed, match="the fault that was planted") as failed,
        runtime.open_model(model, (), BATCHES),
    ):
        pass
    assert "exceed" not in str(failed.value)


# ---- defects are found --------------------------------------------------------------------------------------


def test_a_wrong_answer_is_the_runtimes_fault_since_onnxruntime_agrees_with_pytorch(bench, double):
    double(fault="wrong")
    record = run(bench)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")
    assert any("optimizer off: agrees with PyTorch" in line for line in details(record))


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_wrong_answer_of_a_converted_model_is_found(bench, double, precision):
    double(fault="wrong")
    record = run(bench, say(LINEAR, PRECISIONS), precision=precision)
    assert verdict(record) == ("failed", "compare", "WrongValue", "runtime")


def test_rows_that_differ_though_they_are_equal_are_found(bench, double):
    double(fault="rows")
    assert verdict(run(bench, check="engine")) == ("failed", "compare", "RowsDiffer", "runtime")


def test_a_second_build_that_answers_otherwise_is_found(bench, double):
    double(fault="rebuild")
    assert verdict(run(bench, check="engine")) == ("failed", "compare", "RebuildDiffers", "runtime")


def test_an_engine_that_cannot_be_built_stops_at_load(bench, double):
    double(fault="build")
    record = run(bench)
    assert (record.status, record.stage, record.error) == ("failed", "load", "BuildFailed")


def test_an_operator_that_the_parser_does_not_know_stops_at_load_with_the_node_and_the_parsers_words(
    bench, double, version
):
    double(version, unsupported="Relu")
    record = run(bench)
    assert (record.status, record.stage, record.error) == ("failed", "load", "UnsupportedModel")
    assert "(Relu /Relu)" in record.reason
    assert "Relu" in record.reason.split("): ", 1)[1]
    declared = "fails: [{when: {runtime: tensorrt}, stage: load, error: UnsupportedModel, because: it has no Relu}]"
    assert run(bench, say(LINEAR, declared)).status == "xfailed"


def test_no_memory_on_the_device_is_told(bench, double):
    double(fault="oom")
    record = run(bench)
    assert record.status == "failed"
    assert "memory" in record.reason.lower()


def test_no_memory_for_an_output_whose_shape_depends_on_values_is_told(double, version, tmp_path, monkeypatch):
    double(version)
    model = _saved(tmp_path, "(float[5] x) => (int64[1,M] y) { y = NonZero(x) }")
    give = Memory.at_least

    def refuse(self: Memory, name: str, size: int) -> Any:
        if name == "y":
            raise MemoryError("cuMemAlloc failed: out of memory")
        return give(self, name, size)

    with runtime.open_model(model, (), Build({"x": ((5,), (5,), (5,))})) as session:
        assert session.run({"x": np.zeros(5, np.float32)})[0].shape == (1, 0)
        monkeypatch.setattr(Memory, "at_least", refuse)
        with pytest.raises(RuntimeError, match="no memory for y: cuMemAlloc failed: out of memory"):
            session.run({"x": np.ones(5, np.float32)})
        monkeypatch.setattr(Memory, "at_least", give)
        assert session.run({"x": np.ones(5, np.float32)})[0].shape == (1, 5)


@pytest.mark.parametrize("version, node", [("8.6.0", "node 1 (If branch)"), ("10.12.0", "node 0 (Relu inner)")])
def test_an_unknown_operator_in_the_body_of_another_is_told_as_the_parser_tells_it(double, version, node, tmp_path):
    double(version, unsupported="Relu")
    model = _saved(
        tmp_path,
        """(float[2] x, bool c) => (float[2] y) {
        [first] a = Abs(x)
        [branch] y = If(c) <
            then_branch = t () => (float[2] p) { [inner] p = Relu(a) },
            else_branch = e () => (float[2] q) { [other] q = Neg(a) }
        >
    }""",
    )
    with (
        pytest.raises(building.UnsupportedModel, match="No importer registered for op: Relu") as refused,
        runtime.open_model(model, (), Build({})),
    ):
        pass
    assert node in str(refused.value)
    assert "Abs" not in str(refused.value)


def test_an_error_that_ends_cuda_for_the_process_is_the_verdict_of_its_cell_alone(tmp_path):
    """What comes after it gets a new process, and no smaller example is made up."""
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    write_case(tmp_path / "cases", LINEAR.replace("module: beside.Small", "forward: torch.tanh(x)"), name="atfirst")
    done = run_suite(
        tmp_path, "--runtime", "tensorrt", PYTHONPATH=str(DOUBLES), CONFORMANCE_DOUBLE_ILLEGAL="Tanh"
    )  # fmt: skip
    lost, engine = (
        done.records[f"{check}[atfirst-torchscript-op17-tensorrt-fp32]"] for check in ("accuracy", "engine")
    )
    assert (lost["status"], lost["stage"], lost["signal"]) == ("failed", "run", "SIGABRT")
    assert any("an illegal memory access was encountered" in line for line in text.details(lost))
    assert engine["signal"] == "SIGABRT"
    others = [one for one in done.records.values() if one["case"] == "planted"]
    assert {one["check"] for one in others} >= {"accuracy", "engine"}
    assert {one["status"] for one in others} == {"passed"}


@pytest.mark.parametrize("fault, signal", [("crash", "SIGABRT"), ("hang", "timeout after 6 s")])
def test_an_engine_that_ends_or_hangs_the_process_is_the_verdict_of_its_cell(tmp_path, fault, signal):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(
        tmp_path, "--runtime", "tensorrt,onnxruntime", "--cell-timeout", "6", PYTHONPATH=str(DOUBLES),
        CONFORMANCE_DOUBLE_FAULT=fault,
    )  # fmt: skip
    records = done.records
    broken = records["accuracy[planted-torchscript-op17-tensorrt-fp32]"]
    assert (broken["status"], broken["signal"], broken["stage"]) == ("failed", signal, "run")
    assert records["accuracy[planted-torchscript-op17-onnxruntime-fp32]"]["status"] == "passed"
    assert done.code == 1


# ---- honest absence -----------------------------------------------------------------------------------------


def _hide(monkeypatch, *names: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in names else find(name, *more))


def test_each_lack_has_a_reason_of_its_own(double, monkeypatch):
    double()
    assert absence() is None
    double(fault="nogpu")
    reasons = [absence()]
    double(fault="nodriver")
    reasons.append(absence())
    double()
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[absence.__module__], "OLDEST", (99, 0))
        reasons.append(absence())
    for name in ("tensorrt", "pycuda"):
        with monkeypatch.context() as patch:
            _hide(patch, name)
            reasons.append(absence())
    words = ["no GPU", "no NVIDIA driver", "too old", "tensorrt is not installed", "pycuda is not installed"]
    for reason, word in zip(reasons, words, strict=True):
        assert reason is not None
        assert reason.startswith(word) or word in reason
    assert len(set(reasons)) == 5


def test_a_driver_that_is_older_than_tensorrts_cuda_is_an_absence_with_what_to_do(double, version, tmp_path):
    """pycuda works with it, so that only TensorRT can tell."""
    double(version, fault="olddriver")
    assert absence() is None
    with (
        pytest.raises(
            Unavailable, match=r"cannot use the GPU: CUDA initialization failure with error: 35.*tensorrt-cu12"
        ),
        runtime.open_model(_saved(tmp_path, AFFINE), (), BATCHES),
    ):
        pass


def test_an_old_driver_is_a_skip_and_a_failure_where_tensorrt_is_required(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    environment = {"PYTHONPATH": str(DOUBLES), "CONFORMANCE_DOUBLE_FAULT": "olddriver"}
    for arguments, status in (((), "skipped"), (("--require", "tensorrt"), "failed")):
        records = run_suite(tmp_path, *arguments, **environment).records
        found = records["accuracy[planted-torchscript-op17-tensorrt-fp32]"]
        assert (found["status"], "tensorrt-cu12" in found["reason"]) == (status, True)


@pytest.mark.parametrize("text, release", [
    ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n", "535.129.03"),
    ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (builder)\n", "550.54.14"),
    ("something else\n", None),
])  # fmt: skip
def test_the_driver_s_release_is_read_where_the_kernel_tells_it(tmp_path, text, release):
    file = tmp_path / "version"
    assert driver_release(file) is None
    file.write_text(text)
    assert driver_release(file) == release


def test_what_this_host_cannot_run_is_skipped_with_the_reason_in_record_and_matrix(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, PYTHONPATH=str(DOUBLES), CONFORMANCE_DOUBLE_FAULT="nogpu")
    skipped = [record for record in done.records.values() if record["runtime"] == "tensorrt"]
    assert {(record["status"], record["check"]) for record in skipped} == {
        ("skipped", "accuracy"),
        ("skipped", "engine"),
    }
    assert all(record["reason"].startswith("no GPU") for record in skipped)
    assert "NOT RUN: tensorrt, 2 cells skipped: no GPU" in done.text
    assert done.code == 0


def test_skipping_all_is_no_success(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, "-k", "tensorrt", PYTHONPATH=str(DOUBLES), CONFORMANCE_DOUBLE_FAULT="nodriver")
    assert "every cell was skipped" in done.text
    assert done.code == 5


def test_require_turns_absence_into_failure(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    environment = {"PYTHONPATH": str(DOUBLES), "CONFORMANCE_DOUBLE_FAULT": "nodriver"}
    done = run_suite(tmp_path, "--require", "tensorrt", **environment)
    assert done.code == 1
    record = done.records["accuracy[planted-torchscript-op17-tensorrt-fp32]"]
    assert (record["status"], record["error"]) == ("failed", "NotRun")
    assert "no NVIDIA driver" in record["reason"]


def test_require_fails_a_run_that_selects_no_cell_of_the_runtime(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, "--require", "tensorrt", "-k", "onnxruntime", PYTHONPATH=str(DOUBLES))
    assert "not one cell of tensorrt was run" in done.text
    assert done.code == 1
    passing = run_suite(tmp_path, "--require", "tensorrt", PYTHONPATH=str(DOUBLES))
    assert passing.code == 0, passing.text
    assert passing.header["environment"]["gpu"]["name"] == "TensorRT double (no GPU)"
    assert "double" in passing.header["environment"]["versions"]["tensorrt"]


@pytest.mark.parametrize("arguments, words", [
    (("--require", "tensorrtt"), "is nothing that can be required; known: latency, tensorrt"),
    (("--require", ","), "--require is empty"),
    (("--tensorrt", "optimisation_level=3"), "did you mean 'optimization_level'?"),
    (("--tensorrt", "optimization_level=9"), "optimization_level: Input should be less than or equal to 5"),
    (("--tensorrt", "workspace=lots"), "not a size of memory, such as 512 MiB or 1 GiB"),
])  # fmt: skip
def test_an_option_that_makes_no_sense_is_one_clear_line(tmp_path, arguments, words):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, *arguments)
    assert done.code == 4
    assert words in done.text
    assert "Traceback" not in done.text


# ---- what an engine is built with ---------------------------------------------------------------------------


def test_one_profile_covers_all_shapes_with_the_typical_one_inside():
    shapes = covering({"x": (3, 5), "y": (3,)}, [{"x": (1, 9), "y": (1,)}, {"x": (8, 2), "y": (8,)}])
    assert shapes == {"x": ((1, 2), (3, 5), (8, 9)), "y": ((1,), (3,), (8,))}


def test_the_builder_gets_the_options_of_the_case_and_those_of_the_run_go_first(bench, double):
    double()
    options = "tensorrt: {workspace: 1 GiB, optimization_level: 2, tf32: true, typical: {batch: 5}}"
    (cell,) = (cell for cell in bench.cells(say(LINEAR, options), PYTHON) if cell.check == "engine")
    record = bench.run_cell(cell)
    assert verdict(record) == PASSED, record.reason
    told = record.arithmetic["options"]
    assert (told["workspace"], told["optimization_level"], told["tf32"]) == (1024, 2, True)
    again = bench.run_cell(cell, tensorrt={"optimization_level": 5})
    assert again.arithmetic["options"]["optimization_level"] == 5
    assert again.arithmetic["options"]["workspace"] == 1024


class _Config:
    """Notes what a builder's configuration is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.told.append((name, *map(str, given)))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name != "told":
            self.told.append((name, str(value)))


HALF_BODY = """(float[2] x, bool c) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] p) { h = Cast<to=10>(x)  p = Cast<to=1>(h) },
               else_branch = e () => (float[2] q) { q = Neg(x) }>
}"""
QUANTIZED = """(float[2] x) => (float[2] y) <float s = {0.5}, int8 o = {0}>
    { q = QuantizeLinear(x, s, o)  y = DequantizeLinear(q, s, o) }"""


@pytest.mark.parametrize("model, flags", [
    (AFFINE, []), (QUANTIZED, ["INT8"]), (HALF_BODY, ["FP16"]),
    ("(float16[2] x) => (float16[2] y) { y = Add(x, x) }", ["FP16"]),
    ("(float[2] x) => (float[2] y) <float16[1] w = {1}> { h = CastLike(x, w)  y = CastLike(h, x) }", ["FP16"]),
    ("(float[2] x) => (float[2] y) {c = Constant<value=float16[1]{1}>() d = Cast<to=1>(c) y = Add(x, d) }", ["FP16"]),
])  # fmt: skip
def test_only_8_6_is_told_by_flags_which_precisions_the_model_has(
    double, version, model, flags, tmp_path, monkeypatch
):
    double(version)
    import tensorrt

    told: list[str] = []
    build = tensorrt.Builder.build_serialized_network

    def note(self: Any, network: Any, config: Any) -> Any:
        members = tensorrt.BuilderFlag.__members__
        told.extend(name for name, flag in members.items() if config.get_flag(flag))
        return build(self, network, config)

    monkeypatch.setattr(tensorrt.Builder, "build_serialized_network", note)
    with runtime.open_model(_saved(tmp_path, model), (), BATCHES if model is AFFINE else Build({})):
        pass
    assert told == (flags if version == "8.6.0" else [])


def test_a_module_in_float16_and_one_that_quantizes_run_on_every_version(bench, double, version):
    double(version)
    half = """
    forward: x * 2
    inputs: {x: "float16[batch, 3]"}
    dims: {batch: 1..4}
    runtimes: tensorrt
    export: {torchscript: [17]}
    """
    assert verdict(run(bench, half, "")) == PASSED
    quantizes = half.replace("x * 2", "torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)")
    assert verdict(run(bench, quantizes.replace("float16", "float32"), "")) == PASSED


def test_tf32_is_off(double, version):
    double(version)
    import tensorrt

    config = _Config()
    building._configure(tensorrt, config, Build({}))
    assert any(one[0] == "clear_flag" and "TF32" in one[1] for one in config.told)


def test_tf32_stays_on_only_where_it_is_declared(double):
    double()
    import tensorrt

    config = _Config()
    building._configure(tensorrt, config, Build({}, options=Options(tf32=True)))
    assert not any(one[0] == "clear_flag" for one in config.told)


def test_networks_are_strongly_typed_where_the_version_has_it(double, version):
    double(version)
    import tensorrt

    flags = tensorrt.NetworkDefinitionCreationFlag
    wanted = flags.EXPLICIT_BATCH if version == "8.6.0" else flags.STRONGLY_TYPED
    assert building._network_flags(tensorrt) == 1 << int(wanted)


def test_a_shape_outside_the_profile_is_refused_with_both(bench, double, tmp_path):
    double()
    model = _model(bench)
    build = Build({"x": ((1, 6), (2, 6), (4, 6))})
    with runtime.open_model(model, (), build) as session:
        assert session.run({"x": np.zeros((4, 6), np.float32)})[0].shape == (4, 4)
        with pytest.raises(ValueError, match=r"x has shape \(5, 6\), the engine is built for \(1, 6\) to \(4, 6\)"):
            session.run({"x": np.zeros((5, 6), np.float32)})


def _model(bench: Bench) -> Path:
    (cell,) = (cell for cell in bench.cells(LINEAR, PYTHON) if cell.check == "export")
    sha = bench.run_cell(cell).graph["sha"]
    return next(file for file in bench.store.rglob("model.onnx") if sha in (file.parent / "meta.json").read_text())


def test_opening_without_a_gpu_is_unavailable(bench, double):
    double(fault="nogpu")
    with pytest.raises(Unavailable, match="no GPU"), runtime.open_model(_model(bench), (), Build({})):
        pass


# ---- the store of engines -----------------------------------------------------------------------------------


DEPENDS = {"model": "abc", "build": {"precision": "fp16"}, "gpu": {"name": "one", "driver": 1}, "tensorrt": "8.6.0"}


@pytest.mark.parametrize("name, value", [
    ("model", "abd"), ("build", {"precision": "int8"}), ("gpu", {"name": "other", "driver": 1}),
    ("gpu", {"name": "one", "driver": 2}), ("tensorrt", "10.0.0"),
])  # fmt: skip
def test_an_engine_is_kept_for_exactly_what_it_depends_on(tmp_path, name, value):
    engines = Engines(tmp_path)
    engines.put(DEPENDS, b"engine")
    assert engines.get(DEPENDS) == b"engine"
    assert engines.get({**DEPENDS, name: value}) is None
    assert key(DEPENDS) != key({**DEPENDS, name: value})


SPOILT = {
    "cut": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "shifted": lambda data: b"x" + data,
    "one bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "longer": lambda data: data + b"more",
    "another model's": lambda data: data.replace(b"abc", b"abd"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_damaged_engine_is_never_loaded(tmp_path, spoil):
    engines = Engines(tmp_path)
    engines.put(DEPENDS, b"engine")
    (file,) = tmp_path.glob("*.engine")
    file.write_bytes(spoil(file.read_bytes()))
    assert engines.get(DEPENDS) is None
    engines.put(DEPENDS, b"engine")
    assert engines.get(DEPENDS) == b"engine"


def test_an_engine_of_another_key_under_this_name_is_never_loaded(tmp_path):
    engines, other = Engines(tmp_path), {**DEPENDS, "tensorrt": "10.0.0"}
    engines.put(other, b"foreign")
    (file,) = tmp_path.glob("*.engine")
    file.rename(file.with_name(f"{key(DEPENDS)}.engine"))
    assert engines.get(DEPENDS) is None


def test_the_second_session_loads_the_first_ones_engine_and_a_spoilt_one_is_built_again(bench, double, tmp_path):
    double()
    model, build = _model(bench), Build({"x": ((1, 6), (2, 6), (4, 6))}, store=tmp_path)
    built = []
    for spoil in (False, False, True):
        if spoil:
            (file,) = tmp_path.glob("*.engine")
            file.write_bytes(file.read_bytes()[:-9])
        with runtime.open_model(model, (), build) as session:
            built.append(session.built_seconds is not None)
            session.run({"x": np.zeros((2, 6), np.float32)})
    assert built == [True, False, True]
    assert len(list(tmp_path.glob("*.timings"))) == 1
    assert not list(tmp_path.glob(".new-*"))


def test_a_kept_engine_that_tensorrt_itself_refuses_is_built_again(bench, double, tmp_path, monkeypatch):
    """As one that was made for another GPU under the same name."""
    double()
    model, build = _model(bench), Build({"x": ((1, 6), (2, 6), (4, 6))}, store=tmp_path)
    with runtime.open_model(model, (), build):
        pass
    (kept,) = tmp_path.glob("*.engine")
    before = kept.read_bytes()
    head, _, _ = before.partition(b"\n")[2].partition(b"\n")
    other = b"an engine of something else"
    said = json.loads(head) | {"sha256": hashlib.sha256(other).hexdigest()}
    kept.write_bytes(before.partition(b"\n")[0] + b"\n" + json.dumps(said).encode() + b"\n" + other)
    with runtime.open_model(model, (), build) as session:
        assert session.built_seconds is not None
        assert session.run({"x": np.zeros((2, 6), np.float32)})[0].shape == (2, 4)
    assert other not in kept.read_bytes()


def test_an_engine_is_not_kept_for_another_way_of_building(double, tmp_path, monkeypatch):
    double()
    model, build = _saved(tmp_path, AFFINE), Build(BATCHES.shapes, store=tmp_path / "engines")
    built = []
    for recipe in ("one", "one", "other"):
        monkeypatch.setattr(running, "recipe", lambda recipe=recipe: recipe)
        with runtime.open_model(model, (), build) as session:
            built.append(session.built_seconds is not None)
    assert built == [True, False, True]


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        Engines(tmp_path).put(DEPENDS, b"engine")
    assert not list(tmp_path.iterdir())


def test_a_plugin_library_is_loaded_and_asked_for_its_creators(double, tmp_path, monkeypatch):
    double()
    import tensorrt

    source, library = tmp_path / "plugin.c", tmp_path / "libplugin.so"
    source.write_text("int getCreators(void) { return 0; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    asked: list[str] = []

    class Registry:
        def load_library(self, name: str) -> None:
            asked.append(name)

    monkeypatch.setattr(tensorrt, "get_plugin_registry", Registry)
    monkeypatch.setattr(tensorrt, "init_libnvinfer_plugins", lambda log, namespace: True)
    for _ in range(2):  # TensorRT refuses to load it again
        building.load_plugins(tensorrt, None, Build({}, options=Options(plugins=(str(library),))))
    assert asked == [str(library)]
    with pytest.raises(OSError, match="missing"):
        building.load_plugins(tensorrt, None, Build({}, options=Options(plugins=(str(tmp_path / "missing.so"),))))


# ---- the surface --------------------------------------------------------------------------------------------


def _surface(version: str) -> set[str]:
    """Every name of a recorded binding: classes, functions, methods, properties, members."""
    told = json.loads((DOUBLES / f"tensorrt-{version}.json").read_text())
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                found.add(name)
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                if isinstance(inner, str):
                    found.add(inner)
                else:
                    walk(inner)

    walk(told)
    return found


def _used_names() -> set[str]:
    """The attributes that the runtime asks for, of whatever object."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in Path(runtime.__file__).parent.glob("*.py")]
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_the_runtime_uses_no_name_that_a_later_version_removed():
    shared = _used_names() & _surface("8.6")
    assert len(shared) > 40  # it does look at the right names
    for version in ("10.12", "11.0"):
        removed = shared - _surface(version)
        # free is pycuda's; reallocate_output is our own method, which 8.6 calls and 10 calls by another name
        assert removed <= {"free", "reallocate_output"}, f"{version} has no {sorted(removed)}"


def test_a_name_that_was_removed_would_be_noticed():
    assert "build_engine" in _surface("8.6")
    assert "num_bindings" in _surface("8.6")
    assert not {"build_engine", "num_bindings"} & _surface("10.12")


# ---- CUDA graphs --------------------------------------------------------------------------------------------


class _Driver:
    """The CUDA driver's functions for graphs: notes the calls, and fails at one of them."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            self.calls.append(name)
            return 901 if name == self._fails else 0

        return call


def test_what_is_enqueued_is_captured_once_and_launched_as_often_as_asked():
    driver, enqueued = _Driver(), []
    with captured(7, lambda: enqueued.append(1), driver) as launch:
        launch()
        launch()
    assert enqueued == [1]
    assert driver.calls == [
        "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch",
        "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
    ]  # fmt: skip


class _Graphs:
    """The CUDA driver's functions for graphs, on the double's streams."""

    def __init__(self) -> None:
        from pycuda import _memory

        self._memory, self.tasks, self.launched = _memory, [], 0

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        self._memory.begin_capture(stream.value)
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        self.tasks = self._memory.end_capture(stream.value)
        return 0

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        self.launched += 1
        for task in self.tasks:
            self._memory.enqueue(stream.value, task)
        return 0

    def __getattr__(self, name: str) -> Any:
        assert name in ("cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphDestroy")
        return lambda *given: 0


def test_a_graph_of_an_engine_is_launched_when_it_is_timed(double, version, tmp_path, monkeypatch):
    double(version)
    driver = _Graphs()
    monkeypatch.setattr(running, "captured", functools.partial(captured, driver=driver))
    build = Build(BATCHES.shapes, options=Options(cuda_graph=True))
    with runtime.open_model(_saved(tmp_path, AFFINE), (), build) as session:
        with session.stopwatch({"x": np.ones((3, 3), np.float32)}, transfers=True) as once:
            assert all(once() > 0 for _ in range(3))
        assert driver.launched == 3
        assert len(driver.tasks) == 1  # copies are timed beside it
        assert session.run({"x": np.ones((2, 3), np.float32)})[0].tolist() == [[1, 2, 3]] * 2


def test_an_output_whose_shape_depends_on_values_cannot_be_captured(double, version, tmp_path, monkeypatch):
    double(version)
    monkeypatch.setattr(running, "captured", functools.partial(captured, driver=_Graphs()))
    model = _saved(tmp_path, "(float[5] x) => (int64[1,M] y) { y = NonZero(x) }")
    build = Build({"x": ((5,), (5,), (5,))}, options=Options(cuda_graph=True))
    inputs = {"x": np.ones(5, np.float32)}
    with runtime.open_model(model, (), build) as session:
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), session.stopwatch(inputs):
            pass
        assert session.run(inputs)[0].shape == (1, 5)


@pytest.mark.parametrize("fails, ends", [
    ("cuStreamEndCapture", "cuStreamEndCapture"), ("cuGraphInstantiateWithFlags", "cuGraphDestroy"),
    ("cuGraphLaunch", "cuGraphDestroy"),
])  # fmt: skip
def test_a_graph_that_cannot_be_made_says_so_and_leaves_nothing(fails, ends):
    driver = _Driver(fails)
    with pytest.raises(RuntimeError, match="CUDA error 901"), captured(7, lambda: None, driver) as launch:
        launch()
    assert driver.calls[-1] == ends


def test_a_stream_does_not_stay_in_capture_where_the_engine_raises():
    driver = _Driver()

    def enqueue() -> None:
        raise RuntimeError("it does not run")

    with pytest.raises(RuntimeError, match="it does not run"), captured(7, enqueue, driver):
        pass
    assert driver.calls == ["cuStreamBeginCapture_v2", "cuStreamEndCapture"]


@pytest.mark.parametrize("check", ["accuracy", "engine"])
@pytest.mark.parametrize("given, error", [
    ({"unsupported": "Relu"}, "UnsupportedModel"), ({"fault": "build"}, "BuildFailed"),
    ({"fault": "oom"}, "MemoryError"),
])  # fmt: skip
def test_what_tensorrt_and_cuda_refuse_is_no_mistake_of_the_harness(bench, double, check, given, error):
    double(**given)
    record = run(bench, check=check)
    assert (record.status, record.error, record.fault) == ("failed", error, "runtime")
    assert not any("mistake in the harness" in line for line in details(record))
