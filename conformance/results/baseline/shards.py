"""Dividing the cells of a run over jobs that run beside one another."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from conformance.process.errors import UserError
from conformance.results.baseline.line import case_of, fields_of


def shard(ids: Iterable[str], index: int, count: int, seconds: Mapping[str, float] | None = None) -> set[str]:
    """The cells of job ``index`` of ``count``, counted from 1; all jobs together have each cell once.

    All cells of a case are in one job, so that its models are exported once. Without ``seconds`` a case's name alone
    decides, so that adding a case moves no other case to another job. With ``seconds`` by id, from an earlier run,
    the jobs take about equally long, and a case that takes longer than a job of average length is divided by its
    exported models, a model by its precisions, and these by their cells: as far as needed, and as far as it helps,
    since each job exports and converts anew what it needs (``repeated``). All jobs have to be given the same ``ids``
    and ``seconds``, or cells are lost: ``cut`` tells them apart. A case that the earlier run lacks counts as an
    average case.
    """
    if not 1 <= index <= count:
        raise UserError(f"shard {index}/{count}: is counted from 1 to {max(count, 1)}")
    cases: dict[str, list[str]] = {}
    for name in sorted(set(ids)):  # sums of floats depend on their order, and all jobs have to come to the same
        cases.setdefault(case_of(name), []).append(name)
    known = _by_case(seconds or {}, cases)
    if not known:
        return {name for case, names in cases.items() if _hash(case) % count == index - 1 for name in names}
    average = sum(known.values()) / len(known)
    weights = {case: known.get(case, average) for case in cases}
    whole = sum(weights.values())
    for divided in (_model, _name_model, str):
        for case, weight in [*weights.items()]:
            if weight * count > whole:
                parts = _parts(cases[case], divided)
                alone = {part: _alone(names, seconds or {}) for part, names in parts.items()}
                more = sum(alone.values()) - weight
                if more < (weight - max(alone.values())) * count:  # the longest job gets shorter, all others longer
                    del cases[case], weights[case]
                    cases |= parts
                    weights |= alone
    place = _balanced(weights, count)
    return {name for case, names in cases.items() if place[case] == index - 1 for name in names}


def repeated(ids: Collection[str], seconds: Mapping[str, float]) -> float:
    """Seconds, at most, of the exports and conversions that a job with these cells makes and another job too: those
    that its cells need, and whose own cells, ``export`` and ``fidelity``, the job does not have. Cells that took no
    time were skipped, and need nothing."""
    has, needs = set(ids), set[str]()
    for name in (name for name in has if seconds.get(name) != 0.0):
        fields = fields_of(name)
        needs.add(f"export[{_model(name)}]")
        if fields["precision"] != "fp32":
            needs.add(f"fidelity[{_name_model(name)}]")
    return sum(seconds.get(name, 0.0) for name in sorted(needs - has))


def cut(ids: Iterable[str], count: int, seconds: Mapping[str, float] | None = None) -> str:
    """A hash of all that decides which cells a job gets: jobs in which it differs do not make a whole."""
    wanted = sorted(set(ids))
    known = {name: (seconds or {}).get(name) for name in wanted}
    return hashlib.sha256(repr((count, [*known.items()])).encode()).hexdigest()[:16]


def parse_shard(text: str) -> tuple[int, int]:
    """``(2, 4)`` of ``2/4``."""
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"--shard: '{text}' is no shard: write I/N, such as 2/4")
    return int(match[1]), int(match[2])


def _by_case(seconds: Mapping[str, float], cases: Iterable[str]) -> dict[str, float]:
    """Seconds by case, of those ``cases`` that the earlier run had; its cells of other cases do not count."""
    wanted, totals = set(cases), dict[str, float]()
    for name in sorted(seconds):  # sorted, since the sum of floats depends on their order
        case = case_of(name)
        if case in wanted:
            totals[case] = totals.get(case, 0.0) + seconds[name]
    return totals


def _model(name: str) -> str:
    """The model that a cell needs exported."""
    fields = fields_of(name)
    return f"{fields['case']}-{fields['exporter']}-op{fields['opset']}"


def _name_model(name: str) -> str:
    """The model that a cell runs: of fp16 and int8, what the exported one is converted to."""
    return f"{_model(name)}-{fields_of(name)['precision']}"


def _parts(ids: Iterable[str], divided: Callable[[str], str]) -> dict[str, list[str]]:
    """The cells by the name that ``divided`` gives the part of each."""
    parts: dict[str, list[str]] = {}
    for name in ids:
        parts.setdefault(divided(name), []).append(name)
    return parts


def _alone(ids: Collection[str], seconds: Mapping[str, float]) -> float:
    """Seconds of a job that has these cells alone."""
    return sum(seconds.get(name, 0.0) for name in sorted(ids)) + repeated(ids, seconds)


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
