"""What a record keeps of a measurement and of its host, which pytest-benchmark reads."""

import json
import os

import numpy as np
import pytest

from conformance.case.files.time_budget import parse
from conformance.judge.latency import host_speed
from conformance.judge.latency.latency_store import KEPT, as_record, thinned
from conformance.judge.latency.statistics import time_verdict
from tests.judge.latency.support import TEN_PERCENT, measured, paired
from tests.kit.clock import quiet


def record(ratio=1.3, budgets=("1.2 x pytorch", "5 ms"), seed=0):
    samples = measured(quiet, seed, ratio, max_seconds=1.0)
    judged = [time_verdict(parse(text), samples) for text in budgets]
    return as_record(
        samples, judged, runtime="onnxruntime", precision="fp32", at={"batch": 4}, host=host_speed.state(gpu=False),
        throughput={16: 3200.0, 1: 900.0},
    )  # fmt: skip


def test_a_record_is_plain_and_says_what_was_found():
    found = record()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    relation, absolute = found["budgets"]
    assert (relation["text"], relation["verdict"], relation["limit"]) == ("1.2 x pytorch", "broken", 1.2)
    assert 1.2 < relation["low"] <= relation["ratio"] <= relation["high"] < 1.4
    assert (absolute["verdict"], absolute["ratio"], absolute["percentile"]) == ("holds", None, 50)
    assert absolute["seconds"] == pytest.approx(1.3e-3, rel=0.02)
    assert found["own"]["name"] == "own" and found["other"]["name"] == "other"
    assert found["own"]["median"] / found["other"]["median"] == pytest.approx(1.3, rel=0.02)
    assert found["throughput"] == [{"batch": 1, "per_second": 900.0}, {"batch": 16, "per_second": 3200.0}]


def test_a_record_keeps_few_samples_and_no_infinity():
    durations = np.arange(1.0, 5001.0)
    assert len(thinned(durations)) == KEPT and (thinned(durations)[0], thinned(durations)[-1]) == (1, 5000)
    assert thinned(durations[:7]).tolist() == durations[:7].tolist()
    few = paired([1.0, 1.1], [1.0, 1.0])
    found = as_record(few, [time_verdict(TEN_PERCENT, few)], runtime="tensorrt", precision="int8", at={}, host={})
    assert found["budgets"][0]["high"] is None and found["budgets"][0]["verdict"] == "inconclusive"
    json.dumps(found, allow_nan=False)
    nothing = as_record(None, runtime="onnxruntime", precision="fp32", at={}, host={}, throughput={4: 10.0})
    assert nothing["own"] is None and nothing["throughput"] == [{"batch": 4, "per_second": 10.0}]


@pytest.mark.parametrize("script, state", [
    ("echo 'H, 1, 2 MHz, 3 MHz, 4 MHz, 5, 6 W, P0, 7 %, Enabled'", ["P0"]), ("exit 9", None),
    ("printf '\\377\\376'", None),
])  # fmt: skip
def test_what_nvidia_smi_says_or_does_not(tmp_path, monkeypatch, script, state):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = host_speed.gpus()
    assert (found and [gpu["pstate"] for gpu in found]) == state


FILES = {
    "sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq": "1200000\n",
    "sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq": "3400000\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
    "sys/devices/system/cpu/smt/active": "1\n",
    "proc/pressure/cpu": "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\n",
    "proc/stat": f"cpu 1 2 3 4 5 6 7 {3 * os.sysconf('SC_CLK_TCK')} 0 0\ncpu0 9\n",
}


def test_what_a_host_tells_of_itself_is_read_and_the_rest_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    names = ("governor", "frequency", "turbo", "smt", "pressure", "stolen", "gpu")
    found = host_speed.state(root=tmp_path)
    assert [found[name] for name in names] == [None] * 7
    for file, text in FILES.items():
        for cpu in os.sched_getaffinity(0):
            place = tmp_path / file.format(cpu=cpu)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
    found = host_speed.state(root=tmp_path)
    frequency = {"min": 1200.0, "max": 1200.0, "limit": 3400.0}
    assert [found[name] for name in names] == ["powersave", frequency, False, "1", 12.5, 3.0, None]
