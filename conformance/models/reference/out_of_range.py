"""Values beyond the ranges that a case declares, where its module takes them: a narrow range does not show what a
wrong model does outside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from conformance.case.draw.draw import Draw, Maker, seed_of
from conformance.case.draw.value_regimes import make
from conformance.case.files.declaration import Case
from conformance.case.files.dims import Expression, Sizes
from conformance.case.files.inputs import Between, Input, Values
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Inputs
from conformance.process.errors import Stopped

LEAST = 8
"""By how much a range of whole numbers is widened at least, to either side."""
TRIED = 3
"""On how many draws a module has to take a wider range."""


def has_ranges(case: Case) -> bool:
    """Return whether a case declares ranges that others may be wider than."""
    values = [declared.values for declared in case.says.inputs.values() if declared.values is not None]
    return case.says.draw is None and any(one.integers is not None or one.uniform is not None for one in values)


def inputs_beyond(
    reference: Reference, maker: Maker, draws: Sequence[Draw], times: float
) -> Iterator[tuple[Draw, Inputs]]:
    """Yield these draws with inputs of which some lie beyond the ranges that the case declares, by ``times`` their
    width, where its module takes them."""
    wider = taken_beyond(reference, maker, draws[0].dims, times) if draws else {}
    for draw in draws if wider else ():
        rng = np.random.default_rng(seed_of("beyond", draw.seed))
        inputs = maker(draw)
        for name, values in wider.items():
            declared = reference.case.says.inputs[name].model_copy(update={"values": values})
            inputs[name] = make(declared, draw.dims, "plain", rng)
        if takes(reference, inputs):
            yield draw, inputs


def taken_beyond(reference: Reference, maker: Maker, sizes: Sizes, times: float = 1) -> dict[str, Values]:
    """Return wider ranges for the inputs of a case whose module takes them: by ``times`` their width, to either side.
    Where the case's own Python makes inputs that belong together, nobody else knows which are legal."""
    says = reference.case.says
    if says.draw is not None:
        return {}
    inputs = maker(Draw(sizes, "plain", 0))
    found: dict[str, Values] = {}
    for name, declared in says.inputs.items():
        if declared.values is None or declared.type.dtype == "bool" or "mask" in name:
            continue
        for side in (-1, 1):
            for width in _widths(declared.values, sizes, times):
                wider = _widened(declared, found.get(name, declared.values), side * width, sizes)
                if wider is not None and _takes_all(reference, inputs, name, wider, sizes):
                    found[name] = wider
                    break
    return found


def takes(reference: Reference, inputs: Inputs) -> bool:
    """Return whether PyTorch runs on these inputs and gives finite numbers."""
    try:
        outputs = reference.afresh(inputs)
    except Stopped:
        return False
    return all(bool(np.isfinite(array).all()) for array in outputs if array.dtype.kind == "f")


def _takes_all(reference: Reference, inputs: Inputs, name: str, wider: Values, sizes: Sizes) -> bool:
    declared = reference.case.says.inputs[name].model_copy(update={"values": wider})
    drawn = (make(declared, sizes, "plain", np.random.default_rng(seed)) for seed in range(TRIED))
    return all(takes(reference, {**inputs, name: array}) for array in drawn)


def _widths(values: Values, sizes: Sizes, times: float) -> list[float]:
    """By how much a range is widened, the most first; nothing for what is no range."""
    if values.integers is not None:
        low, high = _numbers(values.integers, sizes)
        return [int(max(high - low, LEAST) * times), 1]
    if values.uniform is not None:
        low, high = _numbers(values.uniform, sizes)
        return [(high - low) * times]
    return []


def _widened(declared: Input, values: Values, by: float, sizes: Sizes) -> Values | None:
    """The range of values, wider at its lower end where ``by`` is negative, and else at its upper end; None for what
    the input's type has no numbers for."""
    kind = "integers" if values.integers is not None else "uniform"
    between: Between = getattr(values, kind)
    below, above = max(-by, 0), max(by, 0)
    low, high = _numbers(between, sizes)
    if low - below < declared.type.limits[0] or high + above > declared.type.limits[1]:
        return None
    return Values.model_validate({kind: {"low": _moved(between.low, -below), "high": _moved(between.high, above)}})


def _numbers(between: Between, sizes: Mapping[str, int]) -> tuple[float, float]:
    low, high = (end(sizes) if isinstance(end, Expression) else end for end in (between.low, between.high))
    return low, high


def _moved(end: float | Expression, by: float) -> float | str:
    if not isinstance(end, Expression):
        return end + by
    return f"({end}) + {int(by)}" if end.names else end({}) + by
