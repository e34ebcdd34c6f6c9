"""Add up what of the modules of a run shows in their outputs, all cases together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.results.records.brief import Told
from conformance.results.records.record_types import Coverage
from conformance.results.records.sanitize import one_line, shorten


def _of_fp32(record: Told) -> Coverage | None:
    return record.coverage if record.precision == "fp32" else None


def total(records: Sequence[Told]) -> str | None:
    """``1290 of 1300 operator calls of 42 modules show``; None where no record has coverage."""
    cases = _by_case(records)
    if not cases:
        return None
    seen, of = (sum(told[name] for told in cases.values()) for name in ("seen", "of"))
    modules = "1 case" if len(cases) == 1 else f"{len(cases)} cases"
    return f"{seen} of {of} operator calls of {modules} show in their outputs"


def least(records: Sequence[Told], most: int = 6) -> Iterator[str]:
    """The cases of which least shows, where not everything does, and those that could not be measured."""
    shares = sorted(
        (told["seen"] / told["of"], case, told["seen"], told["of"]) for case, told in _by_case(records).items()
    )
    part = [f"  {share:>6.1%}  {seen} of {of}  {case}" for share, case, seen, of in shares if share < 1]
    head = "calls of PyTorch that could be wrong in an export that passes (seen of all that were asked about):"
    yield from shorten(part, most, _MORE, head)
    yield from _beyond(records, most)
    varies = "two runs on the same values call other operators"
    unknown = {
        record.case: told.get("why") or varies
        for record in records
        if (told := _of_fp32(record)) is not None and "unknown" in told
    }
    whys = [f"  {case}: {one_line(why, 160)}" for case, why in unknown.items()]
    yield from shorten(whys, most, _MORE, "it could not be measured which calls show in the outputs of:")


_MORE = "  and {} more cases"


def _beyond(records: Sequence[Told], most: int) -> Iterator[str]:
    """The calls that show only beyond the values of their case."""
    told = []
    for case, known in _by_case(records).items():
        if calls := known.get("beyond"):
            places = [f"{call['op']} at {call['at']}" if call.get("at") else str(call["op"]) for call in calls]
            told.append(f"  {case}: {one_line(', '.join(places), 160)}")
    head = "calls of PyTorch that show only beyond the values that the case declares (lower `low`, raise `high`):"
    yield from shorten(told, most, _MORE, head)


def _by_case(records: Sequence[Told]) -> dict[str, Coverage]:
    """Of each case what its fp32 cells know of calls, which is the same in all of them."""
    cases: dict[str, Coverage] = {}
    for record in records:
        told = _of_fp32(record)
        if told is not None and told["of"]:
            cases.setdefault(record.case, told)
    return cases
