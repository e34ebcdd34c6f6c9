"""What the values have to be that operators read as sizes, axes, indices, counts or windows, and not as numbers.

``RULES`` says for each operator of ONNX what is due at each place, where not any numbers will do; a rule makes such
values at the shapes of an example. The rules are those of ONNX's specification (docs/Operators.md of ONNX).
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.case.draw import index_rules as at
from conformance.case.draw import size_rules as of
from conformance.case.draw.sites import Rule, any_but_zero, same, within

_SCALE, _ZERO = within(0.01, 0.1), within(0, 7)
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

RULES: Mapping[str, Mapping[int, Rule]] = {
    "AffineGrid": {1: of.grid_size},
    "Attention": {6: of.lengths(-2, place=1)},
    "BatchNormalization": {4: within(0.2, 2.0)},
    "BitShift": {1: within(0, 7)},
    "BlackmanWindow": {0: within(2, 12)},
    "CenterCropPad": {1: of.crop},
    "Clip": {1: within(-1.5, -0.1), 2: within(0.1, 1.5)},
    "Col2Im": {1: of.image, 2: of.block},
    "ConstantOfShape": {0: of.sizes},
    "ConvInteger": {2: _ZERO, 3: _ZERO},
    "CumProd": {1: at.axis},
    "CumSum": {1: at.axis},
    "DFT": {1: of.fft, 2: at.axis_of_signal},
    "DequantizeLinear": {1: _SCALE},
    "Dropout": {1: within(0.1, 0.9), 2: same(0)},
    "Expand": {1: of.broadcast},
    "GRU": {4: of.lengths(0)},
    "Gather": {1: at.index},
    "GatherElements": {1: at.index},
    "GatherND": {1: at.tuples},
    "HammingWindow": {0: within(2, 12)},
    "HannWindow": {0: within(2, 12)},
    "LSTM": {4: of.lengths(0)},
    "Loop": {0: within(1, 4), 1: same(1)},
    "MatMulInteger": {2: _ZERO, 3: _ZERO},
    "MaxRoiPool": {1: of.regions},
    "MelWeightMatrix": {
        0: within(4, 9),
        1: within(8, 17),
        2: same(8192),
        3: within(0, 50),
        4: within(2000, 4000),
    },
    "NegativeLogLikelihoodLoss": {1: at.below(0, 1)},
    "NonMaxSuppression": {2: within(1, 5), 3: within(0.2, 0.8), 4: within(-0.5, 0.2)},
    "OneHot": {0: at.hot, 1: within(3, 6)},
    "Pad": {1: at.pads, 3: at.axes},
    "QLinearConv": {1: _SCALE, 2: _ZERO, 4: _SCALE, 5: _ZERO, 6: _SCALE, 7: _ZERO},
    "QLinearMatMul": {1: _SCALE, 2: _ZERO, 4: _SCALE, 5: _ZERO, 6: _SCALE, 7: _ZERO},
    "QuantizeLinear": {1: _SCALE},
    "RNN": {4: of.lengths(0)},
    "Range": {0: within(0, 3), 1: within(4, 12), 2: within(1, 3)},
    **{f"Reduce{name}": {1: at.axes} for name in _REDUCTIONS},
    "Reshape": {1: of.target},
    "Resize": {1: of.region, 2: of.scales, 3: of.resized},
    "ReverseSequence": {1: of.lengths_of_reversal},
    "RoiAlign": {1: of.regions, 2: at.below(0, 0)},
    "RotaryEmbedding": {3: at.below(1, 0)},
    "STFT": {1: within(1, 4), 3: of.frame},
    "Scatter": {1: at.once_along},
    "ScatterElements": {1: at.once_along},
    "ScatterND": {1: at.tuples_once},
    "SequenceAt": {1: at.position},
    "SequenceErase": {1: at.position},
    "SequenceInsert": {2: at.position},
    "Slice": {1: at.starts, 2: at.ends, 3: at.axes, 4: at.steps},
    "SoftmaxCrossEntropyLoss": {1: at.below(0, 1)},
    "Split": {1: of.split},
    "SplitToSequence": {1: of.split},
    "Squeeze": {1: at.axes_of_one},
    "TensorScatter": {2: of.writes},
    "TfIdfVectorizer": {0: of.words},
    "Tile": {1: within(0, 3)},
    "TopK": {1: at.k},
    "Trilu": {1: at.diagonal},
    "Unsqueeze": {1: at.new_axes},
    "Upsample": {1: of.scales},
}
"""By operator and place."""

WHOLE_NUMBERS: Mapping[str, Mapping[int, Rule]] = {
    "Div": {1: any_but_zero},
    "Mod": {1: any_but_zero},
    "Pow": {1: within(0, 3)},
    "TopK": {0: within(-50, 50)},
}
"""The same for places that take any floats, and not any whole numbers."""

KEYS: Mapping[str, Rule] = {
    "CategoryMapper": of.one_of("cats_int64s"),
    "LabelEncoder": of.one_of("keys_int64s"),
    "OneHotEncoder": of.one_of("cats_int64s"),
}
"""Whole numbers that operators of ``ai.onnx.ml`` look up."""

PARTS: Mapping[str, Rule] = {
    **dict.fromkeys(("Reshape", "Expand", "ConstantOfShape", "Tile", "Resize", "CenterCropPad", "Range"), of.sizes),
    **dict.fromkeys(("Gather", "GatherElements", "Slice", "Pad"), within(0, 1)),
}
"""Values of which an operator reads others too, so that none of its rules can be kept by these alone."""

NUMBERS: Mapping[str, frozenset[int]] = {
    **{name: frozenset(range(64)) for name in (
        "Abs", "Add", "And", "BitCast", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike",
        "Concat", "Einsum", "Equal", "Gemm", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "MatMul", "Max",
        "Mean", "Min", "Mul", "Neg", "Not", "Or", "Sign", "Sub", "Sum", "Xor",
    )},
    **{name: frozenset((0,)) for name in (
        "ArgMax", "ArgMin", "BitShift", "Clip", "Compress", "ConvInteger", "CumSum", "DepthToSpace",
        "DequantizeLinear", "Div", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "IsInf",
        "MatMulInteger", "MaxPool", "Mod", "NonZero", "Pad", "Pow", "QLinearConv", "QLinearMatMul", "Relu",
        "Reshape", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "SplitToSequence", "Squeeze",
        "Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze",
        *(f"Reduce{name}" for name in _REDUCTIONS),
    )},
    "Where": frozenset((1, 2)),
    "OneHot": frozenset((2,)),
}  # fmt: skip
"""Places at which operators of ONNX compute with whole numbers, or hand them on, whatever they are."""

WIDE: Mapping[str, frozenset[int]] = {
    **{name: NUMBERS[name] for name in (
        "Abs", "Add", "Cast", "Concat", "CumSum", "Div", "Equal", "Expand", "Flatten", "Gather", "Greater",
        "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "MatMul", "Max", "Min", "Mod", "Mul", "Neg", "ReduceMax",
        "ReduceMin", "ReduceSum", "Reshape", "Sign", "Slice", "Split", "Squeeze", "Sub", "Sum", "Tile", "Transpose",
        "Unsqueeze", "Where",
    )},
}  # fmt: skip
"""The same for numbers of any size."""

GROWING = frozenset(("Add", "CumSum", "MatMul", "Mul", "ReduceSum", "Sub", "Sum"))
"""Those of them whose results may be larger than what they are given."""
