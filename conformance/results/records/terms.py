"""Explain the terms of the field in a short clause, where a text uses them first."""

from __future__ import annotations

import re
from collections.abc import Callable

_TERMS = {
    r"\bSQNR(?: [\d.]+ dB)?": "signal to quantization noise: higher is better",
    r"\bsymbolics?\b(?![.:])": "a function that makes an operator's ONNX nodes",
    r"\bfidelity\b(?!:)": "how close a converted model is to PyTorch",
}
"""The clauses that explain the terms of a block, by where these stand."""
_OPSET = {r"\bopset \d+(?:, \d+)*": "the version of ONNX's operators"}
"""Every block has this one; the first of several explains it."""


def explaining(first: bool) -> Callable[[str], str]:
    """Return what adds a clause to a text for each term that it is the first to use."""
    left = _TERMS | (_OPSET if first else {})

    def explained(text: str) -> str:
        for pattern, clause in [*left.items()]:
            found = re.search(pattern, text)
            if found is not None:
                del left[pattern]
                if not text.startswith(" (", found.end()):
                    text = f"{text[: found.end()]} ({clause}){text[found.end() :]}"
        return text

    return explained
