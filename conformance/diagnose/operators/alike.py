"""Facts about ONNX's operators: what an attribute may be, which operators stand for one another, which of them a
lowering may lack, and the numbers of formulas."""

from __future__ import annotations

import math

FLAGS = {
    "align_corners", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "detect_negative",
    "detect_positive", "exclude_outside", "exclusive", "fmod", "inverse", "keepdims", "largest",
    "noop_with_empty_axes", "reverse", "select_last_index", "sorted", "storage_order", "training_mode", "transA",
    "transB", "upper",
}  # fmt: skip
TYPES = {"dtype", "saturate", "stash_type", "to"}
"""Attributes that say in which type to compute; another one does not load, or is a question of precision."""
COUNTS = {"num_outputs"}
"""Attributes that say what the node itself has, so that no other value fits it."""
COMMUTATIVE = {"Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"}
SIBLINGS = [
    ("Add", "Sub"), ("Mul", "Div"), ("Max", "Min"), ("Floor", "Round", "Ceil"), ("Less", "LessOrEqual"),
    ("Greater", "GreaterOrEqual"), ("ReduceMean", "ReduceSum", "ReduceMax"), ("ReduceMax", "ReduceMin"),
    ("ReduceL2", "ReduceL1"), ("ReduceLogSumExp", "ReduceLogSum"), ("ArgMax", "ArgMin"), ("Relu", "LeakyRelu", "Elu"),
    ("Erf", "Tanh"), ("Sigmoid", "HardSigmoid"), ("And", "Or", "Xor"), ("Softmax", "LogSoftmax"),
    ("Asinh", "Sinh", "Asin"), ("Exp", "Expm1"), ("Abs", "Neg"), ("Sin", "Cos"), ("HardSwish", "Mish"),
    ("Softplus", "Softsign"), ("GlobalAveragePool", "GlobalMaxPool"), ("IsNaN", "IsInf"), ("Sign", "Abs"),
    ("MaxPool", "AveragePool"), ("Sqrt", "Abs"),
]  # fmt: skip
"""Operators that take and give the same, and are mistaken for one another."""
ALIKE = [
    ("Add", "Sub", "Mul", "Div"), ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    ("Identity", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Floor", "Ceil", "Round", "Sign", "Relu",
     "Sigmoid", "Tanh"),
    ("Identity", "Not"), ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"),
    ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "Softplus", "Mish", "HardSwish", "HardSigmoid", "Sigmoid"),
    ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"), ("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    ("Sum", "Mean", "Max", "Min"), ("Softmax", "LogSoftmax", "Hardmax"),
]  # fmt: skip
"""More of them: any of these may be tried in place of another where it costs nothing that most do not fit."""
INSERTED = {
    "f": ("Abs", "Neg", "Relu", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal"), "i": ("Abs", "Neg"), "b": ("Not",),
}  # fmt: skip
"""Nodes that a lowering may lack, by the kind of what they take."""
KNOWN = (
    0.0, 1.0, 0.5, -1.0, 2.0, -0.5, -2.0, 3.0, 6.0, 1 / 3, 1 / 6, math.pi, math.pi / 2, 2 * math.pi, math.e,
    math.sqrt(2), 1 / math.sqrt(2), math.sqrt(2 / math.pi), 2 / math.sqrt(math.pi), 1 / math.sqrt(2 * math.pi),
    0.044715, math.log(2), 1 / math.log(2), math.log(10), 1 / math.log(10), 1.6732632423543772, 1.0507009873554805,
    180 / math.pi, math.pi / 180, math.inf, -math.inf,
)  # fmt: skip
"""Numbers that formulas have, those of gelu and selu among them."""
