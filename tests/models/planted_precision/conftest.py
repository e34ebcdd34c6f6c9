"""Fixtures that plant defects in what converts a model, in what comes of that, and in ONNX Runtime."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.models.precision import convert, fp16, int8
from tests.kit.cases import Bench
from tests.kit.runtimes import Alter, wrong_runtime
from tests.models.planted_precision.support import Change


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """With a store of its own: a planted model has the key of the sound one."""
    return Bench(tmp_path, tmp_path / "store")


@pytest.fixture
def break_conversion(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``break_conversion(change)``: what ``change`` makes of each model that a converter gives, as its own work;
    ``checked=True``: of each that has kept to the rules."""

    def changed(original: Any, change: Change) -> Any:
        def planted(*arguments: Any) -> Any:
            found = original(*arguments)
            change(found[0] if isinstance(found, tuple) else found)
            return found

        return planted

    def break_(change: Change, *, checked: bool = False) -> None:
        for module, name in [(convert, "convert")] if checked else [(int8, "quantize"), (fp16, "convert")]:
            monkeypatch.setattr(module, name, changed(getattr(module, name), change))

    return break_


@pytest.fixture
def break_runtime() -> Iterator[Callable[..., None]]:
    """``break_runtime(alter)``: what ``alter`` makes of the outputs of ONNX Runtime as users run it, or of the
    runtimes that are named."""
    with contextlib.ExitStack() as stack:

        def break_(alter: Alter, *names: str) -> None:
            stack.enter_context(wrong_runtime(alter, *names))

        yield break_
