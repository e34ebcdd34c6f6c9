"""Rules of operators that ONNX's inference of shapes does not hold a model to: what a node's concrete inputs break.

Each function gets the node's attributes and its inputs, None for one that is left out, and says what they break, in a
few words, or None. The rules are those of https://onnx.ai/onnx/operators, each in words of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.arrays import Array

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
Rule = Callable[[Attributes, Inputs], str | None]


def broken(operator: str, attributes: Attributes, inputs: Inputs) -> str | None:
    """The rule of an operator of ONNX's own domain that its inputs break; None where none is known that they do."""
    rule = RULES.get(operator)
    if rule is None or any(array is not None and not isinstance(array, np.ndarray) for array in inputs):
        return None
    try:
        return rule(attributes, inputs)
    except (IndexError, ValueError, TypeError, AttributeError):  # an input that is not there is told by others
        return None


def _axis(attributes: Attributes, rank: int, default: int = 0) -> tuple[int, str | None]:
    axis = int(attributes.get("axis", default))
    if not -rank <= axis < rank:
        return 0, f"axis {axis} is not one of the {rank} axes"
    return axis % rank, None


def _beyond(indices: Array, size: int) -> str | None:
    if indices.size and (indices.min() < -size or indices.max() >= size):
        worst = int(indices.max() if indices.max() >= size else indices.min())
        return f"index {worst} is beyond an axis of size {size}"
    return None


def _gather(attributes: Attributes, inputs: Inputs) -> str | None:
    data, indices = inputs[:2]
    axis, wrong = _axis(attributes, data.ndim)
    return wrong or _beyond(indices, data.shape[axis])


def _gather_elements(attributes: Attributes, inputs: Inputs) -> str | None:
    """Indices have the rank of the data, point into its axis, and are no larger elsewhere."""
    data, indices = inputs[:2]
    axis, wrong = _axis(attributes, data.ndim)
    if wrong or data.ndim != indices.ndim:
        return wrong or f"indices have {indices.ndim} axes, the data {data.ndim}"
    larger = [n for n in range(data.ndim) if n != axis and indices.shape[n] > data.shape[n]]
    if larger:
        return f"the indices are larger than the data on axis {larger[0]}"
    return _beyond(indices, data.shape[axis])


def _scatter_elements(attributes: Attributes, inputs: Inputs) -> str | None:
    """As for gathering, and each index has one update: their shapes are the same."""
    if inputs[1].shape != inputs[2].shape:
        return f"updates have shape {inputs[2].shape}, their indices {inputs[1].shape}"
    return _gather_elements(attributes, inputs)


def _tuples(data: Array, indices: Array, batch: int) -> str | None:
    last = indices.shape[-1]
    if not 1 <= last <= data.ndim - batch:
        return f"indices of {last} numbers each point into {data.ndim - batch} axes"
    sizes = np.array(data.shape[batch : batch + last])
    if indices.size and (np.any(indices < -sizes) or np.any(indices >= sizes)):
        return "an index is beyond its axis"
    return None


def _gather_nd(attributes: Attributes, inputs: Inputs) -> str | None:
    return _tuples(inputs[0], inputs[1], int(attributes.get("batch_dims", 0)))


def _scatter_nd(attributes: Attributes, inputs: Inputs) -> str | None:
    """Each tuple of indices has as its update what it points at."""
    data, indices, updates = inputs[:3]
    shape = indices.shape[:-1] + data.shape[indices.shape[-1] :]
    wrong = _tuples(data, indices, 0)
    return wrong or (None if updates.shape == shape else f"updates have shape {updates.shape} instead of {shape}")


def _cumulative(attributes: Attributes, inputs: Inputs) -> str | None:
    """It runs along an axis, which a scalar does not have."""
    rank = inputs[0].ndim
    if not rank:
        return "a scalar has no axis to run along"
    if inputs[1].size != 1:
        return f"the axis is {inputs[1].size} numbers"
    axis = int(inputs[1].reshape(-1)[0])
    return None if -rank <= axis < rank else f"axis {axis} is not one of the {rank} axes"


def _division(attributes: Attributes, inputs: Inputs) -> str | None:
    """Integers have no quotient or remainder by zero."""
    by = inputs[1]
    if by.dtype.kind in "iu" and by.size and inputs[0].size and not np.all(by):
        return "integers are divided by zero"
    return _broadcast(attributes, inputs[:2])


def _remainder(attributes: Attributes, inputs: Inputs) -> str | None:
    """Floats have the remainder that fmod=1 asks for, and no other."""
    if inputs[0].dtype.kind == "f" and not attributes.get("fmod", 0):
        return "floats need fmod=1"
    return _division(attributes, inputs)


def _broadcast(attributes: Attributes, inputs: Inputs) -> str | None:
    try:
        np.broadcast_shapes(*(array.shape for array in inputs if array is not None))
    except ValueError:
        return f"shapes {' and '.join(str(array.shape) for array in inputs)} do not broadcast"
    return None


