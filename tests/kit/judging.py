"""Answers to examples, judged without a runtime that gave them."""

import contextlib
from collections.abc import Iterator

import numpy as np

from conformance.case.draw.draw import Draw, Maker
from conformance.case.files.python import Folder
from conformance.case.plan.cell import Cell
from conformance.judge.verify import Verifier
from conformance.models.of_cell import OfCell
from conformance.models.prepared import reference_of
from conformance.models.stages import Stages
from conformance.process.arrays import Array
from conformance.process.worker.progress_note import Progress
from tests.kit.cases import Bench


@contextlib.contextmanager
def verifying(bench: Bench, body: str, python: str = "") -> Iterator[Verifier]:
    """A verifier of the case, without a runtime."""
    with verifying_cell(bench.cells(body, python)[0]) as verify:
        yield verify


@contextlib.contextmanager
def verifying_cell(cell: Cell) -> Iterator[Verifier]:
    """A verifier of the cell, without a runtime."""
    with Folder.of(cell.case.folder).active() as folder:
        record = cell.record()
        stages = Stages(record, Progress(), cell.case.folder)
        maker = Maker(cell.case, folder.resolve)
        yield Verifier(OfCell(cell, record, stages, reference_of(cell.case, folder), maker))


def judged(bench: Bench, body: str, x: Array, *answers: Array, python: str = "") -> list[str]:
    """The verdicts on these answers to one example."""
    with verifying(bench, body, python) as verify:
        example = verify.example(Draw({"batch": len(x)}, "plain", 0), {"x": x})
        return [verify.judged(example, [np.asarray(got, np.float32)]).verdict for got in answers]
