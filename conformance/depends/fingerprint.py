"""What a result depends on before anything of the case has run, as one hash. Needs no torch.

``stated`` is what the case file says; ``suite`` is this package with all that it runs on. What a cell uses besides is
observed (``depends.observed``).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from conformance.case.declaration import Case
from conformance.case.words import Exporter
from conformance.depends.packages import base, of_start
from conformance.plan.cell import Cell
from conformance.records.environment import code, versions
from conformance.records.processor import cpu
from conformance.worker import uses

VARIABLES = (
    "TORCH", "PYTORCH", "ATEN_", "ORT_", "ONNX", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_",
    "CUDA", "CUDNN_", "CUBLAS_", "NVIDIA_", "TENSORRT", "TRT_", "OPENVINO_", "OV_", "CONFORMANCE_", "LC_",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONOPTIMIZE",
    "PYTHONNOUSERSITE", "PYTHONPATH",
)  # fmt: skip
"""How the names begin of variables that are part of every result: those of PyTorch, the runtimes and Python."""
EXACT = frozenset({"LANG", "LANGUAGE", "TZ"})


class Fingerprints:
    """Fingerprints of the cells of one run; each case and exporter is looked at once."""

    def __init__(self, settings: Mapping[str, object], of: str | None = None) -> None:
        """``settings`` are those of the run that decide what a cell does, such as ``examples``; ``of`` is what
        ``host`` said on the host that runs the cells, None for this one."""
        self._run = f"{sorted(settings.items())} {host() if of is None else of}".encode()
        self._cases: dict[tuple[Path, str, Exporter], bytes] = {}

    def __call__(self, cell: Cell) -> str:
        """Return the fingerprint of a cell."""
        name = (cell.case.file, cell.case.name, cell.exporter)
        if name not in self._cases:
            self._cases[name] = stated(cell.case)
        return hashlib.sha256(cell.id.encode() + self._cases[name] + self._run).hexdigest()[:32]

    def forget(self, cell: Cell) -> None:
        """Have a cell's case be looked at again, for its exporter."""
        self._cases.pop((cell.case.file, cell.case.name, cell.exporter), None)


def stated(case: Case) -> bytes:
    """Return a hash of all that a case says."""
    digest = hashlib.sha256(case.says.model_dump_json(fallback=str).encode())
    digest.update(repr(sorted(case.arguments.items(), key=str)).encode())
    return digest.digest()


def suite() -> str:
    """Return a hash of all that every result depends on: all of this package's source, the installed packages that
    each cell uses, Python, the platform, and the variables of these."""
    return _suite(tuple(_variables()))


@lru_cache(maxsize=8)
def _suite(variables: tuple[tuple[str, str], ...]) -> str:
    parts = [code(), versions(), dict(base()), of_start(), platform.python_version(), platform.platform(), variables]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _variables() -> Iterator[tuple[str, str]]:
    """The variables that libraries read, as they were before libraries set their own."""
    found = uses.variables_at_first if uses.begun() else os.environ
    for name, value in sorted(dict(found).items()):
        if name.startswith(VARIABLES) or name in EXACT:
            yield name, value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def host(of: str | None = None) -> str:
    """Return what every result on this host depends on: ``suite``, which may be given, the processor, whose kernels
    differ, and the time zone, which code reads without a call that could be observed."""
    zone = [*time.tzname, time.timezone, time.altzone]  # not the offset of today, which changes twice a year
    return f"{of or suite()} {json.dumps(cpu(), sort_keys=True)} {json.dumps(zone)}"
