"""The suite: one test for each cell. In which order they run, ``case.plan.order`` says: case by case, each model made
just before it is used, and small cases first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # so that a worker starts before the schema of case files is imported
    from conformance.case.plan.cell import Cell

Run = Callable[["Cell"], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse a session that has no plugin to make cells of the case files."""
    if not metafunc.config.pluginmanager.hasplugin("conformance-suite"):
        text = "the suite's pytest plugin is not loaded: add -p conformance.plugin, or type conformance run; "
        pytest.fail(f"{text}PYTEST_DISABLE_PLUGIN_AUTOLOAD keeps out installed plugins", pytrace=False)


def test_case_file(case_file: str, read_case_file: Callable[[str], None]) -> None:
    """Each case file can be read, and every entry of ``fails`` and ``graph`` in it is about some cell."""
    read_case_file(case_file)


def test_export(cell: Cell, run: Run) -> None:
    """Check what an exporter makes of a module: valid ONNX at the opset asked for, the declared graph, symbolic
    dims."""
    run(cell)


def test_registration(cell: Cell, run: Run) -> None:
    """Registering a symbolic: without it the declared failure, with it a model that uses every input."""
    run(cell)


def test_fidelity(cell: Cell, run: Run) -> None:
    """Measure what fp16 or int8 costs: the converted model, by its own semantics, against PyTorch in float32."""
    run(cell)


def test_accuracy(cell: Cell, run: Run) -> None:
    """Compare a runtime's outputs with PyTorch's, over all drawn shapes and finite values."""
    run(cell)


def test_specials(cell: Cell, run: Run) -> None:
    """Compare them for NaN, infinities and signed zeros."""
    run(cell)


def test_steps(cell: Cell, run: Run) -> None:
    """Run a decoder token by token, each side with a cache of its own, and compare each step with PyTorch's."""
    run(cell)


def test_recorded(cell: Cell, run: Run) -> None:
    """Check that the runtime gives the outputs that somebody recorded for recorded inputs."""
    run(cell)


def test_metric(cell: Cell, run: Run) -> None:
    """Check that the case's own metric on its own data does not drop by more than the case allows."""
    run(cell)


def test_preprocess(cell: Cell, run: Run) -> None:
    """Check that the module gives the same for inputs as the deployment prepares them."""
    run(cell)


def test_engine(cell: Cell, run: Run) -> None:
    """Check what only an engine on a GPU can show: equal rows, equal builds, time by layer and by batch size."""
    run(cell)


def test_parse(cell: Cell, run: Run) -> None:
    """Check that TensorRT's parser takes the model, by TensorRT for RTX; nothing is run."""
    run(cell)


def test_build(cell: Cell, run: Run) -> None:
    """Check that TensorRT for RTX builds an engine of it for a GPU; nothing is run."""
    run(cell)


def test_meaning(cell: Cell, run: Run) -> None:
    """Compare what TensorRT's parser made of the model with PyTorch, computed in NumPy; nothing runs on a GPU."""
    run(cell)


@pytest.mark.latency
def test_latency(cell: Cell, run: Run) -> None:
    """Check that a runtime keeps its budgets of time; ``-m latency`` selects them."""
    run(cell)
