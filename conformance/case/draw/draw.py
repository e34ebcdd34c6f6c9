"""Draws, and the arrays that are made of them."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from conformance.case.draw import value_regimes
from conformance.case.draw.example import Draw as Draw
from conformance.case.draw.few_bits import carried, representable
from conformance.case.draw.graph_values import GraphValues, range_of_numbers
from conformance.case.files.declaration import Case
from conformance.case.files.dims import Sizes
from conformance.case.files.inputs import Input
from conformance.case.files.must_hold import When
from conformance.case.files.python import call
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.recorded_data import read_recorded
from conformance.process.disk.recorded_tensors import read_interface
from conformance.process.errors import Stopped, display_path
from conformance.process.worker import memory
from conformance.results.records.words import HUGE, REGIMES, SPECIALS


def about(when: When, draw: Draw) -> bool:
    """Return whether a condition of a ``fails`` entry is about this draw."""
    if draw.regime == HUGE and HUGE not in when.values:
        draw = dataclasses.replace(draw, regime="large")  # which they are too
    return all(draw.dims.get(name, -1) in r.values(draw.dims) for name, r in when.at.items()) and (
        not when.values or draw.regime in when.values
    )


def seed_of(text: str, *more: object) -> int:
    """A 32-bit seed from a cell's id, so that editing the harness does not change what is drawn."""
    digest = hashlib.blake2b(repr((text, *more)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def regimes_of(check: str, count: int, shape: int) -> list[str]:
    """``count`` regimes for the ``shape``-th shape of a cell: plain values first, then the others in turn.

    What a precision costs (``fidelity``) is measured with plain values alone: those that the case declares.
    """
    if check == "fidelity":
        return [REGIMES[0]] * count
    if check == "specials":
        return [SPECIALS[(shape * count + k) % len(SPECIALS)] for k in range(count)]
    others = REGIMES[1:]
    return [REGIMES[0], *(others[(shape * (count - 1) + k) % len(others)] for k in range(count - 1))]


SURELY_SMALL = 2**24
"""Values of all inputs together up to which there is room for them anywhere."""
_DRAWING = 16
"""Bytes that drawing takes for each value: two arrays of float64, before there is one of the input's type."""


def _recorded_hooks(case: Case) -> dict[str, Callable[..., Any]]:
    """Return what gives the recorded values of inputs that have these in draws too."""
    assert case.says.recorded is not None
    model = case.folder / str(case.says.onnx)
    places = [case.folder / name for name in case.says.recorded.data]
    sets = read_recorded(places, read_interface(model)).sets

    def hook(name: str) -> Callable[..., Any]:
        values = (one.inputs[name] for one in sets)
        arrays = [carried(value) if isinstance(value, np.ndarray) else value for value in values]
        return lambda shape, dims, rng: arrays[int(rng.integers(len(arrays)))]

    known = case.says.inputs.items()
    return {name: hook(name) for name, one in known if one.values is not None and one.values.recorded}


class Maker:
    """Makes the arrays of a case's draws."""

    def __init__(self, case: Case, resolve: Callable[[str], Callable[..., Any]]) -> None:
        """``resolve`` finds the Python functions that the case names."""
        self._case = case
        self._joint = resolve(case.says.draw) if case.says.draw else None
        self._small: tuple[Sizes, dict[str, tuple[int, ...]]] | None = None
        self._hooks = {
            name: resolve(declared.values.python)
            for name, declared in case.says.inputs.items()
            if declared.values is not None and declared.values.python
        }
        if any(one.values is not None and one.values.recorded for one in case.says.inputs.values()):
            self._hooks |= _recorded_hooks(case)

    def _shapes(self, draw: Draw) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all inputs; raise Stopped where there is no room for them."""
        if self._small is not None and draw.dims is self._small[0]:  # the draws of a shape share their sizes
            return self._small[1]
        shapes = {name: declared.type.at(draw.dims) for name, declared in self._case.says.inputs.items()}
        counts = {name: math.prod(shape) for name, shape in shapes.items()}
        if sum(counts.values()) < SURELY_SMALL:
            self._small = draw.dims, shapes
            return shapes
        sizes = {name: counts[name] * np.dtype(self._case.says.inputs[name].type.carrier).itemsize for name in counts}
        drawn = max((_DRAWING * counts[name] for name in counts if name not in self._hooks), default=0)
        if sum(sizes.values()) + drawn > (room := memory.allowed()):
            name = max(sizes, key=lambda name: sizes[name])
            shape = f"{self._case.says.inputs[name].type.dtype}{list(shapes[name])}"
            more = f", and {drawn / memory.GIB:.3g} GiB while values are drawn" if drawn else ""
            text = (
                f"the inputs take {sum(sizes.values()) / memory.GIB:.3g} GiB of memory{more}, of which there are "
                f"{room / memory.GIB:.3g} GiB; the largest is {name}, {shape}: declare smaller dims "
                f"({display_path(self._case.file)}:{self._case.line})"
            )
            raise Stopped("declare", "OutOfMemory", text, "case")
        return shapes

    @cached_property
    def _graph(self) -> GraphValues | None:
        """Return what the operators of the case's file say of its inputs; None for a case of a module."""
        file, target = self._case.says.onnx, self._case.says.export.onnx
        if not isinstance(file, str):
            return None
        other = self._case.folder / target.file if target is not None and target.file is not None else None
        return GraphValues(self._case.folder / file, other)

    def has_rules(self, name: str) -> bool:
        """Return whether the values of an input are made by the rules of an operator, so that others break them."""
        declared = self._case.says.inputs[name]
        if self._graph is None or not declared.is_drafted:
            return False
        return bool(self._graph.rules(name, np.dtype(declared.type.carrier).kind))

    def has_huge(self) -> bool:
        """Return whether an input has room for huge values."""
        inputs, graph = self._case.says.inputs, self._graph
        drafted = [] if graph is None else [name for name, declared in inputs.items() if declared.is_drafted]
        wide = (graph and graph.wide_range(name, np.dtype(inputs[name].type.carrier)) for name in drafted)
        return any(wide) or any(map(value_regimes.has_huge, inputs.values()))

    def _by_graph(
        self, name: str, declared: Input, draw: Draw, rng: np.random.Generator, known: Inputs,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Array | None:  # fmt: skip
        """Return the values of an input of a file by what its graph does with them; None where that says nothing."""
        if self._graph is None or not declared.is_drafted:
            return None
        dtype, shape = np.dtype(declared.type.carrier), shapes[name]
        if declared.type.is_text:
            return value_regimes.choice(np.array(self._graph.vocabulary(name)), shape, self._regime(name, draw), rng)
        made = self._graph.make(name, shape, dtype.kind, known, shapes, rng, draw.seed)
        if made is None and dtype.kind in "iu" and self._graph.are_numbers(name):
            (low, high), (least, most) = range_of_numbers(dtype), declared.type.limits
            if draw.regime == HUGE:
                low, high = self._graph.wide_range(name, dtype) or (low, high)
            low, high = max(low, int(least)), min(high, int(most))
            made = value_regimes.whole_numbers(low, high, shape, self._regime(name, draw), rng)
        return None if made is None else np.asarray(made).astype(dtype)

    def _regime(self, name: str, draw: Draw) -> str:
        if draw.flags is not None and self._case.says.inputs[name].is_flag:
            return draw.flags
        excused = draw.regime in SPECIALS and not self._case.says.takes_specials(name)
        return REGIMES[0] if excused else draw.regime

    def __call__(self, draw: Draw) -> Inputs:
        """Arrays by input name; raises ValueError where the case's own Python gives something else, and Stopped
        where they are known to be too large before any is made."""
        shapes = self._shapes(draw)
        rng = np.random.Generator(np.random.SFC64(draw.seed))
        arrays: Inputs = {}
        for name, declared in self._case.says.inputs.items():
            array = self._by_graph(name, declared, draw, rng, arrays, shapes)
            if array is None:
                regime = self._regime(name, draw)
                array = value_regimes.make(declared, draw.dims, regime, rng, self._hooks.get(name))
            few = declared.type.carrier != declared.type.dtype and not declared.type.is_text
            arrays[name] = representable(array, declared.type.dtype) if few else array
        arrays |= value_regimes.positions(self._case.says.inputs, arrays)
        if self._joint is not None:
            given = call(f"{self._case.says.draw}", self._joint, dict(draw.dims), rng)
            if not isinstance(given, Mapping) or not given.keys() <= arrays.keys():
                raise ValueError(f"{self._case.says.draw} has to return a mapping from input names to arrays")
            for name, array in given.items():
                kind, where = self._case.says.inputs[name].type, f"{self._case.says.draw}: {name}"
                checked = value_regimes.check(array, kind.at(draw.dims), np.dtype(kind.carrier), where)
                arrays[name] = value_regimes.with_specials(checked, self._regime(name, draw), rng)
        return arrays
