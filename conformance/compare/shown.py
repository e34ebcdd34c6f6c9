"""Inputs in a few words, for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from conformance.process.arrays import Array, dtype_name


def shown(inputs: Mapping[str, Array]) -> dict[str, str]:
    """Each input in a few words, with its values where they are few enough to read."""
    return {name: _text(array) for name, array in inputs.items()}


def _text(array: Array) -> str:
    if array.size <= 12:
        return f"{dtype_name(array)} {array.tolist()}"
    head = f"{dtype_name(array)}{list(array.shape)}"
    if array.dtype.kind == "U":
        return f"{head} from {min(array.flat)!s:.40} to {max(array.flat)!s:.40}"
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    spread = f" from {finite.min()} to {finite.max()}" if finite.size else ""
    return head + spread + "".join(f", {name} at {place}" for name, place in _odd(array))


def _odd(array: Array) -> Iterator[tuple[str, list[int]]]:
    """Yield the first place of NaN and of each infinity, and how many more there are of it."""
    if array.dtype.kind != "f":
        return
    for name, found in (("NaN", np.isnan(array)), ("inf", np.isposinf(array)), ("-inf", np.isneginf(array))):
        places = np.argwhere(found)
        if len(places):
            more = f"{len(places)} times {name}, first" if len(places) > 1 else name
            yield more, places[0].tolist()
