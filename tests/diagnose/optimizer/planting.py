"""A pass of ONNX Runtime's optimizer made wrong: whatever it changes gives outputs that are off, or crashes."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from tests.plants.passes.planting import optimized


@contextlib.contextmanager
def wrong_where(tells: Callable[[Any, Any, Any, dict[str, Any]], bool]) -> Iterator[None]:
    """The outputs of a session are off by a quarter where ``tells(original, model, its options, more)`` says so."""
    import onnxruntime

    original = onnxruntime.InferenceSession

    class InferenceSession(original):  # type: ignore[misc, valid-type]
        def __init__(self, model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
            super().__init__(model, sess_options, *arguments, **options)
            self.wrong = tells(original, model, sess_options, options)

        def run(self, names: Any, inputs: Any, *arguments: Any) -> Any:
            outputs = super().run(names, inputs, *arguments)
            return [output * np.float32(1.25) for output in outputs] if self.wrong else outputs

    with mock.patch.object(onnxruntime, "InferenceSession", InferenceSession):
        yield


def wrong(*passes: str, by: Callable[[Iterable[bool]], bool] = any) -> contextlib.AbstractContextManager[None]:
    """Any of these passes makes the outputs of a model that it changes wrong: the optimized model is another one
    without it. With several names each of them does the same harm, or where ``by`` is ``all`` they do it together."""

    def tells(original: Any, model: Any, session: Any, options: dict[str, Any]) -> bool:
        from onnxruntime import GraphOptimizationLevel as Levels

        level = Levels.ORT_ENABLE_ALL if session is None else session.graph_optimization_level
        off = options.get("disabled_optimizers") or []
        with_all = optimized(original, model, level, off)
        without = (optimized(original, model, level, [*off, name]) != with_all for name in passes)
        return level != Levels.ORT_DISABLE_ALL and by(without)

    return wrong_where(tells)


def wrong_by_reuse() -> contextlib.AbstractContextManager[None]:
    """Outputs are wrong wherever memory may be used twice."""
    return wrong_where(lambda original, model, session, options: session is None or session.enable_mem_reuse)


@contextlib.contextmanager
def crashing_at(level: str) -> Iterator[None]:
    """A model that is loaded at that level of optimization ends the process."""
    import onnxruntime

    original = onnxruntime.InferenceSession

    def loaded(model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> Any:
        if sess_options is not None and sess_options.graph_optimization_level.name == f"ORT_ENABLE_{level}":
            os.abort()
        return original(model, sess_options, *arguments, **options)

    with mock.patch.object(onnxruntime, "InferenceSession", loaded):
        yield
