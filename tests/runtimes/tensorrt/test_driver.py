"""The CUDA driver by cuda-python: what ``cuda_python.py`` offers in place of ``pycuda.driver``."""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.runtimes.tensorrt import cuda_python
from conformance.runtimes.tensorrt.device import Memory, current_device, download, facts, pinned, upload
from conformance.runtimes.tensorrt.driver import find_driver, load_driver
from tests.kit.cases import write_case
from tests.kit.runs import run_command, run_suite
from tests.runtimes.tensorrt.support import CUDA_PYTHON, DOUBLES, LINEAR, PYTHON

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


@pytest.fixture
def memory(double: Callable[..., None], driver: str) -> Any:
    """The memory behind the doubles, which a binding reaches that is chosen by what is installed."""
    double(driver=driver)
    assert find_driver() == driver
    import device_memory

    return device_memory


def test_pycuda_comes_first_and_cuda_python_where_it_is_not_installed(memory, driver):
    names = {"pycuda": "pycuda.driver", "cuda-python": cuda_python.__name__}
    assert load_driver().__name__ == names[driver] or load_driver() is sys.modules[names[driver]]
    known = facts()
    assert known is not None
    assert (known["name"], known["compute_capability"], known["memory"]) == (memory.NAME, "8.0", 16384)
    assert known["driver_cuda"] == 12090 and re.fullmatch(r"\d+\.\d+\.\d+", known["cuda"])


def test_copies_arrive_when_the_stream_is_waited_for_and_all_memory_is_given_back(memory):
    with current_device():
        cuda = load_driver()
        stream, buffers, back = cuda.Stream(), Memory(), np.zeros_like(X)
        source = pinned(X)
        assert np.array_equal(source, X) and pinned(X[:0]).shape == (0, 3) and pinned(X[0, 0]).shape == ()
        first, last = cuda.Event(), cuda.Event()
        first.record(stream)
        upload(buffers.at_least("x", X.nbytes), source, stream)
        download(back, buffers.at_least("x", 0), stream)
        last.record(stream)
        assert not back.any()
        last.synchronize()
        assert np.array_equal(back, X) and first.time_till(last) > 0
        assert len(memory._live) == 1
        buffers.free()
    assert not memory._live


def test_what_cuda_refuses_is_an_error_with_its_words(double, driver):
    double(driver=driver)
    with current_device():
        cuda = load_driver()
        with pytest.raises(cuda.Error, match="cuMemAlloc failed: invalid argument"):
            cuda.mem_alloc(0)
    double(driver=driver, fault="oom")
    with current_device(), pytest.raises(load_driver().MemoryError, match="cuMemAlloc failed: out of memory"):
        load_driver().mem_alloc(4)


def test_streams_events_and_page_locked_memory_go_with_their_owners_and_need_no_current_context(double):
    """As where a traceback holds them longer than the context is current."""
    double(driver="cuda-python")
    with current_device():
        kept = [cuda_python.Stream(), cuda_python.Event(), pinned(X)]
        from cuda.bindings import _driver

        assert (len(_driver._streams), len(_driver._times), len(_driver._pinned)) == (1, 1, 1)
    assert not _driver._stack
    kept.clear()
    gc.collect()
    assert (len(_driver._streams), len(_driver._times), len(_driver._pinned)) == (0, 0, 0)
    assert not _driver._stack


def test_each_function_that_is_called_is_recorded():
    text = Path(cuda_python.__file__).read_text(encoding="utf-8")
    called = {*re.findall(r"\bcu[A-Z]\w+", text)}
    recorded = (DOUBLES / "cuda_python.json").read_text(encoding="utf-8")
    assert len(called) > 20 and all(f'"{name}"' in recorded for name in called)


def test_the_recording_is_what_the_installed_cuda_python_offers(tmp_path):
    """A version later than the recorded may take more; it has to have all that is recorded, in the same places."""
    pytest.importorskip("cuda.bindings")
    file = DOUBLES / "bindings.py"
    ask = (
        f"import json, runpy; made = runpy.run_path({str(file)!r}); import cuda.bindings.driver as cuda\n"
        f"said = json.load(open({str(DOUBLES / 'cuda_python.json')!r}))\n"
        "print(json.dumps([name for name, says in said['functions'].items()\n"
        "    if made['_signatures'](getattr(cuda, name), name) != says]))"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_a_run_without_pycuda_passes_on_cuda_python(tmp_path):
    there = tmp_path / "installed"
    there.mkdir()
    for one in DOUBLES.iterdir():
        if not one.name.startswith("pycuda"):
            (there / one.name).symlink_to(one)
    write_case(tmp_path / "cases", LINEAR, PYTHON)
    path = os.pathsep.join(map(str, (there, CUDA_PYTHON)))
    done = run_suite(tmp_path, "--require", "tensorrt", "--runtime", "tensorrt", own_process=True, PYTHONPATH=path)
    assert done.code == 0, done.text
    assert done.header["environment"]["gpu"]["name"] == "TensorRT double (no GPU)"
    assert {record["status"] for record in done.records.values() if record["runtime"] == "tensorrt"} == {"passed"}
    told = run_command(tmp_path, "explain", "accuracy*tensorrt*").text
    assert "the same build by NVIDIA's tool: trtexec --onnx=" in told
