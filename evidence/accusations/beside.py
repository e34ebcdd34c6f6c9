"""Stands beside the case files of this benchmark, as ``modules.py``: builds the module of a case from its file."""

from __future__ import annotations

from pathlib import Path

import torch


def build(file: str, parameters: str = "", call: str = "") -> torch.nn.Module:
    """The module that ``file`` holds; with a ``call``, a module of these ``parameters`` that calls it so: what is a
    tuple of tensors, or no tensor at all, is none of a case's inputs."""
    module: torch.nn.Module = torch.load(Path(__file__).parent / file, weights_only=False)
    if not call:
        return module
    scope: dict[str, object] = {"torch": torch}
    exec(f"def forward(self, {parameters}):\n    return self.module({call})\n", scope)
    caller: torch.nn.Module = type("Caller", (torch.nn.Module,), {"forward": scope["forward"]})()
    caller.module = module
    return caller
