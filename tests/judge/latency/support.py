"""Two sides on a simulated host, and samples that are given."""

import numpy as np

from conformance.case.files.time_budget import parse
from conformance.judge.latency.measure_latency import interleave
from conformance.judge.latency.statistics import Samples, certain
from tests.kit.clock import Host

TEN_PERCENT = parse("1.10 x pytorch")


def measured(kind, seed, ratio, budget=TEN_PERCENT, max_seconds=1.0, second_costs=1.0, **options):
    """Two sides of 1 ms on a simulated host, own ``ratio`` times slower."""
    simulated = Host(kind(np.random.default_rng(seed)))
    simulated.second_costs |= {"own": second_costs, "other": second_costs}
    return interleave(
        simulated.side("own", 1e-3 * ratio), simulated.side("other", 1e-3), seed=seed, enough=certain(budget),
        max_seconds=max_seconds, warmup_seconds=0.01, clock=simulated.clock, **options,
    )  # fmt: skip


def paired(own, other, looks=1, iterations=1):
    own, other = np.asarray(own, float), None if other is None else np.asarray(other, float)
    return Samples(
        own, other, np.ones(len(own), bool), (iterations, iterations), ("onnxruntime", "pytorch"), ("host", "host"),
        looks, looks, "time", 1.0,
    )  # fmt: skip
