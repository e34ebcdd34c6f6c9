"""Wrong runtimes: sessions whose outputs are altered, opened wherever the suite opens the runtime of that name."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.runtimes.registry import named

Alter = Callable[[dict[str, Any], list[Any]], list[Any]]
Opener = Callable[..., contextlib.AbstractContextManager[Any]]

ANY_OPTIMIZER = ("onnxruntime", "onnxruntime-unoptimized")
"""ONNX Runtime, whether its optimizer is on or off."""


def altered(original: Opener, alter: Alter) -> Opener:
    """A runtime's opener whose sessions give what ``alter(inputs, outputs)`` makes of their outputs."""

    @contextlib.contextmanager
    def open_altered(model, libraries, **options):
        with original(model, libraries, **options) as session:
            run = session.run
            session.run = lambda inputs: alter(inputs, run(inputs))
            yield session

    return open_altered


@contextlib.contextmanager
def replaced_runtime(make: Callable[[Opener], Opener], *names: str) -> Iterator[None]:
    """Have these runtimes opened by what ``make`` makes of their openers: ONNX Runtime by default."""
    with pytest.MonkeyPatch.context() as patch:
        for name in names or ("onnxruntime",):
            module, _, function = named(name).opens.partition(":")
            home = importlib.import_module(module)
            patch.setattr(home, function, make(getattr(home, function)))
        yield


def wrong_runtime(alter: Alter, *names: str) -> contextlib.AbstractContextManager[None]:
    """Have these runtimes give what ``alter(inputs, outputs)`` makes of their outputs: ONNX Runtime by default."""
    return replaced_runtime(lambda original: altered(original, alter), *names)


def stopping_runtime(error: Exception, *names: str) -> contextlib.AbstractContextManager[None]:
    """Have these runtimes raise the error wherever they run a model."""

    def stop(inputs: dict[str, Any], outputs: list[Any]) -> list[Any]:
        raise error

    return wrong_runtime(stop, *names)
