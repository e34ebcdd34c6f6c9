"""Read what decides how fast a host is just now.

Threads, affinity, governor, load, clocks.

Nothing here is judged, and nothing here raises: what a host does not tell is None.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from conformance.results.records.processor import cpu

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ORT_NUM_THREADS")
GPU_FIELDS = (
    "name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.draw", "pstate",
    "utilization.gpu", "persistence_mode",
)  # fmt: skip
_CPUS = "sys/devices/system/cpu"


def state(*, gpu: bool = True, root: Path = Path("/")) -> dict[str, object]:
    """Plain values; ``root`` has the system's files. Frequencies are in MHz, ``load`` is over 1, 5 and 15 minutes.

    ``pressure`` is the share of the last 10 s, in percent, in which some task waited for a CPU (Linux). ``stolen`` is
    the seconds since boot that the hypervisor gave to others: the difference of two states says whether a neighbour
    was busy meanwhile.
    """
    affinity, cpus = _affinity(), root / _CPUS
    return {
        "cpu": cpu()["name"],
        "cores": os.cpu_count(),
        "affinity": affinity,
        "threads": {name: os.environ.get(name) for name in THREADS},
        "governor": _of_cpus(cpus, affinity, "cpufreq/scaling_governor"),
        "frequency": _frequency(root, affinity),
        "turbo": _turbo(cpus),
        "smt": _read(cpus / "smt" / "active"),
        "load": _load(),
        "pressure": _pressure(root),
        "stolen": _stolen(root),
        "clock": _clock(root),
        "gpu": gpus() if gpu else None,
    }


def gpus() -> list[dict[str, str]] | None:
    """Return what nvidia-smi says of each GPU; None where it does not answer."""
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


def _of_cpus(cpus: Path, numbers: list[int] | None, file: str) -> str | None:
    """Read the file of the CPUs that may be used.

    A value if all agree, else each value with commas between.
    """
    said = {_read(cpus / f"cpu{number}" / file) for number in numbers or []} - {None}
    return ",".join(sorted(str(value) for value in said)) or None


def _frequency(root: Path, numbers: list[int] | None) -> dict[str, float] | None:
    """MHz over the CPUs that may be used, now and at most; from /proc/cpuinfo where the kernel has no cpufreq."""
    folders = [root / _CPUS / f"cpu{number}" / "cpufreq" for number in numbers or []]
    now = [_number(folder / "scaling_cur_freq") for folder in folders]
    most = [_number(folder / "cpuinfo_max_freq") for folder in folders]
    known = [value / 1000 for value in now if value is not None]
    if not known:
        known = [
            value
            for line in (_read(root / "proc/cpuinfo") or "").splitlines()
            if line.startswith("cpu MHz") and (value := _float(line.partition(":")[2])) is not None
        ]
    if not known:
        return None
    frequency = {"min": min(known), "max": max(known)}
    limits = [value / 1000 for value in most if value is not None]
    return frequency | ({"limit": max(limits)} if limits else {})


def _turbo(cpus: Path) -> bool | None:
    if (off := _read(cpus / "intel_pstate" / "no_turbo")) is not None:
        return off == "0"
    boost = _read(cpus / "cpufreq" / "boost")
    return None if boost is None else boost == "1"


def _load() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def _pressure(root: Path) -> float | None:
    first = (_read(root / "proc/pressure/cpu") or "").partition("avg10=")[2].split(" ")[0]
    return _float(first)


def _stolen(root: Path) -> float | None:
    fields = (_read(root / "proc/stat") or "").partition("\n")[0].split()
    ticks = _float(fields[8]) if len(fields) > 8 else None
    try:
        return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return None


def _clock(root: Path) -> dict[str, object]:
    info = time.get_clock_info("perf_counter")
    source = _read(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
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
