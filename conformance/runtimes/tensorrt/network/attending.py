"""Layers of language models, and those between floats and few bits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.process.arrays import Array
from conformance.runtimes.tensorrt.network.layer_call import FP8_MOST, LayerCall, widened
from conformance.runtimes.tensorrt.network.pointwise import Compute


def attention(call: LayerCall) -> Array:
    """``normalize(q @ k.T + mask) @ v``; the query is scaled before. Heads of the query share those of the key."""
    query, key, value = call.wide(0), call.wide(1), call.wide(2)
    for name in ("query_lengths", "key_value_lengths", "normalization_quantize_scale"):
        if call.layer.says.get(name) is not None:
            raise call.uncovered(f"with {name}")
    for name in ("query_form", "key_value_form"):
        if call.layer.says.get(name, "PADDED_BHND") != "PADDED_BHND":
            raise call.uncovered(f"{name} {call.says(name)}")
    key, value = (np.repeat(each, query.shape[1] // each.shape[1], axis=1) for each in (key, value))
    scores = query @ np.swapaxes(key, -1, -2)
    if (mask := call.get(3)) is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype.kind == "b" else scores + widened(mask)
    kind = call.layer.says.get("causal_kind", "NONE")
    if call.layer.says.get("causal") or kind != "NONE":
        ahead = key.shape[2] - query.shape[2] if kind == "LOWER_RIGHT" else 0
        rows, columns = np.ogrid[: query.shape[2], : key.shape[2]]
        scores = np.where(columns <= rows + ahead, scores, -np.inf)
    if call.says("norm_op") == "SOFTMAX":
        if (scores == -np.inf).all(axis=-1).any():
            raise call.uncovered("a row of which nothing is let through")
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores = powers / powers.sum(axis=-1, keepdims=True)
    return scores @ value


def rotary_embedding(call: LayerCall) -> Array:
    """Turn pairs of the last axis by the angles whose cosine and sine are given."""
    x, cos, sin, places = call.wide(0), call.wide(1), call.wide(2), call.get(3)
    size = call.says("rotary_embedding_dim") or x.shape[-1]
    if places is not None:
        cos, sin = cos[places], sin[places]
    cos, sin = cos[:, None], sin[:, None]
    turned, rest = x[..., :size], x[..., size:]
    if call.says("interleaved"):
        a, b = turned[..., 0::2], turned[..., 1::2]
        pair = np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(turned.shape)
    else:
        a, b = np.split(turned, 2, axis=-1)
        pair = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
    return np.concatenate([pair, rest], axis=-1)


def cache_update(call: LayerCall) -> Array:
    """Write rows into a cache, for each of the batch from its own place on."""
    if call.says("cache_mode") != "LINEAR" or call.layer.says.get("update_lengths") is not None:
        raise call.uncovered(f"mode {call.says('cache_mode')}")
    cache, update, places = call[0].copy(), call[1], call[2].reshape(-1)
    for row, first in enumerate(places):
        cache[row, :, first : first + update.shape[2]] = update[row]
    return cache


def quantize(call: LayerCall) -> Array:
    """Divide by the scale, add the zero point, and round to the nearest whole number, halves to even, that fits."""
    x, (made,) = call.wide(0), call.outputs
    scaled = x / _spread(call, 1, x)
    if made.dtype not in ("INT8", "UINT8", "INT4"):
        limit = {"FP8": FP8_MOST, "FP4": 6.0}.get(made.dtype)
        if limit is None:
            raise call.uncovered(f"to {made.dtype}")
        return np.clip(scaled, -limit, limit)
    zero = 0 if call.get(2) is None else _spread(call, 2, x)
    low, high = {"INT8": (-128, 127), "UINT8": (0, 255), "INT4": (-8, 7)}[made.dtype]
    return np.clip(np.rint(scaled) + zero, low, high)


def dequantize(call: LayerCall) -> Array:
    x = call[0].astype(np.float64)
    zero = 0 if call.get(2) is None else _spread(call, 2, x)
    return (x - zero) * _spread(call, 1, x)


def _spread(call: LayerCall, index: int, x: Array) -> Array:
    """Return a scale or zero point by value: of the whole tensor, an axis, or blocks."""
    values = call[index].astype(np.float64)
    if values.size == 1:
        return values.reshape(())
    if values.ndim == x.ndim:
        for axis, (few, many) in enumerate(zip(values.shape, x.shape, strict=True)):
            values = np.repeat(values, -(-many // few), axis=axis)
        return values[tuple(slice(size) for size in x.shape)]
    axis = call.says("axis") % x.ndim
    return values.reshape([-1 if each == axis else 1 for each in range(x.ndim)])


def boundary(call: LayerCall) -> Array:
    return call[0]


KINDS: Mapping[str, Compute] = {
    "ATTENTION_INPUT": attention, "ATTENTION_OUTPUT": boundary, "ROTARY_EMBEDDING": rotary_embedding,
    "KV_CACHE_UPDATE": cache_update, "QUANTIZE": quantize, "DEQUANTIZE": dequantize,
}  # fmt: skip
