"""What decides how fast a host is just now, as facts: threads, affinity, governor, load, clocks.

Nothing here is judged, and nothing here raises: what a host does not tell is None.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from conformance.records.processor import cpu

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ORT_NUM_THREADS")
GPU_FIELDS = (
    "name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.draw", "pstate",
    "utilization.gpu", "persistence_mode",
)  # fmt: skip
_CPUS = Path("/sys/devices/system/cpu")


def state(*, gpu: bool = True) -> dict[str, Any]:
    """Plain values. Frequencies are in MHz, ``load`` is over 1, 5 and 15 minutes.

    ``pressure`` is the share of the last 10 s, in percent, in which some task waited for a CPU (Linux). ``stolen`` is
    the seconds since boot that the hypervisor gave to others: the difference of two states says whether a neighbour
    was busy meanwhile.
    """
    affinity = _affinity()
    return {
        "cpu": cpu()["name"],
        "cores": os.cpu_count(),
        "affinity": affinity,
        "threads": {name: os.environ.get(name) for name in THREADS},
        "governor": _of_cpus(affinity, "cpufreq/scaling_governor"),
        "frequency": _frequency(affinity),
        "turbo": _turbo(),
        "smt": _read(_CPUS / "smt" / "active"),
        "load": _load(),
        "pressure": _pressure(),
        "stolen": _stolen(),
        "clock": _clock(),
        "gpu": gpus() if gpu else None,
    }


def gpus() -> list[dict[str, str]] | None:
    """What nvidia-smi says of each GPU, in its own words; None where there is none or it does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not rows or any(len(row) != len(GPU_FIELDS) for row in rows):
        return None
    return [dict(zip(GPU_FIELDS, row, strict=True)) for row in rows]


def _affinity() -> list[int] | None:
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on every system
        return None


def _of_cpus(numbers: list[int] | None, file: str) -> str | None:
    """What the file says of the CPUs that may be used: a value if all agree, else each value with commas between."""
    said = {_read(_CPUS / f"cpu{number}" / file) for number in numbers or []} - {None}
    return ",".join(sorted(str(value) for value in said)) or None


def _frequency(numbers: list[int] | None) -> dict[str, float] | None:
    """MHz over the CPUs that may be used, now and at most; from /proc/cpuinfo where the kernel has no cpufreq."""
    now = [_number(_CPUS / f"cpu{number}" / "cpufreq" / "scaling_cur_freq") for number in numbers or []]
    most = [_number(_CPUS / f"cpu{number}" / "cpufreq" / "cpuinfo_max_freq") for number in numbers or []]
    known = [value / 1000 for value in now if value is not None]
    if not known:
        known = [
            value
            for line in (_read(Path("/proc/cpuinfo")) or "").splitlines()
            if line.startswith("cpu MHz") and (value := _float(line.partition(":")[2])) is not None
        ]
    if not known:
        return None
    frequency = {"min": min(known), "max": max(known)}
    limits = [value / 1000 for value in most if value is not None]
    return frequency | ({"limit": max(limits)} if limits else {})


def _turbo() -> bool | None:
    if (off := _read(_CPUS / "intel_pstate" / "no_turbo")) is not None:
        return off == "0"
    boost = _read(_CPUS / "cpufreq" / "boost")
    return None if boost is None else boost == "1"


def _load() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def _pressure() -> float | None:
    first = (_read(Path("/proc/pressure/cpu")) or "").partition("avg10=")[2].split(" ")[0]
    return _float(first)


def _stolen() -> float | None:
    fields = (_read(Path("/proc/stat")) or "").partition("\n")[0].split()
    ticks = _float(fields[8]) if len(fields) > 8 else None
    try:
        return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return None


def _clock() -> dict[str, Any]:
    info = time.get_clock_info("perf_counter")
    source = _read(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
    return {"implementation": info.implementation, "resolution": info.resolution, "source": source}


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _number(file: Path) -> float | None:
    return _float(_read(file) or "")


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
