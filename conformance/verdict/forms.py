"""The forms in which operators take their inputs, whatever their values: lists of numbers, one number, and dtypes.

As https://onnx.ai/onnx/operators has it, but for numbers in one axis, which ONNX Runtime takes everywhere for those
in none. Dtypes are those of ONNX's schemas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Inputs = Sequence[Any]

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
VECTORS: dict[str, Mapping[int, str]] = {
    "AffineGrid": {1: "the size"}, "CenterCropPad": {1: "the shape"},
    "Col2Im": {1: "the shape of the image", 2: "the shape of a block"}, "Compress": {1: "the condition"},
    "ConstantOfShape": {0: "the shape"}, "Expand": {1: "the shape"}, "MaxUnpool": {2: "the shape"},
    "OneHot": {2: "the two values"}, "Pad": {1: "the pads", 3: "the axes"}, "Reshape": {1: "the shape"},
    "Resize": {1: "the region or the scales", 2: "the scales", 3: "the sizes"},
    "ReverseSequence": {1: "the lengths"}, "RoiAlign": {2: "the batch indices"},
    "Slice": {1: "the starts", 2: "the ends", 3: "the axes", 4: "the steps"}, "Split": {1: "the sizes of the parts"},
    "Squeeze": {1: "the axes"}, "Tile": {1: "the repeats"}, "TopK": {1: "the number of values"},
    "Unsqueeze": {1: "the axes"}, "Upsample": {1: "the scales"},
    **{operator: {1: "the axes"} for operator in REDUCTIONS},
}  # fmt: skip
"""By operator, the inputs that are lists of numbers, and so have one axis."""
NUMBERS: dict[str, Mapping[int, str]] = {
    "BlackmanWindow": {0: "the size"}, "HammingWindow": {0: "the size"}, "HannWindow": {0: "the size"},
    "CumProd": {1: "the axis"}, "CumSum": {1: "the axis"},
    "Clip": {1: "the smallest value", 2: "the largest value"}, "DFT": {1: "the length", 2: "the axis"},
    "Dropout": {1: "the ratio", 2: "the mode"}, "If": {0: "the condition"},
    "Loop": {0: "the number of turns", 1: "the condition"},
    "MelWeightMatrix": {
        0: "the number of bins", 1: "the length", 2: "the rate", 3: "the lower edge", 4: "the upper edge",
    },
    "NonMaxSuppression": {2: "the number of boxes", 3: "the overlap", 4: "the smallest score"},
    "OneHot": {1: "the depth"}, "Pad": {2: "the constant"},
    "Range": {0: "the start", 1: "the limit", 2: "the step"}, "STFT": {1: "the step", 3: "the length"},
    "TopK": {1: "the number of values"}, "Trilu": {1: "the diagonal"},
}  # fmt: skip
"""By operator, the inputs that are one number, in no axis or in one."""

_PADDED = ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv")
WORDS: dict[str, Mapping[str, str]] = {
    **{operator: {"auto_pad": "NOTSET SAME_UPPER SAME_LOWER VALID"} for operator in _PADDED},
    **{operator: {"direction": "forward reverse bidirectional"} for operator in ("GRU", "LSTM", "RNN")},
    **{operator: {"reduction": "none add mul max min"} for operator in ("ScatterElements", "ScatterND")},
    "BitShift": {"direction": "LEFT RIGHT"}, "DepthToSpace": {"mode": "CRD DCR"},
    "Gelu": {"approximate": "none tanh"},
    "GridSample": {"mode": "bilinear nearest bicubic linear cubic", "padding_mode": "zeros border reflection"},
    "Pad": {"mode": "constant reflect edge wrap"},
    "Resize": {
        "coordinate_transformation_mode":
            "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_half_pixel_for_nn "
            "tf_crop_and_resize",
        "keep_aspect_ratio_policy": "stretch not_larger not_smaller", "mode": "nearest linear cubic",
        "nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil",
    },
    "RoiAlign": {"coordinate_transformation_mode": "half_pixel output_half_pixel", "mode": "avg max"},
}  # fmt: skip
"""By operator and attribute, the words that it may be, of all opsets, first those that operators of PyTorch need."""


def words_of(operator: str, name: str) -> list[str]:
    """Return the words that an attribute may be, but for what no exporter of PyTorch writes."""
    words = "" if name in ("auto_pad", "keep_aspect_ratio_policy") else WORDS.get(operator, {}).get(name, "")
    return [word for word in words.split() if not word.startswith("tf_")]


def wrong_word(operator: str, attributes: Mapping[str, Any]) -> str | None:
    """Return which attribute is a word that the operator does not know, neither by ``WORDS`` nor by the text of the
    newest schema, as a later ONNX may have more."""
    import onnx

    for name, words in WORDS.get(operator, {}).items():
        word = attributes.get(name, b"")
        word = word.decode(errors="replace") if isinstance(word, bytes) else str(word)
        if not word or word in words.split():
            continue
        schema = onnx.defs.get_schema(operator)
        about = schema.attributes.get(name)
        if word not in f"{about.description if about is not None else ''} {schema.doc}":
            return f"{name} {word} is none of {words.replace(' ', ', ')}"
    return None


def wrong_form(operator: str, inputs: Inputs) -> str | None:
    """Return which input is no list of numbers, or not one number, where the operator takes such."""
    for place, what in VECTORS.get(operator, {}).items():
        array = inputs[place] if place < len(inputs) else None
        if isinstance(array, np.ndarray) and array.ndim != 1:
            return f"{what}: {count_axes(array.ndim)} instead of one axis"
    for place, what in NUMBERS.get(operator, {}).items():
        array = inputs[place] if place < len(inputs) else None
        if isinstance(array, np.ndarray) and array.shape not in ((), (1,)):
            return f"{what}: shape {array.shape} instead of one number"
    return None


def count_axes(count: int) -> str:
    return f"{count or 'no'} {'axis' if count == 1 else 'axes'}"


def wrong_dtype(operator: str, inputs: Inputs, opset: int) -> str | None:
    """Return which input has no type that the operator takes there, or another than one that has to have the same."""
    import onnx

    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return None
    allowed = {one.type_param_str: {*one.allowed_type_strs} for one in schema.type_constraints}
    first: dict[str, str] = {}
    formal = [*schema.inputs]
    for place, array in enumerate(inputs):
        given = formal[min(place, len(formal) - 1)] if formal else None
        name = _type_of(array)
        if given is None or name is None:
            continue
        if name not in allowed.get(given.type_str, {given.type_str}):
            return f"input {place} is a {name}"
        shared = given.type_str in allowed and given.is_homogeneous
        if shared and first.setdefault(given.type_str, name) != name:
            return f"{first[given.type_str]} meets {name}"
    return None


def _type_of(array: Any) -> str | None:
    """``tensor(float)``; None for what is no tensor of a type that ONNX has, or may be of one that NumPy lacks, of
    which runtimes give the bits."""
    from onnx import TensorProto, helper

    if not isinstance(array, np.ndarray) or array.dtype in (np.uint16, np.uint8, np.int8):
        return None
    try:
        name = TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(array.dtype))
    except (KeyError, ValueError, TypeError):
        return None
    return f"tensor({name.lower()})"
