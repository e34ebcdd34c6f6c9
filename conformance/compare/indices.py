"""Outputs of indices. Which of several equal values an index names is left open by PyTorch and ONNX alike, so that
what is compared is what stands at them, in an input or in another output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.compare.tolerance import Comparison, Subject, failed, worst_at
from conformance.process.arrays import Array


class Unreadable(ValueError):
    """The right values of an output are no indices of what the case says: a mistake of the case."""


@dataclass(frozen=True)
class Indices:
    """The values of an output are indices of ``of``, an input by its name or an output by its number.

    They count along ``axis``; along several axes, which lie side by side, as they count when these are flattened. The
    output has the dims of ``of`` but for those of ``axis``, in whose place it may have any or none: ``topk`` has one,
    ``argmax`` none.
    """

    of: str | int
    axis: tuple[int, ...]

    def source(self, outputs: Sequence[Array], inputs: Mapping[str, Array]) -> Array:
        """The array that is indexed. Raises Unreadable where there is none."""
        try:
            return outputs[self.of] if isinstance(self.of, int) else inputs[self.of]
        except (IndexError, KeyError):
            raise Unreadable(f"there is no {self.of} to look the indices up in") from None

    def check(self, indices: Array, source: Array) -> None:
        """Raise Unreadable where these are no indices of ``source``."""
        if indices.dtype.kind not in "iu":
            raise Unreadable(f"it is {indices.dtype}, and indices are integers")
        if any(not -source.ndim <= axis < source.ndim for axis in self.axis):
            raise Unreadable(f"axis {self._text()} is out of range for the shape {list(source.shape)}")
        axes = self._axes(source)
        if axes != list(range(axes[0], axes[-1] + 1)):
            raise Unreadable(f"axis {self._text()} names axes that do not lie side by side")
        before, after = source.shape[: axes[0]], source.shape[axes[-1] + 1 :]
        inner = len(indices.shape) - len(after)
        if inner < len(before) or indices.shape[: len(before)] != before or indices.shape[inner:] != after:
            kept = [*map(str, before), "...", *map(str, after)]
            raise Unreadable(
                f"its shape {list(indices.shape)} is not [{', '.join(kept)}], which indices along axis "
                f"{self._text()} of the shape {list(source.shape)} have"
            )
        count, lowest = self.range(indices, source)
        values = indices.astype(np.int64)
        if values.size and not lowest <= values.min() <= values.max() < count:
            raise Unreadable(f"it goes from {values.min()} to {values.max()}, and there are {count} values to index")

    def range(self, right: Array, source: Array) -> tuple[int, int]:
        """Return how many values there are to index, and the lowest index: below 0 only where the right ones are."""
        count = math.prod(source.shape[axis] for axis in self._axes(source))
        return count, -count if right.size and bool((right < 0).any()) else 0

    def values_at(self, indices: Array, source: Array) -> Array:
        """Return the values at indices that ``check`` lets through, in the shape of the indices."""
        layers = self._layers(source, source)
        there: Array = np.take_along_axis(layers, self._normal(indices, source), axis=1)
        return there.reshape(indices.shape)

    def wrong(self, subject: Subject, got: Array, right: Array, source: Array, name: str) -> Comparison | None:
        """Why the indices of a runtime, of the right dtype and shape, cannot be looked up: one is out of range, or
        stands twice where all those that are right are distinct."""
        if not got.size:
            return None
        count, lowest = self.range(right, source)
        values = got.astype(np.int64)
        outside = (values < lowest) | (values >= count)
        if outside.any():
            text = f"{int(outside.sum())} of {got.size} indices are out of range: {name} has {count} values there"
            return self._failed(subject, text, outside, got, right)
        twice = self._repeated(self._normal(got, source))
        if not twice.any() or self._repeated(self._normal(right, source)).any():
            return None
        twice = twice.reshape(got.shape)
        text = f"{int(twice.sum())} of {got.size} indices stand there a second time, and each may only once"
        return self._failed(subject, text, twice, got, right)

    @staticmethod
    def _failed(subject: Subject, text: str, wrong: Array, got: Array, right: Array) -> Comparison:
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        error = abs(float(got[first]) - float(right[first]))
        return failed(
            "WrongIndex", f"{subject}: {text}", worst_at(subject.number, first, got, right, error, math.inf)
        )

    @staticmethod
    def _repeated(layers: Array) -> Array:
        """Return a mask of the indices that stand earlier along the middle axis too."""
        order = np.argsort(layers, axis=1, kind="stable")
        in_order = np.take_along_axis(layers, order, axis=1)
        again = np.zeros(layers.shape, dtype=bool)
        again[:, 1:] = in_order[:, 1:] == in_order[:, :-1]
        repeated = np.zeros_like(again)
        np.put_along_axis(repeated, order, again, axis=1)
        return repeated

    def _axes(self, source: Array) -> list[int]:
        return sorted({axis % source.ndim for axis in self.axis})

    def _normal(self, indices: Array, source: Array) -> Array:
        """The indices in three dims, as ``_layers``, and counted from 0."""
        count, _ = self.range(indices, source)
        values: Array = self._layers(indices, source).astype(np.int64) % max(count, 1)
        return values

    def _layers(self, array: Array, source: Array) -> Array:
        """Return an array with the dims before ``axis``, along it and after it as three dims."""
        axes = self._axes(source)
        before, after = math.prod(source.shape[: axes[0]]), math.prod(source.shape[axes[-1] + 1 :])
        rest = len(source.shape) - axes[-1] - 1
        along = math.prod(array.shape[axes[0] : array.ndim - rest])
        return array.reshape(before, along, after)

    def _text(self) -> str:
        return str(self.axis[0]) if len(self.axis) == 1 else str(list(self.axis))

    def as_dict(self) -> dict[str, object]:
        return {"of": self.of, "axis": list(self.axis)}
