"""The usual slips of recorded data: inputs exchanged, channels or layout in another order, another scale or type.

With each the model runs again on the inputs as they would have to be: that which gives the recorded outputs is named.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from conformance.compare.noise import decibels, power
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import or_else

SECONDS = 20.0
"""Seconds for which slips are tried for one set."""
_CHANNELS = (3, 4)
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Those of ImageNet, by which the inputs of most image models are made."""

Change = Callable[[Array], Array]
Slip = tuple[str, dict[str, Any]]
"""A slip: the step that undoes it in the recorded inputs, and the inputs that come of it."""


def find_slip(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], run: Callable[[dict[str, Any]], Sequence[Any]],
    alike: Callable[[Sequence[Any], Mapping[str, Any]], bool],
) -> str | None:  # fmt: skip
    """Return in words what makes the recorded data right: outputs that were exchanged, or what else has to be done to
    the inputs; None where nothing does. ``alike`` compares what ``run`` gives with recorded outputs."""
    got = or_else(None, lambda: run(dict(inputs)))
    for text, changed in _exchanged(outputs):
        if got is not None and alike(got, changed):
            return f"the outputs {text} exchanged"
    deadline = time.monotonic() + SECONDS
    for text, given in _slips(inputs, _shapes(inputs)):
        if time.monotonic() > deadline:
            return None
        answer = or_else(None, partial(run, given))
        if answer is not None and alike(answer, outputs):
            return text
    return None


def find_preparation_slip(given: Inputs, wanted: Inputs, decibels_due: float) -> str | None:
    """Return in words what makes inputs those that are wanted, up to noise of so many decibels: their type, a usual
    slip, or another scale or shift by channel; None where nothing does."""
    deadline = time.monotonic() + SECONDS
    with np.errstate(all="ignore"):
        cast = {name: array.astype(wanted[name].dtype) for name, array in given.items()}
        types = [f"'{name}' as {cast[name].dtype}" for name in cast if cast[name].dtype != given[name].dtype]
        shapes = _shapes(wanted)
        for text, changed in itertools.chain([("", cast)], _slips(cast, shapes), _scaled(cast, wanted)):
            if time.monotonic() > deadline:
                return None
            alike = _shapes(changed) == shapes
            if alike and all(_near(changed[name], wanted[name], decibels_due) for name in wanted):
                return " and ".join([*types, *([text] if text else [])])
    return None


def _near(got: Array, wanted: Array, decibels_due: float) -> bool:
    """Return whether inputs are the wanted ones but for noise, which a shift of all values is not."""
    if wanted.dtype.kind != "f":
        return np.array_equal(got, wanted)
    noise, spread = power(got.astype(np.float64) - wanted), float(np.var(wanted, dtype=np.float64))
    return decibels(spread, noise) >= decibels_due


def _scaled(inputs: Inputs, wanted: Inputs) -> Iterator[Slip]:
    """Yield the inputs with one of them, in any order of its values, at the scale and shift of each channel with
    which it comes nearest to the wanted one: by other means and deviations than anybody could list."""
    for name, right in wanted.items():
        if right.dtype.kind != "f":
            continue
        orders: list[tuple[str, Change]] = [("", np.asarray), *_orders(inputs[name])]
        for order, change in orders:
            got = or_else(None, lambda: change(inputs[name]).astype(np.float64))  # noqa: B023
            if got is None or got.shape != right.shape:
                continue
            ends = (right.ndim - 3, right.ndim - 1) if right.ndim >= 3 else ()
            at = next((one for one in ends if right.shape[one] in (1, *_CHANNELS)), None)
            axes = tuple(one for one in range(right.ndim) if one != at)
            middle, due = got.mean(axes, keepdims=True), right.mean(axes, keepdims=True, dtype=np.float64)
            variance = np.maximum(((got - middle) ** 2).mean(axes, keepdims=True), np.finfo(np.float64).tiny)
            scale = ((got - middle) * (right - due)).mean(axes, keepdims=True) / variance
            shift = due - scale * middle
            text = f"'{name}' {order}{' and ' if order else ''}times {_listed(scale)}, plus {_listed(shift)}"
            yield f"{text} (scale, mean or deviation by channel)", {**inputs, name: got * scale + shift}


def _listed(values: Array) -> str:
    told = [f"{value:.4g}" for value in values.flat]
    return told[0] if len({*told}) == 1 else f"({', '.join(told)})"


def _shapes(inputs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in inputs.items() if _is_array(value)}


