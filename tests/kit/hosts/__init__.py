"""Other processors than this host's: a process from which everything newer than AVX2 is hidden.

Neither ONNX Runtime nor MLAS has a switch that limits instruction sets (oneDNN and PyTorch have theirs), so that the
instruction CPUID itself is made to answer otherwise. That takes Linux on an x86-64 processor that can fault on CPUID.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from pathlib import Path

from conformance.results.records.processor import INSTRUCTIONS

HIDDEN = tuple(word for word in INSTRUCTIONS if re.match("avx512|avx_vnni|amx", word))


class CannotHide(Exception):
    """Cause: no C compiler, another system than Linux on x86-64, or a processor or hypervisor without CPUID faulting.
    Remedy: none on this host; ``tests/hosts/lacks_vnni`` has a run that was recorded with it."""


@functools.cache
def _library() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hosts-"))
    library = folder / "hide.so"
    source = Path(__file__).with_name("hide.c")
    try:
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"],
            check=True,
            capture_output=True,
        )
        status = subprocess.run(["true"], env={**os.environ, "LD_PRELOAD": str(library)}, check=False).returncode
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotHide(f"tests/kit/hosts/hide.c cannot be compiled: {error}") from None
    if status:
        raise CannotHide("the processor or its hypervisor does not let CPUID fault")
    return library


def avx2_only() -> dict[str, str]:
    """Environment variables with which a process and all that it starts see a processor with AVX2 and nothing newer.

    Raises CannotHide where this host cannot do that.
    """
    library = _library()
    told = library.with_name("cpuinfo")
    lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    told.write_text("\n".join(map(_older, lines)) + "\n", encoding="ascii")
    return {"LD_PRELOAD": str(library), "HIDE_CPUINFO": str(told)}


def _older(line: str) -> str:
    name, colon, rest = line.partition(":")
    if name.strip() != "flags":
        return line
    flags = [flag for flag in rest.split() if not flag.startswith(("avx512", "avx_vnni", "amx"))]
    return f"{name}{colon} {' '.join(flags)}"
