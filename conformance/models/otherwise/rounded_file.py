"""Compute an ONNX model in float64 by ONNX's evaluator, with the result of each node off as rounding leaves it.

``rounded_run`` does so with the operators of PyTorch. Here it is NumPy alone, so that files are judged where there is
no PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.models.otherwise.rounding import (
    MOVED_WEIGHTS,
    OF_SUMS,
    ONE_BY_ONE,
    Rounding,
    Sums,
    Units,
    is_plain,
)
from conformance.process.arrays import Array
from conformance.runtimes.evaluator_kernels import is_matrix
from conformance.runtimes.onnxreference import (
    Beyond,
    Compute,
    Outputs,
    ReferenceSession,
    evaluator_with,
    unround_attributes,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum")
_TRANSFORMS = ("DFT", "STFT")
"""Operators of which each value adds up all of a signal, or of a frame, by factors that the operator makes itself."""
_SUMS = ("ReduceSum", "ReduceMean", "CumSum", "AveragePool", "GlobalAveragePool")
"""Operators that add up products of their inputs, or their inputs, whose terms may have one sign."""
_NORMS = ("BatchNormalization", "InstanceNormalization")
_OF_TERMS = (*_PRODUCTS, *_SUMS, *_TRANSFORMS, *_NORMS, "Resize")
_OF_STEPS = ("Det", "GRU", "GridSample", "InstanceNormalization", "LRN", "LSTM", "LpNormalization", "LpPool", "RNN")
"""Operators of several steps that ONNX has no function of: what they compute of is off by a unit instead."""
_TAKES = ("Gather", "GatherElements", "GatherND", "Slice")
"""Operators that take some of their values, such as a few rows of all embeddings: these alone are widened."""
_CONTINUOUS = frozenset((
    "Abs", "Add", "AveragePool", "Celu", "Clip", "Concat", "Constant", "ConstantOfShape", "Conv", "ConvTranspose",
    "Cos", "CumSum", "DepthToSpace", "Einsum", "Elu", "Erf", "Exp", "Expand", "Flatten", "Gather", "GatherElements",
    "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "HardSigmoid",
    "HardSwish", "Identity", "InstanceNormalization", "LayerNormalization", "LeakyRelu", "LogSoftmax", "MatMul",
    "Max", "MaxPool", "Mean", "Min", "Mish", "Mul", "Neg", "PRelu", "Pad", "RMSNormalization", "ReduceLogSumExp",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Selu", "Shape",
    "Sigmoid", "Sin", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub",
    "Sum", "Swish", "Tanh", "Tile", "Transpose", "Unsqueeze",
))  # fmt: skip
"""Operators whose results move little where their inputs do. A place of the largest value is none of these."""
OF_TRANSFORMS = 2.0
"""How far a value of a transform may be off, in units of the sum of the sizes of its terms: factors that are rounded
angles are off by units of their own (for fast transforms see N. Higham, section 24.1)."""
OF_PLACES = 2.0
"""The error of the place at which ``Resize`` takes a value, in units of the size of its axis: it is the result
of a division and two sums."""


def is_continuous(graph: GraphProto) -> bool:
    """Return whether no output jumps where all values of the graph move by units in their last place: each node is
    one of ``_CONTINUOUS``, and gives no places. Of any other graph nothing is known."""
    return all(
        node.op_type in _CONTINUOUS
        and node.domain in ("", "ai.onnx")
        and (node.op_type != "MaxPool" or not any(node.output[1:]))
        for node in graph.node
    )


class RoundedSession(ReferenceSession):
    """Runs a model in float64, which may be told by what its results are off."""

    def __init__(self, model: ModelProto, weights: Mapping[str, Array] | None = None) -> None:
        """``model`` is one of ``float64_model.in_float64``; it is changed. ``weights`` are the values of initializers
        that it has none of, in their own types: of a model that has no more than ``MOVED_WEIGHTS`` they are made
        float64 here, and of a larger one by each node that reads them, one after another."""
        self._units: Units | None = None
        self._sums, self._count = Sums(), 0
        weights = weights or {}
        self._widens = sum(math.prod(tensor.dims) for tensor in model.graph.initializer) > MOVED_WEIGHTS
        super().__init__(model, weights if self._widens else {name: _wide(one) for name, one in weights.items()})

    def run(
        self, inputs: Mapping[str, Array], rounding: Rounding | None = None, *, beyond: Beyond = "ignore"
    ) -> list[Array]:
        """Return the outputs; with ``rounding`` every weight and every result of a node is off by it."""
        weights = self._evaluator.rt_inits_
        self._units = None if rounding is None else Units(rounding)
        self._sums, self._count = Sums() if rounding is None else rounding.sums, 0
        try:
            if self._units is not None and rounding is not None and not rounding.given:
                self._evaluator.rt_inits_ = self._units.nudged(weights)
            return super().run(inputs, beyond=beyond)
        finally:
            self._units, self._evaluator.rt_inits_ = None, weights

    def _evaluator_of(self, model: ModelProto) -> ReferenceEvaluator:
        return evaluator_with(self._rounding, model)

    def _rounding(self, node: OpRun, compute: Compute) -> Compute:
        unround_attributes(node)
        takes, steps, terms = (node.op_type in those for those in (_TAKES, _OF_STEPS, _OF_TERMS))
        by_columns = node.op_type in ("MatMul", "Gemm")  # whose second matrix is made float64 there

        def run(*inputs: Any, **more: Any) -> Outputs:
            units = self._units
            if self._widens and not takes:
                kept = 1 if by_columns and len(inputs) > 1 and is_matrix(inputs[1]) else None
                inputs = tuple(one if number == kept else _wide(one) for number, one in enumerate(inputs))
            if units is not None and steps:
                inputs = tuple(units.moved(one) if is_plain(one) else one for one in inputs)
            outputs = compute(*inputs, **more)
            if self._widens and takes:
                outputs = tuple(map(_wide, outputs))
            if units is None:
                return outputs
            if terms and is_plain(outputs[0]):
                size = self._size_of_terms(node, partial(compute, **more), inputs, outputs)
                outputs = outputs if size is None else (units.summed(outputs[0], size), *outputs[1:])
            return tuple(units.rounded(one) if is_plain(one) else one for one in outputs)

        return run

    def _size_of_terms(self, node: OpRun, compute: Compute, inputs: Outputs, outputs: Outputs) -> Array | None:
        """The same as ``_size_of_terms``, from an earlier run of the same inputs where there was one."""

        def measure() -> tuple[Array, ...]:
            size = _size_of_terms(node, compute, inputs, outputs)
            return () if size is None else (size,)

        self._count += 1
        return next(iter(self._sums.of((self._count, node.op_type, outputs[0].shape), outputs[0], measure)), None)


def _size_of_terms(node: OpRun, compute: Compute, inputs: Outputs, outputs: Outputs) -> Array | None:
    """Return for each value of the first output what its terms add up to without their signs, in as many units as it
    may be off; None of an operator whose result is off by its own last place alone."""
    kind = node.op_type
    if kind in _TRANSFORMS:
        size = _of_sizes(compute, inputs, np.float64)
        return np.full(size.shape, np.abs(size).max(initial=0.0) * OF_TRANSFORMS)
    if kind in (*_PRODUCTS, *_SUMS):
        terms = max((one.size for one in inputs if is_plain(one)), default=1) / max(outputs[0].size, 1)
        share = OF_SUMS if kind in _PRODUCTS else max(OF_SUMS, ONE_BY_ONE * terms)
        size = _of_sizes(compute, inputs, np.float32)  # in half the time and memory
        if not np.isfinite(size).all():
            size = _of_sizes(compute, inputs, np.float64)
        size *= size.dtype.type(share)
        return size
    if kind in _NORMS:
        return _size_of_norm(node, *inputs[:5])
    if kind == "Resize" and getattr(node, "mode", None) in ("linear", "cubic"):
        return _size_of_steps(compute, inputs, outputs[0])
    return None


def _size_of_norm(
    node: Any, value: Array, scale: Array, shift: Array, mean: Array | None = None, variance: Array | None = None
) -> Array:
    """Return what adds up where a norm is computed as one factor and one shift, as runtimes do; its mean and its
    values may cancel. Without a mean it is that of each channel of an instance, and in training that of a batch."""
    if mean is None or variance is None or getattr(node, "training_mode", False):
        over = tuple(axis for axis in range(value.ndim) if axis > 1 or (axis == 0 and mean is not None))
        mean, variance = value.mean(over, keepdims=True), value.var(over, keepdims=True)

    def by_channel(one: Array) -> Array:
        return np.abs(one.reshape(-1, *[1] * (value.ndim - 2)) if one.ndim == 1 else one)

    factor = by_channel(scale) / np.sqrt(by_channel(variance) + node.epsilon)
    return np.asarray(OF_SUMS * ((np.abs(value) + by_channel(mean)) * factor + by_channel(shift)))


def _of_sizes(compute: Compute, inputs: Outputs, dtype: type[np.floating[Any]]) -> Array:
    """Return what an operator gives for the sizes of its inputs."""
    sizes = (np.abs(one).astype(dtype, copy=False) if is_plain(one) or is_matrix(one) else one for one in inputs)
    return np.asarray(compute(*sizes)[0])


def _size_of_steps(compute: Compute, inputs: Outputs, output: Array) -> Array:
    """Return how far values between others move where the place that each is taken at is off by units of its own: by
    the step between neighbours, as often as the place is larger than one."""
    values, size = inputs[0], np.zeros_like(output)
    for axis, count in enumerate(values.shape):
        if count not in (0, 1, output.shape[axis]):
            steps = np.abs(np.diff(values, axis=axis))
            ends = [np.take(steps, [end], axis) for end in (0, -1)]
            largest = np.maximum(*(np.concatenate(pair, axis) for pair in ((ends[0], steps), (steps, ends[1]))))
            size += OF_PLACES * count * np.abs(compute(largest, *inputs[1:])[0])
    return size


def _wide(value: Any) -> Any:
    """Return floats as float64, and anything else as it is."""
    narrow = isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype.name == "bfloat16")
    return value.astype(np.float64) if narrow and value.dtype != np.float64 else value
