"""Read what messages of PyTorch, exporters and runtimes name, by which findings are told apart.

Such a text is all that another project gives of an error. Whatever takes one apart stands here; the ids of findings
hang on it, and so do committed baselines.
"""

from __future__ import annotations

import re

_OPERATOR = re.compile(r"\b((?:aten|prims|torchvision|onnx|com\.microsoft)::[\w.]+)")
"""How exporters and runtimes name an operator that they stop at."""
_CAUSED_BY = "[Caused by the value"
"""What follows is about a value that the operator takes, and the node that makes it."""
ON_DATA = re.compile(r"data-dependent|GuardOnDataDependent|dynamic control flow", re.I)
"""How exporters name a branch that hangs on values."""
_KERNEL = re.compile(r"implementation for (\w+)\(\d+\)|\b[Oo]p(?:erator)? \(?([A-Z]\w+)\)?")
OF_INPUTS = re.compile(r"\b(?:L|inputs|args|kwargs)\['")
"""The name of an input in a message of torch.export, which then is about what that one module does with it."""


def said(reason: str, error: str) -> str:
    """Return what an exception says, without what differs from cell to cell: who passes it on, at which sizes,
    where."""
    said = reason.rpartition(", caused by ")[2] if ", caused by " in reason else reason
    said = f"{error}: {said.partition(f'{error}: ')[2]}" if f"{error}: " in said else said
    said = re.sub(r" \([\w.-]+\.py:\d+\)$", "", said)
    return without_numbers(re.sub(r"/tmp/[^\s'\"]+|\b[su]\d+\b", "#", said))[:SAID]


SAID = 120
"""Characters of what an exception says by which findings are told apart."""


def operator_in(reason: str) -> str | None:
    reason = reason.partition(_CAUSED_BY)[0]
    match = _OPERATOR.search(reason)
    if match:
        return match[1].rstrip(".")
    match = _KERNEL.search(reason)
    return None if match is None else match[1] or match[2]


def without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "#", text)
