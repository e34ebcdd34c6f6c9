"""Comparing two runs cell by cell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conformance.results.baseline.change import KINDS, Change, Limits, Run, Selected, by_id, number
from conformance.results.baseline.change_causes import (
    Instructions,
    graph_change,
    instructions_of,
    same_exporters,
    same_processor,
    versions_of,
)
from conformance.results.baseline.line import MODEL_CHECKS, Accepted, accepted_of, compact, expand, replaced
from conformance.results.baseline.timing import timing
from conformance.results.records.findings import key_of
from conformance.results.records.host_conditions import Host, is_about
from conformance.results.records.processor import is_of_kind
from conformance.results.records.record import Record
from conformance.results.records.record_types import Cause, Header
from conformance.results.records.text import name_of_finding

_ROUNDING = "another processor, and no more than rounding"
_OPPOSITE = {"status": "newly passing", "accuracy": "accuracy better", "latency": "faster"}
"""By family, the kind of change that says that it got better. Where an acceptance has become pointless that is not
told besides, since the pointless acceptance says it already."""


def compare_runs(
    before: Run,
    after: Run,
    *,
    selected: Selected | None = None,
    limits: Limits | None = None,
) -> list[Change]:
    """All changes from ``before`` to ``after``, by id.

    ``selected`` says which cells of ``before`` the later run was to run (None: all of them); others are not reported
    as vanished. Give a predicate over records rather than the ids that the later run planned: a case that was removed
    is not among these, and would vanish unseen. ``before`` may be a baseline; changes that it has accepted have
    ``accepted`` set, as long as they are still so. Raises UserError where a run has a cell twice.
    """
    old, new = by_id(before[1], "the earlier run"), by_id(after[1], "the later run")
    comparison = RunComparison.of(before[0], after[0], limits or Limits())
    all_changes: list[Change] = []
    for name in sorted({*old, *new}):
        if name in new or _is_selected(selected, old[name]):
            all_changes += comparison.cell(old.get(name), new.get(name))
    return all_changes


def _is_selected(selected: Selected | None, record: Record) -> bool:
    if selected is None:
        return True
    return selected(record) if callable(selected) else record.id in selected


@dataclass(frozen=True)
class RunComparison:
    """Compares two runs cell by cell, as far as the hosts and versions that they were made on allow it."""

    limits: Limits
    same_processor: bool
    same_exporters: bool
    instructions: tuple[Instructions, Instructions] = (None, None)
    """Of the two runs' processors; None where a header does not say."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Of the earlier run's packages."""

    @classmethod
    def of(cls, before: Header, after: Header, limits: Limits) -> RunComparison:
        """From the headers of the two runs."""
        return cls(
            limits,
            same_processor(before, after),
            same_exporters(before, after),
            (instructions_of(before), instructions_of(after)),
            versions_of(before),
        )

    def cell(self, old: Record | None, new: Record | None) -> list[Change]:
        """The changes of one cell, which is in one of the runs or in both; those that are accepted say so."""
        told = list(self._fresh(old, new))
        for entry in accepted_of(old):
            assert old is not None
            kind = entry["kind"]
            if kind == "vanished" and new is None:
                told = [_accepted(change, entry) for change in told]
            elif new is not None and kind not in {change.kind for change in told}:  # else it got worse than accepted
                held = self.held(old, entry, new)
                if held is not None:
                    told.append(held)
                elif self.pointless(old, entry, new):
                    better = _OPPOSITE.get(KINDS[kind].family)
                    told = [change for change in told if change.kind != better]
                    told.append(_pointless(old, entry, new))
        return told

    def pointless(self, old: Record, entry: Accepted, new: Record) -> bool:
        """Return whether what the baseline's cell ``old`` has accepted is gone."""
        kind = entry["kind"]
        if kind == "vanished":
            return True
        fresh = list(self._fresh(_before_accepting(old, entry), new))
        if any(change.kind == kind for change in fresh):
            return False
        if KINDS[kind].family == "status":
            regressions = [change for change in fresh if change.regression and KINDS[change.kind].family == "status"]
            return new.status in ("passed", "xfailed") and not regressions
        comparable = KINDS[kind].family != "latency" or (self.same_processor and timing(new.latency) is not None)
        return new.status == "passed" and comparable

    def held(self, old: Record, entry: Accepted, new: Record) -> Change | None:
        """The change that ``entry`` accepts, marked as accepted, where the run still shows it; None where not."""
        if entry["kind"] == "vanished":
            return None
        for change in self._fresh(_before_accepting(old, entry), new):
            if change.kind == entry["kind"]:
                return _accepted(change, entry)
        return None

    def _fresh(self, old: Record | None, new: Record | None) -> Iterator[Change]:
        """The changes of a cell without regard to what is accepted."""
        if old is None:
            assert new is not None
            yield _added(new)
        elif new is None:
            yield _change("vanished", old, old, old.status, None, f"{_state(old)} before, is not in the later run")
        else:
            yield from (self._told_by_processor(change, new) for change in _status(old, new))
            if old.status == new.status == "passed":
                yield from self._accuracy(old, new)
                yield from self._examples(old, new)
                yield from self._latency(old, new)
            yield from self._graph(old, new)

    def _accuracy(self, old: Record, new: Record) -> Iterator[Change]:
        was, now = _ratio(old), _ratio(new)
        old_sqnr, new_sqnr = _sqnr(old), _sqnr(new)
        if old_sqnr is not None and new_sqnr is not None:
            fell = 0.0 if old_sqnr == new_sqnr else old_sqnr - new_sqnr  # both may be infinite
            values, least = (old_sqnr, new_sqnr), self.limits.decibels
            text = f"SQNR {new_sqnr:.1f} dB, was {old_sqnr:.1f} dB; the error is {_share(now)}"
            worse, better = fell >= least, -fell >= least
        else:
            values, factor = (was, now), self.limits.accuracy_factor
            times = f" ({now / was:.2g} times)" if was > 0 and math.isfinite(now) else ""
            text = f"the error is {_share(now)}, was {was:.2g}{times}"
            worse, better = now > was and now >= factor * was, was > now and was >= factor * now
        if worse and now >= self.limits.accuracy_floor:
            change = _change("accuracy worse", old, new, _plain(values[0]), _plain(values[1]), text)
            yield self._told_by_processor(change, new)
        elif better and was >= self.limits.accuracy_floor:
            yield _change("accuracy better", old, new, _plain(values[0]), _plain(values[1]), text)

    def _told_by_processor(self, change: Change, new: Record) -> Change:
        """Return the change; no regression where the failure is declared for hosts unlike that of the earlier run, or
        the later run's record shows that its processor, which has other instructions, makes the change."""
        before, after = self.instructions
        if not change.regression:
            return change
        host = new.declared_for
        if change.kind == "newly expected to fail" and host and not self._was_about(host):
            why = f"declared for {_describe_host(host)}"
        elif before != after and (cause := _saturates(new, before)) is not None:
            why = f"the processor's, which lacks {' and '.join(cause['lacks'])} (shown by {_name_cause(cause)})"
        elif before != after and change.kind == "accuracy worse" and _is_rounding(new):
            why = _ROUNDING
        else:
            return change
        shared = change.cause or (why if why == _ROUNDING else "")
        return dataclasses.replace(change, regression=False, text=f"{change.text}; {why}", cause=shared)

    def _was_about(self, host: Host) -> bool:
        """Return whether a declaration for some hosts was about that of the earlier run."""
        before = self.instructions[0]
        return is_about(host, before or (), self.versions.get) and (before is not None or "versions" in host)

    def _examples(self, old: Record, new: Record) -> Iterator[Change]:
        was, now = old.examples, new.examples
        left = new.left_out["examples"] if new.left_out else 0  # which hangs on the host's speed
        if now + left < self.limits.examples_factor * was:
            text = f"{now} examples verified, were {was}"
            weak = new.ill_conditioned
            text = f"{text}; {weak} were too ill-conditioned to judge" if weak else text
            yield _change("examples fewer", old, new, was, now, text)

    def _latency(self, old: Record, new: Record) -> Iterator[Change]:
        was, now = timing(old.latency), timing(new.latency)
        if not self.same_processor or was is None or now is None:
            return
        factor, times = self.limits.slower_factor, now.grew(was)
        text = f"median {_ms(now.median)}, was {_ms(was.median)} ({now.median / was.median:.2f} times)"
        if now.other is not None and now.other == was.other and now.other_median and was.other_median:
            text += f"; {now.other} beside it {_ms(now.other_median)}, was {_ms(was.other_median)}"
        if times >= factor and now.low > was.high:  # intervals that overlap support nothing
            yield _change("slower", old, new, was.median, now.median, text)
        elif times * factor <= 1 and now.high < was.low:
            yield _change("faster", old, new, was.median, now.median, text)

    def _graph(self, old: Record, new: Record) -> Iterator[Change]:
        was, now = old.graph, new.graph
        if new.check not in MODEL_CHECKS or was is None or now is None:
            return
        text = graph_change(was, now, by_bytes=self.same_exporters)
        if text is not None:
            yield _change("graph changed", old, new, was, now, text)


