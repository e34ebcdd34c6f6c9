"""Values on which a conversion is far off excuse no wrong values beside them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kit.cases import PASSED, verdict

WRONG = ("failed", "compare", "WrongValue", "runtime")
BODY = """
module: beside.Beside
inputs: {x: "float32[batch, 64]"}
dims: {batch: 1..4}
precisions: {fp16: {}, int8: {}}
export: {torchscript: [17]}
"""
PYTHON = """
import torch
class Beside(torch.nn.Module):
    # a few values of which the precision leaves nothing, before many that it keeps
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 800)
    def forward(self, x):
        y = self.layer(x)
        return torch.cat([FEW, y], 1)
"""
FEW = {"fp16": "(x[:, :8] + 4096.0) - 4096.0", "int8": "torch.sin(y[:, :8] * 500.0) * 20.0"}


def altered(factor, more):
    """Changes the values that the precision keeps: all by a factor, one of each row by ``more``."""

    def alter(inputs, outputs):
        changed = outputs[0].copy()
        changed[:, 8:] *= np.float32(factor)
        changed[:, 508] += np.float32(more)
        return [changed]

    return alter


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("factor, more", [(1.05, 0), (1, 3)])
def test_a_runtime_that_is_wrong_beside_values_on_which_the_conversion_is_far_off_is_at_fault(
    bench, break_runtime, precision, factor, more
):
    python = PYTHON.replace("FEW", FEW[precision])
    assert verdict(bench.run(BODY, python, precision=precision)) == PASSED
    break_runtime(altered(factor, more))
    assert verdict(bench.run(BODY, python, precision=precision)) == WRONG
