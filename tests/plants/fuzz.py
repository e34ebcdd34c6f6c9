"""Spoiled case files read and planned: their problems or what escaped, and what is wrong with how these are said."""

from __future__ import annotations

import contextlib
import pickle
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

from conformance.case.draw.draw import Draw, about
from conformance.case.draw.shapes import boundary_sizes, drawn_shapes, related_sizes, shrink, trace_sizes
from conformance.case.plan.catalogue import Selection, read_suite
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import apart, declared, expectations, on_host
from conformance.models.kept.fingerprint import Fingerprints
from conformance.models.kept.inventory import named, said, said_of
from conformance.process.errors import Problem
from tests.plants.spoil import Spoiler

SLOWEST = 10.0
"""Seconds that a spoiled file of a few KiB may take; nearly all take a hundredth of one."""

_NOT_A_SENTENCE = re.compile(
    r"<class|<function|object at 0x|Traceback|function-|_validate|\w+\(\w+=|\[\{'|\{'\w+': [\[{]|[\n\r\x00-\x1f\x7f]"
)
"""What shows that a message is a dump of Python, or is not in one line."""


def planned(file: Path) -> list[Problem]:
    """Does all that a process of the tests does with a case file before cells run, and what a worker does with its
    sizes; the problems of the file. Raises what should never be raised."""
    cells, files = read_suite([file], Selection())
    (error,) = files.values()
    assert len({cell.id for cell in cells}) == len(cells), "two cells have one id"
    fingerprints = Fingerprints({})
    for cell in cells:
        expectations(cell)
        on_host(declared(cell), ())
        apart(cell)
        assert cell.record().as_dict()["id"] == cell.id
    for cell in {cell.case.name: cell for cell in cells[:400]}.values():
        fingerprints(cell)
        assert pickle.loads(pickle.dumps(cell)).id == cell.id
        assert said(cell.case, "verdict") and said_of(cell.case, cell.exporter)
        assert list(named(cell.case)) is not None
    for cell in cells[:1]:
        with contextlib.suppress(ValueError):  # a mistake of the case, such as a division by 0, which stops its cells
            _sizes(cell)
    return [] if error is None else error.problems


def _sizes(cell: Cell) -> None:
    case = cell.case
    traced = trace_sizes(case.dims, case.says.trace)
    trace_sizes(case.dims, case.says.trace, odd=True)
    boundary = boundary_sizes(case.dims, traced)
    assert boundary
    for sizes in (*boundary, *(sizes for sizes, _ in drawn_shapes(case.dims, 2, seed=0))):
        assert all(len(given.type.at(sizes)) == len(given.type.shape) for given in case.says.inputs.values())
        for entry in case.says.fails:
            about(entry.when, Draw(sizes, "plain", 0))
    for entry in case.says.fails:
        related_sizes(case.dims, {name: r for name, r in entry.when.at.items() if r.names}, boundary[:1])
    shrink(case.dims, boundary[-1], lambda sizes: True)


def fault(problem: Problem, data: bytes) -> str | None:
    """What is wrong with what is said of a file: a place outside of it, no sentence, a mistake of the harness."""
    if not 1 <= problem.line <= len(data.splitlines()) + 1 or problem.column < 1:
        return "a place outside of the file"
    if "mistake in the harness" in problem.message:
        return "a mistake in the harness"
    if not problem.message.strip() or _NOT_A_SENTENCE.search(problem.message) or len(problem.message) > 1000:
        return "no sentence"
    return None


def spoiled(count: int, seed: object, folder: Path) -> Iterator[tuple[str, bytes, list[Problem] | Exception, float]]:
    """``count`` spoiled files: the way, the bytes, its problems or what escaped, and the seconds."""
    spoiler, rng = Spoiler(folder), random.Random(f"{seed}")
    file = folder / "spoiled.yaml"
    for _ in range(count):
        way, data = spoiler(rng)
        file.write_bytes(data)
        start = time.perf_counter()
        try:
            outcome: list[Problem] | Exception = planned(file)
        except Exception as error:
            outcome = error
        yield way, data, outcome, time.perf_counter() - start
