"""The types of arrays that everything passes around."""

from __future__ import annotations

from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""An input or output, of any dtype and shape."""

Inputs: TypeAlias = dict[str, Array]
"""The inputs of one example by their ONNX names."""