# ---- verdicts ------------------------------------------------------------------------------------------


def _added(new: Record) -> Change:
    """The change of a cell that the earlier run did not have; where it fails, it counts as newly failing."""
    if new.status in ("failed", "xpassed"):
        kind = "newly failing" if new.status == "failed" else "xpassed"
        return _change(kind, new, new, None, new.status, f"new, {_state(new)}{_fault(new)}")
    return _change("newly added", new, new, None, new.status, f"new, {_state(new)}")


def _status(old: Record, new: Record) -> Iterator[Change]:
    was, now = old.status, new.status
    text = f"{_state(old)}, now {_state(new)}{_fault(new)}"
    if was == now == "failed":
        if (old.stage, old.error) != (new.stage, new.error):
            change = _change("failing otherwise", old, new, _how(old), _how(new), text)
            accepted = any(KINDS[entry["kind"]].family == "status" for entry in accepted_of(old))
            yield dataclasses.replace(change, regression=accepted)
    elif was == now == "xfailed":
        # a declared failure is explained on demand, so that one of two runs may not know whose fault it is
        faults = {old.fault, new.fault} - {None}
        if len(faults) > 1 or (old.stage, old.error) != (new.stage, new.error):
            yield _change("expected failure changed", old, new, _how(old), _how(new), text)
    elif was != now:
        kind = {
            "failed": "newly failing",
            "xpassed": "xpassed",
            "skipped": "newly skipped",
            "xfailed": "newly expected to fail" if was == "passed" else "expected failure changed",
            "passed": "newly passing",
        }[now]
        change = _change(kind, old, new, was, now, text)
        yield dataclasses.replace(change, regression=change.regression and not _inconclusive(new))


