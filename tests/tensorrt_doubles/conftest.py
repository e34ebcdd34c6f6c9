"""The fixture that imports the doubles."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.tensorrt_doubles.support import DOUBLES, Bench, Load


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports the doubles anew, as a version and with planted faults; afterwards they are gone."""

    def forget() -> None:
        for name in [one for one in sys.modules if one.partition(".")[0] in ("tensorrt", "pycuda", "recorded")]:
            del sys.modules[name]  # not through monkeypatch, which would put it back

    def fresh(version: str = "8.6", fault: str = "", **variables: str) -> Bench:
        forget()
        monkeypatch.setenv("CONFORMANCE_DOUBLE_TENSORRT", version)
        monkeypatch.setenv("CONFORMANCE_DOUBLE_FAULT", fault)
        for name, value in variables.items():
            monkeypatch.setenv(f"CONFORMANCE_DOUBLE_{name}", value)
        return Bench()

    monkeypatch.syspath_prepend(str(DOUBLES))
    yield fresh
    forget()
