"""Results that are kept with what they depend on, and given again only where all of that is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.case.plan.cell import Cell
from conformance.models.kept.contents import of_text
from conformance.models.kept.fingerprint import UNKNOWN, changes, conditions, conditions_hash, says
from conformance.models.kept.observed_dependencies import Now, Observed
from conformance.process.disk.value_store import KeptValues

VARIANTS = 4
"""Results that are kept under one key: a file that is edited to and fro finds the result of each of its states."""


@dataclass(frozen=True)
class Kept:
    """A value as it was kept, and what it depends on."""

    value: object
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

    def put(self, key: str, value: object, observed: Observed) -> None:
        """Keep a value, but none that depends on what is another at each run, or was changed meanwhile."""
        if not observed.lasts:
            return
        told = observed.as_dict()
        others = [entry for entry in self._variants(key) if entry[0] != told]
        self._values.put(key, [[told, value], *others][:VARIANTS])

    def _variants(self, key: str) -> list[tuple[object, object]]:
        known = self._values.get(key)
        if not isinstance(known, list):
            return []
        return [(entry[0], entry[1]) for entry in known if isinstance(entry, list) and len(entry) == 2]


@dataclass(frozen=True)
class Keeping:
    """A way to keep the results of a cell: where, and with what they depend on."""

    home: Path
    """The folder of the case."""
    observe: Callable[[], Observed | None]
    """What the case has used so far; None where that is not observed."""
    note: Callable[[Observed], None]
    """Takes what a result depends on that was taken from an earlier run."""

    def kept(self, folder: Path | None, key: str, make: Callable[[], Mapping[str, object]]) -> Any:
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

    def get(self, folder: Path | None, key: str) -> object:
        """Return what lies under the key and holds; None where nothing does."""
        known = Results(folder, self.home).get(key)
        if known is None:
            return None
        self.note(known.observed)
        return known.value

    def put(self, folder: Path | None, key: str, value: object) -> None:
        """Keep a value, if what it depends on is observed and lasts."""
        observed = self.observe()
        if observed is not None:
            Results(folder, self.home).put(key, value, observed)


@dataclass(frozen=True)
class Last:
    """The facts of a cell's last run."""

    observed: Observed | None
    """What it used; None where that cannot be read."""
    says: str = ""
    """The hash of what the case said."""
    conditions: str = ""
    """The hash of the packages, this package's code, variables and processor that it ran with."""
    were: Mapping[str, str] = field(default_factory=dict)
    """These conditions one by one, where they are known."""

    @classmethod
    def from_dict(cls, depends: Any, were: Mapping[str, str] | None = None) -> Last:
        """Return what ``depends`` of a record says."""
        try:
            says, conditions = str(depends["says"]), str(depends["conditions"])
            return cls(Observed.from_dict(depends), says, conditions, were or {})
        except (TypeError, ValueError, AttributeError, KeyError):
            return cls(None)

    def differences(self, says: str | None, conditions: Mapping[str, str], conditions_hash: str) -> Iterator[str]:
        """Yield what is not as it was, besides what was observed; ``says`` is None where there is no case now."""
        if self.observed is None:
            yield "what its last run used is not known"
            return
        if self.conditions != conditions_hash:
            yield from list(changes(self.were, conditions) if self.were else ()) or [UNKNOWN]
        if says is None:
            yield "the case is gone, or its file has a mistake there"
        elif self.says != says:
            yield "what the case says changed since its last run"


def depends_of(cell: Cell, observed: Observed, suite: str | None) -> Any:
    """Return what the record of a cell has of what its result depends on; ``suite`` as ``fingerprint.suite`` said."""
    return {**observed.as_dict(), "says": says(cell), "conditions": conditions_hash(suite)}


def note_last(folder: Path | None, cell: Cell, depends: Mapping[str, object] | None) -> None:
    """Keep what the last run of a cell depended on, for whoever selects cells by that; None where it is not known."""
    KeptValues(folder).put(_last_key(cell), {} if depends is None else depends)


def note_conditions(folder: Path | None) -> None:
    """Keep the conditions of now one by one, by their hash."""
    KeptValues(folder).put(_conditions_key(conditions_hash()), conditions())


def last(folder: Path, cell: Cell) -> Last | None:
    """Return what is known of a cell's last run; None where no run has seen it."""
    values, key = KeptValues(folder), _last_key(cell)
    if not values.has(key):
        return None
    known = values.get(key)
    were = values.get(_conditions_key(str(known.get("conditions")))) if isinstance(known, dict) else None
    return Last.from_dict(known, were if isinstance(were, dict) else None)


def _last_key(cell: Cell) -> str:
    return of_text(f"last {cell.case.file.resolve()} {cell.id}")


def _conditions_key(digest: str) -> str:
    return of_text(f"conditions {digest}")
