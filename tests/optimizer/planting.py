"""A pass of ONNX Runtime's optimizer made wrong: whatever it changes gives outputs that are off, or crashes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.passes.planting import optimized


@contextlib.contextmanager
def wrong(*passes: str, by: Callable[[Iterable[bool]], bool] = any) -> Iterator[None]:
    """The outputs of a session are off by a quarter where any of these passes changes its model: a pass does where
    the optimized model is another one without it. With several names each of them does the same harm, or where ``by``
    is ``all`` they do it together."""
    import onnxruntime

    original = onnxruntime.InferenceSession

    class InferenceSession(original):  # type: ignore[misc, valid-type]
        def __init__(self, model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
            super().__init__(model, sess_options, *arguments, **options)
            levels = onnxruntime.GraphOptimizationLevel
            level = levels.ORT_ENABLE_ALL if sess_options is None else sess_options.graph_optimization_level
            off = options.get("disabled_optimizers") or []
            with_all = optimized(original, model, level, off)
            self.wrong = level != levels.ORT_DISABLE_ALL and by(
                optimized(original, model, level, [*off, name]) != with_all for name in passes
            )

        def run(self, names: Any, inputs: Any, *arguments: Any) -> Any:
            outputs = super().run(names, inputs, *arguments)
            return [output * np.float32(1.25) for output in outputs] if self.wrong else outputs

    with mock.patch.object(onnxruntime, "InferenceSession", InferenceSession):
        yield


@contextlib.contextmanager
def wrong_by_reuse() -> Iterator[None]:
    """The outputs of a session are off by a quarter wherever memory may be used twice."""
    import onnxruntime

    original = onnxruntime.InferenceSession

    class InferenceSession(original):  # type: ignore[misc, valid-type]
        def __init__(self, model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
            super().__init__(model, sess_options, *arguments, **options)
            self.wrong = sess_options is None or sess_options.enable_mem_reuse

        def run(self, names: Any, inputs: Any, *arguments: Any) -> Any:
            outputs = super().run(names, inputs, *arguments)
            return [output * np.float32(1.25) for output in outputs] if self.wrong else outputs

    with mock.patch.object(onnxruntime, "InferenceSession", InferenceSession):
        yield


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
