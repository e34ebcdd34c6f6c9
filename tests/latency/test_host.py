"""What is said of the host that latencies were measured on."""

from __future__ import annotations

import json

import pytest

from conformance.latency import host


def test_the_state_of_a_host_is_plain_facts():
    found = host.state()
    assert found["cores"] >= 1
    assert {"affinity", "threads", "governor", "frequency", "load", "pressure", "stolen", "clock", "gpu"} <= set(
        found
    )
    assert json.loads(json.dumps(found)) == found
    assert host.state(gpu=False)["gpu"] is None


@pytest.mark.parametrize(
    "script, rows",
    [
        ("echo 'H, 1, 2 MHz, 3 MHz, 4 MHz, 5, 6 W, P0, 7 %, Enabled'", 1),
        ("echo 'no devices were found'", None),
        ("exit 9", None),
        ("printf '\\377\\376'", None),
    ],
)
def test_what_nvidia_smi_says_or_does_not(tmp_path, monkeypatch, script, rows):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    found = host.gpus()
    if rows is None:
        assert found is None
    else:
        assert found is not None and len(found) == rows
        assert (found[0]["name"], found[0]["clocks.sm"], found[0]["pstate"]) == ("H", "2 MHz", "P0")


def test_a_host_that_tells_nothing_gives_none(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "_CPUS", tmp_path)
    monkeypatch.setattr(host, "_read", lambda file: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = host.state()
    assert [found[key] for key in ("governor", "frequency", "turbo", "pressure", "stolen", "gpu")] == [None] * 6
