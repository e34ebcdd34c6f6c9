"""Symbolics that the TorchScript exporter of PyTorch lacks; each has the name of its operator: ``asinh``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from more_symbolics.tensor import SYMBOLICS

for _name in ("elementwise", "arrays", "places", "reductions", "products", "losses"):
    importlib.import_module(f"more_symbolics.{_name}")
globals().update({name.removeprefix("aten::"): one.function for name, one in SYMBOLICS.items()})


def register(only: Sequence[str] = ()) -> None:
    """Register all symbolics with ``torch.onnx``, or those of some operators such as ``aten::asinh``.

    Each is used from the least opset on that it needs. Raises KeyError for an operator that has none here.
    """
    import torch

    for name in only or SYMBOLICS:
        torch.onnx.register_custom_op_symbolic(name, SYMBOLICS[name].function, SYMBOLICS[name].least)