def _saturates(record: Record, before: Instructions) -> Cause | None:
    """Return the cause of a saturation that the record shows to be new with this processor.

    8-bit sums cannot have saturated on the earlier one.
    """
    cause = record.cause
    if cause is None or cause["name"] != "saturation" or before is None:
        return None
    return None if is_of_kind({"lacks": cause["lacks"]}, before) else cause


def _name_cause(cause: Cause) -> str:
    return ", ".join(f"{key}={value}" for key, value in cause["shown_by"].items())


def _is_rounding(record: Record) -> bool:
    """Return whether another order of the same sums explains the worst error."""
    rounding = number(record.worst and record.worst.get("rounding"))
    return rounding is not None and rounding <= 1


def _describe_host(host: Host) -> str:
    parts = (("with", " or ", host.get("has")), ("without", " and ", host.get("lacks")))
    kind = ", ".join(f"{word} {joint.join(names)}" for word, joint, names in parts if names)
    return ", ".join([*([f"processors {kind}"] if kind else []), *(host.get("versions") or ())])


def _inconclusive(record: Record) -> bool:
    """Return whether a budget of time was measured and could not be decided.

    Only ``--require latency`` fails such a cell.
    """
    budgets = (record.latency or {}).get("budgets") or []
    return record.status == "skipped" and any(budget.get("verdict") == "inconclusive" for budget in budgets)


def _state(record: Record) -> str:
    """The verdict in words that follow "is" or "now"; a baseline knows no reasons."""
    status = record.status
    how = ": ".join(str(part) for part in (record.error, record.reason) if part)
    if status == "passed":
        return "passed"
    if status == "skipped":
        return f"skipped ({record.reason})" if record.reason else "skipped"
    if status == "xpassed":
        return "passes though declared to fail"
    declared = " as declared" if status == "xfailed" else ""
    return f"fails{declared} at {record.stage}" + (f" ({how})" if how else "")


def _fault(record: Record) -> str:
    failed = record.status in ("failed", "xfailed")
    return f"; at fault: {record.fault}" if failed and record.fault else ""


def _how(record: Record) -> str:
    words = [record.status, record.stage, record.error, record.fault]
    return " ".join(str(word) for word in words if word)


# ---- what is accepted ----------------------------------------------------------------------------------


def _before_accepting(old: Record, entry: Accepted) -> Record | None:
    """The baseline's cell as it was before ``entry`` was accepted; None where there was no such cell."""
    if entry["was"] is None:
        return None
    line = {name: value for name, value in compact(old).items() if name != "accepted"}
    return expand(replaced(line, KINDS[entry["kind"]].family, entry["was"]))


def _accepted(change: Change, entry: Accepted) -> Change:
    return dataclasses.replace(change, accepted=True, text=f"{change.text}; accepted: {entry['because']}")


def _pointless(old: Record, entry: Accepted, new: Record) -> Change:
    now = {"vanished": "is there again"}.get(entry["kind"], f"is no longer so, now {_state(new)}")
    text = f"was accepted as {entry['kind']} ({entry['because']}), but {now}"
    return _change("acceptance pointless", old, new, entry["kind"], new.status, text)


# ---- values --------------------------------------------------------------------------------------------


def _change(kind: str, old: Record, new: Record, before: object, after: object, text: str) -> Change:
    cause = _cause(old, new, text) if KINDS[kind].family in ("status", "graph") else ""
    return Change(new.id, kind, KINDS[kind].regression, before, after, text, {**new.source}, cause=cause)


def _cause(old: Record, new: Record, text: str) -> str:
    """Return what changed a verdict or a graph: the facts behind declared failures that have gone or come, the
    finding of a red cell, or else what the change itself says."""
    facts = [str(entry["because"]) for entry in new.declared if entry["outcome"] == "works"]
    if facts:
        return "; ".join(dict.fromkeys(facts))
    for record in (new, old):
        if record.status == "xfailed" and record.reason:
            return str(record.reason)
        if record.status == "failed" and record.reason:
            return name_of_finding(key_of(record))
    return text


def _ratio(record: Record) -> float:
    """The largest error of a cell over what is allowed; 0 where a record has none, infinite where it is NaN."""
    ratio = number(record.worst and record.worst["ratio"]) or 0.0
    return math.inf if math.isnan(ratio) else ratio


def _sqnr(record: Record) -> float | None:
    return number((record.fidelity or {}).get("sqnr"))


def _share(ratio: float) -> str:
    return f"{ratio:.2g} of what is allowed"


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
