"""Fixtures that put the doubles in place of TensorRT and pycuda."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tensorrt_runtime.support import DOUBLES, VERSIONS


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
