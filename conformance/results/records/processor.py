"""The processor: which instruction sets it has, and conditions on them."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

Instruction: TypeAlias = Literal[
    "avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "f16c", "asimddp", "asimdhp", "i8mm", "sve",
]  # fmt: skip
"""Instruction sets by which libraries choose the kernels that compute int8, fp16 and sums, as Linux spells them:
those of x86-64, then those of arm64."""

INSTRUCTIONS: tuple[str, ...] = get_args(Instruction)


def cpu() -> dict[str, Any]:
    """The processor's ``name`` and those of ``INSTRUCTIONS`` that it has; none where Linux does not tell."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return {"name": platform.processor(), "instructions": []}
    lines = dict(line.split(":", 1) for line in file.read_text(errors="replace").splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return {
        "name": fields.get("model name", platform.machine()),
        "instructions": [word for word in INSTRUCTIONS if word in flags],
    }


@cache
def instructions() -> frozenset[str]:
    """The instruction sets of this host's processor."""
    return frozenset(cpu()["instructions"])


def is_of_kind(kind: Mapping[str, Sequence[str]], instructions: Collection[str]) -> bool:
    """Return whether a processor with these instruction sets has one of those under ``has`` (if any are named) and
    none of those under ``lacks``."""
    has, lacks = kind.get("has") or (), kind.get("lacks") or ()
    return (not has or any(word in instructions for word in has)) and not any(word in instructions for word in lacks)