def _concat(attributes: Attributes, inputs: Inputs) -> str | None:
    """All have as many axes, and the same sizes on all but one."""
    ranks = {array.ndim for array in inputs}
    if len(ranks) > 1:
        return f"inputs have {' and '.join(map(str, sorted(ranks)))} axes"
    axis, wrong = _axis(attributes, inputs[0].ndim)
    rest = {array.shape[:axis] + array.shape[axis + 1 :] for array in inputs}
    return wrong or ("sizes differ on another axis than that of the concatenation" if len(rest) > 1 else None)


def _reshape(attributes: Attributes, inputs: Inputs) -> str | None:
    """A new shape holds the same number of values; one size may be left open."""
    data, wanted = inputs[0], [int(size) for size in inputs[1]]
    if not attributes.get("allowzero", 0):
        if any(size == 0 and place >= data.ndim for place, size in enumerate(wanted)):
            return "a size is to be taken over from an axis that is not there"
        wanted = [data.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    given = int(np.prod([size for size in wanted if size != -1], dtype=np.int64))
    open_sizes = wanted.count(-1)
    if open_sizes > 1 or any(size < -1 for size in wanted):
        return f"{wanted} is no shape"
    fits = (given and data.size % given == 0) if open_sizes else data.size == given
    return None if fits else f"{data.size} values do not make the shape {wanted}"


def _expand(attributes: Attributes, inputs: Inputs) -> str | None:
    shape = tuple(int(size) for size in inputs[1])
    try:
        np.broadcast_shapes(inputs[0].shape, shape)
    except ValueError:
        return f"shape {inputs[0].shape} does not broadcast with {shape}"
    return None


def _transpose(attributes: Attributes, inputs: Inputs) -> str | None:
    order, rank = attributes.get("perm"), inputs[0].ndim
    return None if order is None or sorted(order) == [*range(rank)] else f"{[*order]} is no order of {rank} axes"


def _matmul(attributes: Attributes, inputs: Inputs) -> str | None:
    left, right = inputs[:2]
    if not (left.ndim and right.ndim):
        return "a scalar is no matrix"
    inner = right.shape[-2] if right.ndim > 1 else right.shape[0]
    return None if left.shape[-1] == inner else f"{left.shape[-1]} columns meet {inner} rows"


def _gemm(attributes: Attributes, inputs: Inputs) -> str | None:
    left, right = inputs[:2]
    if left.ndim != 2 or right.ndim != 2:
        return f"matrices have {left.ndim} and {right.ndim} axes"
    columns = left.shape[0 if attributes.get("transA") else 1]
    rows = right.shape[1 if attributes.get("transB") else 0]
    return None if columns == rows else f"{columns} columns meet {rows} rows"


def _split(attributes: Attributes, inputs: Inputs) -> str | None:
    """The parts make up the whole axis."""
    axis, wrong = _axis(attributes, inputs[0].ndim)
    sizes = inputs[1] if len(inputs) > 1 and inputs[1] is not None else attributes.get("split")
    if wrong or sizes is None:
        return wrong
    total = int(np.sum(sizes))
    return None if total == inputs[0].shape[axis] else f"parts of {total} for an axis of size {inputs[0].shape[axis]}"


def _slice(attributes: Attributes, inputs: Inputs) -> str | None:
    steps = inputs[4] if len(inputs) > 4 else None
    if len(inputs) > 2 and inputs[1].shape != inputs[2].shape:
        return f"{inputs[1].size} starts meet {inputs[2].size} ends"
    return "a step is zero" if steps is not None and not np.all(steps) else None


def _squeeze(attributes: Attributes, inputs: Inputs) -> str | None:
    axes = inputs[1] if len(inputs) > 1 and inputs[1] is not None else attributes.get("axes")
    data = inputs[0]
    for axis in () if axes is None else axes:
        if not -data.ndim <= axis < data.ndim:
            return f"axis {int(axis)} is not one of the {data.ndim} axes"
        if data.shape[axis] != 1:
            return f"axis {int(axis)} has size {data.shape[axis]} and cannot be left out"
    return None


def _tile(attributes: Attributes, inputs: Inputs) -> str | None:
    count = inputs[1].size
    return None if count == inputs[0].ndim else f"{count} repeats for {inputs[0].ndim} axes"


def _top(attributes: Attributes, inputs: Inputs) -> str | None:
    axis, wrong = _axis(attributes, inputs[0].ndim, -1)
    count = int(np.asarray(inputs[1] if len(inputs) > 1 else attributes["k"]).reshape(-1)[0])
    size = inputs[0].shape[axis] if not wrong else 0
    return wrong or (None if 0 <= count <= size else f"the {count} largest of {size}")


def _range(attributes: Attributes, inputs: Inputs) -> str | None:
    return None if np.all(inputs[2]) else "the step is zero"


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Add", "And", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Where"), _broadcast),
    "Concat": _concat, "CumProd": _cumulative, "CumSum": _cumulative, "Div": _division, "Expand": _expand,
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd, "Gemm": _gemm, "MatMul": _matmul,
    "Mod": _remainder, "Range": _range, "Reshape": _reshape, "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd, "Slice": _slice, "Split": _split, "Squeeze": _squeeze, "Tile": _tile, "TopK": _top,
    "Transpose": _transpose,
}  # fmt: skip
"""By operator; as they have been since opset 7, or since the operator exists."""
