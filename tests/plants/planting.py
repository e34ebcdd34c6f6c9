"""Where a defect is put: into what an exporter or a converter gives, into ONNX Runtime, into PyTorch, into the host.

Each replaces a function of the package that has the defect for as long as a cell runs. A wrong kernel, and a wrong
optimizer, is a model rewritten where ONNX Runtime loads it, so that it is wrong in whatever model it is met: the
whole one, one with more outputs, or one node alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.plants.edits import Edit
from tests.plants.plant import Planted, Planting


def exported(edit: Edit) -> Planting:
    """The exporter gives a model that is changed."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        from conformance.models import cell_run as models

        original: Callable[..., Any] = vars(models)["export"]

        def export(*arguments: Any, **options: Any) -> Any:
            exported = original(*arguments, **options)
            planted.times += edit(exported.model)
            return dataclasses.replace(exported)

        with mock.patch.object(models, "export", export):
            yield

    return planting


def exporting(change: Callable[[Any], None]) -> Planting:
    """The exporter does something to the module; ``change`` is given the reference."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        from conformance.models import cell_run as models

        original: Callable[..., Any] = vars(models)["export"]

        def export(reference: Any, *arguments: Any, **options: Any) -> Any:
            planted.note()
            result = original(reference, *arguments, **options)
            change(reference)
            return result

        with mock.patch.object(models, "export", export):
            yield

    return planting


@contextlib.contextmanager
def exporting_raises(planted: Planted) -> Iterator[None]:
    """The exporter raises, in a file of PyTorch's: a frame of this one would be code of the case's own."""
    import torch

    known: dict[str, Any] = {"note": planted.note}
    code = (
        "def export(*arguments, **options):\n    note()\n    raise RuntimeError('planted: the exporter is broken')\n"
    )
    exec(compile(code, torch.onnx.__file__, "exec"), known)
    with mock.patch.object(torch.onnx, "export", known["export"]):
        yield


def kernel(edit: Edit) -> Planting:
    """ONNX Runtime computes something else, whether its optimizer is on or off."""
    return _in_sessions(edit, lambda optimized: True)


def optimizer(edit: Edit) -> Planting:
    """ONNX Runtime computes something else where its optimizer is on."""
    return _in_sessions(edit, lambda optimized: optimized)


def _in_sessions(edit: Edit, concerned: Callable[[bool], bool]) -> Planting:
    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        import onnx
        import onnxruntime

        original = onnxruntime.InferenceSession

        class InferenceSession(original):  # type: ignore[misc, valid-type]
            def __init__(self, model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
                off = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
                optimized = sess_options is None or sess_options.graph_optimization_level != off
                if concerned(optimized):
                    loaded = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
                    times = edit(loaded)
                    planted.times += times
                    model = loaded.SerializeToString() if times else model
                super().__init__(model, sess_options, *arguments, **options)

        with mock.patch.object(onnxruntime, "InferenceSession", InferenceSession):
            yield

    return planting


Answer = Callable[[dict[str, Any], list[Any]], list[Any]]
"""Makes other outputs of the inputs and outputs of a session, or raises."""


Concerned = Callable[[Any, Any, Any, dict[str, Any]], bool]
"""Says of a session whether it is concerned, by ONNX Runtime's own class, the model, its options and the keywords."""


