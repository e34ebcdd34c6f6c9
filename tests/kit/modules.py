"""Modules that more than one file of tests is about, as Python beside a case, with their cases."""


def net_of(expression: str, *statements: str, takes: str = "x", **layers: str) -> str:
    """Return Python with a module ``Net`` of these layers; its forward of what it takes returns the expression.

    The statements come before it.
    """
    made = "\n".join(f"        self.{name} = torch.nn.{layer}" for name, layer in layers.items())
    lines = "\n".join(f"        {line}" for line in (*statements, f"return {expression}"))
    return f"""
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
{made}
    def forward(self, {takes}):
{lines}
"""


SCRATCH = """
import torch
MEMORY = {}
class Scratch(torch.nn.Module):
    '''Returns the same memory in each call of the same shape, which is none of the module's own.'''
    def forward(self, x):
        if torch.jit.is_tracing():
            return x * 2 + 1
        out = MEMORY.setdefault((x.shape, x.dtype), torch.empty_like(x))
        return torch.add(x * 2, 1, out=out)
"""
SCRATCH_CASE = """
module: beside.Scratch
inputs: {x: "float32[n, 6]"}
dims: {n: 2..3}
export: {torchscript: [17]}
"""

RELU_WITHOUT_NAN = """
import torch
def symbolic(g, x):
    zero = g.op("Constant", value_t=torch.tensor(0.0))
    return g.op("Where", g.op("Greater", x, zero), x, zero)
"""
"""A symbolic of relu that makes zero of NaN."""
