"""Value regimes: arrays for one input at one shape, made with NumPy from a seed.

The regimes (``REGIMES`` in ``results.records.words``) are the kinds of values that have revealed wrong answers of
exporters and runtimes (``docs/inputs.md``). Each stays within the range that the case declares; where an input has no
room for a regime, it gets plain values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.case.files.dims import Sizes
from conformance.case.files.inputs import Between, Input, Normal, Values
from conformance.case.files.python import call
from conformance.process.arrays import PART, Array, same_dtype
from conformance.results.records.words import HUGE

_SPECIAL_VALUES: Mapping[str, tuple[float, ...]] = {
    "nan": (np.nan,),
    "inf": (np.inf,),
    "-inf": (-np.inf,),
    "signed zero": (0.0, -0.0),
    "mixed": (np.nan, np.inf, -np.inf, -0.0),
}

_LARGE = (17.0, 30.0, 90.0, 1e3)
"""Magnitudes at which approximations change over or exponentials saturate and overflow in float32."""

_HUGE = 1e5
"""Beyond what 16 bits hold; float32 holds products of seven."""

_WIDE = ("float32", "float64", "bfloat16")
_STANDARD_NORMAL = Values(normal=Normal())

Rng = np.random.Generator
Hook = Callable[..., object]


def has_huge(declared: Input) -> bool:
    """Return whether an input has room for huge values: floats of more than 16 bits without a range of their own."""
    values = declared.values or _STANDARD_NORMAL
    return declared.type.dtype in _WIDE and values.model_fields_set <= {"normal"}


def make(declared: Input, sizes: Sizes, regime: str, rng: Rng, hook: Hook | None = None) -> Array:
    """An array for the ``declared`` input at ``sizes``; ``hook`` is the Python function that the input names, if any.

    Raises ValueError where the hook returns another shape or dtype than the input declares, or where a
    range is empty at these sizes.
    """
    shape, dtype = declared.type.at(sizes), np.dtype(declared.type.carrier)
    values = declared.values or _STANDARD_NORMAL
    if hook is not None:
        name = values.python or "recorded data"
        array = check(call(name, hook, shape, dict(sizes), rng), shape, dtype, name)
    elif values.permutations is not None:
        array = rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1).astype(dtype)
    elif values.mask is not None:
        hidden, shown = values.mask
        array = _padding(hidden, shown, shape, regime, rng).astype(dtype)
        array = array if values.left_padding is None else array[..., ::-1].copy()
    elif values.positions_of is not None:
        array = np.zeros(shape, dtype)  # until the mask is drawn
    elif values.choice is not None:
        array = choice(np.array(values.choice), shape, regime, rng).astype(dtype)
    elif values.texts is not None:
        array = choice(np.array(values.texts), shape, regime, rng)
    elif dtype.kind == "b":
        array = choice(np.array([False, True]), shape, regime, rng)
    elif values.exactly is not None:
        array = _exactly(values.exactly, shape).astype(dtype)
    elif values.by_graph is not None:
        array = whole_numbers(0, values.by_graph, shape, regime, rng).astype(dtype)
    elif values.integers is not None:
        low, high = _read_ends(values.integers, sizes)
        array = whole_numbers(int(low), int(high), shape, regime, rng).astype(dtype)
    else:
        array = _floats(values, sizes, shape, regime, rng).astype(dtype)
    array = with_specials(np.asarray(array), regime, rng)  # NumPy makes a scalar of a 0-d array
    return np.sort(array, axis=-1) if declared.sorted else array


def with_specials(array: Array, regime: str, rng: Rng) -> Array:
    """The array with the special values of the regime at a few places; the same array for regimes without any."""
    special = _SPECIAL_VALUES.get(regime)
    if special is None or array.dtype.kind != "f" or not array.size:
        return array
    return _inject(array, special, rng)


def check(array: object, shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> Array:
    """Copy what a case's own Python returned, if it is what the input declares.

    The next call may return the same array. ValueError if it is something else.
    """
    given = np.array(array)
    if given.shape != shape or not same_dtype(given.dtype, dtype):
        raise ValueError(f"{where} returned {given.dtype}{list(given.shape)} instead of {dtype}{list(shape)}")
    return given


def _exactly(numbers: Sequence[float], shape: tuple[int, ...]) -> Array:
    """Raise ValueError where there are others than so many numbers."""
    count = math.prod(shape)
    if len(numbers) not in (1, count):
        raise ValueError(f"values: {len(numbers)} numbers are given for {count}")
    return np.broadcast_to(np.array(numbers), count).reshape(shape)


def _read_ends(between: Between, sizes: Sizes) -> tuple[float, float]:
    low, high = between.at(sizes)
    if low > high:
        raise ValueError(f"values: the range {between.low}..{between.high} is empty at {dict(sizes)}")
    return low, high


def _pick(options: Sequence[float] | Array, shape: tuple[int, ...], rng: Rng) -> Array:
    """Return what ``rng.choice`` does, which has as many whole numbers of eight bytes in memory."""
    options = np.asarray(options)
    picked = np.empty(math.prod(shape), options.dtype)
    for begin in range(0, picked.size, PART):
        part = picked[begin : begin + PART]
        part[:] = options[rng.integers(0, len(options), size=part.size)]
    return picked.reshape(shape)


def choice(options: Array, shape: tuple[int, ...], regime: str, rng: Rng) -> Array:
    """Random options, but all the first for ``zero`` and all the last for ``ends``: all false and all true."""
    if regime == "zero":
        return np.full(shape, options[0])
    if regime == "ends":
        return np.full(shape, options[-1])
    return _pick(options, shape, rng)


def _padding(hidden: float, shown: float, shape: tuple[int, ...], regime: str, rng: Rng) -> Array:
    """Rows of which the first values show, and at least one; a single one for ``zero``, and all for ``ends``."""
    length = shape[-1] if shape else 1
    counts = rng.integers(1, max(length, 1), size=(*shape[:-1], 1), endpoint=True)
    if regime in ("zero", "ends"):
        counts[...] = 1 if regime == "zero" else length
    return np.where(np.arange(length) < counts, shown, hidden).reshape(shape)


def positions(inputs: Mapping[str, Input], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs that are positions by a mask, of the last tokens that it is about: how many of those before
    each of them show; 0 where it hides. Raises ValueError where the mask is shorter, or has other rows."""
    found = {}
    for name, declared in inputs.items():
        if declared.values is None or (of := declared.values.positions_of) is None:
            continue
        values, mask, like = inputs[of].values, arrays[of], arrays[name]
        assert values is not None and values.mask is not None
        seen = mask == values.mask[1]
        counted = np.where(seen, seen.cumsum(-1) - 1, 0)[..., mask.shape[-1] - like.shape[-1] :]
        if counted.shape != like.shape:
            raise ValueError(f"values: a mask {list(mask.shape)} has no positions {list(like.shape)}")
        found[name] = counted.astype(like.dtype)
    return found


