"""What a user can do about an export or a call that stops, by what it stopped at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_OPERATOR = re.compile(r"\b(aten|prims|torchvision)(?:::|\.)(\w+)|\b(\w+)::(\w+)")
_NO_LOWERING = ("UnsupportedOperatorError", "No ONNX function found", "ONNX export of operator")
_BY_VALUES = (
    "GuardOnDataDependentSymNode", "data-dependent", "Data-dependent", "data dependent",
    "Dynamic control flow is not supported",
)  # fmt: skip
_TOO_LARGE = ("MemoryError", "OutOfMemory", "not enough memory", "can't allocate memory", "bad_alloc")


def advice(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield ways out of what a record stopped at, one line each."""
    said = f"{record.get('error')} {record.get('reason')}"
    if record.get("stage") == "export" and record.get("fault") in ("exporter", None):
        if any(words in said for words in _BY_VALUES):
            yield from _on_values(str(record["exporter"]))
        elif any(words in said for words in _NO_LOWERING):
            yield from _without_lowering(record)
    elif (record.get("operator") or {}).get("how") == "path":
        yield from _on_values(str(record["exporter"]))
    if any(words in said for words in _TOO_LARGE):
        yield "give the dims smaller ranges: what the largest sizes of all of them take together is too much here"


def _on_values(exporter: str) -> Iterator[str]:
    if exporter == "dynamo":
        yield "what forward does depends on values: torch.cond keeps both ways, and so does torch.where or a mask"
    else:
        yield "what forward does depends on values: script: true keeps both ways, and so does torch.where or a mask"


def _without_lowering(record: Mapping[str, Any]) -> Iterator[str]:
    found = _OPERATOR.search(str(record.get("reason")))
    space, name = ("aten", "name") if found is None else (found[1] or found[3], found[2] or found[4])
    if space == "prims":  # which PyTorch has made of another operator, and that is the one to translate
        space, name = "aten", "..."
    key = "symbolics" if record["exporter"] == "torchscript" else "translations"
    said = f'{{{key}: {{"{space}::{name}": beside.function}}}}'
    yield f"to say how it is exported: export: {{{record['exporter']}: {said}}}"
