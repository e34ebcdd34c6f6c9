"""Make a small scripted network of PyTorch with its TorchScript exporter, with what PyTorch itself computes.

pip install torch onnx
python make_torchscript.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import torch


class Steps(torch.nn.Module):
    """Takes as many steps as the input has columns, which only a scripted export keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.size(0), 4)
        for step in range(x.size(1)):
            state = torch.tanh(self.cell(state) + x[:, step].unsqueeze(1))
        return state


def main(folder: Path) -> None:
    torch.manual_seed(0)
    module = torch.jit.script(Steps().eval())
    x = torch.randn(3, 5)
    axes = {"x": {0: "batch", 1: "steps"}, "state": {0: "batch"}}
    file, names = str(folder / "torchscript_steps.onnx"), {"input_names": ["x"], "output_names": ["state"]}
    torch.onnx.export(module, (x,), file, opset_version=17, dynamic_axes=axes, dynamo=False, **names)
    np.savez(folder / "torchscript_steps.npz", x=x.numpy(), state=module(x).detach().numpy())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
