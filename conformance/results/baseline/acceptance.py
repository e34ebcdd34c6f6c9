"""Accepting changes: single lines of a baseline become what a later run had, with the reason where that is worse."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from conformance.process.errors import UserError, did_you_mean
from conformance.results.baseline.baseline_file import BaselineEntry, head, read, write
from conformance.results.baseline.change import KINDS, Change, Limits, Run, Selected, by_id
from conformance.results.baseline.change_causes import finished, same_processor
from conformance.results.baseline.line import MEASURED, Accepted, Line, compact, dump, expand, part, replaced
from conformance.results.baseline.run_comparison import RunComparison, compare_runs
from conformance.results.records.record import Record
from conformance.results.records.record_types import Header

_NEAR = 5
"""How many ids an error lists."""


def accept(
    baseline_file: Path,
    after_run: Run,
    ids_or_patterns: Sequence[str],
    kinds: Collection[str] | None = None,
    because: str = "",
    *,
    selected: Selected | None = None,
    limits: Limits | None = None,
    environment: bool = False,
) -> list[Change]:
    """Make the baseline agree with the run in the changes that are named, and return these changes.

    Names are ids, or patterns with ``*`` and ``?`` over them; brackets mean themselves, as ids have them. ``kinds``
    keeps only changes of these kinds. A regression needs ``because``, which stays in its line with what the cell was
    before, until the cell works again. All other lines stay as they are, byte by byte. ``selected`` and ``limits``
    are those of ``compare_runs``; with ``environment`` the first line becomes that of the run. Where there is no file
    yet, all cells of the run are new.

    Raises UserError for a name that matches no change, a kind that is not known, a missing reason, a broken file,
    and where a run that did not finish would make a new baseline, or cells vanish.
    """
    if kinds is not None:
        _check_kinds(kinds)
    if baseline_file.exists():
        first, entries = read(baseline_file)
    else:
        first, entries = dump(head(after_run[0])), []
    lines = {entry.line["id"]: entry.line for entry in entries}
    before: Run = (json.loads(first), [expand(line) for line in lines.values()])
    chosen = _choose(compare_runs(before, after_run, selected=selected, limits=limits), ids_or_patterns, kinds)
    _check_whole(after_run[0], chosen, new=not entries)
    reason = " ".join(because.split())
    _check_reason(chosen, reason)

    accepting = Accepting(RunComparison.of(before[0], after_run[0], limits or Limits()), reason)
    records = by_id(after_run[1], "the run")
    result = {entry.line["id"]: entry for entry in entries}
    for name, of_cell in _by_id(chosen).items():
        line = accepting.line(lines.get(name), records.get(name), of_cell)
        result[name] = BaselineEntry(line, dump(line))
    if environment:
        result = {name: _on(entry, records.get(name), before, after_run) for name, entry in result.items()}
        first = dump(head(after_run[0]))
    write(baseline_file, first, list(result.values()))
    return chosen


class Accepting:
    """Makes the new line of a cell."""

    def __init__(self, comparison: RunComparison, because: str) -> None:
        self._comparison = comparison
        self._because = because

    def line(self, old: Line | None, new: Record | None, accepted: Iterable[Change]) -> Line:
        """``old`` with what was ``accepted`` taken over from ``new``; ``old`` or ``new`` may be missing, not both."""
        made = self._of(new) if old is None else old
        entries: list[Accepted] = list(made.get("accepted", []))
        for change in accepted:
            if change.kind == "acceptance pointless":
                assert old is not None and new is not None
                pointless = [entry for entry in entries if self._comparison.pointless(expand(old), entry, new)]
                entries = [entry for entry in entries if entry not in pointless]
                for entry in pointless:
                    made = self._taken_over(made, new, KINDS[entry["kind"]].family)
                continue
            family = KINDS[change.kind].family
            if old is not None and new is not None:
                made = self._taken_over(made, new, family)
            earlier = [entry for entry in entries if KINDS[entry["kind"]].family == family]
            entries = [entry for entry in entries if entry not in earlier]
            if change.regression:
                again = [
                    entry["was"] for entry in earlier if entry["kind"] == change.kind and self._holds(old, entry, new)
                ]
                was = again[0] if again else None if old is None else part(old, family)
                entries.append({"kind": change.kind, "because": self._because, "was": was})
        rest = {name: value for name, value in made.items() if name != "accepted"}
        return {**rest, "accepted": entries} if entries else rest

    def _holds(self, old: Line | None, entry: Accepted, new: Record | None) -> bool:
        """Return whether the cell is still worse than before ``entry`` was accepted."""
        return old is not None and new is not None and self._comparison.held(expand(old), entry, new) is not None

    def _of(self, record: Record | None) -> Line:
        """The line of a cell of the run, without its latency where the baseline was made on another processor."""
        assert record is not None
        line = compact(record)
        return line if self._comparison.same_processor else replaced(line, "latency", {})

    def _taken_over(self, line: Line, record: Record, family: str) -> Line:
        """The line with the fields of a family as the run has them; with a status goes what only a pass measures."""
        fresh = self._of(record)
        families = [family, *MEASURED] if family == "status" else [family]
        if family == "status" and ("graph" in fresh) != ("graph" in line):  # exported now, or no longer
            families.append("graph")
        for name in families:
            line = replaced(line, name, part(fresh, name))
        return line


def _on(entry: BaselineEntry, record: Record | None, before: Run, after: Run) -> BaselineEntry:
    """The entry with the latency that the run measured, where that was on another processor than the baseline."""
    if same_processor(before[0], after[0]):
        return entry
    fresh = compact(record) if record is not None else {}
    line = replaced(entry.line, "latency", part(fresh, "latency"))
    return entry if line == entry.line else BaselineEntry(line, dump(line))


def _choose(all_changes: Sequence[Change], names: Sequence[str], kinds: Collection[str] | None) -> list[Change]:
    """The changes that are named, each once; UserError for a name that matches none."""
    chosen: list[Change] = []
    taken: dict[str, list[Change]] = {}
    known = _by_id(all_changes) if any(map(_is_id, names)) else {}
    for name in names:
        here = (
            known.get(name, []) if _is_id(name) else [change for change in all_changes if _matches(change.id, name)]
        )
        wanted = [change for change in here if not change.accepted and (kinds is None or change.kind in kinds)]
        if not wanted:
            raise UserError(_nothing(name, here, all_changes, kinds))
        for change in wanted:
            of_cell = taken.setdefault(change.id, [])
            if change not in of_cell:
                of_cell.append(change)
                chosen.append(change)
    if not names:
        raise UserError("name what to accept: ids, or patterns such as '*asinh*'")
    return chosen


def _by_id(changes: Iterable[Change]) -> dict[str, list[Change]]:
    by_id: dict[str, list[Change]] = {}
    for change in changes:
        by_id.setdefault(change.id, []).append(change)
    return by_id


def _is_id(pattern: str) -> bool:
    """Return whether the pattern matches itself alone."""
    return not {*pattern} & {*"*?"}


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _nothing(name: str, here: Sequence[Change], all_changes: Sequence[Change], kinds: Collection[str] | None) -> str:
    """Say why ``name`` names nothing to accept; ``here`` are the changes that it matches."""
    waiting = list(dict.fromkeys(change.id for change in all_changes if not change.accepted))
    if here and all(change.accepted for change in here):
        return f"'{name}': is accepted already"
    if here and kinds is not None:
        have = ", ".join(sorted({change.kind for change in here if not change.accepted}))
        return f"'{name}': has no change of kind {', '.join(sorted(kinds))}, but: {have}"
    if not waiting:
        return f"'{name}': nothing differs from the baseline that is not accepted already"
    return f"'{name}': matches no change{_near(name, waiting)}"


def _near(name: str, ids: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, ids, n=_NEAR, cutoff=0.5)
    if not near:
        words = [word for word in name.replace("[", "*").split("*") if len(word) > 2]
        near = [cell for cell in ids if any(word in cell for word in words)][:_NEAR]
    listed = "".join(f"\n  {cell}" for cell in near or ids[:_NEAR])
    return f"; {'near it' if near else 'what changed'}:{listed}"


def _check_kinds(kinds: Collection[str]) -> None:
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"there is no kind '{kind}'{did_you_mean(kind, KINDS)}")


def _check_whole(header: Header, chosen: Sequence[Change], *, new: bool) -> None:
    if finished(header):
        return
    if new:
        raise UserError("the run did not finish: a baseline made from it would never miss the other cells")
    gone = [change.id for change in chosen if change.kind == "vanished"]
    if gone:
        raise UserError(f"{gone[0]}: the run did not finish, so that nothing says that the cell is gone")


def _check_reason(chosen: Sequence[Change], because: str) -> None:
    regressions = [change for change in chosen if change.regression]
    if regressions and not because:
        first = regressions[0]
        more = f" and {len(regressions) - 1} more" if len(regressions) > 1 else ""
        raise UserError(f"{first.id} ({first.kind}){more}: a regression needs a reason: --because")
