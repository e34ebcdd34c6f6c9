"""Measure the milliseconds that the pytest plugin adds to a project without cases, in which it is only installed.

Each side is a process of pytest with one test that does nothing; the other has ``-p no:conformance.plugin``. Times
are processor seconds, which a busy host changes least; what is added, the difference of two that ran in turn.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.common import Row, core_seconds_of, in_turn, run_python

LIMIT = 0.02
"""Seconds that it may add, by the median."""
TEST = "def test_nothing():\n    pass\n"


def rows(quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "test_nothing.py").write_text(TEST, encoding="utf-8")
        pytest = partial(run_python, place, "-m", "pytest", "-q", "-p", "no:cacheprovider")
        without = partial(pytest, "-p", "no:conformance.plugin")
        pytest(), without()  # which write the bytecode
        sides = {"with": partial(core_seconds_of, pytest), "without": partial(core_seconds_of, without)}
        times = in_turn(sides, 3 if quick else 21)
    added = [a - b for a, b in zip(times.values["with"], times.values["without"], strict=True)]
    half = statistics.quantiles(added, n=4)
    median = statistics.median(added)
    yield Row(
        "`pytest` with one empty test, no cases",
        f"{1000 * times['with']:.0f} ms",
        f"without the plugin, {1000 * times['without']:.0f} ms",
        f"adds {1000 * median:.1f} ms (half of them {1000 * half[0]:.1f} to {1000 * half[2]:.1f})",
        f"at most {1000 * LIMIT:.0f} ms, by the median",
        median <= LIMIT,
        times.repeats,
    )
