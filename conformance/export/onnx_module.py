"""An ONNX file as a module: what a case that names one is compared with.

The file's own meaning is what ONNX's evaluator computes of it, in the file's types, and in float64 for the module's
double form. Where the evaluator has no say on an operator, ONNX Runtime computes node by node with its optimizer off,
and there is no float64 form: it has few kernels for that.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conformance.disk.onnx_models import serialized
from conformance.export.float64_model import in_float64, load
from conformance.runtimes import Session, opener
from conformance.runtimes.evaluator_rules import doubts
from conformance.runtimes.onnxreference import ReferenceSession


class OnnxModule(torch.nn.Module):
    """Computes what a file means, of tensors in the order of ``names``; ``double()`` makes it do so in float64.

    ``abstains`` says why ONNX's evaluator is not asked, or is None.
    """

    def __init__(self, file: Path, names: Sequence[str]) -> None:
        """Raises Stopped for a file that cannot be read."""
        super().__init__()
        self._file, self._names, self._in_float64 = file, list(names), False
        model = load(file)
        told = doubts(model)
        self.abstains = f"ONNX's evaluator has no say on {', '.join(map(str, told))}" if told else None
        self._session: Session | None = None
        self._open = contextlib.ExitStack()
        digest = bytes.fromhex(serialized(model).sha)
        # what the module is told apart by, in place of weights
        self.register_buffer("content", torch.frombuffer(bytearray(digest), dtype=torch.uint8))

    def double(self) -> OnnxModule:
        if self.abstains is not None:
            raise ValueError(f"{self.abstains}, and nothing else computes a whole model in float64")
        self._in_float64, self._session = True, None
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxModule:
        other = OnnxModule.__new__(OnnxModule)
        memo[id(self)] = other
        other.__dict__ = {
            name: value if name in ("_session", "_open") else copy.deepcopy(value, memo)
            for name, value in self.__dict__.items()
        }
        other._session, other._open = None, contextlib.ExitStack()
        return other

    def forward(self, *tensors: torch.Tensor) -> Any:
        if self._session is None:
            self._session = self._opened()
        inputs = {name: tensor.detach().numpy() for name, tensor in zip(self._names, tensors, strict=True)}
        arrays = self._session.run(inputs)
        outputs = [torch.from_numpy(np.array(array)) for array in arrays]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _opened(self) -> Session:
        if self.abstains is not None:
            return self._open.enter_context(opener("onnxruntime-unoptimized")(self._file, []))
        return ReferenceSession(in_float64(load(self._file)) if self._in_float64 else load(self._file))
