"""How often a latency budget is wrong on this host: equal sides that are accused, a slower side that is missed.

Each trial is a measurement of its own, with new sides, a warm-up of 0.05 s and at most one second, as a cell would
make it but for the time (a cell has more). The budget is ``1.10 x`` the other side.
"""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from benchmarks.common import HEAD, Row
from conformance.case.files.time_budget import parse
from conformance.judge.latency.measure_latency import decide, interleave
from conformance.judge.latency.statistics import ratio_interval, signed_rank_interval

LIMIT = 1.10
ROUNDS = 20
"""Pieces of work in one call; the slower side does 23, which is 15% more."""
SLOWER = 23

NEIGHBOUR = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(10)
    while time.monotonic() < end:
        pass
    time.sleep(random.expovariate(7))
"""


@dataclass
class Work:
    """A side that does a piece of work so many times in one call."""

    name: str
    once: Callable[[], object]
    rounds: int

    def run(self) -> None:
        for _ in range(self.rounds):
            self.once()


def rows(quick: bool) -> Iterator[Row]:
    trials = 3 if quick else 200
    for what, make in (("hashing", _hashing), ("NumPy", _numpy), ("ONNX Runtime, 1 thread", _onnxruntime(1))):
        yield from _both(what, make, trials)
    if quick:
        return
    yield from _both("ONNX Runtime, 2 threads that stop spinning after a run", _onnxruntime(2), trials)
    spinning, few = _onnxruntime(2, stop_spinning=False), 60
    yield from _both("ONNX Runtime, 2 threads as it comes", spinning, few, target=False)
    with _neighbours(2):
        yield from _both("hashing, two busy neighbours", _hashing, few)
        yield from _both("ONNX Runtime, 1 thread, two busy neighbours", _onnxruntime(1), few)
        yield _widths("ONNX Runtime, 1 thread, two busy neighbours", _onnxruntime(1), few)
    yield _widths("ONNX Runtime, 1 thread", _onnxruntime(1), few)
    yield _exactly_met("ONNX Runtime, 1 thread", _onnxruntime(1), few)


def _both(what: str, make: Callable[[], Callable[[], object]], trials: int, target: bool = True) -> Iterator[Row]:
    """Equal sides, then a side that does 15% more."""
    found, seconds, apart = _trials(make, ROUNDS, LIMIT, trials)
    wrong = found.count("broken") / trials
    yield Row(
        f"{what}: equal sides called broken at {LIMIT:.2f} x",
        f"{wrong:.1%} ({_counts(found)}); {seconds:.2f} s each",
        ratio=f"{100 * apart:.1f}% apart at the 95th percentile",
        target="at most 1%" if target else "", met=wrong <= 0.01 if target else None, repeats=trials,
    )  # fmt: skip
    found, seconds, _ = _trials(make, SLOWER, LIMIT, trials)
    right = found.count("broken") / trials
    yield Row(
        f"{what}: 15% slower called broken at {LIMIT:.2f} x",
        f"{right:.1%} ({_counts(found)}); {seconds:.2f} s each",
        target="at least 95%" if target else "", met=right >= 0.95 if target else None, repeats=trials,
    )  # fmt: skip


def _exactly_met(what: str, make: Callable[[], Callable[[], object]], trials: int) -> Row:
    """Equal sides and a budget of 1.00 x: the limit itself, where each verdict but one is by chance or by what two
    sessions of one model differ in."""
    found, seconds, _ = _trials(make, ROUNDS, 1.0, trials)
    wrong = found.count("broken") / trials
    return Row(
        f"{what}: equal sides called broken at 1.00 x, without a noise floor",
        f"{wrong:.1%} ({_counts(found)}); {seconds:.2f} s each", repeats=trials,
    )  # fmt: skip


def _widths(what: str, make: Callable[[], Callable[[], object]], trials: int) -> Row:
    """Half of the 99% interval of the log ratio from the same pairs of half a second: by signed ranks, as it is used
    here but for the scale; by the mean with Student's t (its normal limit); by the median with the sign test."""
    halves: dict[str, list[float]] = {"signed ranks": [], "mean": [], "median": []}
    normal = statistics.NormalDist().inv_cdf(0.995)
    for seed in range(trials):
        own, other = Work("own", make(), ROUNDS), Work("other", make(), ROUNDS)
        logs = interleave(own, other, seed=seed, max_seconds=0.5, warmup_seconds=0.05).log_ratios
        _, low, high = signed_rank_interval(logs, 0.01)
        halves["signed ranks"].append((high - low) / 2)
        halves["mean"].append(normal * float(np.std(logs, ddof=1)) / len(logs) ** 0.5)
        ordered, rank = np.sort(logs), max(0, int((len(logs) - normal * len(logs) ** 0.5) / 2))
        halves["median"].append(float(ordered[-1 - rank] - ordered[rank]) / 2)
    found = {name: (statistics.median(values), float(np.percentile(values, 95))) for name, values in halves.items()}
    texts = {
        name: f"{100 * middle:.2f}% (95th percentile {100 * high:.2f}%)" for name, (middle, high) in found.items()
    }
    return Row(
        f"{what}: half of the 99% interval by signed ranks", texts["signed ranks"],
        f"the mean, {texts['mean']}; the median, {texts['median']}", repeats=trials,
    )  # fmt: skip


def _trials(
    make: Callable[[], Callable[[], object]], rounds: int, limit: float, trials: int
) -> tuple[list[str], float, float]:
    """The verdicts; the median of the seconds that a trial took, with warm-up and the second measurement of what
    seems broken; the 95th percentile of how far the first ratio was from what was planted."""
    verdicts: list[str] = []
    seconds: list[float] = []
    apart: list[float] = []
    budget = parse(f"{limit} x onnxruntime")

    @contextmanager
    def sides() -> Iterator[tuple[Work, Work]]:
        yield Work("own", make(), rounds), Work("other", make(), ROUNDS)

    for seed in range(trials):
        start = time.perf_counter()
        samples, judged = decide(budget, sides, seed=seed, max_seconds=1.0, warmup_seconds=0.05)
        seconds.append(time.perf_counter() - start)
        verdicts.append(judged.verdict)
        apart.append(abs(ratio_interval(samples).ratio / (rounds / ROUNDS) - 1))
    return verdicts, statistics.median(seconds), float(np.percentile(apart, 95))


def _counts(verdicts: list[str]) -> str:
    return ", ".join(f"{verdicts.count(name)} {name}" for name in ("holds", "broken", "inconclusive"))


def _hashing() -> Callable[[], object]:
    data = bytes(8000)
    return lambda: hashlib.sha256(data).digest()


def _numpy() -> Callable[[], object]:
    values = np.linspace(-3, 3, 3000)
    return lambda: np.tanh(values)


def _onnxruntime(threads: int, stop_spinning: bool = True) -> Callable[[], Callable[[], object]]:
    """New sessions of a small convolution; by default threads of both spin on after a run, in each other's way."""
    import onnxruntime

    model = _convolution()
    values = {"x": np.random.default_rng(0).standard_normal((1, 8, 20, 20), dtype=np.float32)}

    def make() -> Callable[[], object]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        if stop_spinning:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, values)

    return make


def _convolution() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((16, 8, 3, 3), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    ).SerializeToString()
    return model


@contextmanager
def _neighbours(count: int) -> Iterator[None]:
    """Processes that take a core for a tenth of a second at a time, and rest a little longer."""
    started = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    print(HEAD, flush=True)
    for row in rows("--quick" in sys.argv):
        print(row.line(), flush=True)
