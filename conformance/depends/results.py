"""Results that are kept with what they depend on, and given again only where all of that is as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.depends.contents import of_text
from conformance.depends.observed import Now, Observed
from conformance.disk.values import KeptValues
from conformance.plan.cell import Cell

VARIANTS = 4
"""Results that are kept under one key: a file that is edited to and fro finds the result of each of its states."""


@dataclass(frozen=True)
class Kept:
    """A value as it was kept, and what it depends on."""

    value: Any
    observed: Observed


class Results:
    """Values of JSON by what was stated; each holds as long as what was observed does."""

    def __init__(self, folder: Path | None, home: Path) -> None:
        """``home`` is the folder of the case. Without a folder nothing is kept."""
        self._values, self._now = KeptValues(folder), Now(home)

    def get(self, key: str) -> Kept | None:
        """Return the newest value under the key that holds now; None where there is none."""
        for observed, value in self._variants(key):
            try:
                known = Observed.from_dict(observed)
            except (TypeError, ValueError, AttributeError):
                continue
            if known.holds(self._now):
                return Kept(value, known)
        return None

    def put(self, key: str, value: Any, observed: Observed) -> None:
        """Keep a value, but none that depends on what is another at each run."""
        if observed.fleeting:
            return
        told = observed.as_dict()
        others = [entry for entry in self._variants(key) if entry[0] != told]
        self._values.put(key, [[told, value], *others][:VARIANTS])

    def _variants(self, key: str) -> list[tuple[Any, Any]]:
        known = self._values.get(key)
        if not isinstance(known, list):
            return []
        return [(entry[0], entry[1]) for entry in known if isinstance(entry, list) and len(entry) == 2]


@dataclass(frozen=True)
class Keeping:
    """How the results of a cell are kept: where, and what they depend on."""

    home: Path
    """The folder of the case."""
    observe: Callable[[], Observed | None]
    """What the case has used so far; None where that is not observed."""
    note: Callable[[Observed], None]
    """Takes what a result depends on that was taken from an earlier run."""

    def kept(self, folder: Path | None, key: str, make: Callable[[], Mapping[str, Any]]) -> Any:
        """Return what lies under the key, or what ``make`` gives, which then lies there if it may be kept."""
        results = Results(folder, self.home)
        known = self.get(folder, key)
        if isinstance(known, dict):
            return known
        made = make()
        observed = self.observe()
        if observed is not None:
            results.put(key, made, observed)
        return made

    def get(self, folder: Path | None, key: str) -> Any:
        """Return what lies under the key and holds; None where nothing does."""
        known = Results(folder, self.home).get(key)
        if known is None:
            return None
        self.note(known.observed)
        return known.value

    def put(self, folder: Path | None, key: str, value: Any) -> None:
        """Keep a value, if what it depends on is observed and lasts."""
        observed = self.observe()
        if observed is not None:
            Results(folder, self.home).put(key, value, observed)


def note_last(folder: Path | None, cell: Cell, observed: Mapping[str, Any]) -> None:
    """Keep what a cell used in its last run, for whoever selects cells by that."""
    KeptValues(folder).put(_last_key(cell), observed)


def last(folder: Path, cell: Cell) -> Observed | None:
    """Return what a cell used in its last run; None where no run has seen it."""
    try:
        known = KeptValues(folder).get(_last_key(cell))
        return None if known is None else Observed.from_dict(known)
    except (TypeError, ValueError, AttributeError):
        return None


def _last_key(cell: Cell) -> str:
    return of_text(f"last {cell.case.file.resolve()} {cell.id}")
