"""The finished run held against --baseline."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from conformance.process.errors import UserError, display_path, why
from conformance.results.records.sanitize import one_line

if TYPE_CHECKING:
    from conformance.front.plugin.options import Options
    from conformance.results.baseline.change import Change
    from conformance.results.records.record import Record


class Gating:
    """Compare with the baseline at the end of the session."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._notes: list[str] = []
        self._changes: list[Change] = []
        self.earlier: list[tuple[str, Mapping[str, Record]]] = []
        """The baseline's name with its records by id; empty where there is none that can be read."""
        self.regressions = 0
        """How many regressions nobody has accepted."""

    @property
    def asked_for(self) -> bool:
        return self._options["baseline"] is not None

    def compare(self) -> None:
        """Hold the finished run against the baseline; what changed goes into ``changes.json`` beside the run."""
        from conformance.results.baseline.baseline_file import load
        from conformance.results.baseline.change import blocking
        from conformance.results.baseline.change_causes import environment_changes
        from conformance.results.baseline.run_comparison import compare_runs
        from conformance.results.baseline.selection import selection_of
        from conformance.results.records.run_file import CHANGES, read_run

        report = self._options.report
        try:
            before, after = load(self._options.baseline), read_run(report)
        except UserError as error:
            self._notes, self.regressions = [one_line(error)], 1
            return
        selected, note = selection_of(after[0])
        self.earlier = [(display_path(self._options.baseline), {record.id: record for record in before[1]})]
        self._changes = compare_runs(before, after, selected=selected)
        self._notes = [*environment_changes(before, after), *([note] if note else [])]
        self.regressions = len(blocking(self._changes))
        text = json.dumps([change.as_dict() for change in self._changes], indent=1, default=str)
        try:
            (report / CHANGES).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            self._notes.append(f"{display_path(report / CHANGES)}: cannot be written ({why(error)})")
            self.regressions += 1

    def lines(self, width: int) -> Iterator[str]:
        from conformance.results.baseline.summary import lines

        yield from self._notes
        yield from lines(self._changes, width)
