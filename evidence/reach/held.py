"""The Python beside a case that needs some: it hands over a sample's own values, or its call, as an author's lines
would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

PYTHON = "from evidence.reach.held import draw, forward\n"
"""What lies beside such a case, as ``beside.py``."""
NAMES: list[str] = []
"""The inputs of the case, in order."""
_tensors: list[torch.Tensor] = []
_call: list[Callable[[Sequence[torch.Tensor]], Any]] = []


def hold(tensors: Sequence[torch.Tensor], direct: Callable[[Sequence[torch.Tensor]], Any]) -> None:
    """From now on ``draw`` and ``forward`` are about this sample."""
    _tensors[:], _call[:] = tensors, [direct]


def draw(dims: Mapping[str, int], rng: object) -> dict[str, Any]:
    """The values of the sample by input."""
    return dict(zip(NAMES, (tensor.detach().numpy().copy() for tensor in _tensors), strict=True))


def forward(*tensors: torch.Tensor) -> Any:
    """What the sample's call gives for other tensors."""
    return _call[0](tensors)