def whole_numbers(low: int, high: int, shape: tuple[int, ...], regime: str, rng: Rng) -> Array:
    """Whole numbers of a range, both ends included."""
    if regime == "zero":
        return np.full(shape, low)
    if regime == "large":
        return np.full(shape, high)
    if regime == "equal":
        return np.full(shape, rng.integers(low, high, endpoint=True))
    if regime == "ends":
        return _pick([low, high], shape, rng)
    if regime == "ties":  # of so few values that duplicates are certain
        return _pick(rng.integers(low, high, size=2, endpoint=True), shape, rng)
    if regime == "negative" and low < 0:
        return rng.integers(low, min(high, -1), size=shape, endpoint=True)
    return rng.integers(low, high, size=shape, endpoint=True)


def _floats(values: Values, sizes: Sizes, shape: tuple[int, ...], regime: str, rng: Rng) -> Array:
    if values.uniform is not None:
        low, high = _read_ends(values.uniform, sizes)
        plain = rng.uniform(low, high, size=shape)
        array = _bounded(low, high, shape, regime, rng, plain)
        return array if low <= array.min(initial=low) and array.max(initial=high) <= high else plain
    normal = values.normal
    mean, std = (normal.mean, normal.std) if normal else (0.0, 1.0)
    return _unbounded(mean, std, shape, regime, rng)


