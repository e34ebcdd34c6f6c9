"""The arguments of the evaluation of one layer of a parsed network, the exceptions that it raises, and TensorRT's
dtypes as NumPy and ml_dtypes have them."""

from __future__ import annotations

import importlib
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


_PLAIN = {
    "HALF": np.float16, "INT8": np.int8, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_, "UINT8": np.uint8,
}  # fmt: skip
_OF_ML_DTYPES = {
    "BF16": "bfloat16", "FP8": "float8_e4m3fn", "INT4": "int4", "FP4": "float4_e2m1fn", "E8M0": "float8_e8m0fnu",
}  # fmt: skip
FP8_MOST = 448.0
"""The largest number of FP8."""


def dtype_of(word: str, single: Any = np.float32) -> Any:
    """Return the dtype that TensorRT calls ``word``; ``single`` is what holds its FLOAT. LookupError for one that
    another version has more."""
    if word == "FLOAT":
        return np.dtype(single)
    if word in _PLAIN:
        return np.dtype(_PLAIN[word])
    if word not in _OF_ML_DTYPES:
        raise LookupError(f"nothing is known of the dtype {word}")
    others: Any = importlib.import_module("ml_dtypes")  # which onnx brings
    return np.dtype(getattr(others, _OF_ML_DTYPES[word]))


def cast_to(array: Array, word: str, single: Any = np.float32) -> Array:
    """Return an array in the dtype that TensorRT calls ``word``."""
    array, wanted = np.asarray(array), dtype_of(word, single)
    if array.dtype == wanted:
        return array
    with np.errstate(all="ignore"):
        return array.astype(wanted)


def array_of(weights: Array, word: str, shape: tuple[int, ...]) -> Array:
    """Return the weights of a constant in its shape."""
    return cast_to(weights, word).reshape(shape)
