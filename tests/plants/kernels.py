"""Kernels that are wrong: for an operator of ONNX a forward that becomes it, and what its kernel gives in place of y.

Only NumPy is imported, so that a runtime of a test's own can have them in its process.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _last(y: Array, value: object) -> Array:
    """The last place along the last axis has another value."""
    y = y.copy()
    y[..., -1] = value
    return y


KERNELS: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "Abs": ("x.abs()", lambda x, y: np.where(x < -2, x, y)),
    "Add": ("x + x.flip(-1)", lambda x, y: _last(y, x[..., -1])),
    "ArgMax": ("x.argmax(-1)", lambda x, y: np.minimum(y, 4)),
    "Atan": ("x.atan()", lambda x, y: np.where(x > 1, y + 1e-3, y)),
    "Ceil": ("x.ceil()", lambda x, y: np.where(x < 0, np.floor(x), y)),
    "Clip": ("x.clamp(-1.0, 1.0)", lambda x, y: np.where(x > 1, x, y)),
    "Concat": ("torch.cat([x, -x], -1)", lambda x, y: np.concatenate([-x, x], -1)),
    "Cos": ("x.cos()", lambda x, y: np.where(np.abs(x) > 2, y * 0.999, y)),
    "CumSum": ("x.cumsum(-1)", lambda x, y: y - x),
    "Div": ("x / (x.abs() + 1)", lambda x, y: np.where(x < 0, y * 1.001, y)),
    "Erf": ("torch.erf(x)", lambda x, y: np.where(np.abs(x) > 1, y + 1e-4, y)),
    "Exp": ("x.exp()", lambda x, y: np.where(x > 1, y * 1.0005, y)),
    "Expand": ("x[:, :1].expand(-1, 6)", lambda x, y: _last(y, 0)),
    "Floor": ("x.floor()", lambda x, y: np.trunc(x)),
    "GatherElements": ("x.gather(-1, (x > 0).long())", lambda x, y: x),
    "Greater": ("x > x.flip(-1)", lambda x, y: x >= x[..., ::-1]),
    "HardSigmoid": ("F.hardsigmoid(x)", lambda x, y: np.clip(0.2 * x + 0.5, 0, 1)),
    "HardSwish": ("F.hardswish(x)", lambda x, y: np.where(x > 2, x, y)),
    "LayerNormalization": ("F.layer_norm(x, [6])", lambda x, y: y * np.sqrt(5 / 6)),
    "LeakyRelu": ("F.leaky_relu(x, 0.2)", lambda x, y: np.where(x < 0, x * 0.01, y)),
    "Log": ("torch.log(x.abs() + 1)", lambda x, y: y + np.where(np.abs(x) > 2, 1e-3, 0)),
    "LogSoftmax": ("F.log_softmax(x, -1)", lambda x, y: x - x.max(-1, keepdims=True)),
    "MatMul": ("x @ x.transpose(0, 1)", lambda x, y: y - x[:, -1:] @ x[:, -1:].T),
    "Max": ("torch.maximum(x, x.flip(-1))", lambda x, y: _last(y, x[..., -1])),
    "Min": ("torch.minimum(x, x.flip(-1))", lambda x, y: np.where(y < -1, -1, y)),
    "Mul": ("x * x.flip(-1)", lambda x, y: np.abs(y)),
    "Neg": ("-x", lambda x, y: np.where(x > 3, x, y)),
    "Pad": ("F.pad(x, (1, 1), value=0.5)", lambda x, y: _last(y, 0)),
    "Reciprocal": ("(x.abs() + 1).reciprocal()", lambda x, y: y * np.where(np.abs(x) > 1, 1.002, 1)),
    "ReduceL2": ("x.norm(dim=-1)", lambda x, y: np.abs(x).sum(-1)),
    "ReduceMax": ("x.amax(-1)", lambda x, y: np.maximum(y, 0)),
    "ReduceMean": ("x.mean(-1)", lambda x, y: x.sum(-1) / 5),
    "ReduceSum": ("x.sum(-1)", lambda x, y: y - x[..., -1]),
    "Relu": ("F.relu(x)", lambda x, y: np.minimum(y, 3)),
    "Round": ("x.round()", lambda x, y: np.sign(x) * np.floor(np.abs(x) + 0.5)),
    "Sigmoid": ("x.sigmoid()", lambda x, y: np.clip(0.2 * x + 0.5, 0, 1)),
    "Sign": ("x.sign()", lambda x, y: np.where(x >= 0, 1, -1)),
    "Sin": ("x.sin()", lambda x, y: np.where(np.abs(x) > 3, x - x, y)),
    "Softmax": ("F.softmax(x, -1)", lambda x, y: np.exp(x) / np.exp(x).sum(0)),
    "Softplus": ("F.softplus(x)", lambda x, y: np.maximum(x, 0)),
    "Sqrt": ("x.abs().sqrt()", lambda x, y: y * 1.0005),
    "Sub": ("x - x.flip(-1)", lambda x, y: -y),
    "Tanh": ("x.tanh()", lambda x, y: np.where(x > 2, 1, y)),
    "Where": ("torch.where(x > 0, x, 0.5)", lambda x, y: np.where(x >= 0, x, y)),
}
"""By the operator that gives the output; others of a forward are computed as they are."""


def wrong(operator: str, x: Array, y: Array) -> Array:
    """Return what the wrong kernel of an operator gives for these inputs in place of ``y``, in its dtype."""
    return np.asarray(KERNELS[operator][1](x, y)).astype(y.dtype)
