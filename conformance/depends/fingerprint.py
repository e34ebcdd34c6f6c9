"""What a cell depends on, as one hash: where it is the same, so is the verdict. Needs no torch."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from conformance.case.declaration import Case
from conformance.case.words import Exporter
from conformance.depends.files import needs
from conformance.plan.cell import Cell
from conformance.records.environment import code, versions
from conformance.records.processor import cpu


class Fingerprints:
    """Fingerprints of the cells of one run; files are read once for each case and exporter."""

    def __init__(self, settings: Mapping[str, object], of: str | None = None) -> None:
        """``settings`` are those of the run that decide what a cell does, such as ``examples``; ``of`` is what
        ``host`` said on the host that runs the cells, None for this one."""
        self._run = f"{sorted(settings.items())} {host() if of is None else of}".encode()
        self._cases: dict[tuple[Path, str, Exporter], bytes | None] = {}

    def __call__(self, cell: Cell) -> str | None:
        """The fingerprint; None where a file that the cell depends on cannot be read, so that there is none."""
        name = (cell.case.file, cell.case.name, cell.exporter)
        if name not in self._cases:
            self._cases[name] = _case(cell.case, cell.exporter)
        case = self._cases[name]
        return None if case is None else hashlib.sha256(cell.id.encode() + case + self._run).hexdigest()[:32]

    def forget(self, cell: Cell) -> None:
        """Has the files of a cell's case be read again, for its exporter."""
        self._cases.pop((cell.case.file, cell.case.name, cell.exporter), None)


def _case(case: Case, exporter: Exporter) -> bytes | None:
    """What the case says, and the contents of its files that matter to an exporter's cells."""
    try:
        digest = hashlib.sha256(case.says.model_dump_json(fallback=str).encode())
        digest.update(repr(sorted(case.arguments.items(), key=str)).encode())
        digest.update(needs(case, exporter=exporter).digest())
    except Exception:  # not only Stopped: it may be a folder, unreadable, or Python that cannot be parsed
        return None
    return digest.digest()


@cache
def host() -> str:
    """This package's own code, the versions of what it uses, and the processor, whose kernels differ."""
    dynamo = os.environ.get("CONFORMANCE_DYNAMO_CACHE", "")
    return f"{code()} {versions()} {platform.python_version()} {platform.platform()} {cpu()} {dynamo}"
