"""Make a small network with an older PyTorch, with what that PyTorch computes; the file is named after the release.

pip install torch==1.8.1 numpy      (Python 3.8; 1.13.1 and 2.0.1 with Python 3.10)
python make_older_torch.py FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import torch

OPSETS = {"1.8.1": 11, "1.13.1": 14, "2.0.1": 17}
"""By release the opset that was usual then."""


class Network(torch.nn.Module):
    """Has a batch norm to fold, a resize whose sizes are computed, a reshape by a dynamic size, and a layer norm."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.head = torch.nn.Linear(4, 5)
        self.last = torch.nn.LayerNorm(5)

    def forward(self, x):
        x = torch.nn.functional.hardswish(self.norm(self.conv(x)))
        x = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = x.reshape(x.size(0), 4, -1).mean(2)
        return self.last(torch.nn.functional.gelu(self.head(x)))


def main(folder):
    torch.manual_seed(0)
    version = torch.__version__.split("+")[0]
    module = Network()
    module.train()(torch.randn(8, 3, 9, 9))  # so that the batch norm has statistics of its own
    module.eval()
    x = torch.randn(2, 3, 9, 7)
    name = "pytorch_" + version.replace(".", "_")
    axes = {"x": {0: "batch", 2: "h", 3: "w"}, "y": {0: "batch"}}
    torch.onnx.export(
        module, (x,), str(folder / (name + ".onnx")), opset_version=OPSETS[version],
        input_names=["x"], output_names=["y"], dynamic_axes=axes,
    )  # fmt: skip
    np.savez(folder / (name + ".npz"), x=x.numpy(), y=module(x).detach().numpy())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
