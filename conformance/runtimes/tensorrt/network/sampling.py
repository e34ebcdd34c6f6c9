"""Layers that read an image between its pixels, and the choice of boxes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.tensorrt.network.layer_call import LayerCall
from conformance.runtimes.tensorrt.network.pointwise import Compute

_ROUNDED: Mapping[str, Callable[[Array], Array]] = {
    "HALF_UP": lambda x: np.floor(x + 0.5), "HALF_DOWN": lambda x: np.ceil(x - 0.5),
    "FLOOR": np.floor, "CEIL": np.ceil,
}  # fmt: skip


def resize(call: LayerCall) -> Array:
    """Each axis by itself: the weights that a pixel of the output gives those of the input."""
    x, given, scales = call.wide(0), call.get(1), list(call.layer.says.get("scales") or ())
    sizes = call.layer.says.get("shape") if given is None else [int(size) for size in given.reshape(-1)]
    if scales:
        sizes = [math.floor(size * np.float32(scale)) for size, scale in zip(x.shape, scales, strict=True)]
    if sizes is None:
        raise call.uncovered("its shape cannot be read")
    for axis, (old, new) in enumerate(zip(x.shape, sizes, strict=True)):
        ratio = scales[axis] if scales else new / old
        if old != new or ratio != 1:
            x = np.moveaxis(np.tensordot(_weights(call, old, new, ratio), x, (1, axis)), 0, axis)
    return x


def _weights(call: LayerCall, old: int, new: int, ratio: float) -> Array:
    """Return an array of ``new`` by ``old`` weights."""
    at = _places(call, old, new, ratio)
    weights, mode = np.zeros((new, old)), call.says("resize_mode")
    rows = np.arange(new)
    if mode == "NEAREST":
        nearest = _ROUNDED[call.says("nearest_rounding")](at)
        weights[rows, np.clip(nearest, 0, old - 1).astype(int)] = 1
        return weights
    low = np.floor(at)
    if mode == "LINEAR":
        for offset, weight in ((0, 1 - (at - low)), (1, at - low)):
            np.add.at(weights, (rows, np.clip(low + offset, 0, old - 1).astype(int)), weight)
        return weights
    outside = bool(call.says("exclude_outside"))
    for offset in range(-1, 3):
        place = low + offset
        weight = _cubic(at - place, call.says("cubic_coeff"))
        if outside:
            weight = np.where((place >= 0) & (place < old), weight, 0)
        np.add.at(weights, (rows, np.clip(place, 0, old - 1).astype(int)), weight)
    return weights / weights.sum(axis=1, keepdims=True) if outside else weights


def _places(call: LayerCall, old: int, new: int, ratio: float) -> Array:
    """Return where the pixels of the output lie in the input."""
    rows, word = np.arange(new, dtype=np.float64), call.says("coordinate_transformation")
    if new == 1 and call.says("selector_for_single_pixel") == "UPPER":
        return rows * 0
    if word == "ALIGN_CORNERS":
        if (old * ratio) % 1:  # the last pixel then lies at that size, or at the whole size below it
            raise call.uncovered("corners aligned by a scale that gives no whole size")
        return rows * (old - 1) / (new - 1) if new > 1 else rows * 0
    return rows / ratio if word == "ASYMMETRIC" else (rows + 0.5) / ratio - 0.5


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def grid_sample(call: LayerCall) -> Array:
    """Read the image at the places of a grid from -1 to 1, whose last axis counts from the last axis of the image."""
    x, grid = call.wide(0), call.wide(1)
    sizes, aligned = x.shape[2:], bool(call.says("align_corners"))
    at = []
    for axis, size in enumerate(sizes):
        place = grid[..., len(sizes) - 1 - axis]
        at.append((place + 1) / 2 * (size - 1) if aligned else ((place + 1) * size - 1) / 2)
    mode, outside = call.says("interpolation_mode"), call.says("sample_mode")
    if outside not in ("FILL", "CLAMP", "REFLECT"):
        raise call.uncovered(outside)
    if mode != "CUBIC" and outside != "FILL":
        at = [_inside(place, size, outside, aligned=aligned) for place, size in zip(at, sizes, strict=True)]
    if mode == "NEAREST":
        return _read(x, [np.rint(place) for place in at], outside, aligned=aligned)
    low = [np.floor(place) for place in at]
    offsets = range(2) if mode == "LINEAR" else range(-1, 3)
    total = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for step in itertools.product(offsets, repeat=len(sizes)):
        weight = np.ones(grid.shape[:-1])
        for place, base, offset in zip(at, low, step, strict=True):
            far = place - (base + offset)
            weight = weight * (1 - np.abs(far) if mode == "LINEAR" else _cubic(far, -0.75))
        places = [base + offset for base, offset in zip(low, step, strict=True)]
        total += weight[:, None] * _read(x, places, outside, aligned=aligned)
    return total


def _inside(place: Array, size: int, word: str, *, aligned: bool) -> Array:
    """Return places moved into the image: to its border, or reflected at the middle or edge of its outer pixels."""
    if word == "CLAMP":
        return np.clip(place, 0, size - 1)
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return np.zeros_like(place)
    away = np.abs(place - low) % (2 * span)
    return np.clip(low + np.where(away > span, 2 * span - away, away), 0, size - 1)


def _read(x: Array, at: list[Array], word: str, *, aligned: bool) -> Array:
    """Return the pixels at whole places; 0 outside where the mode fills."""
    sizes = x.shape[2:]
    if word == "FILL":
        seen = np.ones(at[0].shape, dtype=bool)
        for place, size in zip(at, sizes, strict=True):
            seen &= (place >= 0) & (place < size)
        at = [np.clip(np.nan_to_num(place), 0, size - 1) for place, size in zip(at, sizes, strict=True)]
    else:
        at = [_inside(place, size, word, aligned=aligned) for place, size in zip(at, sizes, strict=True)]
        seen = np.ones(at[0].shape, dtype=bool)
    rows = [x[row][(slice(None), *(place[row].astype(int) for place in at))] for row in range(x.shape[0])]
    return np.stack(rows) * seen[:, None]


def suppression(call: LayerCall) -> tuple[Array, ...]:
    """Choose boxes by score and overlap (``INMSLayer``): batch, class and box of each, and how many there are."""
    boxes, scores, most = call.wide(0), call.wide(1), int(call.scalar(2))
    overlap = 0.0 if call.get(3) is None else float(call.scalar(3))
    least = None if call.get(4) is None else float(call.scalar(4))
    corners = _corners(boxes, call.says("bounding_box_format"))
    chosen = []
    for batch, label in np.ndindex(scores.shape[0], scores.shape[2]):
        kept: list[int] = []
        order = np.argsort(-scores[batch, :, label], kind="stable")[: call.says("topk_box_limit")]
        for box in order:
            if len(kept) == most or (least is not None and scores[batch, box, label] <= least):
                break
            if all(_overlap(corners[batch, box], corners[batch, other]) <= overlap for other in kept):
                kept.append(int(box))
        chosen += [(batch, label, box) for box in kept]
    rows = np.asarray(chosen, dtype=np.int64).reshape(-1, 3)
    return (rows, np.asarray(len(rows)))[: len(call.outputs)]


def _corners(boxes: Array, form: str) -> Array:
    if form == "CENTER_SIZES":
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([middle - half, middle + half], axis=-1)
    a, b = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], axis=-1)


def _overlap(a: Array, b: Array) -> float:
    """Return the shared area of two boxes over the area of both."""
    shared = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    both = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return float(shared / both) if both > 0 else 0.0


KINDS: Mapping[str, Compute] = {"RESIZE": resize, "GRID_SAMPLE": grid_sample, "NMS": suppression}
