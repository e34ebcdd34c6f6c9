"""Rules of operators that ONNX's inference of shapes does not hold a model to: what a node's concrete inputs break.

The rules are those of https://onnx.ai/onnx/operators, each in words of this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from conformance.diagnose.nodes.axis_rules import OF_AXES, Attributes, Rule, check_distinct, numbers_given
from conformance.diagnose.nodes.forms import Inputs, count_axes, wrong_dtype, wrong_form, wrong_word

if TYPE_CHECKING:
    from onnx import NodeProto


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
