"""Keep measurements: for records, and for pytest-benchmark to compare.

Everything for pytest-benchmark is made from records alone, with its own classes for the form of an entry and for
where files go, so that ``pytest-benchmark compare`` and ``--benchmark-compare`` see no difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from pytest_benchmark.stats import Metadata, Stats

from conformance.judge.latency.statistics import Durations, Samples, TimeVerdict, summary

KEPT = 200
"""Durations of a side that a record keeps, evenly over the time of the measurement."""


# ---- for a record --------------------------------------------------------------------------------------------


def as_record(
    samples: Samples | None,
    judged: Sequence[TimeVerdict] = (),
    *,
    runtime: str,
    precision: str,
    at: Mapping[str, int],
    host: Mapping[str, object],
    throughput: Mapping[int, float] | None = None,
) -> Any:
    """A record's ``latency``, as plain JSON values in seconds; a bound that is not known is None.

    ``throughput`` is calls times batch a second, by batch; ``samples`` is None where only that was measured.
    """
    return {
        "runtime": runtime,
        "precision": precision,
        "at": dict(at),
        "unit": "seconds",
        "budgets": [_budget(verdict) for verdict in judged],
        "own": None if samples is None else _side(samples, samples.own, 0),
        "other": None if samples is None or samples.other is None else _side(samples, samples.other, 1),
        "measured": None if samples is None else _describe_samples(samples),
        "host": dict(host),
        "throughput": [{"batch": batch, "per_second": rate} for batch, rate in sorted((throughput or {}).items())],
    }


def _budget(judged: TimeVerdict) -> dict[str, object]:
    relation, interval = judged.budget.kind == "relation", judged.interval
    return {
        "text": judged.budget.text,
        "verdict": judged.verdict,
        "ratio": interval.ratio if relation else None,
        "seconds": None if relation else interval.ratio,
        "percentile": judged.percentile,
        "low": interval.low,
        "high": interval.high if math.isfinite(interval.high) else None,
        "limit": judged.budget.limit,
        "confidence": judged.confidence,
        "floor": judged.floor,
    }


def _side(samples: Samples, durations: Durations, index: int) -> dict[str, object]:
    return {
        "name": samples.names[index],
        "iterations": samples.iterations[index],
        "clock": samples.clocks[index],
        **summary(durations),
        "samples": [float(value) for value in thinned(durations)],
    }


def _describe_samples(samples: Samples) -> dict[str, object]:
    return {"seconds": samples.seconds, "looked": samples.looked, "looks": samples.looks, "stopped": samples.stopped}


def thinned(durations: Durations) -> Durations:
    """At most ``KEPT`` of the durations, evenly over time, with the first and the last."""
    if len(durations) <= KEPT:
        return durations
    kept: Durations = durations[np.linspace(0, len(durations) - 1, KEPT).round().astype(int)]
    return kept


# ---- for pytest-benchmark ------------------------------------------------------------------------------------


class _Kept:
    """Takes the place of pytest-benchmark's ``Stats``: what these were in the worker, and the durations that were
    kept."""

    def __init__(self, side: Mapping[str, Any]) -> None:
        self.data = list(side["samples"])
        for field in Stats.fields:
            setattr(self, field, side[field])

    def as_dict(self) -> dict[str, object]:
        return {field: getattr(self, field) for field in Stats.fields}


def metadata(name: str, fullname: str, latency: Mapping[str, Any]) -> list[Metadata]:
    """The sides of a record's ``latency`` as what pytest-benchmark's session holds in ``benchmarks``.

    ``name`` and ``fullname`` are those of the test, by which runs are compared; for the other side its own name is
    put behind. Both are of the same group.
    """
    entries: list[Metadata] = []
    for side, behind in ((latency["own"], ""), (latency["other"], " (other side: {name})")):
        if side is None:
            continue
        behind = behind.format(name=side["name"])
        fixture = SimpleNamespace(
            name=name + behind,
            fullname=fullname + behind,
            group=name,
            param=None,
            params={"at": latency["at"], "precision": latency["precision"], "side": side["name"]},
            extra_info={
                **{key: latency[key] for key in ("budgets", "host", "throughput")},
                **{key: side[key] for key in ("p90", "p95", "p99")},
            },
            cprofile_stats=None,
            has_error=False,
        )
        entry: Any = Metadata(
            fixture, side["iterations"], {"disable_gc": True, "warmup": True, "timer": side["clock"]}
        )
        entry.stats = _Kept(side)
        entries.append(entry)
    return entries
