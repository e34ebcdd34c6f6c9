"""Plant a wrong kernel of ONNX Runtime for each of 60 operators, and count those that drawn values alone find.

ONNX Runtime is replaced in the processes of the cells by itself with one element of its outputs off: the last one, by
a hundredth of the largest. All its forms have that defect, as they share their kernels.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from benchmarks.common import ROOT
from conformance.case.files.dims import carrier_of
from conformance.case.files.onnx_header import header
from conformance.case.plan.settings import Settings
from conformance.cells.check_models import CheckedModel, Model, check_models, run_model
from conformance.cells.runner import Runner
from conformance.process.worker.isolation import Worker
from conformance.results.records.record import Record
from evidence.onnx_tests.all_tests import Shipped
from evidence.onnx_tests.try_tests import Result, case_of_test

COUNT = 60
SECONDS = 60.0
"""Seconds that a cell may take."""
RANDOM = ("Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike")

PLANT = ROOT / "tests" / "plants" / "last_element"
"""The folder that makes ONNX Runtime wrong in processes that have it on their path."""


@dataclass(frozen=True)
class Planted:
    """Hold the verdict on the plant in one operator."""

    operator: str
    records: Sequence[Record]
    refused: str | None

    @property
    def cell(self) -> Record | None:
        return next((one for one in self.records if (one.check, one.runtime) == ("accuracy", "onnxruntime")), None)

    @property
    def found(self) -> bool:
        return self.cell is not None and self.cell.status == "failed"

    def told(self) -> str:
        """Say what the verdict was."""
        if self.cell is None:
            return self.refused or "no cell"
        return f"{self.cell.status}, at fault: {self.cell.fault}: {self.cell.reason}"


def chosen(tests: Sequence[Shipped], results: Sequence[Result]) -> list[Shipped]:
    """Return one test for each of 60 operators, evenly by alphabet: the first that both runtimes do as recorded."""
    right = {one.name for one in results if one.verified("onnxruntime") and one.verified("openvino")}
    first: dict[str, Shipped] = {}
    for test in tests:
        known = test.name in right and test.operator not in ("", "several", *RANDOM)
        if known and "_expanded" not in test.name and not _is_empty(test) and not _is_coarse(test):
            first.setdefault(test.operator, test)
    ordered = [first[operator] for operator in sorted(first)]
    return [ordered[at * len(ordered) // COUNT] for at in range(min(COUNT, len(ordered)))]


def _is_empty(test: Shipped) -> bool:
    """Return whether a test has no input, or one without values: nothing is drawn, or nothing can be wrong."""
    inputs = header(test.file).inputs
    return not inputs or any(size == 0 for tensor in inputs for size in tensor.shape)


def _is_coarse(test: Shipped) -> bool:
    """Return whether an output is of a type in which a hundredth is no error."""
    return any(carrier_of(str(tensor.dtype)) != tensor.dtype for tensor in header(test.file).outputs)


def plant(tests: Sequence[Shipped], store: Path, jobs: int) -> list[Planted]:
    """Return what came of the plant in each operator."""
    settings = Settings(store=store, observe=False, smallest=False, smallest_seconds=1.0)
    by_name = {test.name: test.operator for test in tests}
    models = [Model(test.file, test.name) for test in tests]

    def runner(worker: Worker) -> Runner:
        return Runner(settings, SECONDS, worker)

    def check(worker: Worker, runner: Runner, model: Model) -> CheckedModel:
        return run_model(model, lambda dims: case_of_test(model, ["onnxruntime"]), runner, lambda record: None)

    path = os.pathsep.join(filter(None, [str(PLANT), os.environ.get("PYTHONPATH")]))
    with mock.patch.dict(os.environ, PYTHONPATH=path):  # of the workers, which start now
        done = list(check_models(models, jobs, runner, check, lambda line: print(line, flush=True)))
    return [Planted(by_name[one.model.name], one.records, one.refused) for one in done]
