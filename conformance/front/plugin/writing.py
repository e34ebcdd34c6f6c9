"""The records of a session, written to the run file as they come, and what their whole shows."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from conformance.front.plugin.options import refusing
from conformance.process.errors import display_path, why

if TYPE_CHECKING:
    from conformance.front.plugin.clustered import Clustered
    from conformance.front.plugin.options import Options
    from conformance.results.records.brief import Brief
    from conformance.results.records.record import Record
    from conformance.results.records.run_file import RunWriter


class Writing:
    """Keeps the records where the terminal is, also under xdist, and writes them to the run file."""

    def __init__(
        self, options: Options, cut: Callable[[], dict[str, object] | None], clustered: Clustered | None
    ) -> None:
        """``cut`` tells how a shard was cut."""
        self._options, self._cut, self._clustered = options, cut, clustered
        self._started = time.time()
        self._begun = self._last = 0.0
        """The times at which the first cell could begin, and at which the last record came."""
        self._writer: RunWriter | None = None
        self._unlocked = False
        self.records: list[Brief] = []
        """What is kept of each; the whole ones are in the run file alone."""
        self._at: dict[str, int] = {}
        """The place in ``records`` by cell id."""
        self.trouble: str | None = None
        """Why not all of the run could be written."""

    def begin(self) -> RunWriter:
        """Begin the run file, before the first cell, so that no other run writes there too. A shard without cells
        has one as well, or it would count as missing. UsageError where it cannot be written, or another run does."""
        from conformance.models.kept.fingerprint import conditions
        from conformance.results.records.environment import environment
        from conformance.results.records.run_file import RunWriter

        if self._writer is None:
            started = datetime.datetime.fromtimestamp(self._started, datetime.timezone.utc)
            header: dict[str, Any] = {
                "started": started.isoformat(timespec="seconds"),
                "environment": environment(self._options.flags()),
                "conditions": conditions(),
            }
            if self._clustered is not None:
                header["environment"] |= self._clustered.environment()
            cut = self._cut()
            header |= {"shard": cut} if cut is not None else {}
            with refusing("--report "):
                self._writer = RunWriter(self._options.report, header)
            self._unlocked = not self._writer.locked
            self._begun = self._last = time.time()
        return self._writer

    def add(self, plain: dict[str, object]) -> Record:
        """Write a finished cell down at once, and return its record."""
        from conformance.results.records.brief import brief
        from conformance.results.records.record import Record

        writer, record = self.begin(), Record.from_dict(plain)
        self._at[record.id] = len(self.records)
        self.records.append(brief(record))
        self._last = time.time()
        with contextlib.suppress(OSError):  # tried again with the next record, and told at the end
            writer.add(plain)
        return record

    def replace(self, record: Record) -> None:
        """Write a cell down again, which has an explanation now."""
        from conformance.results.records.brief import brief

        self.records[self._at[record.id]] = brief(record)
        with contextlib.suppress(OSError):  # tried again at the end, and told there
            self.begin().replace(record.as_dict())

    def close(self, *, finished: bool = True) -> None:
        """Close the run file; a run that did not reach its end has no ``run.json``."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        try:
            now = time.time()
            spent = {"before": self._begun - self._started, "after": now - self._last}
            writer.close(now - self._started if finished else None, spent)
        except OSError as error:
            self.trouble = f"{display_path(self._options.report)}: the run is not whole ({why(error)})"

    def notes(self) -> Iterator[str]:
        """Tell what is to be known of the run file besides."""
        if self._unlocked:
            place = display_path(self._options.report)
            yield f"{place}: its file system knows no locks, so that a second run that writes there is not refused"

    def unmet(self) -> frozenset[str]:
        """Return what --require names and no cell that was run is about."""
        run = [record for record in self.records if record.status != "skipped"]
        return self._options.required() - {record.runtime for record in run} - {record.check for record in run}

    def all_skipped(self) -> bool:
        return all(record.status == "skipped" for record in self.records)

    def emptiness(self) -> Iterator[str]:
        """Say why a run in which nothing failed is no success all the same."""
        if self.trouble is not None:
            yield self.trouble
        for runtime in sorted(self.unmet()):
            yield f"--require {runtime}: not one cell of {runtime} was run"
        if self.records and self.all_skipped():
            yield "every cell was skipped: that is not a success"
