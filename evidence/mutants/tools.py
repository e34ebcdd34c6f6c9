"""What people use today, each as its users use it by default."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case.plan.cell import Cell
from conformance.extras.mutants.probe import run_of
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped

if TYPE_CHECKING:
    from conformance.models.cell_run import CellRun


class Unable(Exception):
    """The tool has no answer: what it feeds by default is nothing that the module takes."""


def _session(run: CellRun) -> Any:
    """A session as the tools have it by default, but for the threads, of which they have one as the suite does."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    for library in run.libraries():
        options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(run.model().file.read_bytes(), options, providers=["CPUExecutionProvider"])


def _eager(run: CellRun, inputs: Inputs) -> list[Array]:
    run.reference.restore()
    try:
        return run.reference(inputs)
    except Stopped as stop:
        raise Unable(stop.reason) from None


def assert_allclose(run: CellRun) -> bool:
    """What PyTorch's tutorial ends with: the input of the export once, rtol 1e-3, atol 1e-5."""
    inputs = run.prepared.inputs()
    wanted, session = _eager(run, inputs), _session(run)
    got = session.run(None, {one.name: inputs[one.name] for one in session.get_inputs()})
    try:
        for one, other in zip(wanted, got, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    except AssertionError:
        return False
    return True


def polygraphy(run: CellRun) -> bool:
    """``Comparator.run`` with its own DataLoader, then ``compare_accuracy``, which has 1e-5 and 1e-5.

    Its loader makes one input, floats from 0 to 1 and integers 0 and 1, with 1 for every symbolic dim. Where the
    module does not take that, it is given the shapes of the trace, as one then would.
    """
    from polygraphy.common import TensorMetadata
    from polygraphy.comparator import DataLoader
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    traced = run.prepared.inputs()
    try:
        return _polygraphy(run, DataLoader())
    except Unable:
        shapes = TensorMetadata()
        for name, array in traced.items():
            shapes.add(name, array.dtype, array.shape)
        return _polygraphy(run, DataLoader(input_metadata=shapes))


def _polygraphy(run: CellRun, loader: Any) -> bool:
    from polygraphy.backend.onnxrt import OnnxrtRunner
    from polygraphy.common import TensorMetadata
    from polygraphy.comparator import Comparator
    from polygraphy.datatype import DataType

    session = _session(run)
    loader.input_metadata = TensorMetadata()
    for one in session.get_inputs():  # Comparator.run does the same, but PyTorch has to be asked first
        loader.input_metadata.add(one.name, DataType.from_dtype(one.type, "onnxruntime"), one.shape)
    feeds = list(loader)
    names = [one.name for one in session.get_outputs()]
    wanted = [dict(zip(names, _eager(run, {**run.prepared.inputs(), **feed}), strict=False)) for feed in feeds]
    results = Comparator.run([OnnxrtRunner(session)], data_loader=feeds)
    results.add(wanted, runner_name="pytorch")
    return bool(Comparator.compare_accuracy(results))


def assert_onnx_program(run: CellRun) -> bool:
    """``torch.onnx.testing.assert_onnx_program`` with its default tolerances, on the inputs of the export.

    The store keeps bytes, not programs: one is made of the model and of ``torch.export`` of the module.
    """
    import onnx
    import onnx_ir
    import torch
    from torch.onnx.testing import assert_onnx_program as check

    positional, keywords = run.reference.arguments(run.prepared.inputs())
    try:
        captured = torch.export.export(run.reference.module, positional, keywords, strict=False)
    except Exception as error:
        raise Unable(str(error)) from None
    program = torch.onnx.ONNXProgram(onnx_ir.from_proto(onnx.load(str(run.model().file))), captured)
    session = _session(run)
    program.initialize_inference_session(lambda model: session)
    try:
        check(program, strategy=None)
    except AssertionError:
        return False
    return True


TOOLS: Mapping[str, Callable[[CellRun], bool]] = {
    "Polygraphy": polygraphy,
    "assert_onnx_program": assert_onnx_program,
    "assert_allclose": assert_allclose,
}


def ask(progress: object, tool: str, cell: Cell, store: Path) -> str:
    """``accepts``, ``refuses``, or why there is no answer."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with run_of(cell, store) as run, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "accepts" if TOOLS[tool](run) else "refuses"
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
