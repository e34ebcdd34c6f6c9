"""Measure rows of the tables part by part. A part that is kept is not measured again."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.common import ROOT
from benchmarks.scale.measured import available
from conformance.process.arrays import Array
from conformance.process.errors import summarize
from conformance.results.records.processor import cpu
from evidence.numbers import kernels
from evidence.numbers.functions import FUNCTIONS, Function
from evidence.numbers.right import FORMATS, Format, Right
from evidence.numbers.tally import SLICE, Row, Watched

KEPT = ROOT / "reports" / "numbers"
"""The parts, by format, function and runtime with its version and the processor."""
METHOD = 1
"""Counts up where the code measures otherwise, so that parts that are kept say something else."""
MEMORY = 2 * 2**30
"""Bytes; 0.8 GiB were seen, most of which are the runtimes' own."""
ALL, SAMPLE = "all", "sample"
ONE_OF = 256
"""A sample has one value of so many that follow one another, and zeros, ones and infinities."""
CHUNK, PART = 2**17, 2**26
"""Values that are given at a time, and of a part."""
SHORT = {ALL: 8, SAMPLE: 64}
"""Short inputs of a chunk of float32; of 16 bits all values are given in short inputs."""


@dataclass(frozen=True)
class Plan:
    """Rows to measure: of each function, format and runtime, of float32 a ``SAMPLE`` or ``ALL``."""

    functions: Collection[str] = tuple(FUNCTIONS)
    formats: Collection[str] = tuple(FORMATS)
    runtimes: Collection[str] = ()
    values: str = SAMPLE
    kept: Path = KEPT
    until: float = float("inf")
    """By the clock of ``time.monotonic``: no part begins later."""
    most: int = 2**32
    """Values of a row, the first ones; a power of two."""

    def values_of(self, of: Format) -> str:
        return self.values if of.name == "float32" else ALL

    def parts(self, of: Format) -> list[range]:
        """Return the ranges of the parts of a row, by number of a value."""
        count = min(2 * of.sign // (ONE_OF if self.values_of(of) == SAMPLE else 1), self.most)
        return [range(start, start + min(PART, count)) for start in range(0, count, PART)]

    def file(self, row: Row, span: range) -> Path:
        """Return where a part is kept."""
        folder = self.kept / row.format / row.function / f"{row.runtime} {row.version} {row.processor}"
        return folder / f"{row.values}-{span.start:08x}-{len(span):x}-{METHOD}.json"


def empty(plan: Plan, name: str, of: Format) -> dict[str, Row]:
    """Return the rows of a function and a format, by runtime."""
    known, processor = kernels.runtimes(), " ".join(cpu()["instructions"]) or str(cpu()["name"])
    values = plan.values_of(of)
    return {one: Row(name, of.name, one, known[one], values, processor) for one in plan.runtimes or known}


def measure(plan: Plan) -> Iterator[Row]:
    """Measure what is not kept, and yield each row that is complete. Raises MemoryError on a host that would swap."""
    for name, of in ((name, FORMATS[one]) for name in plan.functions for one in plan.formats):
        rows = empty(plan, name, of)
        for span in plan.parts(of):
            parts = empty(plan, name, of)
            missing = [part for part in parts.values() if not plan.file(part, span).exists()]
            if missing and time.monotonic() < plan.until:
                measure_part(FUNCTIONS[name], of, missing, span)
                for part in missing:
                    keep(plan.file(part, span), part)
            for runtime, file in ((runtime, plan.file(part, span)) for runtime, part in parts.items()):
                if not file.exists():
                    rows.pop(runtime, None)
                elif runtime in rows:
                    part = Row(**json.loads(file.read_text(encoding="utf-8")))
                    rows[runtime].error = part.error
                    rows[runtime].add(part)
        yield from rows.values()


def keep(where: Path, part: Row) -> None:
    """Write a part as a whole or not at all."""
    where.parent.mkdir(parents=True, exist_ok=True)
    draft = where.with_suffix(".part")
    draft.write_text(json.dumps(asdict(part)), encoding="utf-8")
    draft.replace(where)


def measure_part(function: Function, of: Format, parts: Sequence[Row], span: range) -> None:
    """Fill in the part of each runtime; what is right is computed once for all."""
    if available() < MEMORY:
        raise MemoryError(f"a row needs {MEMORY / 2**30:g} GiB of memory, and this host has less that is free")
    right, sampled = Right(function, of), parts[0].values == SAMPLE
    with ExitStack() as stack, np.errstate(all="ignore"):
        watched: list[Watched] = []
        for part in parts:
            try:
                kernel = stack.enter_context(kernels.opened(part.runtime, function, of))
                watched.append(Watched(kernel, function, of, part))
            except Exception as error:  # whatever a runtime raises on what it does not run
                part.error = summarize(error)
        size = min(CHUNK, len(span), of.sign)
        short = SHORT[SAMPLE if sampled else ALL] if size == CHUNK else -(-size // SLICE)
        for start in range(span.start, span.stop, size) if watched else ():
            x = inputs(of, start, size, sampled=sampled)
            began = time.process_time()
            wanted = right.of(x)
            shared = time.process_time() - began
            for one in watched:
                began = time.process_time()
                one.look(x, wanted, short, more=len(x) > size)
                one.row.seconds += time.process_time() - began + shared
    for one in watched:
        one.row.by_mpmath, one.row.seconds = right.asked, round(one.row.seconds, 2)


def inputs(of: Format, start: int, count: int, *, sampled: bool) -> Array:
    """Return values of a format by number, ``count`` of them and the next one unless that has the other sign."""
    every = ONE_OF if sampled else 1
    last = (start + count) * every % of.sign == 0
    number = np.arange(start, start + count + (not last), dtype=np.uint32)
    if sampled:
        own = number * np.uint32(2654435761) >> np.uint32(24)  # D. Knuth's multiplicative hash: any of the 256
        number = number * np.uint32(every)
        special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf], of.dtype).view(of.bits)
        number += np.where(np.isin(number, special), np.uint32(0), own)
    return number.astype(of.bits).view(of.dtype)
