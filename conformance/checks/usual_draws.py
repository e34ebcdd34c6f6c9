"""Draws on which questions about a case are asked, whichever of its cells asks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from conformance.case.declaration import Case
from conformance.checks.prepared import Prepared
from conformance.coverage.measure_coverage import spread
from conformance.depends.inventory import said
from conformance.draw.draw import Draw, regimes_of, seed_of
from conformance.draw.shapes import boundary_sizes, drawn_shapes
from conformance.plan.settings import DRAWN_SHAPES

DRAWS, PLAIN = 12, 3
"""How many draws, and how many of them after the first have plain values."""


def draws(prepared: Prepared) -> Iterator[Draw]:
    """A plain draw at the traced sizes, others with plain values, the smallest first, and draws of the sizes and
    regimes of an accuracy cell. They depend on the case alone, not on ``--examples`` or ``--random``."""
    case, traced = prepared.case, prepared.trace()
    says, seed = case.says.examples, seed_of(question_of(case))
    yield Draw(traced, "plain", seed)
    dims = case.dims.fixing({name: traced[name] for name in _static(case)})
    count = DRAWN_SHAPES if says.shapes is None else says.shapes
    boundary = boundary_sizes(dims, traced)
    shapes = [*boundary[: says.boundary], *(sizes for sizes, _ in drawn_shapes(dims, count, seed))]
    of_shapes = [
        Draw(sizes, regime, seed_of("coverage", seed, k, *sizes.items()))
        for k, sizes in enumerate(shapes)
        for regime in regimes_of("accuracy", says.values, k)
    ]
    plain = [draw for draw in of_shapes if draw.regime == "plain"][:PLAIN]
    plain += (
        Draw(sizes, "plain", seed_of("coverage", seed, "small", *sizes.items()))
        for sizes in boundary[says.boundary :]
        if 0 < 2 * _values(case, sizes) <= min((_values(case, draw.dims) for draw in plain), default=0)
    )
    yield from sorted(plain, key=lambda draw: _values(case, draw.dims) or math.inf)[:PLAIN]
    others = [draw for draw in of_shapes if draw.regime != "plain"]
    yield from spread(others, DRAWS - PLAIN - 1)


def _values(case: Case, sizes: Mapping[str, int]) -> int:
    """Return how many values the inputs have at these sizes; 0 where one of them has none."""
    numbers = [math.prod(entry.type.at(sizes)) for entry in case.says.inputs.values()]
    return sum(numbers) if all(numbers) else 0


def question_of(case: Case) -> str:
    """Return what a case says of its module and of the draws on which that is asked about. Cases that differ in other
    things alone, as in how the module is exported, ask the same."""
    says = {**said(case, "export"), "examples": case.says.examples.model_dump(), "static": sorted(_static(case))}
    return repr((says, sorted(case.arguments.items(), key=str)))


def _static(case: Case) -> set[str]:
    """The dims that are fixed in the models of one exporter or another."""
    return {name for target in case.says.export.exporters.values() for name in target.static}
