"""Dividing the cells of a run over jobs that run beside one another."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from conformance.baseline.change import Record
from conformance.baseline.ids import case_of
from conformance.errors import UserError


def shard(ids: Iterable[str], index: int, count: int, seconds: Mapping[str, float] | None = None) -> set[str]:
    """The cells of job ``index`` of ``count``, counted from 1; all jobs together have each cell once.

    All cells of a case are in one job, so that its models are exported once. Without ``seconds`` a case's name alone
    decides, so that adding a case moves no other one. With ``seconds`` by id, from an earlier run, the jobs take
    about equally long; all of them have to be given the same ``ids`` and ``seconds``, or cells are lost, which shows
    only when the merged run is compared. A case that the earlier run lacks counts as an average one.
    """
    if not 1 <= index <= count:
        raise UserError(f"shard {index}/{count}: is counted from 1 to {max(count, 1)}")
    cases: dict[str, list[str]] = {}
    for name in set(ids):
        cases.setdefault(case_of(name), []).append(name)
    known = _by_case(seconds or {}, cases)
    place = _balanced(cases, known, count) if known else {case: _hash(case) % count for case in cases}
    return {name for case, names in cases.items() if place[case] == index - 1 for name in names}


def parse_shard(text: str) -> tuple[int, int]:
    """``(2, 4)`` of ``2/4``."""
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UserError(f"--shard: '{text}' is not which of how many, such as 2/4")
    return int(found[1]), int(found[2])


def seconds_of(records: Iterable[Record]) -> dict[str, float]:
    """How long each cell of a run took, all stages together."""
    return {record["id"]: sum(float(one) for one in (record.get("seconds") or {}).values()) for record in records}


def _by_case(seconds: Mapping[str, float], cases: Iterable[str]) -> dict[str, float]:
    """Seconds of those of the ``cases`` that are known; a cell that left the run counts for none."""
    wanted, found = set(cases), dict[str, float]()
    for name in sorted(seconds):  # in one order, since sums of floats depend on it
        case = case_of(name)
        if case in wanted:
            found[case] = found.get(case, 0.0) + seconds[name]
    return found


def _balanced(cases: Iterable[str], known: Mapping[str, float], count: int) -> dict[str, int]:
    """The longest case first, each to the job that has least so far; equal ones in the order of their hashes."""
    average = sum(known.values()) / len(known)
    weights = {case: known.get(case, average) for case in cases}
    loads, place = [0.0] * count, {}
    for case in sorted(weights, key=lambda case: (-weights[case], _hash(case), case)):
        job = loads.index(min(loads))
        loads[job] += weights[case]
        place[case] = job
    return place


def _hash(case: str) -> int:
    return int.from_bytes(hashlib.sha256(case.encode()).digest()[:8], "big")
