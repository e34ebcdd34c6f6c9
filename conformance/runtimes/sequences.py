"""Outputs that are sequences of tensors or of maps, which runtimes give as lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from conformance.process.arrays import Array


def tensors(outputs: Iterable[object]) -> list[Array]:
    """All tensors of a model's outputs in order, those of a sequence in its place; an optional output that has no
    value has no tensor. Maps are two: the keys, in order, and a row of values for each map."""
    return list(_flat(outputs))


def _flat(outputs: Iterable[Any]) -> Iterator[Any]:
    for output in outputs:
        maps = output if isinstance(output, list) else [output]
        if maps and all(isinstance(one, dict) and one.keys() == maps[0].keys() for one in maps):
            keys = sorted(maps[0])
            yield np.array(keys)
            yield np.array([[one[key] for key in keys] for one in maps], np.float32)
        elif isinstance(output, (list, tuple)):
            yield from _flat(output)
        elif isinstance(output, np.ndarray) and output.dtype.kind == "O":
            # texts, in the dtype in which NumPy compares and copies them by value
            yield output.astype(str)
        elif output is not None:
            yield output
