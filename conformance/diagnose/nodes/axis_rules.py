"""Rules of operators that work along axes or look up indices: which axes, places and sizes a node may name.

The rules are those of https://onnx.ai/onnx/operators, each in words of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.diagnose.nodes.forms import REDUCTIONS, Inputs
from conformance.process.arrays import Array

Attributes = Mapping[str, Any]
Rule = Callable[[Attributes, Inputs], str | None]
"""Gets a node's attributes and its inputs, None for one that is left out, and says in a few words what they break, or
None."""


def _no_axis(axis: int, rank: int) -> str | None:
    return None if -rank <= axis < rank else f"axis {axis} is not one of the {rank} axes"


def _axis(attributes: Attributes, rank: int, default: int = 0) -> tuple[int, str | None]:
    axis = int(attributes.get("axis", default))
    wrong = _no_axis(axis, rank)
    return (axis % rank, None) if wrong is None else (0, wrong)


def numbers_given(attributes: Attributes, inputs: Inputs, place: int, name: str) -> list[int] | None:
    """Numbers that are an input since some opset, and an attribute before it; None where there are none."""
    array = inputs[place] if place < len(inputs) else None
    found = attributes.get(name) if array is None else array
    return None if found is None else [int(one) for one in found]


def check_distinct(axes: Sequence[int], rank: int) -> str | None:
    for axis in axes:
        if wrong := _no_axis(axis, rank):
            return wrong
    twice = [axis for axis in axes if [one % rank for one in axes].count(axis % rank) > 1]
    return f"axis {twice[0]} is named twice" if twice else None


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
    if not indices.ndim or not data.ndim:
        return f"{'indices' if data.ndim else 'data'} without axes"
    last = indices.shape[-1]
    if not 1 <= last <= data.ndim - batch:
        return f"indices of {last} numbers each point into {data.ndim - batch} axes"
    sizes = np.array(data.shape[batch : batch + last])
    if indices.size and (np.any(indices < -sizes) or np.any(indices >= sizes)):
        return "an index is beyond its axis"
    return None


def _gather_nd(attributes: Attributes, inputs: Inputs) -> str | None:
    data, indices, batch = inputs[0], inputs[1], int(attributes.get("batch_dims", 0))
    wrong = _tuples(data, indices, batch)
    if wrong is None and data.shape[:batch] != indices.shape[:batch]:
        return f"batches of {data.shape[:batch]} meet {indices.shape[:batch]}"
    return wrong


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
    return _no_axis(int(inputs[1].reshape(-1)[0]), rank)


def _concat(attributes: Attributes, inputs: Inputs) -> str | None:
    """All have as many axes, and the same sizes on all but one."""
    ranks = {array.ndim for array in inputs}
    if len(ranks) > 1:
        return f"inputs have {' and '.join(map(str, sorted(ranks)))} axes"
    axis, wrong = _axis(attributes, inputs[0].ndim)
    rest = {array.shape[:axis] + array.shape[axis + 1 :] for array in inputs}
    return wrong or ("sizes differ on another axis than that of the concatenation" if len(rest) > 1 else None)


def _transpose(attributes: Attributes, inputs: Inputs) -> str | None:
    order, rank = attributes.get("perm"), inputs[0].ndim
    return None if order is None or sorted(order) == [*range(rank)] else f"{[*order]} is no order of {rank} axes"


def _split(attributes: Attributes, inputs: Inputs) -> str | None:
    """The parts make up the whole axis."""
    axis, wrong = _axis(attributes, inputs[0].ndim)
    sizes = numbers_given(attributes, inputs, 1, "split")
    if wrong or sizes is None:
        return wrong
    if "num_outputs" in attributes or min(sizes, default=0) < 0:
        return "both sizes and a number of parts" if "num_outputs" in attributes else f"a part of {min(sizes)}"
    total, size = sum(sizes), inputs[0].shape[axis]
    return None if total == size else f"parts of {total} for an axis of size {size}"


def _slice(attributes: Attributes, inputs: Inputs) -> str | None:
    """Each axis that is named, once, has a start, an end and a step other than 0."""
    starts, ends = numbers_given(attributes, inputs, 1, "starts"), numbers_given(attributes, inputs, 2, "ends")
    if starts is None or ends is None:
        return None
    if len(starts) != len(ends):
        return f"{len(starts)} starts meet {len(ends)} ends"
    axes, steps = numbers_given(attributes, inputs, 3, "axes"), numbers_given(attributes, inputs, 4, "steps")
    for named, what in ((axes, "axes"), (steps, "steps")):
        if named is not None and len(named) != len(starts):
            return f"{len(starts)} starts meet {len(named)} {what}"
    if steps is not None and 0 in steps:
        return "a step is zero"
    return check_distinct([*range(len(starts))] if axes is None else axes, inputs[0].ndim)


def _squeeze(attributes: Attributes, inputs: Inputs) -> str | None:
    """Axes that are left out have one entry."""
    axes, data = numbers_given(attributes, inputs, 1, "axes"), inputs[0]
    for axis in axes or ():
        if wrong := _no_axis(axis, data.ndim):
            return wrong
        if data.shape[axis] != 1:
            return f"axis {axis} has size {data.shape[axis]} and cannot be left out"
    return None


def _unsqueeze(attributes: Attributes, inputs: Inputs) -> str | None:
    """Axes count in what comes out."""
    axes = numbers_given(attributes, inputs, 1, "axes") or []
    return check_distinct(axes, inputs[0].ndim + len(axes))


def _reduction(attributes: Attributes, inputs: Inputs) -> str | None:
    axes = numbers_given(attributes, inputs, 1, "axes") or ()
    return next(filter(None, (_no_axis(axis, inputs[0].ndim) for axis in axes)), None)


def _along(attributes: Attributes, inputs: Inputs) -> str | None:
    """An axis that is named is there; what goes for one that is not differs between opsets."""
    return _axis(attributes, inputs[0].ndim)[1] if "axis" in attributes else None


def _flatten(attributes: Attributes, inputs: Inputs) -> str | None:
    axis, rank = int(attributes.get("axis", 1)), inputs[0].ndim
    return None if -rank <= axis <= rank else f"axis {axis} of {rank}"


def _compress(attributes: Attributes, inputs: Inputs) -> str | None:
    """There is no more to choose from than there is."""
    data, chosen, wrong = inputs[0], inputs[1].size, None
    size = data.size
    if "axis" in attributes:
        axis, wrong = _axis(attributes, data.ndim)
        size = data.shape[axis] if wrong is None else size
    return wrong or (None if chosen <= size else f"a condition of {chosen} for {size}")


def _top(attributes: Attributes, inputs: Inputs) -> str | None:
    axis, wrong = _axis(attributes, inputs[0].ndim, -1)
    count = int(np.asarray(inputs[1] if len(inputs) > 1 else attributes["k"]).reshape(-1)[0])
    size = inputs[0].shape[axis] if not wrong else 0
    return wrong or (None if 0 <= count <= size else f"the {count} largest of {size}")


def _one_hot(attributes: Attributes, inputs: Inputs) -> str | None:
    """The new axis counts in what comes out; there are a value for off and one for on."""
    if inputs[2].size != 2:
        return f"{inputs[2].size} values instead of two"
    if inputs[1].reshape(-1)[0] < 0:
        return f"a depth of {inputs[1].reshape(-1)[0]}"
    return _axis(attributes, inputs[0].ndim + 1, -1)[1]


OF_AXES: dict[str, Rule] = {
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "LpNormalization", "Softmax", "Unique"), _along),
    "Compress": _compress, "Concat": _concat, "CumProd": _cumulative, "CumSum": _cumulative, "Flatten": _flatten,
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd, "OneHot": _one_hot,
    "Scatter": _scatter_elements, "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "Slice": _slice,
    "Split": _split, "Squeeze": _squeeze, "TopK": _top, "Transpose": _transpose, "Unsqueeze": _unsqueeze,
}  # fmt: skip
"""By operator."""