def _bounded(low: float, high: float, shape: tuple[int, ...], regime: str, rng: Rng, plain: Array) -> Array:
    """Values of the regime, outside of the range where it has no room for them; the caller then takes plain ones."""
    middle, width = (low + high) / 2, high - low
    if regime == "ends":
        return _pick([low, high], shape, rng)
    if regime == "equal":
        return np.full(shape, rng.uniform(low, high))
    if regime == "ties":
        return _pick(np.round(rng.uniform(low, high, size=3), 1), shape, rng)
    if regime == "offset":
        return middle + width * 1e-4 * rng.uniform(-1, 1, size=shape)
    if regime == "negative":
        return -np.abs(plain)
    if regime == "tiny":
        return np.clip(_common(shape, regime, rng, plain), min(low, 0.0), max(high, 0.0))
    if regime == "large":
        sizes = [size for size in _LARGE if low <= size <= high or low <= -size <= high]
        return np.clip(_around(rng.choice(sizes or [high]), shape, rng), low, high)
    return _common(shape, regime, rng, plain)


def _unbounded(mean: float, std: float, shape: tuple[int, ...], regime: str, rng: Rng) -> Array:
    plain = np.asarray(rng.standard_normal(shape))
    if regime in ("large", HUGE):
        del plain  # which may take gigabytes
        return _scaled(_around(_HUGE if regime == HUGE else rng.choice(_LARGE), shape, rng), mean, std)
    plain = _scaled(plain, mean, std)
    if regime == "ends":
        return _scaled(_pick([-4.0, 4.0], shape, rng), mean, std)
    if regime == "equal":
        return np.full(shape, mean + std * rng.standard_normal())
    if regime == "ties":
        return mean + std * rng.integers(-1, 2, size=shape)
    if regime == "offset":
        return mean + std * (10 + 0.01 * rng.standard_normal(shape))
    if regime == "negative":
        return -np.abs(plain)
    return _common(shape, regime, rng, plain)


def _around(size: float, shape: tuple[int, ...], rng: Rng) -> Array:
    """Values of either sign within a tenth of ``size``."""
    values = np.asarray(rng.uniform(0.9, 1.1, size=shape))
    values *= size
    flat = values.reshape(-1)
    for begin in range(0, flat.size, PART):
        part = flat[begin : begin + PART]
        part *= _pick([-1.0, 1.0], part.shape, rng)
    return values


def _scaled(values: Array, mean: float, std: float) -> Array:
    """Return the values, times ``std`` and ``mean`` more, in their own memory: an image of 4,096 pixels a side takes
    400 MB."""
    values *= std
    values += mean
    return values


def _common(shape: tuple[int, ...], regime: str, rng: Rng, plain: Array) -> Array:
    if regime == "zero":
        return np.zeros(shape)
    if regime == "tiny":
        return _pick([-1e-7, 0.0, 1e-7], shape, rng)
    if regime == "grid":  # halves and tenths: rounding ties, and quotients that are almost integers
        grid: Array = np.round(plain * rng.choice([2.0, 10.0])) / rng.choice([2.0, 10.0])
        return grid
    return plain


def _inject(array: Array, special: tuple[float, ...], rng: Rng) -> Array:
    """Put special values at a few places, the first element only by chance; the rest stays as it is."""
    array = np.array(array)
    count = max(len(special), array.size // 32) if array.size > len(special) else 1
    places = rng.choice(array.size, size=min(count, array.size), replace=False)
    array.reshape(-1)[places] = rng.choice(np.array(special, dtype=array.dtype), size=len(places))
    return array
