"""What a host lacks is told, skips cells, and fails them where TensorRT is required."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from conformance.errors import Unavailable
from conformance.runtimes import tensorrt as runtime
from conformance.runtimes.tensorrt.absence import absence
from conformance.runtimes.tensorrt.device import driver_release
from conformance.runtimes.tensorrt.options import Build
from tests.support import run_suite, write_case
from tests.tensorrt_runtime.support import AFFINE, BATCHES, DOUBLES, LINEAR, PYTHON, saved, stored_model


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
        runtime.open_model(saved(tmp_path, AFFINE), (), BATCHES),
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
    (("--require", "tensorrtt"), "is nothing that can be required; known: latency, onnxruntime-coreml, "),
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


def test_opening_without_a_gpu_is_unavailable(bench, double):
    double(fault="nogpu")
    with pytest.raises(Unavailable, match="no GPU"), runtime.open_model(stored_model(bench), (), Build({})):
        pass
