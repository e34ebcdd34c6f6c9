"""The reds that somebody has looked at by hand, ``looked_at.yaml``, held against those of a run."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.common import process_ended
from evidence.accusations.run import Red

FILE = Path(__file__).with_suffix(".yaml")
VERDICTS = ("real", "false")
Verdict = Literal["real", "false", "not looked at"]
_NEEDED = {"modules", "error", "fault", "verdict", "shown"}
_NARROWING = {"exporter", "runtime", "check", "reason"}


@dataclass(frozen=True)
class Entry:
    """What somebody found out about reds of one kind; a red of another error or blame is another red."""

    modules: tuple[str, ...]
    """Names of modules, with ``*`` for many."""
    errors: tuple[str, ...]
    fault: str | None
    """Who is blamed; None where the record leaves it open."""
    verdict: Verdict
    """``real``: what the record says is so. ``false``: it is not, or another one is to blame."""
    shown: str
    """The fact, and how it was shown without the suite."""
    exporter: str | None = None
    runtime: str | None = None
    check: str | None = None
    """Where None, of any."""
    reason: str | None = None
    """A part of the record's reason, where the error alone is not enough."""

    @property
    def group(self) -> str:
        """The group whose modules it names; those of ``open`` have that in their names."""
        return "open" if "_open_" in self.modules[0] else "usual"

    def about(self, red: Red) -> bool:
        narrow = ((self.exporter, red.exporter), (self.runtime, red.runtime), (self.check, red.check))
        return (
            red.error in self.errors
            and self.fault == red.fault
            and all(wanted in (None, value) for wanted, value in narrow)
            and (self.reason is None or self.reason in f"{red.reason}")
            and any(fnmatch.fnmatchcase(red.module, name) for name in self.modules)
        )


def read(group: str, file: Path = FILE) -> list[Entry]:
    """Return the entries about a group; ValueError for one that does not say all it has to."""
    from ruamel.yaml import YAML

    entries = [_entry(said, number) for number, said in enumerate(YAML(typ="safe").load(file) or [], 1)]
    return [entry for entry in entries if entry.group == group]


def _entry(said: dict[str, Any], number: int) -> Entry:
    missing, unknown = _NEEDED - said.keys(), said.keys() - _NEEDED - _NARROWING
    if missing or unknown:
        raise ValueError(f"entry {number}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    if said["verdict"] not in VERDICTS or not said["modules"] or not f"{said['shown']}".strip():
        raise ValueError(f"entry {number}: verdict is {' or '.join(VERDICTS)}, and shown says what was seen")
    modules, errors, shown = _listed(said["modules"]), _listed(said["error"]), " ".join(said["shown"].split())
    narrowing = {name: said[name] for name in _NARROWING & said.keys()}
    return Entry(modules, errors, said["fault"], said["verdict"], shown, **narrowing)


def _listed(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass
class Judged:
    """The reds of a run with what is known of them."""

    reds: list[tuple[Red, Entry | None]]
    ended: list[Red]
    """Those at which a process ended or ran out of time: they are counted, and no entry names them."""
    stale: list[tuple[Entry, list[str]]]
    """Entries with those of their names that no red has any more, of a whole run."""

    def of(self, verdict: Verdict) -> list[Red]:
        return [red for red, entry in self.reds if verdict_of(entry) == verdict]


def verdict_of(entry: Entry | None) -> Verdict:
    return "not looked at" if entry is None else entry.verdict


def judge(reds: Sequence[Red], entries: Sequence[Entry], *, whole: bool) -> Judged:
    """Each red with the first entry about it. A run that is not ``whole`` does not say what is out of date."""
    ended = [red for red in reds if process_ended(red.reason)]
    left = [red for red in reds if not process_ended(red.reason)]
    judged = [(red, next((entry for entry in entries if entry.about(red)), None)) for red in left]
    stale = []
    for entry in entries if whole else ():
        seen = [red.module for red, known in judged if known is entry]
        gone = [name for name in entry.modules if not fnmatch.filter(seen, name)]
        if gone:
            stale.append((entry, gone))
    return Judged(judged, ended, stale)
