"""The arguments of the evaluation of one layer of a parsed network, and the exceptions that it raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.tensorrt.network.parsed_network import NetworkLayer, NetworkTensor


class UncoveredLayer(NotImplementedError):
    """The evaluator lacks a kind of layer, or a form of it. Cause: no meaning of it is written down here. Remedy:
    ``build`` still shows that TensorRT takes the model."""

    def __init__(self, layer: NetworkLayer, form: str = "") -> None:
        super().__init__(f"{layer}{f': {form}' if form else ''}")
        self.kind, self.form = layer.kind, form


class BrokenLayer(ValueError):
    """A layer cannot be computed of the arrays that it is given, which the text says. Cause: the arrays do not fit
    one another, or the layer is read wrongly here. Remedy: as for UncoveredLayer."""


@dataclass(frozen=True)
class LayerCall:
    """Hold a layer with the arrays that it reads, and the tensors that it makes."""

    layer: NetworkLayer
    arrays: tuple[Array | None, ...]
    outputs: tuple[NetworkTensor, ...]

    def __getitem__(self, index: int) -> Array:
        """Return an input that the layer has; UncoveredLayer where it has none."""
        array = self.get(index)
        if array is None:
            raise self.uncovered(f"without input {index}")
        return array

    def get(self, index: int) -> Array | None:
        """Return an input; None where it is left out."""
        return self.arrays[index] if index < len(self.arrays) else None

    def wide(self, index: int) -> Array:
        """Return an input, floats in float64."""
        return widened(self[index])

    def says(self, name: str) -> Any:
        """Return what the layer says; UncoveredLayer where TensorRT does not give it."""
        if name not in self.layer.says:
            raise self.uncovered(f"its {name} cannot be read")
        return self.layer.says[name]

    def axes(self) -> tuple[int, ...]:
        """Return the axes of its bit mask."""
        mask = int(self.says("axes"))
        return tuple(axis for axis in range(mask.bit_length()) if mask >> axis & 1)

    def scalar(self, index: int) -> Any:
        """Return an input of one value as a number of Python."""
        return self[index].reshape(-1)[0].item()

    def uncovered(self, form: str) -> UncoveredLayer:
        return UncoveredLayer(self.layer, form)


def widened(array: Array) -> Array:
    """Return an array in float64 where it is of floats, those of ml_dtypes too; else as it is."""
    return array.astype(np.float64) if is_float(array) else array


def is_float(array: Array) -> bool:
    """Return whether an array is of floats, as NumPy or ml_dtypes have them."""
    name = array.dtype.name
    return array.dtype.kind == "f" or (array.dtype.kind == "V" and "float" in name)
