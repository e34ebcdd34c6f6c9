"""Python imports this at its start where this folder is on its path: ONNX Runtime then gives a wrong last element."""

import importlib.util
import sys
from typing import Any

import numpy as np


def wrong(array: Any) -> Any:
    """The last element is off by a hundredth of the largest, or by one where there are no fractions."""
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.kind not in "biuf":
        return array
    array = array.copy()
    last = array.reshape(-1)[-1:]
    if array.dtype.kind == "b":
        last ^= True
    elif array.dtype.kind in "iu":
        last ^= 1
    else:
        finite = array[np.isfinite(array)]
        last += np.asarray(0.01 * (np.abs(finite).max() if finite.size else 1) + 1e-3, array.dtype)
    return array


class Finder:
    """Finds onnxruntime once, and changes it when it has been executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "onnxruntime":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            run = module.InferenceSession.run
            module.InferenceSession.run = lambda self, *given, **more: [*map(wrong, run(self, *given, **more))]

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
