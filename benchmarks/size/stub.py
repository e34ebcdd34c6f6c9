"""A pytest plugin (``-p benchmarks.size.stub``) in whose runs cells cost nothing.

Each gets a copy of the record that the same cell of one real case has had. All around the cell is real: collection,
fingerprints, xdist, run file, matrix.

``SIZE_RECORDS`` names the ``records.jsonl`` of the real case.
"""

from __future__ import annotations

import json
import os
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from conformance.case.plan.cell import Cell
    from conformance.results.records.record import Record

_OWN = ("id", "case", "source", "command", "fingerprint")
"""The fields that are each cell's own, and made as in any run."""


def pytest_configure(config: pytest.Config) -> None:
    """Puts the stub in the place of what runs cells in a worker."""
    import conformance.cells.runner

    del config
    conformance.cells.runner.Runner = Stub  # type: ignore[misc,assignment]


class Stub:
    """Has the place of ``conformance.cells.runner.Runner``."""

    def __init__(self, settings: Any, timeout: float, worker: Any, shown: Any = None) -> None:
        del settings, timeout, worker, shown

    def __call__(self, cell: Cell, on_wait: Any = None, then: Cell | None = None) -> Record:
        """A copy of what the same cell of the real case gave, with an error and durations of its own."""
        del on_wait, then
        record = cell.record()
        values = json.loads(_records()[_kind(record.as_dict())])
        for name in values.keys() - {*_OWN}:
            setattr(record, name, values[name])
        own = zlib.crc32(record.id.encode()) / 2**32  # from 0 to 1, and another number for each cell
        record.seconds = {stage: round(seconds * (0.5 + own), 6) for stage, seconds in record.seconds.items()}
        if record.worst is not None and isinstance(record.worst["ratio"], float):
            record.worst["ratio"] *= 0.5 + own
        return record


@cache
def _records() -> dict[tuple[Any, ...], str]:
    """The records of the real case as they stand in its file, by what tells its cells apart."""
    _, *lines = Path(os.environ["SIZE_RECORDS"]).read_text(encoding="utf-8").splitlines()
    return {_kind(json.loads(line)): line for line in lines}


def _kind(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("check", "exporter", "opset", "runtime", "precision"))
