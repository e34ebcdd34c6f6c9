"""Modules that more than one file of tests is about, as Python beside a case, with their cases."""

SCRATCH = """
import torch

class Scratch(torch.nn.Module):
    '''Returns the same memory in each call of the same shape.'''

    def __init__(self):
        super().__init__()
        self.memory = {}

    def forward(self, x):
        if torch.jit.is_tracing():
            return x * 2 + 1
        out = self.memory.setdefault((x.shape, x.dtype), torch.empty_like(x))
        return torch.add(x * 2, 1, out=out)
"""
SCRATCH_CASE = """
module: beside.Scratch
inputs: {x: "float32[n, 6]"}
dims: {n: 2..3}
export: {torchscript: [17]}
"""
