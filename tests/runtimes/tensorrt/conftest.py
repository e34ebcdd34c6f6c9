"""Fixtures that put the doubles in place of TensorRT and of what reaches the CUDA driver."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.runtimes.tensorrt.support import CUDA_PYTHON, DOUBLES, DRIVERS, VERSIONS

OF_THE_DOUBLES = ("tensorrt", "pycuda", "device_memory")


def _loaded(*packages: str) -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] in packages]


def forget_modules() -> None:
    for name in _loaded(*OF_THE_DOUBLES):
        del sys.modules[name]


@pytest.fixture(params=VERSIONS)
def version(request) -> str:
    return str(request.param)


@pytest.fixture(params=DRIVERS)
def driver(request) -> str:
    return str(request.param)


@pytest.fixture
def double(monkeypatch) -> Iterator[Any]:
    """``double(version, fault)``: from now on TensorRT and pycuda, or cuda-python, are doubles."""

    def use(version: str = VERSIONS[1], fault: str = "", unsupported: str = "", driver: str = "pycuda") -> None:
        forget_modules()
        monkeypatch.syspath_prepend(DOUBLES)
        if driver == "cuda-python":
            monkeypatch.setitem(sys.modules, "pycuda", None)  # as if it were not installed
            monkeypatch.syspath_prepend(CUDA_PYTHON)
            for name in _loaded("cuda"):  # a host with PyTorch has loaded the real one
                monkeypatch.delitem(sys.modules, name)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_TENSORRT", version)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", fault)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_UNSUPPORTED", unsupported)

    before = {name: sys.modules[name] for name in _loaded("cuda")}
    yield use
    forget_modules()
    for name in _loaded("cuda"):
        if name not in before:
            del sys.modules[name]
