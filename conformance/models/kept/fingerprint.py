"""Hash what a result depends on before anything of the case has run. Needs no torch.

``stated`` is what the case file says; ``suite`` is this package with all that it runs on, and ``conditions`` the same
one by one. What a cell uses besides is observed (``models.kept.observed_dependencies``).
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

from conformance.case.files.declaration import Case
from conformance.case.plan.cell import Cell
from conformance.models.kept.contents import of_text
from conformance.models.kept.inventory import texts
from conformance.models.kept.packages import base, canonical, of_start
from conformance.process.worker import uses
from conformance.results.records.environment import code, versions
from conformance.results.records.processor import cpu
from conformance.results.records.words import Exporter

VARIABLES = (
    "TORCH", "PYTORCH", "ATEN_", "ORT_", "ONNX", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_",
    "CUDA", "CUDNN_", "CUBLAS_", "NVIDIA_", "TENSORRT", "TRT_", "OPENVINO_", "OV_", "CONFORMANCE_", "LC_",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONOPTIMIZE", "PYTHONNOUSERSITE",
    "PYTHONPATH",
)  # fmt: skip
"""How the names begin of variables that are part of every result: those of PyTorch, the runtimes and Python."""
EXACT = frozenset({"LANG", "LANGUAGE", "TZ"})
OWN_CODE = "this package's own code"
PROCESSOR = "the processor"
ZONE = "the time zone"
UNKNOWN = "the packages, this package's own code, their variables or the processor changed"
"""What is said of conditions of which only the hash is known."""


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
    return hashlib.sha256(json.dumps(_parts(variables), sort_keys=True).encode()).hexdigest()[:32]


def _parts(variables: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """By name, what ``suite`` is a hash of."""
    installed = {canonical(name): str(version) for name, version in versions().items() if version is not None}
    return {
        OWN_CODE: code(),
        "Python": platform.python_version(),
        "the platform": platform.platform(),
        "the code that runs when Python starts": of_start(),
        **{f"the package {name}": state for name, state in (installed | dict(base())).items()},
        **{f"the variable {name}": of_text(value) for name, value in variables},
    }


def _variables() -> Iterator[tuple[str, str]]:
    """The variables that libraries read, as they were before libraries set their own."""
    found = uses.variables_at_first if uses.begun() else os.environ
    for name, value in sorted(dict(found).items()):
        if name.startswith(VARIABLES) or name in EXACT:
            yield name, value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def host(of: str | None = None) -> str:
    """Return what every result on this host depends on: ``suite``, which may be given, the processor, whose kernels
    differ, and the time zone, which code reads without a call that could be observed."""
    return f"{of or suite()} {json.dumps(cpu(), sort_keys=True)} {json.dumps(_zone())}"


def conditions() -> dict[str, str]:
    """Return what ``host`` is a hash of: by name versions, hashes of content and of values."""
    own = {PROCESSOR: of_text(json.dumps(cpu(), sort_keys=True)), ZONE: of_text(json.dumps(_zone()))}
    return {**_parts(tuple(_variables())), **own}


def _zone() -> list[object]:
    """The time zone, but not the offset of today, which changes twice a year."""
    return [*time.tzname, time.timezone, time.altzone]


def conditions_hash(of: str | None = None) -> str:
    """Return a short hash of the conditions on this host; ``of`` is what ``suite`` said, None asks it."""
    return _conditions_hash(of or suite())


@lru_cache(maxsize=8)
def _conditions_hash(of: str) -> str:
    return of_text(host(of))


def changes(was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield which conditions are not as they were, one line each; variables come last."""
    for name in sorted(was.keys() | now.keys(), key=lambda name: (name.startswith("the variable "), name)):
        yield from change(name, was.get(name), now.get(name))


def change(name: str, was: str | None, now: str | None) -> Iterator[str]:
    """Yield in a line how a condition changed, if it did; None where it is not there."""
    if was == now:
        return
    if was is None or now is None:
        yield f"{name} {'is new' if was is None else 'is gone'}"
    elif name == "Python" or name.startswith("the package "):
        versions_then_and_now = [text.partition(" ")[0] for text in (was, now)]
        one = len(set(versions_then_and_now)) == 1
        yield f"{name}: {'its files changed' if one else ' -> '.join(versions_then_and_now)}"
    else:
        yield f"{name} changed"


def says(cell: Cell) -> str:
    """Return a short hash of what the case says, as far as it matters to a cell's verdict."""
    return of_text(json.dumps(sorted(texts(cell.case, cell.exporter).items())))
