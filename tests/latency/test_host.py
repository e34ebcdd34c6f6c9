"""What is said of the host that latencies were measured on."""

from __future__ import annotations

import os

import pytest

from conformance.latency import host


@pytest.mark.parametrize("script, state", [
    ("echo 'H, 1, 2 MHz, 3 MHz, 4 MHz, 5, 6 W, P0, 7 %, Enabled'", ["P0"]), ("exit 9", None),
    ("printf '\\377\\376'", None),
])  # fmt: skip
def test_what_nvidia_smi_says_or_does_not(tmp_path, monkeypatch, script, state):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = host.gpus()
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
    found = host.state(root=tmp_path)
    assert [found[name] for name in names] == [None] * 7
    for file, text in FILES.items():
        for cpu in os.sched_getaffinity(0):
            place = tmp_path / file.format(cpu=cpu)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
    found = host.state(root=tmp_path)
    frequency = {"min": 1200.0, "max": 1200.0, "limit": 3400.0}
    assert [found[name] for name in names] == ["powersave", frequency, False, "1", 12.5, 3.0, None]
