"""Fixtures that plant defects in what converts a model, in what comes of that, and in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.precision import convert, fp16, int8
from conformance.runtimes import onnxruntime
from conformance.worker.warm import prepare_process
from tests.planted_precision.support import Change
from tests.support import Alter, Bench, altered


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    """As in a worker: with a thread for each core, small convolutions take a hundred times as long."""
    prepare_process()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """With a store of its own: a planted model has the key of the sound one."""
    return Bench(tmp_path, tmp_path / "store")


@pytest.fixture
def break_conversion(monkeypatch):
    """``break_conversion(change)``: what ``change`` makes of each model that a converter gives, as its own work."""

    def break_(change: Change) -> None:
        for module, name in ((int8, "quantize"), (fp16, "convert")):
            monkeypatch.setattr(module, name, _changed(getattr(module, name), change))

    return break_


@pytest.fixture
def break_after_conversion(monkeypatch):
    """``break_after_conversion(change)``: what ``change`` makes of each model that has kept to the rules."""

    def break_(change: Change) -> None:
        monkeypatch.setattr(convert, "convert", _changed(convert.convert, change))

    return break_


def _changed(original: Any, change: Change) -> Any:
    def planted(*arguments: Any) -> Any:
        found = original(*arguments)
        change(found[0] if isinstance(found, tuple) else found)
        return found

    return planted


@pytest.fixture
def break_runtime(monkeypatch):
    """``break_runtime(alter)``: what ``alter`` makes of the outputs of onnxruntime as users run it."""

    def break_(alter: Alter, *openers: str) -> None:
        for name in openers or ("open_optimized",):
            monkeypatch.setattr(onnxruntime, name, altered(getattr(onnxruntime, name), alter))

    return break_
