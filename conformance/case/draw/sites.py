"""The place of an operator that values are made for, and rules that need no more than a range."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.onnxgraph.reads import plain

if TYPE_CHECKING:
    from onnx import NodeProto


@dataclass(frozen=True)
class Site:
    """The place of an operator that an input is read at, in one example."""

    node: NodeProto
    shape: tuple[int, ...]
    """The shape of the input that values are made for."""
    rng: np.random.Generator
    seed: int
    """The same for all inputs of a node in an example, for values that belong together."""
    shape_of: Callable[[int], tuple[int, ...] | None]
    """The shape of another input of the node, by place; None where it is not known or there is none."""
    value_of: Callable[[int], Array | None]
    """The values of another input that is constant, or was made before."""
    opset: int

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def attribute(self, name: str, otherwise: Any) -> Any:
        return next((plain(one) for one in self.node.attribute if one.name == name), otherwise)

    def dim(self, place: int, axis: int) -> int | None:
        """Return a size of another input; None where it is not known."""
        shape = self.shape_of(place)
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None

    def draw(self, low: int, high: int) -> Array:
        """Return whole numbers of a range, both ends included, for the shape of the input."""
        return np.asarray(self.rng.integers(low, max(low, high), size=self.shape, endpoint=True))


class NoValues(ValueError):
    """No values keep the rules of an operator at this size of an input, which is no size of the model then."""


Rule = Callable[[Site], Array | None]
"""Makes values that keep the rules of an operator, in any dtype and of as many elements as the input has; None where
it cannot be known which do. Raises NoValues where none do."""


def within(low: float, high: float) -> Rule:
    """Whole numbers, or with ends that are no whole numbers any, of a range."""

    def rule(site: Site) -> Array:
        if isinstance(low, int) and isinstance(high, int):
            return site.draw(low, high)
        return np.asarray(site.rng.uniform(low, high, size=site.shape))

    return rule


def same(value: float) -> Rule:
    return lambda site: np.full(site.shape, value)


def any_but_zero(site: Site) -> Array:
    numbers: Array = site.draw(1, 7) * site.rng.choice([-1, 1], size=site.shape)
    return numbers