def answering(concerned: Concerned, change: Answer) -> Planting:
    """Sessions that are concerned give what ``change(inputs, outputs)`` makes of their outputs."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        import onnxruntime

        original = onnxruntime.InferenceSession

        class InferenceSession(original):  # type: ignore[misc, valid-type]
            def __init__(self, model: Any, sess_options: Any = None, *arguments: Any, **options: Any) -> None:
                super().__init__(model, sess_options, *arguments, **options)
                self.concerned = concerned(original, model, sess_options, options)

            def run(self, names: Any, inputs: Any, *arguments: Any) -> Any:
                outputs = super().run(names, inputs, *arguments)
                if not self.concerned:
                    return outputs
                planted.note()
                return change(inputs, outputs)

        with mock.patch.object(onnxruntime, "InferenceSession", InferenceSession):
            yield

    return planting


def running(operator: str, change: Answer, *, optimized: bool = False) -> Planting:
    """What ``change(inputs, outputs)`` makes of the outputs of sessions whose model has that operator; of optimized
    ones only, or of all."""

    def concerned(original: Any, model: Any, session: Any, options: dict[str, Any]) -> bool:
        import onnx
        from onnxruntime import GraphOptimizationLevel as Levels

        loaded = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        is_optimized = session is None or session.graph_optimization_level != Levels.ORT_DISABLE_ALL
        return (is_optimized or not optimized) and any(node.op_type == operator for node in loaded.graph.node)

    return answering(concerned, change)


def refusing(operator: str, error: str, text: str, *, optimized: bool = False) -> Planting:
    """ONNX Runtime does not load models with that operator; ``error`` names one of its exceptions."""

    def edit(model: Any) -> int:
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        if any(node.op_type == operator for node in model.graph.node):
            refused.note()
            raise getattr(state, error)(text)
        return 0

    refused = Planted()
    inner = (optimizer if optimized else kernel)(edit)

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        nonlocal refused
        refused = planted
        with inner(planted):
            yield

    return planting


def converted(edit: Edit) -> Planting:
    """A converter gives a model that is changed, before anything looks at it."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        from conformance.models.precision import fp16, int8

        def changed(original: Callable[..., Any]) -> Callable[..., Any]:
            def convert(*arguments: Any) -> Any:
                model = original(*arguments)
                planted.times += edit(model)
                return model

            return convert

        with (
            mock.patch.object(int8, "quantize", changed(int8.quantize)),
            mock.patch.object(fp16, "convert", changed(fp16.convert)),
        ):
            yield

    return planting


def after_conversion(edit: Edit) -> Planting:
    """A converted model is changed that has kept to all rules, as by rules that know too little."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        from conformance.models.precision import convert

        original = convert.convert

        def changed(*arguments: Any) -> Any:
            model, told = original(*arguments)
            planted.times += edit(model)
            return model, told

        with mock.patch.object(convert, "convert", changed):
            yield

    return planting


def raising(target: str, make: Callable[[], BaseException]) -> Planting:
    """A function raises; ``target`` is its module and name."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        def fails(*arguments: Any, **options: Any) -> Any:
            planted.note()
            raise make()

        with mock.patch(target, fails):
            yield

    return planting


def disk(text: str, number: int, target: str) -> Planting:
    """A function that writes raises OSError with that errno."""
    return raising(target, lambda: OSError(number, text))


def pytorch(operator: str, wrong: Callable[..., Any], right: Callable[..., Any]) -> Planting:
    """A kernel of PyTorch gives ``wrong`` in float32 and ``right`` in float64, both of NumPy arrays; in eager and in
    scripted modules alike. ``operator`` is as in ``aten::erf``."""

    @contextlib.contextmanager
    def planting(planted: Planted) -> Iterator[None]:
        import warnings

        import numpy as np
        import torch

        def compute(*arguments: Any, **options: Any) -> Any:
            planted.note()
            tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
            single = tensors[0].dtype == torch.float32
            plain = [
                value.detach().contiguous().numpy() if isinstance(value, torch.Tensor) else value
                for value in arguments
            ]
            with np.errstate(all="ignore"):
                made = np.asarray((wrong if single else right)(*plain, **options))
            if made.dtype.kind == "f":
                made = made.astype(np.float32 if single else np.float64)
            return torch.from_numpy(np.ascontiguousarray(made).reshape(made.shape))

        library: Any = vars(torch.library)["Library"]("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl(operator, compute, "CPU")
            try:
                yield
            finally:
                library._destroy()

    return planting


@contextlib.contextmanager
def saturating(planted: Planted) -> Iterator[None]:
    """ONNX Runtime gives half of what is right for a model of 8 bits, but with the switch for wider sums."""
    from conformance.diagnose.nodes import saturation
    from conformance.runtimes import onnxruntime

    original = onnxruntime.open_optimized

    @contextlib.contextmanager
    def opened(model: Path, libraries: Any, config: Any = None) -> Iterator[Any]:
        with original(model, libraries, {**(config or {}), **saturation.SWITCH}) as session:
            sound = session.run
            if not saturation.SWITCH.items() <= (config or {}).items():

                def run(inputs: Any) -> list[Any]:
                    planted.note()
                    return [output / 2 for output in sound(inputs)]

                session.run = run  # type: ignore[method-assign]
            yield session

    with mock.patch.object(onnxruntime, "open_optimized", opened):
        yield
