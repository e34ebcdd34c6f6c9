"""The inputs, options and shapes from which TensorRT builds the engine of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from conformance.case.draw.shapes import boundary_sizes
from conformance.case.files.deploy import NOT_OF_THE_BUILDER
from conformance.models.cell_run import CellRun
from conformance.models.kept.model_store import Stored
from conformance.models.prepared import library
from conformance.results.records.words import base_of
from conformance.runtimes.tensorrt.build_options import Build, BuildOptions, Shape, covering


def engine_build(
    run: CellRun, model: Stored, sizes: Iterable[Mapping[str, int]], *, precision: str | None = None
) -> Build:
    """Return what TensorRT builds the engine of a cell with. One engine serves all ``sizes`` that the cell will run
    and the ends of all dims."""
    says, traced, dims = run.cell.case.says, run.prepared.trace(), run.dims()
    with run.stages("declare", "case"):
        inputs = {name: entry for name, entry in says.inputs.items() if name in model.facts.inputs}

        def shapes(at: Mapping[str, int]) -> dict[str, Shape]:
            return {name: tuple(entry.type.at(at)) for name, entry in inputs.items()}

        typical = dims.fit({**traced, **says.tensorrt.typical}) or traced
        options = says.tensorrt.model_dump(exclude=NOT_OF_THE_BUILDER)
        plugins = tuple(library(run.reference, run.cell.case, name) for name in says.tensorrt.plugins)
        return Build(
            covering(shapes(typical), map(shapes, [*boundary_sizes(dims, traced), *sizes])),
            base_of(precision or run.cell.precision),
            BuildOptions(**{**options, **run.settings.tensorrt}, plugins=plugins),
            run.settings.store.parent / "engines",
        )
