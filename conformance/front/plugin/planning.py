"""Choose the cells of a session: cases, options, changes, and the shard."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.case.samples.told import notes as left_out_samples
from conformance.front.plugin.options import refusing
from conformance.process.errors import CaseFileError

if TYPE_CHECKING:
    from conformance.case.plan.catalogue import Selection
    from conformance.case.plan.cell import Cell
    from conformance.front.plugin.options import Options
    from conformance.front.plugin.saying import Saying
    from conformance.models.kept.changed import Changes


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


class Planning:
    """The cells and case files of a session, read when the first suite test asks for them."""

    def __init__(self, options: Options, saying: Saying, before: Callable[[], None]) -> None:
        """``before`` is called once the suite turns out to be collected, before cases are read."""
        self._options, self._saying, self._before = options, saying, before
        self._plan: tuple[list[Cell], dict[str, CaseFileError | None]] | None = None
        self._by_id: dict[str, Cell] | None = None
        self._cut: dict[str, object] | None = None
        self.collected = False
        """Whether the suite is part of this session."""
        self.twice = 0
        """Tests that somebody collected once more, and that are run once."""
        self._changes: Changes | None = None
        self._considered = 0

    def __call__(self) -> tuple[list[Cell], dict[str, CaseFileError | None]]:
        """All selected cells, and every case file with what is wrong with it."""
        if self._plan is None:
            self.collected = True
            self._before()
            from conformance.case.plan.catalogue import read_suite

            selection = self._options.selection()
            with self._saying("reading the case files"):
                cells, files = read_suite(self._options.case_paths(), selection)
            self._plan = self._of_shard(self._of_changes(cells, selection), files), files
        return self._plan

    def mistakes(self, item: pytest.Item) -> CaseFileError | None:
        """Return what is wrong with the case file that a test reads; None of others."""
        callspec = getattr(item, "callspec", None)
        return self()[1].get(callspec.params.get("case_file")) if callspec else None

    def named(self, id: str) -> Cell | None:
        """The selected cell of that id. Any number may be asked for, as where all processes of xdist end."""
        if self._by_id is None:
            self._by_id = {cell.id: cell for cell in self()[0]}
        return self._by_id.get(id)

    def _of_changes(self, cells: list[Cell], selection: Selection) -> list[Cell]:
        revision = self._options["changed_since"]
        if revision is None:
            return cells
        from conformance.models.kept.changed import changed_since

        with refusing(f"--changed-since {revision}: "), self._saying(f"finding what differs from {revision}"):
            paths, last = self._options.case_paths(), self._options.last_runs(cells)
            self._changes = changed_since(revision, paths, cells, selection, last)
        self._considered = len(cells)
        return [cell for cell in cells if cell.id in self._changes.reasons]

    def _of_shard(self, cells: list[Cell], files: Iterable[str]) -> list[Cell]:
        if self._options["shard"] is None:
            return cells
        from conformance.results.baseline.shards import cut, parse_shard, shard

        ids = [cell.id for cell in cells]
        index, count = parse_shard(self._options["shard"])
        seconds = self._durations(ids)
        kept = shard(ids, index, count, seconds)
        said = hashlib.sha256()
        for file in sorted(files):
            said.update(_content(self._options.folder / file))
        told = {"count": count, "cells": len(ids), "cut": cut(ids, count, seconds)}
        self._cut = {**told, "files": said.hexdigest()[:32]}
        return [cell for cell in cells if cell.id in kept]

    def _durations(self, ids: list[str]) -> dict[str, float] | None:
        """Read how long the cells took in the run that shards are cut by.

        None where they are cut by names. UsageError for a run without any of the cells: a shard that is cut by names
        does not belong to those cut by durations.
        """
        given = self._options["shard_durations"]
        if given is None:
            return None
        from conformance.results.records.durations import durations

        found = durations(self._options.folder / str(given), set(ids))
        if ids and not found:
            raise pytest.UsageError(f"--shard-durations {given}: there are no durations of these cells")
        return found

    def cut(self) -> dict[str, object] | None:
        """Return what the header of a shard says of how it was cut.

        Shards that do not belong together are told by it; None for a run that is none. Reads the cases where only
        processes of xdist have.
        """
        if self._options["shard"] is None:
            return None
        self()
        return self._cut

    def lines(self) -> Iterator[str]:
        """Tell of tests that came twice, of samples that are no cases, and what --changed-since chose.

        Reads the cases where only processes of xdist have.
        """
        if self.twice:
            yield (
                f"{self.twice} test{'s were' if self.twice > 1 else ' was'} collected more than once and run once: "
                "look at pytest_collection_modifyitems in conftest.py, or in a plugin"
            )
        self()
        yield from left_out_samples()
        if self._changes is not None:
            yield from self._changes.lines(self._considered)

    def may_be_empty(self) -> bool:
        """Return whether a session without cells is no oversight.

        A shard may get none, and a change may concern none.
        """
        return any(self._options[name] is not None for name in ("shard", "changed_since"))
