"""Put other values in the place of those that ONNX leaves undefined in a file, to see what depends on them.

``undefined`` does so with the operators of PyTorch. Here it is NumPy alone, so that files are judged without
PyTorch. ``results.records.details`` words the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.models.otherwise.undefined import FILLED
from conformance.models.otherwise.undefined_rules import beyond_in_between
from conformance.process.arrays import Array
from conformance.runtimes.onnxreference import Compute, Outputs, ReferenceSession, evaluator_with

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

Marks = Iterator[tuple[int, Array]]
"""The outputs of a node, by number, with a mask of what is not defined in each."""
_NEAR = 4 * float(np.finfo(np.float32).eps)
"""The relative distance at which float32 may take a value for another, as an overlap for the threshold."""

_NO_NAN = ("float4", "float6")
"""The beginnings of the names of float types that have no NaN."""


def _no_such_number(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield where floats are given a type that does not hold them: integers, and floats without NaN."""
    if outputs[0].dtype.name.startswith(_NO_NAN) and inputs[0].dtype.kind == "f":
        yield 0, np.isnan(inputs[0].astype(np.float64))
    yield from _no_integer(node, inputs, outputs)


def _no_integer(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield where floats that an integer does not hold are made integers."""
    if inputs[0].dtype.kind == "f" and outputs[0].dtype.kind in "iu":
        limits, values = np.iinfo(outputs[0].dtype), inputs[0].astype(np.float64)
        yield 0, ~((values > limits.min - 1.0) & (values < limits.max + 1.0))


def _no_quantum(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield where the quotient that is to be quantized is NaN; larger ones saturate."""
    if outputs[0].dtype.kind in "iu" and (quotient := _quotient(node, inputs)) is not None:
        yield 0, np.broadcast_to(np.isnan(quotient), outputs[0].shape)


def _quotient(node: OpRun, inputs: Sequence[Array]) -> Array | None:
    """Return what a quantizer rounds, in float64; None where its scales are of blocks."""
    value, scale = inputs[0], _per_channel(node, inputs[1], inputs[0].ndim)
    if value.dtype.kind != "f" or not (scale.ndim in (0, value.ndim) or scale.size == 1):
        return None
    return np.asarray(value.astype(np.float64) / scale.astype(np.float64))


def _per_channel(node: OpRun, numbers: Array, dims: int) -> Array:
    """Return a quantizer's scale or zero point as it meets values of so many dims."""
    if numbers.ndim != 1 or numbers.size < 2 or not dims:
        return numbers
    return numbers.reshape([-1 if dim == (getattr(node, "axis", None) or 0) % dims else 1 for dim in range(dims)])


def _between_steps(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield quotients that lie between two steps, up to what float32 makes of sums of values as large as the type
    holds."""
    quotient = _quotient(node, inputs)
    yield from () if quotient is None else _near_the_middle(quotient, outputs[0])


def _near_the_middle(quotient: Array, output: Array) -> Marks:
    if output.dtype.kind in "iu":
        limits = np.iinfo(output.dtype)
        apart = np.abs(quotient - np.floor(quotient) - 0.5)
        yield 0, np.broadcast_to(apart <= _NEAR * (limits.max - limits.min), output.shape)


def _between_own_steps(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array], compute: Compute) -> Marks:
    """Yield the same of an operator that quantizes what it computes."""
    yield from _near_the_middle(_unrounded(inputs, outputs[0], compute), outputs[0])


def _unrounded(inputs: Sequence[Array], output: Array, compute: Compute) -> Array:
    """Return what such an operator rounds to ``output``: it is asked for ever smaller steps, of which 8 bits hold as
    many as are not known."""
    given, more, scale = inputs[:_OWN_STEP], inputs[_OWN_STEP + 2 :], inputs[_OWN_STEP].astype(np.float64)
    known, parts = output.astype(np.int32) - inputs[_OWN_STEP + 1].astype(np.int32), 1
    for _ in range(3):
        known, parts = 64 * known, 64 * parts
        known = known - 128 + compute(*given, scale / parts, 128 - known, *more)[0]
    return np.asarray(known / parts)


_OWN_STEP = 6
"""The input of operators that quantize what they compute that is the scale of that; its zero point is the next."""


def _other_step(node: OpRun, inputs: Sequence[Array], output: Array, seed: int, compute: Compute) -> Array:
    """Return what a quantizer gives where all that lies between two steps goes up, or down."""
    limits = np.iinfo(output.dtype)
    if node.op_type == "QuantizeLinear":
        quotient = _quotient(node, inputs)
        assert quotient is not None
        zero = 0.0 if len(inputs) < 3 or inputs[2] is None else _per_channel(node, inputs[2], quotient.ndim)
    else:
        quotient, zero = _unrounded(inputs, output, compute), inputs[_OWN_STEP + 1]
    steps = np.nan_to_num(np.floor(quotient)) + seed % 2
    return np.clip(steps + zero, limits.min, limits.max).astype(output.dtype)


def _nan_in_window(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array], compute: Compute) -> Marks:
    """Yield the largest values of windows that hold a NaN, of which ONNX says nothing, and their places."""
    if inputs[0].dtype.kind == "f" and np.isnan(inputs[0]).any():
        holds = compute(np.isnan(inputs[0]).astype(inputs[0].dtype))[0] > 0
        yield from ((number, holds) for number, output in enumerate(outputs) if output is not None)


def _all_zeros(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield all results of a quantizer that makes its scale of values that are all 0."""
    if not inputs[0].any():
        yield from ((number, np.ones(output.shape, bool)) for number, output in enumerate(outputs))


def _written_twice(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield the places to which more than one value is written."""
    if getattr(node, "reduction", None) not in (None, "none", b"none"):
        return
    data, indices = inputs[0], inputs[1]
    times = np.zeros(data.shape, np.int64)
    if node.op_type == "ScatterND":
        places = tuple(np.moveaxis(indices, -1, 0))
    else:
        axis = (getattr(node, "axis", None) or 0) % data.ndim
        places = tuple(indices if dim == axis else grid for dim, grid in enumerate(np.indices(indices.shape)))
    np.add.at(times, places, 1)
    yield 0, times > 1


def _added(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield sums that go beyond the format in some orders of their terms, and means also where all terms have one
    sign: they may be divided before they are added."""
    terms, out = inputs[0], outputs[0]
    axes = inputs[1] if len(inputs) > 1 and inputs[1] is not None else getattr(node, "axes", None)
    if terms.dtype.kind != "f" or out.dtype.kind != "f":
        return
    over = tuple(int(axis) for axis in np.ravel(axes)) if axes is not None and np.size(axes) else None

    def add(values: Array) -> Array:
        return np.reshape(values.sum(over, np.float64), out.shape)

    finite, most = np.where(np.isfinite(terms), terms, 0), float(np.finfo(out.dtype).max)
    up, down = add(np.maximum(finite, 0)), add(np.minimum(finite, 0))
    high, low, nan = (add(each) > 0 for each in (terms == np.inf, terms == -np.inf, np.isnan(terms)))
    yield 0, beyond_in_between(up, down, most, high, low, either_sign=node.op_type == "ReduceMean") & ~nan


def _equal_maxima(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array], compute: Compute) -> Marks:
    """Yield the indices of windows whose largest value stands there twice: they are others where of equal values the
    last one is made the largest, and not the first one."""
    if len(outputs) > 1 and outputs[1] is not None:
        values = inputs[0]
        order = np.stack([np.argsort(each, kind="stable") for each in (values.reshape(-1), values.reshape(-1)[::-1])])
        ranks = np.empty(order.shape, np.float64)
        np.put_along_axis(ranks, order, np.arange(order.shape[1], dtype=np.float64)[None], axis=1)
        first, last = (each.reshape(values.shape) for each in (ranks[0], ranks[1][::-1]))
        yield 1, compute(first)[1] != compute(last)[1]


def _either_zero(node: OpRun, inputs: Sequence[Array], outputs: Sequence[Array]) -> Marks:
    """Yield zeros that are the larger or the smaller of two with different signs: either may be given, and 1 / x
    shows which."""
    compared = [
        *(one for one in inputs if one is not None),
        *([np.zeros((), inputs[0].dtype)] if node.op_type == "Relu" else []),
    ]
    if outputs[0].dtype.kind == "f":
        zeros, signs = ([of(one) for one in np.broadcast_arrays(*compared)] for of in (np.logical_not, np.signbit))
        negative = np.logical_and(zeros, signs).any(0)
        yield 0, (outputs[0] == 0) & negative & (np.logical_and(zeros, np.logical_not(signs)).any(0))


def _other_boxes(inputs: Sequence[Array], compute: Compute) -> Iterator[Outputs]:
    """Yield which boxes stay where an overlap of just the threshold counts otherwise, and where of equal scores the
    last one is the largest: ONNX says neither."""
    boxes, scores, *more = inputs
    if len(more) > 1 and more[1] is not None:
        for step in (1 - _NEAR, 1 + _NEAR):
            yield compute(boxes, scores, more[0], np.asarray(more[1] * step, more[1].dtype), *more[2:])
    (chosen,) = compute(boxes[:, ::-1], scores[..., ::-1], *more)
    yield (np.where(np.arange(3) == 2, boxes.shape[1] - 1 - chosen, chosen),)


RULES: Mapping[str, Mapping[str, Callable[..., Iterator[Any]]]] = {
    "Cast": {"cast": _no_such_number},
    "CastLike": {"cast": _no_such_number},
    "QuantizeLinear": {"quantizer": _no_quantum, "tie": _between_steps},
    "Clip": {"zeros": _either_zero},
    "DynamicQuantizeLinear": {"no range": _all_zeros},
    "Scatter": {"written twice": _written_twice},
    "ScatterElements": {"written twice": _written_twice},
    "ScatterND": {"written twice": _written_twice},
    "Max": {"zeros": _either_zero},
    "MaxPool": {"ties": _equal_maxima, "pool": _nan_in_window},
    "Min": {"zeros": _either_zero},
    "QLinearConv": {"tie": _between_own_steps},
    "QLinearMatMul": {"tie": _between_own_steps},
    "ReduceMean": {"order": _added},
    "ReduceSum": {"order": _added},
    "Relu": {"zeros": _either_zero},
    "NonMaxSuppression": {"overlap": _other_boxes},
}
"""By operator the names of rules, as ``results.records.details`` words them, and what finds where each holds."""
_GROUPS = 15
"""Into how many groups the quantizers of a file fall, of which one at a time has its ties go another way."""
_ASKING = (_between_own_steps, _equal_maxima, _nan_in_window)
"""Those that have the node compute something else."""


class UndefinedInFile:
    """A context in which a session gives other values for what is not defined; which rules that is by is noted."""

    def __init__(self, session: OpenSession, seed: int | None, only: Collection[str] = ()) -> None:
        """Without a ``seed`` it only notes the rules, and leaves the results as they are; with ``only`` some names of
        rules, no others count."""
        self.rules: set[str] = set()
        self._session, self._seed, self._only = session, seed, only
        self.most_equal, self._quantizers = 1, 0

    def __enter__(self) -> UndefinedInFile:
        self._session.noted = self
        return self

    def __exit__(self, *raised: object) -> None:
        self._session.noted = None
        if "tie" in self.rules:  # two seeds for the ties of all quantizers, and two for those of each alone
            self.most_equal = 2 * (1 + min(self._quantizers, _GROUPS))

    def replaced(self, node: OpRun, compute: Compute, inputs: Sequence[Array], outputs: Outputs) -> Outputs:
        """Return the outputs of a node with others for those that are not defined."""
        changed = list(outputs)
        for name, marks in RULES[node.op_type].items():
            if self._only and name not in self._only:
                continue
            if marks is _other_boxes:
                others = [other for other in marks(inputs, compute) if not np.array_equal(other[0], outputs[0])]
                self.rules |= {name} if others else set()
                return outputs if self._seed is None or not others else tuple(others[self._seed % len(others)])
            if name == "tie" and not self._takes_turn():
                continue
            for number, mask in marks(node, inputs, outputs, *((compute,) if marks in _ASKING else ())):
                if mask.any():
                    self.rules.add(name)
                    if self._seed is not None:
                        other = self._other(name, node, inputs, outputs[number], compute)
                        changed[number] = np.where(mask, other, changed[number])
        return tuple(changed)

    def _takes_turn(self) -> bool:
        """Return whether the ties of this quantizer go another way by this seed: a runtime may part at one alone."""
        self._quantizers += 1
        group = 0 if self._seed is None else self._seed // 2
        return not group or (self._quantizers - 1) % _GROUPS == group - 1

    def _other(
        self, name: str, node: OpRun, inputs: Sequence[Array], output: Array, compute: Compute
    ) -> Array | np.generic:
        assert self._seed is not None
        if name == "zeros":
            return -output
        if name == "tie":
            return _other_step(node, inputs, output, self._seed, compute)
        return _filled(output, self._seed)


def _filled(value: Array, seed: int) -> np.generic:
    choices: tuple[float, ...] = FILLED
    if value.dtype.kind in "iu":
        limits = np.iinfo(value.dtype)
        choices = limits.min, 0, limits.max
    filled: np.generic = value.dtype.type(choices[seed % len(choices)])
    return filled


class OpenSession(ReferenceSession):
    """Runs a model by ONNX's evaluator, which may be told to put other values for what is not defined."""

    noted: UndefinedInFile | None = None

    def _evaluator_of(self, model: ModelProto) -> ReferenceEvaluator:
        return evaluator_with(self._opening, model)

    def _opening(self, node: OpRun, compute: Compute) -> Compute:
        if node.op_type not in RULES:
            return compute

        def run(*inputs: Array, **more: object) -> Outputs:
            outputs = compute(*inputs, **more)
            if self.noted is None or not all(isinstance(value, np.ndarray | None) for value in inputs):
                return outputs
            return self.noted.replaced(node, compute, inputs, outputs)

        return run


def open_operators(names: Collection[str]) -> frozenset[str]:
    """Return which of these operators ONNX leaves open for some inputs."""
    return frozenset(names) & RULES.keys()
