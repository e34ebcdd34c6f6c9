"""Ranges of the values inside a model on calibration data.

The least and the largest value of every tensor are measured here, once for all precisions; histograms are ONNX
Runtime's own.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conformance.case.files.precision import Calibration
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.onnx_models import save
from conformance.process.errors import Stopped
from conformance.runtimes.inferred import inferred
from conformance.runtimes.onnxruntime import OnnxRuntimeSession

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime.quantization.calibrate import TensorsData

BINS = {"entropy": 512, "percentile": 2048}
"""Bins of the histograms, by method. With ONNX Runtime's 128, entropy has one range to choose from, which is that of
min-max; with 2048 it takes minutes for a ResNet."""


@dataclass(frozen=True)
class Extremes:
    """Hold what the tensors of a model reach on the calibration data."""

    ends: Mapping[str, tuple[Array, Array]]
    """The least and the largest value of each float tensor of the outermost graph (float32, of shape ``[1]``), NaN
    left out; in the order in which nodes read or make them."""
    nan: str | None
    """Which output is NaN on which batch; None where there is none."""


def extremes(model: ModelProto, batches: Sequence[Inputs]) -> Extremes:
    """Run the model node by node, batch by batch. ONNX Runtime reduces each tensor where it is made, so that none is
    kept for longer than the model needs it.

    Raises what ONNX Runtime raises for a model that does not run.
    """
    names = _float_tensors(model)
    with _reducing(model, names):
        session, nan = OnnxRuntimeSession(model, [], optimize=False), None
    ends: dict[str, tuple[Array, Array]] = {}
    for index, batch in enumerate(batches):
        results = session.run(batch)
        count = len(results) - 2 * len(names)  # a sequence gives as many tensors as it has
        for output, array in enumerate(results[:count]):
            if nan is None and array.dtype.kind == "f" and np.isnan(array).any():
                nan = f"output {output} is NaN on batch {index}"
        for name, low, high in zip(names, results[count::2], results[count + 1 :: 2], strict=True):
            before = ends.get(name, (low.reshape(-1), high.reshape(-1)))
            ends[name] = np.fmin(before[0], low.reshape(-1)), np.fmax(before[1], high.reshape(-1))
    return Extremes(ends, nan)


def _float_tensors(model: ModelProto) -> dict[str, int]:
    """The types of the float tensors that nodes of the outermost graph read or make, constants left out."""
    from onnx import TensorProto

    graph = inferred(model).graph
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.value_info, *graph.output, *graph.input)
        if value.type.HasField("tensor_type")
    }
    constants = {initializer.name for initializer in graph.initializer}
    names = (name for node in graph.node for name in (*node.input, *node.output))
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16)
    return {name: types[name] for name in names if types.get(name) in floats and name not in constants}


@contextlib.contextmanager
def _reducing(model: ModelProto, names: Mapping[str, int]) -> Iterator[None]:
    """Inside the block the model has, for each of these tensors, its least and its largest value as further outputs.

    The model itself is changed and put back, since a copy would take its weights twice.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    nodes, outputs = len(graph.node), len(graph.output)
    for name, kind in names.items():
        source = name
        if kind != TensorProto.FLOAT:  # for which ONNX Runtime has no kernel that reduces
            source = f"conformance/float/{name}"
            graph.node.append(helper.make_node("Cast", [name], [source], to=TensorProto.FLOAT))
        for reduce in ("ReduceMin", "ReduceMax"):
            result = f"conformance/{reduce}/{name}"
            graph.node.append(helper.make_node(reduce, [source], [result], name=result, keepdims=1))
            graph.output.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, None))
    try:
        yield
    finally:
        del graph.node[nodes:], graph.output[outputs:]


class _Reader:
    """ONNX Runtime's CalibrationDataReader over one batch: the calibrators keep all intermediate values of what a
    reader gives, so that one batch at a time bounds the memory."""

    def __init__(self, batch: Inputs) -> None:
        self._left = [batch]

    def get_next(self) -> Inputs | None:
        return self._left.pop() if self._left else None


def ranges(
    model: ModelProto,
    measured: Extremes,
    batches: Sequence[Inputs],
    operators: Collection[str],
    says: Calibration,
    folder: Path,
) -> TensorsData:
    """ONNX Runtime's ``TensorsData``, symmetric, of the float tensors that nodes of ``operators`` read or make;
    ``measured`` are the extremes of all.

    ``folder`` is for temporary files. Raises Stopped at ``convert`` (BadRange) for a range that is infinite or NaN,
    of which no scale can be made.
    """
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import TensorsData

    wanted = {name for node in model.graph.node if node.op_type in operators for name in (*node.input, *node.output)}
    largest = {
        name: np.fmax(np.abs(low), np.abs(high)) for name, (low, high) in measured.ends.items() if name in wanted
    }
    for name, end in largest.items():
        if not np.isfinite(end).all():
            raise not_finite(name)
    if says.method == "minmax":
        return TensorsData(CalibrationMethod.MinMax, {name: (-end, end) for name, end in largest.items()})
    return _of_histograms(model, batches, operators, says, folder)


def _of_histograms(
    model: ModelProto, batches: Sequence[Inputs], operators: Collection[str], says: Calibration, folder: Path
) -> TensorsData:
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    method = {"entropy": CalibrationMethod.Entropy, "percentile": CalibrationMethod.Percentile}[says.method]
    options: dict[str, float] = {"symmetric": True, "num_bins": BINS[says.method]}
    if says.method == "percentile":
        options["percentile"] = says.percentile
    save(model, folder / "measured.onnx")
    with quietly():
        calibrator = create_calibrator(
            folder / "measured.onnx",
            list(operators),
            str(folder / "augmented.onnx"),
            calibrate_method=method,
            extra_options=options,
        )
        try:
            for batch in batches:
                calibrator.collect_data(_Reader(batch))
            return calibrator.compute_data()
        except ValueError as error:  # a histogram of values that are not finite, which are not at either end
            raise not_finite(str(error)) from None


def not_finite(what: str) -> Stopped:
    """The stop for values that calibration cannot make a range of; ``what`` says where they are."""
    text = f"calibration: values inside the model are not finite on the calibration data: {what}"
    return Stopped("convert", "BadRange", text, "case")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence what ONNX Runtime's quantizer prints and logs."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
