"""Measuring two sides in turn: the order, the length of a sample, the warm-up and the garbage collector."""

import gc
import math
from types import SimpleNamespace

import pytest

from conformance.judge.latency.measure_latency import LOOKS, SideFailed, interleave
from conformance.judge.latency.statistics import ratio_interval
from tests.judge.latency.support import measured
from tests.kit.clock import Host, Simulated, quiet


def test_a_clear_verdict_stops_early_and_an_open_one_uses_the_time():
    clear = measured(quiet, 0, 2.0)
    assert (clear.stopped, clear.looked) == ("enough", 2)
    assert clear.seconds == pytest.approx(1 / 8, abs=0.01) and clear.looks == LOOKS
    is_open = measured(quiet, 0, 1.1)
    assert is_open.stopped == "time" and is_open.looked == LOOKS and is_open.seconds == pytest.approx(1.0, abs=0.01)


def test_nothing_is_said_before_there_are_enough_pairs():
    simulated = Host()
    looked_at = []
    interleave(
        simulated.side("own", 0.1), simulated.side("other", 0.1), seed=0, max_seconds=4.0, warmup_seconds=0,
        enough=lambda samples: bool(looked_at.append(len(samples.own))), clock=simulated.clock,
    )  # fmt: skip
    assert looked_at == []


def test_the_same_seed_draws_the_same_order_and_another_one_another():
    one, again, other = (measured(quiet, seed, 1.0, max_seconds=0.2).own_first.tolist() for seed in (1, 1, 2))
    assert one == again and one != other


def test_short_calls_are_repeated_until_a_sample_takes_a_fifth_of_a_millisecond():
    simulated = Host()
    own, other = simulated.side("own", 1e-5), simulated.side("other", 4e-3)
    found = interleave(own, other, seed=0, max_seconds=0.1, warmup_seconds=0.01, clock=simulated.clock)
    assert found.iterations == (20, 1) and found.own == pytest.approx(1e-5)
    alike = interleave(
        own, simulated.side("other", 1.2e-5), seed=0, max_seconds=0.1, warmup_seconds=0.01, clock=simulated.clock
    )
    assert alike.iterations == (20, 20)
    single = interleave(own, None, seed=0, max_seconds=0.01, iterations=1, clock=simulated.clock)
    assert single.iterations == (1, 1) and single.other is None
    assert set(simulated.ran[-900:]) == {"own"}


def alone(simulated, seconds, clock, other=None, **options):
    """What is measured of a side, alone or in turn with another, by a clock that is not quite the host's."""
    sides = simulated.side("own", seconds), other and simulated.side("other", other)
    return interleave(*sides, seed=0, **{"max_seconds": 0.1, "warmup_seconds": 0.01, "clock": clock, **options})


def test_a_call_that_is_over_before_the_clock_moves_is_repeated_until_it_does():
    simulated = Host()
    found = alone(simulated, 1e-5, lambda: simulated.ns // 1_000_000 * 1_000_000, other=3e-3)
    assert found.own == pytest.approx(1e-5) and found.other == pytest.approx(3e-3)


def test_warming_up_is_not_measured():
    simulated = Host(lambda time: 50.0 if time < 0.2 else 1.0)
    found = alone(simulated, 1e-3, simulated.clock, other=1e-3, warmup_seconds=0.2)
    assert found.own.max() == pytest.approx(1e-3) and found.iterations == (1, 1)


def test_a_device_tells_its_own_time():
    simulated = Host()

    class Device:
        name = "device"

        def timed(self):
            simulated.ns += 3_000_000  # what the host sees is not what counts
            return 2e-3

    found = interleave(Device(), simulated.side("host", 1e-3), seed=0, max_seconds=0.1, clock=simulated.clock)
    assert found.clocks == ("device", "host") and found.own == pytest.approx(2e-3)
    assert ratio_interval(found).ratio == pytest.approx(2)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_off_and_then_as_before(enabled):
    """Also where a side raises."""
    states = []

    def watched():
        states.append(gc.isenabled())
        return 1e-3 if len(states) < 50 else 0.0

    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(SideFailed):
            interleave(SimpleNamespace(name="own", timed=watched), None, seed=0, max_seconds=1, warmup_seconds=0.01)
        assert gc.isenabled() == enabled
        assert states and not any(states)
    finally:
        gc.enable()


@pytest.mark.parametrize("after, when", [(0, "warming up"), (60, "measuring")])
def test_a_side_that_raises_is_named_with_the_moment(after, when):
    simulated = Host()

    class Raising(Simulated):
        calls = 0

        def run(self):
            self.calls += 1
            if self.calls > after:
                raise MemoryError("planted")
            super().run()

    with pytest.raises(SideFailed) as found:
        interleave(
            simulated.side("own", 1e-3), Raising(simulated, "pytorch", 1e-3), seed=0, max_seconds=1,
            clock=simulated.clock, warmup_seconds=0.02,
        )  # fmt: skip
    assert (found.value.side, found.value.when) == ("pytorch", when)
    assert f"pytorch, {when}, after {after} calls: MemoryError: planted" in str(found.value)
    assert isinstance(found.value.__cause__, MemoryError)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_duration_that_is_none_is_refused(wrong):
    gpu = SimpleNamespace(name="gpu", timed=lambda: wrong)
    with pytest.raises(SideFailed, match="gpu, warming up, after 0 calls: a call took"):
        interleave(gpu, None, seed=0, max_seconds=0.1)


def test_single_calls_are_measured_for_the_whole_time_however_short_they_are():
    """A host is busy for hundredths of a second at a time; so many calls of microseconds then count as few."""
    simulated = Host()
    found = alone(simulated, 5e-6, simulated.clock, iterations=1, max_seconds=0.2, warmup_seconds=0)
    assert found.seconds == pytest.approx(0.2, rel=0.01) and len(found.own) == pytest.approx(40_000, rel=0.01)
