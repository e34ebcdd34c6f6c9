"""What a host lacks is told, skips cells, and fails them where TensorRT is required."""

import sys

import pytest

from conformance.process.errors import Unavailable
from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt.absence import absence
from conformance.runtimes.tensorrt.device import driver_release
from tests.kit.cases import write_case
from tests.kit.runs import run_suite
from tests.runtimes.tensorrt.support import AFFINE, BATCHES, DOUBLES, LINEAR, PYTHON, saved

HERE = ("--isolation", "none")
"""Run cells in this process, which has the variables that the doubles read."""


def test_each_lack_has_a_reason_of_its_own(double, driver, monkeypatch):
    double(driver=driver)
    import tensorrt

    assert absence() is None
    del tensorrt.IBuilderConfig.builder_optimization_level  # which TensorRT 8.5 lacks
    reasons = [absence()]
    for fault in ("nogpu", "nodriver"):
        double(fault=fault, driver=driver)
        reasons.append(absence())
    double(driver=driver)
    for names in (("tensorrt",), ("pycuda", "cuda.bindings")):
        with monkeypatch.context() as patch:
            for name in names:
                patch.setitem(sys.modules, name, None)
            reasons.append(absence())
    words = [
        "too old", "no GPU", "no NVIDIA driver", "tensorrt is not installed",
        "neither pycuda nor cuda-python is installed",
    ]  # fmt: skip
    for reason, word in zip(reasons, words, strict=True):
        assert reason is not None and word in reason
    assert len(set(reasons)) == 5


def test_a_driver_that_is_older_than_tensorrts_cuda_is_an_absence_with_what_to_do(double, version, tmp_path):
    """The driver works with it, so that only TensorRT can tell."""
    double(version, fault="olddriver")
    assert absence() is None
    with (
        pytest.raises(
            Unavailable, match=r"cannot use the GPU: CUDA initialization failure with error: 35.*tensorrt-cu12"
        ),
        runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES),
    ):
        pass


@pytest.mark.parametrize("fault, arguments, status, reason, code, said", [
    ("olddriver", ("--require", "tensorrt"), "failed", "tensorrt-cu12", 1, "NotRun"),
    ("nogpu", (), "skipped", "no GPU", 0, "NOT RUN: tensorrt, 2 cells skipped: no GPU"),
    ("nodriver", ("-k", "tensorrt-fp32"), "skipped", "no NVIDIA driver", 5, "every cell was skipped"),
])  # fmt: skip
def test_what_this_host_cannot_run_is_skipped_and_fails_where_it_is_required(
    tmp_path, fault, arguments, status, reason, code, said
):
    """With the reason in record and matrix; a run that skips all is no success."""
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, *arguments, *HERE, PYTHONPATH=str(DOUBLES), CONFORMANCE_DOUBLE_FAULT=fault)
    found = {one["check"]: one for one in done.records.values() if one["runtime"] == "tensorrt"}
    assert {check: one["status"] for check, one in found.items()} == {"accuracy": status, "engine": status}
    assert all(reason in one["reason"] for one in found.values())
    assert (done.code, said in done.text) == (code, True), done.text


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


def test_require_fails_a_run_that_selects_no_cell_of_the_runtime(tmp_path):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    required = ("--require", "tensorrt", *HERE)
    done = run_suite(tmp_path, *required, "-k", "onnxruntime", PYTHONPATH=str(DOUBLES))
    assert "not one cell of tensorrt was run" in done.text and done.code == 1
    # versions are read once in a process, and the test process may have read them without the double
    passing = run_suite(tmp_path, *required, own_process=True, PYTHONPATH=str(DOUBLES))
    assert passing.code == 0, passing.text
    assert passing.header["environment"]["gpu"]["name"] == "TensorRT double (no GPU)"
    assert "double" in passing.header["environment"]["versions"]["tensorrt"]


@pytest.mark.parametrize("arguments, words", [
    (("--require", "tensorrtt"), "is nothing that can be required; known: latency, onnxruntime-coreml, "),
    (("--tensorrt", "optimisation_level=3"), "did you mean 'optimization_level'?"),
    (("--tensorrt", "workspace=lots"), "not a size of memory, such as 512 MiB or 1 GiB"),
])  # fmt: skip
def test_an_option_that_makes_no_sense_is_one_clear_line(tmp_path, arguments, words):
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    done = run_suite(tmp_path, *arguments)
    assert done.code == 4 and words in done.text and "Traceback" not in done.text
