"""``python -m benchmarks.size.measured FILE MODULE ARGUMENT...`` is ``python -m MODULE ARGUMENT...``, and writes into
``FILE`` how much memory its process had at most, in bytes: that of the process alone, not of those that it starts."""

from __future__ import annotations

import atexit
import re
import runpy
import sys
from pathlib import Path


def _write(file: Path) -> None:
    """``VmHWM`` is what this program had in memory at most; ``ru_maxrss`` may be that of who started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    file.write_text(str(int(found[1]) * 1024), encoding="ascii")


if __name__ == "__main__":
    atexit.register(_write, Path(sys.argv[1]).absolute())
    module, sys.argv = sys.argv[2], sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
