"""Whether a module's parameters are still what they were."""

from __future__ import annotations

from typing import Any


def checksums(module: Any) -> list[int]:
    """A sum of the bytes of each parameter and buffer, which takes a tenth of a hash."""
    import torch

    sums = []
    for tensor in module.state_dict().values():
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        whole = flat.numel() // 8 * 8
        sums.append(int(flat[:whole].view(torch.int64).sum()) + int(flat[whole:].sum()))
    return sums
