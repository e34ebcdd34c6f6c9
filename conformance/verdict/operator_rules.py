"""Rules of operators that ONNX's inference of shapes does not hold a model to: what a node's concrete inputs break.

The rules are those of https://onnx.ai/onnx/operators, each in words of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.arrays import Array
from conformance.verdict.forms import REDUCTIONS, Inputs, count_axes, wrong_dtype, wrong_form, wrong_word

if TYPE_CHECKING:
    from onnx import NodeProto


Attributes = Mapping[str, Any]
Rule = Callable[[Attributes, Inputs], str | None]
"""Gets a node's attributes and its inputs, None for one that is left out, and says in a few words what they break, or
None."""


def _axis(attributes: Attributes, rank: int, default: int = 0) -> tuple[int, str | None]:
    axis = int(attributes.get("axis", default))
    if not -rank <= axis < rank:
        return 0, f"axis {axis} is not one of the {rank} axes"
    return axis % rank, None


def numbers_given(attributes: Attributes, inputs: Inputs, place: int, name: str) -> list[int] | None:
    """Numbers that are an input since some opset, and an attribute before it; None where there are none."""
    array = inputs[place] if place < len(inputs) else None
    found = attributes.get(name) if array is None else array
    return None if found is None else [int(one) for one in found]


def check_distinct(axes: Sequence[int], rank: int) -> str | None:
    for axis in axes:
        if not -rank <= axis < rank:
            return f"axis {axis} is not one of the {rank} axes"
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
    axis = int(inputs[1].reshape(-1)[0])
    return None if -rank <= axis < rank else f"axis {axis} is not one of the {rank} axes"


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
        if not -data.ndim <= axis < data.ndim:
            return f"axis {axis} is not one of the {data.ndim} axes"
        if data.shape[axis] != 1:
            return f"axis {axis} has size {data.shape[axis]} and cannot be left out"
    return None


def _unsqueeze(attributes: Attributes, inputs: Inputs) -> str | None:
    """Axes count in what comes out."""
    axes = numbers_given(attributes, inputs, 1, "axes") or []
    return check_distinct(axes, inputs[0].ndim + len(axes))


def _reduction(attributes: Attributes, inputs: Inputs) -> str | None:
    axes, rank = numbers_given(attributes, inputs, 1, "axes"), inputs[0].ndim
    beyond = [axis for axis in axes or () if not -rank <= axis < rank]
    return f"axis {beyond[0]} is not one of the {rank} axes" if beyond else None


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


def broken(operator: str, attributes: Attributes, inputs: Inputs, opset: int | None = None) -> str | None:
    """The rule of an operator of ONNX's own domain that its inputs break; None where none is known that they do.
    Without an ``opset`` their dtypes are not looked at."""
    wrong = wrong_word(operator, attributes) or wrong_form(operator, inputs)
    wrong = wrong or (wrong_dtype(operator, inputs, opset) if opset is not None else None)
    since, later = _LATER.get(operator, (0, None))
    rule = later if later is not None and (opset or 0) >= since else RULES.get(operator)
    if wrong or rule is None or any(array is not None and not isinstance(array, np.ndarray) for array in inputs):
        return wrong
    try:
        return rule(attributes, inputs)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):  # an input that is not there: others tell
        return None


def broken_by(node: NodeProto, inputs: Inputs, opset: int) -> str | None:
    """Return the rule that a node breaks with its inputs; None where none is known that it does."""
    from onnx import helper

    if node.domain not in ("", "ai.onnx"):
        return None
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return broken(node.op_type, attributes, inputs, opset)


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


def _tile(attributes: Attributes, inputs: Inputs) -> str | None:
    count = inputs[1].size
    if count and inputs[1].min() < 0:
        return f"{int(inputs[1].min())} repeats"
    return None if count == inputs[0].ndim else f"{count} repeats for {count_axes(inputs[0].ndim)}"


def _constant_of_shape(attributes: Attributes, inputs: Inputs) -> str | None:
    shape = inputs[0]
    return f"{shape.tolist()} is no shape" if shape.size and shape.min() < 0 else None


def _range(attributes: Attributes, inputs: Inputs) -> str | None:
    return None if np.all(inputs[2]) else "the step is zero"


def _pad(attributes: Attributes, inputs: Inputs) -> str | None:
    """Two pads for each axis, which cut off no more than there is."""
    data, pads = inputs[0], numbers_given(attributes, inputs, 1, "pads")
    axes = numbers_given({}, inputs, 3, "axes")
    named = [*range(data.ndim)] if axes is None else axes
    wrong = check_distinct(named, data.ndim)
    if pads is None or wrong:
        return wrong
    if len(pads) != 2 * len(named):
        return f"{len(pads)} pads for {count_axes(len(named))}"
    for axis, before, after in zip(named, pads, pads[len(named) :], strict=False):
        if data.shape[axis] + before + after < 0:
            return f"pads of {before} and {after} for an axis of size {data.shape[axis]}"
    return None


def _resize(attributes: Attributes, inputs: Inputs) -> str | None:
    """A scale above 0 or a size for each axis that is named, and not both."""
    data = inputs[0]
    both = [None if array is None or not array.size else array for array in (*inputs, None, None, None)[2:4]]
    scales, sizes = (inputs[1], None) if len(inputs) == 2 else both
    if scales is not None and sizes is not None:
        return "both scales and sizes"
    asked, rank = scales if scales is not None else sizes, len(attributes.get("axes", range(data.ndim)))
    if asked is None:
        return "neither scales nor sizes"
    if asked.size != rank:
        return f"{asked.size} {'sizes' if scales is None else 'scales'} for {count_axes(rank)}"
    if scales is not None and scales.min() <= 0:
        return f"a scale of {scales.min()}"
    return check_distinct([*attributes.get("axes", ())], data.ndim)


def _triangle(attributes: Attributes, inputs: Inputs) -> str | None:
    return None if inputs[0].ndim >= 2 else f"{count_axes(inputs[0].ndim)} are no matrix"


def _eye(attributes: Attributes, inputs: Inputs) -> str | None:
    return None if inputs[0].ndim == 2 else f"{count_axes(inputs[0].ndim)} instead of two"


def _boxes(attributes: Attributes, inputs: Inputs) -> str | None:
    """Batches of boxes of four numbers, each with a score in each class."""
    boxes, scores = inputs[:2]
    if boxes.ndim != 3 or scores.ndim != 3:
        return f"boxes have {count_axes(boxes.ndim)}, scores {count_axes(scores.ndim)}, each instead of three"
    if boxes.shape[2] != 4:
        return f"boxes of {boxes.shape[2]} numbers"
    same = (boxes.shape[0], boxes.shape[1]) == (scores.shape[0], scores.shape[2])
    return None if same else f"boxes of shape {boxes.shape} meet scores of shape {scores.shape}"


def _columns(attributes: Attributes, inputs: Inputs) -> str | None:
    """As many axes of an image as of a block, whose entries divide the rows of columns."""
    columns, image, block = inputs[:3]
    if columns.ndim != 3:
        return f"columns have {count_axes(columns.ndim)} instead of three"
    if image.size != block.size:
        return f"{count_axes(image.size)} of an image meet {count_axes(block.size)} of a block"
    entries = int(np.prod(block))
    wrong = entries < 1 or columns.shape[1] % entries
    return f"blocks of {entries} do not divide {columns.shape[1]} rows" if wrong else None


def _affine_grid(attributes: Attributes, inputs: Inputs) -> str | None:
    """A matrix of 2 by 3 for four sizes, or of 3 by 4 for five, for each of a batch."""
    matrices, size = inputs[0], [int(one) for one in inputs[1]]
    wanted = {4: (size[0], 2, 3), 5: (size[0], 3, 4)}.get(len(size))
    if wanted is None:
        return f"{len(size)} sizes instead of 4 or 5"
    return None if matrices.shape == wanted else f"matrices of shape {matrices.shape} instead of {wanted}"


def _crop_or_pad(attributes: Attributes, inputs: Inputs) -> str | None:
    data, shape = inputs[0], inputs[1]
    axes = [*attributes.get("axes", range(data.ndim))]
    if shape.size != len(axes):
        return f"{shape.size} sizes for {count_axes(len(axes))}"
    return check_distinct(axes, data.ndim)


def _reverse(attributes: Attributes, inputs: Inputs) -> str | None:
    """A length for each of a batch, none beyond the time."""
    data, lengths = inputs[:2]
    batch, time = int(attributes.get("batch_axis", 1)), int(attributes.get("time_axis", 0))
    if data.ndim < 2 or lengths.size != data.shape[batch]:
        return f"{lengths.size} lengths for the shape {data.shape}"
    beyond = lengths.size and (lengths.min() < 0 or lengths.max() > data.shape[time])
    return f"a length beyond {data.shape[time]}" if beyond else None


def _dropout(attributes: Attributes, inputs: Inputs) -> str | None:
    ratio = inputs[1] if len(inputs) > 1 else None
    wrong = ratio is not None and not 0 <= ratio.reshape(-1)[0] < 1
    return f"a ratio of {ratio.reshape(-1)[0]}" if wrong and ratio is not None else None


def _regions(attributes: Attributes, inputs: Inputs) -> str | None:
    """Each region has four numbers and the number of an image."""
    data, regions, images = inputs[:3]
    if data.ndim != 4 or regions.ndim != 2 or regions.shape[1] != 4:
        return f"regions of shape {regions.shape} of {count_axes(data.ndim)}"
    if images.size != regions.shape[0]:
        return f"{images.size} numbers of images for {regions.shape[0]} regions"
    beyond = images.size and (images.min() < 0 or images.max() >= data.shape[0])
    return f"the number of an image beyond {data.shape[0]}" if beyond else None


RULES: dict[str, Rule] = {
    **OF_AXES,
    **dict.fromkeys(("Add", "And", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Where"), _broadcast),
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), _broadcast),
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual", "Max", "Mean", "Min", "PRelu", "Sum", "Xor"), _broadcast),
    "AffineGrid": _affine_grid, "CenterCropPad": _crop_or_pad, "Col2Im": _columns,
    "ConstantOfShape": _constant_of_shape, "Div": _division, "Dropout": _dropout, "Expand": _expand,
    "EyeLike": _eye, "Gemm": _gemm, "MatMul": _matmul, "Mod": _remainder, "NonMaxSuppression": _boxes, "Pad": _pad,
    "Range": _range, "Reshape": _reshape, "Resize": _resize, "ReverseSequence": _reverse, "RoiAlign": _regions,
    "Tile": _tile, "Trilu": _triangle,
}  # fmt: skip
"""By operator; as they have been since opset 7, or since the operator exists."""
_LATER: dict[str, tuple[int, Rule]] = {"Mod": (28, _division)}
"""Rules that are others since an opset: floats have both remainders."""
