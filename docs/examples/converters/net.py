import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(128), nn.Linear(128, 512)
        self.down, self.head = nn.Linear(512, 128), nn.Linear(128, 16)

    def forward(self, x):
        return self.head(x + self.down(nn.functional.gelu(self.up(self.norm(x)))))


torch.manual_seed(0)
net, data, batch = Net().eval(), torch.randn(64, 8, 128), ({0: torch.export.Dim("batch")},)


def export(module, file):
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(module, (data[:2],), file, opset_version=21, dynamic_shapes=batch, external_data=False, **names)


if __name__ == "__main__":
    export(net, "net.onnx")
    np.savez("data.npz", x=data)
