"""The records of a session, written to the run file as they come, and what their whole shows."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.plugin.options import Options
    from conformance.records.run_file import RunWriter


class Writing:
    """Keeps the records where the terminal is, also under xdist, and writes them to the run file."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._started = time.time()
        self._writer: RunWriter | None = None
        self.records: list[dict[str, Any]] = []

    def begin(self) -> RunWriter:
        """Begins the run file. A shard without cells has one too, or it would count as missing."""
        from conformance.records.environment import environment
        from conformance.records.run_file import RunWriter

        if self._writer is None:
            report = self._options.report
            (report / "changes.json").unlink(missing_ok=True)
            started = datetime.datetime.fromtimestamp(self._started, datetime.timezone.utc)
            header = {
                "started": started.isoformat(timespec="seconds"),
                "environment": environment(self._options.flags()),
            }
            self._writer = RunWriter(report, header)
        return self._writer

    def add(self, record: dict[str, Any]) -> None:
        """Writes a finished cell down at once."""
        writer = self.begin()
        self.records.append(record)
        writer.add(record)

    def close(self, *, finished: bool = True) -> None:
        """Closes the run file; a run that did not reach its end has no ``run.json``."""
        if self._writer is not None:
            self._writer.close(time.time() - self._started if finished else None)
            self._writer = None

    def unmet(self) -> frozenset[str]:
        """What --require names and no cell that was run is about."""
        run = [record for record in self.records if record["status"] != "skipped"]
        return self._options.required() - {record["runtime"] for record in run} - {record["check"] for record in run}

    def all_skipped(self) -> bool:
        return all(record["status"] == "skipped" for record in self.records)

    def emptiness(self) -> Iterator[str]:
        """Why a run in which nothing failed is no success all the same."""
        for runtime in sorted(self.unmet()):
            yield f"--require {runtime}: not one cell of {runtime} was run"
        if self.records and self.all_skipped():
            yield "every cell was skipped: that is not a success"
