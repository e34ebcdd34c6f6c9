"""Dividing the cells of a run over jobs that run beside one another."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from conformance.baseline.change import Record
from conformance.baseline.ids import case_of, fields_of
from conformance.errors import UserError


def shard(ids: Iterable[str], index: int, count: int, seconds: Mapping[str, float] | None = None) -> set[str]:
    """The cells of job ``index`` of ``count``, counted from 1; all jobs together have each cell once.

    All cells of a case are in one job, so that its models are exported once. Without ``seconds`` a case's name alone
    decides, so that adding a case moves no other case to another job. With ``seconds`` by id, from an earlier run,
    the jobs take about equally long, and a case that takes longer than a job of average length is divided by its
    exported models. All jobs have to be given the same ``ids`` and ``seconds``, or cells are lost: ``cut`` tells them
    apart. A case that the earlier run lacks counts as an average case.
    """
    if not 1 <= index <= count:
        raise UserError(f"shard {index}/{count}: is counted from 1 to {max(count, 1)}")
    cases: dict[str, list[str]] = {}
    for name in set(ids):
        cases.setdefault(case_of(name), []).append(name)
    known = _by_case(seconds or {}, cases)
    if not known:
        return {name for case, names in cases.items() if _hash(case) % count == index - 1 for name in names}
    average = sum(known.values()) / len(known)
    weights = {case: known.get(case, average) for case in cases}
    whole = sum(weights.values())
    for case, weight in [*weights.items()]:
        if weight * count > whole:
            del weights[case]
            parts = _by_model(cases.pop(case))
            cases |= parts
            weights |= {part: sum((seconds or {}).get(name, 0.0) for name in sorted(names))
                        for part, names in parts.items()}  # fmt: skip
    place = _balanced(weights, count)
    return {name for case, names in cases.items() if place[case] == index - 1 for name in names}


def cut(ids: Iterable[str], count: int, seconds: Mapping[str, float] | None = None) -> str:
    """A hash of all that decides which cells a job gets: jobs in which it differs do not make a whole."""
    wanted = sorted(set(ids))
    known = {name: (seconds or {}).get(name) for name in wanted}
    return hashlib.sha256(repr((count, [*known.items()])).encode()).hexdigest()[:16]


def parse_shard(text: str) -> tuple[int, int]:
    """``(2, 4)`` of ``2/4``."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"--shard: '{text}' is not which of how many, such as 2/4")
    return int(match[1]), int(match[2])


def seconds_of(records: Iterable[Record]) -> dict[str, float]:
    """How long each cell of a run took, all stages together."""
    return {record["id"]: sum(map(float, (record.get("seconds") or {}).values())) for record in records}


def _by_case(seconds: Mapping[str, float], cases: Iterable[str]) -> dict[str, float]:
    """Seconds by case, of those ``cases`` that the earlier run had; its cells of other cases do not count."""
    wanted, totals = set(cases), dict[str, float]()
    for name in sorted(seconds):  # sorted, since the sum of floats depends on their order
        case = case_of(name)
        if case in wanted:
            totals[case] = totals.get(case, 0.0) + seconds[name]
    return totals


def _by_model(ids: Iterable[str]) -> dict[str, list[str]]:
    """The cells of a case, by the model that they need exported."""
    models: dict[str, list[str]] = {}
    for name in ids:
        fields = fields_of(name)
        models.setdefault(f"{fields['case']}-{fields['exporter']}-op{fields['opset']}", []).append(name)
    return models


def _balanced(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """The longest case first, each to the job that has least so far; equal ones in the order of their hashes."""
    loads, place = [0.0] * count, {}
    for case in sorted(weights, key=lambda case: (-weights[case], _hash(case), case)):
        job = loads.index(min(loads))
        loads[job] += weights[case]
        place[case] = job
    return place


def _hash(case: str) -> int:
    return int.from_bytes(hashlib.sha256(case.encode()).digest()[:8], "big")
