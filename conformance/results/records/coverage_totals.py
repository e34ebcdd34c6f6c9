"""Add up what of the modules of a run shows in their outputs, all cases together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.results.records.sanitize import one_line, shorten


def known(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how many calls are ``seen`` in a record ``of`` how many, with those that show only ``beyond`` the values
    of the case; None where it is not about fp32 or has no calls."""
    told = record.get("coverage")
    if not told or record.get("precision") != "fp32" or not told.get("of"):
        return None
    return {name: told[name] for name in ("seen", "of", "beyond") if told.get(name) is not None}


def unknown(record: Mapping[str, Any]) -> dict[str, str] | None:
    """Say why it is not known what the outputs of a record's module show, where it is about fp32; else None."""
    told = record.get("coverage")
    if not told or record.get("precision") != "fp32" or "unknown" not in told:
        return None
    return {name: told[name] for name in ("unknown", "why") if name in told}


def total(records: Sequence[Mapping[str, Any]]) -> str | None:
    """``1290 of 1300 operator calls of 42 modules show``; None where no record has coverage."""
    cases = _by_case(records)
    if not cases:
        return None
    seen, of = (sum(told[name] for told in cases.values()) for name in ("seen", "of"))
    modules = "1 case" if len(cases) == 1 else f"{len(cases)} cases"
    return f"{seen} of {of} operator calls of {modules} show in their outputs"


def least(records: Sequence[Mapping[str, Any]], most: int = 6) -> Iterator[str]:
    """The cases of which least shows, where not everything does, and those that could not be measured."""
    shares = sorted((told["seen"] / told["of"], case, told) for case, told in _by_case(records).items())
    part = [f"  {share:>6.1%}  {told['seen']} of {told['of']}  {case}" for share, case, told in shares if share < 1]
    head = "calls of PyTorch that could be wrong in an export that passes (seen of all that were asked about):"
    yield from shorten(part, most, _MORE, head)
    yield from _beyond(records, most)
    known = {str(record["case"]): why for record in records if (why := unknown(record)) is not None}
    varies = "two runs on the same values call other operators"
    whys = [f"  {case}: {one_line(why.get('why') or varies, 160)}" for case, why in known.items()]
    yield from shorten(whys, most, _MORE, "it could not be measured which calls show in the outputs of:")


_MORE = "  and {} more cases"


def _beyond(records: Sequence[Mapping[str, Any]], most: int) -> Iterator[str]:
    """The calls that show only beyond the values of their case."""
    told = []
    for case, known in _by_case(records).items():
        if calls := known.get("beyond"):
            places = [f"{call['op']} at {call['at']}" if call.get("at") else str(call["op"]) for call in calls]
            told.append(f"  {case}: {one_line(', '.join(places), 160)}")
    head = "calls of PyTorch that show only beyond the values that the case declares (lower `low`, raise `high`):"
    yield from shorten(told, most, _MORE, head)


def _by_case(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each case what its cells know, which is the same in all of them."""
    cases: dict[str, dict[str, Any]] = {}
    for record in records:
        told = known(record)
        if told is not None:
            cases.setdefault(str(record["case"]), told)
    return cases
