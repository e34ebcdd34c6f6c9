"""What is printed, and ``docs/evidence/endurance.md``."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from benchmarks import isolation
from benchmarks.common import ROOT, Row, table
from evidence.counts import none
from evidence.endurance import kills, sharing, stream
from evidence.endurance.catalogue import HARMS

PAGE = ROOT / "docs" / "evidence" / "endurance.md"

TEXT = """# Endurance

Made by `tox run -e dev -- python -m evidence endurance`. Four questions: what it costs to look at a process after
a cell, what a long run among hostile cells loses, what runs lose that are killed, and whether two runs can share a
store.

{table}

- **The long run** goes through one `Runner`, as the suite does: every record is held against the cell that was asked
  for. One cell in a hundred does one of {harms} harms to its process: {names}. Nine in ten of the others look at a
  stored model, one in ten runs it, and each of these is checked to pass.
- **Killed runs** work with `-n 2` on the same cases; SIGKILL hits the first process at a random moment between the
  tenth part and the whole of a run. A cell that the terminal had shown as finished has to have its record on disk.
- **Two runs on one store** start at the same moment with an empty store.

{where}
"""


_fence = functools.cache(isolation.fence)


def rows(quick: bool) -> Iterator[Row]:
    yield _fence(3 if quick else 15)
    yield from _stream_rows(stream.study(300 if quick else 100_000))
    yield from _killed_rows(kills.study(1 if quick else 50))
    yield from _shared_rows(sharing.study(1 if quick else 20))


def write(where: str) -> None:
    """Write the page; ``where`` says on what host and with which versions."""
    names = ", ".join(f"`{name}`" for name in HARMS)
    PAGE.write_text(
        TEXT.format(table=table(rows(False)), harms=len(HARMS), names=names, where=where), encoding="utf-8"
    )  # fmt: skip


def _stream_rows(seen: stream.Streamed) -> Iterator[Row]:
    hostile = sum(seen.hostile.values())
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(seen.hostile.items()))
    yield Row(
        "a long run among hostile cells", f"{seen.cells:,} cells in {seen.seconds:,.0f} s",
        f"{hostile:,} of them hostile ({statuses})", repeats=1,
    )  # fmt: skip
    for what, count in (("records lost", seen.lost), ("records of another cell", seen.swapped)):
        yield none(what, count, f"{seen.cells:,} cells", seen.cells)
    yield none("sound cells that were not green", len(seen.harmed), f"{seen.cells - hostile:,} cells", seen.cells)
    yield none("processes left", seen.processes, "one second after the end", 1)
    yield none("temporary files left", len(seen.files), ", ".join(seen.files[:3]), 1)
    first, early, late = seen.controller
    yield Row(
        "memory of the controller at the end", f"{late.resident:.1f} MiB",
        f"after a tenth of the cells, {early.resident:.1f} MiB", f"{late.resident / early.resident:.2f}",
        target="at most 1.05 ×", met=late.resident <= 1.05 * early.resident,
    )  # fmt: skip
    start, end = seen.worker
    yield Row(
        "memory of the worker at the end", f"{end.resident:.0f} MiB, {end.descriptors} descriptors",
        f"at the start, {start.resident:.0f} MiB, {start.descriptors} descriptors",
        f"{end.resident / start.resident:.2f}",
    )  # fmt: skip
    # Whether there is a worker at that moment is chance, and makes a difference of its own.
    more = late.descriptors - max(first.descriptors, early.descriptors)
    yield none("descriptors of the controller beyond those before", max(0, more), f"{late.descriptors} now", 1)


def _killed_rows(seen: kills.Killed) -> Iterator[Row]:
    yield none(
        "runs killed: finished cells without a record", seen.lost,
        f"{seen.reported:,} shown as finished, by {seen.with_records} runs with records", seen.runs,
    )  # fmt: skip
    yield none("runs killed: run files that cannot be read", len(seen.damaged), "", seen.runs)
    yield none(
        f"runs killed: alive after {kills.SECONDS:g} s", seen.went_on,
        f"the last process was gone after at most {seen.slowest:.2f} s", seen.runs,
    )  # fmt: skip
    yield none("a whole run after them, same report and store, that is not whole", int(not seen.whole), "", 1)


def _shared_rows(seen: sharing.Shared) -> Iterator[Row]:
    yield none("two runs on one store: cells that did not pass", seen.red, f"{seen.cells:,} cells", seen.pairs)
    yield none("two runs on one store: runs that failed", seen.failed, f"{2 * seen.pairs} runs", seen.pairs)
    yield none("two runs on one store: unfinished entries left", seen.left, "", seen.pairs)