def _slips(inputs: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Slip]:
    """Yield the slips, each input alone before two at a time, and one slip before two; of those after which inputs
    have these shapes."""
    yield from ((f"the inputs {text} exchanged", given) for text, given in _exchanged(inputs))
    changes = {name: _changes(value) for name, value in inputs.items() if _is_array(value)}
    for name, own in changes.items():
        for text, change in (*own[0], *own[1]):
            yield from _changed(inputs, shapes, {name: change}, f"'{name}' {text}")
    for name, (orders, scales) in changes.items():
        for (order, one), (scale, other) in itertools.product(orders, scales):
            yield from _changed(inputs, shapes, {name: _both(one, other)}, f"'{name}' {order} and {scale}")
    for left, right in itertools.combinations(changes, 2):
        firsts, seconds = ([*changes[name][0], *changes[name][1]] for name in (left, right))
        for (text, first), (again, second) in itertools.product(firsts, seconds):
            if text == again:
                yield from _changed(inputs, shapes, {left: first, right: second}, f"'{left}' and '{right}' {text}")


def _changed(
    inputs: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], changes: Mapping[str, Change], text: str
) -> Iterator[Slip]:
    """Yield the inputs with changes, where these leave none as it is and the arrays of the type that they had."""
    given = dict(inputs)
    for name, change in changes.items():
        array = inputs[name]
        with np.errstate(all="ignore"):
            # two changes may not go together
            given[name] = or_else(array, lambda: np.ascontiguousarray(change(array).astype(array.dtype)))  # noqa: B023
        if given[name].shape != shapes[name] or np.array_equal(given[name], inputs[name]):
            return
    yield text, given


def _both(one: Change, other: Change) -> Change:
    return lambda array: other(one(array))


def _exchanged(values: Mapping[str, Any]) -> Iterator[Slip]:
    for one, other in itertools.combinations(values, 2):
        if _kind(values[one]) == _kind(values[other]):
            yield f"'{one}' and '{other}'", {**values, one: values[other], other: values[one]}


def _kind(value: Any) -> object:
    return (value.dtype, value.shape) if _is_array(value) else type(value)


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.ndim > 0


def _changes(array: Array) -> tuple[list[tuple[str, Change]], list[tuple[str, Change]]]:
    """Return what may have been forgotten of the order of an array's values, and of the values."""
    return [*_orders(array)], [*_scales(array)]


def _orders(array: Array) -> Iterator[tuple[str, Change]]:
    for axis in {1 if array.ndim >= 3 else -1, 0 if array.ndim == 3 else -1, array.ndim - 1}:
        at = axis % array.ndim
        if array.shape[at] in _CHANNELS and array.ndim > 1:
            yield "with the first three channels in the other order (RGB and BGR)", _reversed_channels(at)
    if array.ndim >= 2:
        yield "with its last two axes exchanged", lambda one: np.swapaxes(one, -1, -2)
    if array.ndim >= 3:
        first = array.ndim - 3
        yield "in the layout with channels first", lambda one: np.moveaxis(one, -1, first)
        yield "in the layout with channels last", lambda one: np.moveaxis(one, first, -1)
        last = (*array.shape[:first], *array.shape[first + 1 :], array.shape[first])
        yield "transposed to channels first, and not reshaped", lambda one: np.moveaxis(one.reshape(last), -1, first)


def _reversed_channels(axis: int) -> Change:
    def change(array: Array) -> Array:
        first, rest = np.split(array, [3], axis)
        return np.concatenate([np.flip(first, axis), rest], axis)

    return change


def _scales(array: Array) -> Iterator[tuple[str, Change]]:
    if array.dtype.kind == "f":
        yield "divided by 255", lambda one: one / 255
        yield "times 255", lambda one: one * 255
        yield "divided by 127.5, less 1", lambda one: one / 127.5 - 1
        yield "times 127.5, plus 127.5", lambda one: (one + 1) * 127.5
        yield "times 2, less 1", lambda one: one * 2 - 1
        channel = next((at for at in (array.ndim - 3, array.ndim - 1) if at >= 0 and array.shape[at] == 3), None)
        if channel is not None and array.ndim >= 3:
            shape = [3 if at == channel else 1 for at in range(array.ndim)]
            mean, std = np.reshape(_MEAN, shape), np.reshape(_STD, shape)
            yield "less ImageNet's mean and divided by its deviation", lambda one: (one - mean) / std
            yield (
                "divided by 255, less ImageNet's mean and divided by its deviation",
                (lambda one: (one / 255 - mean) / std),
            )
    if array.dtype.kind in "iu" and array.dtype.itemsize == 1:
        yield "shifted by 128 (int8 and uint8)", lambda one: (one.view(np.uint8) ^ np.uint8(128)).view(one.dtype)
    if array.dtype.itemsize > 1 and array.dtype.isbuiltin == 1:
        yield "with its bytes in the other order", lambda one: one.byteswap()
