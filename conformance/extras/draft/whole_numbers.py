"""The whole numbers that a module takes, found by trying: rows of a table, nodes of a graph, or any.

An input is filled with one number after another. Most modules that look something up refuse a number beyond the end;
where that end moves with a dim, so does the range.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

from conformance.extras.draft.guessed_inputs import Guess, Tree, called, guesses_in, no_input, replaced
from conformance.extras.draft.recorded_inputs import AS_SEEN
from conformance.models.reference.dispatch import Arguments, Keywords, Operator, OperatorCalls
from conformance.process.errors import attempt, or_else

if TYPE_CHECKING:
    from torch import Tensor, nn

Takes = Callable[[int, Mapping[str, int]], bool]
"""Whether the module runs at these sizes where all of an input is this number."""

TOP = 2**12
"""Up to which number a module is tried that names no larger one; what takes this takes any."""
REACH, BEYOND = 64, 4
"""Where a module takes any number, those up to ``REACH`` are drawn, or up to so many times the largest that it names
itself, as 7 in ``ids % 7``."""
FIRST = (0, 1, 2)
DRAWN = 3
"""How often a range of numbers is drawn from, to see that the module takes them side by side too."""
SECONDS = 60.0
"""How long numbers are tried for one input."""


def with_numbers(
    module: nn.Module, inputs: Mapping[str, Tree], keywords: Set[str], sizes: Mapping[str, int]
) -> dict[str, Tree]:
    """Return the inputs, with as wide a range of whole numbers as the module takes where that is open. Stopped where
    none was found, unless numbers were seen."""
    found = dict(inputs)
    for name, tree in inputs.items():
        for guess in guesses_in(tree):
            if "padding" in (guess.values or {}):
                found[name] = replaced(found[name], guess, _right_way(module, found, guess, keywords, sizes))
            if not guess.open:
                continue
            wider = _wider(module, found, guess, keywords, sizes)
            if wider is None and not guess.why:
                how = f"--input {name}='{{type: {guess.type}, values: {{integers: {{low: 0, high: 9}}}}}}'"
                text = f"no range of whole numbers was found that the module takes as {name}; say its values: {how}"
                raise no_input(text)
            closed = dataclasses.replace(guess, open=False)
            found[name] = replaced(found[name], guess, closed if wider is None else wider)
    return found


def _right_way(
    module: nn.Module, inputs: Mapping[str, Tree], guess: Guess, keywords: Set[str], sizes: Mapping[str, int]
) -> Guess:
    """Return the padding mask, its two numbers exchanged where that which should show all gives NaN or infinities."""
    assert guess.values is not None
    hidden, shown = guess.values["padding"]
    finite = [
        _runs(
            module, replaced(inputs, guess, dataclasses.replace(guess, values={"choice": [level]})), keywords, sizes
        )
        for level in (hidden, shown)
    ]
    return dataclasses.replace(guess, values={"padding": [shown, hidden]}) if finite == [True, False] else guess


def _runs(module: nn.Module, inputs: Mapping[str, Tree], keywords: Set[str], sizes: Mapping[str, int]) -> bool | None:
    """Return whether the outputs are finite; None where the module raises."""
    import torch
    from torch.utils._pytree import tree_leaves

    result = attempt(lambda: called(module, inputs, keywords, sizes))
    if isinstance(result, Exception):
        return None
    floats = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return all(bool(leaf.isfinite().all()) for leaf in floats)


def _wider(
    module: nn.Module, inputs: Mapping[str, Tree], guess: Guess, keywords: Set[str], sizes: Mapping[str, int]
) -> Guess | None:
    """Return the guess with all numbers that the module takes, or None."""
    import torch

    def runs(low: int, high: int | str, at: Mapping[str, int], seed: int = 0) -> bool | None:
        torch.manual_seed(seed)
        drawn = dataclasses.replace(guess, values={"integers": {"low": low, "high": high}})
        return _runs(module, replaced(inputs, guess, drawn), keywords, at)

    def takes(number: int, at: Mapping[str, int]) -> bool:
        if time.monotonic() > deadline:
            return False
        is_finite = runs(number, number, at)
        return bool(is_finite) if finite else is_finite is not None

    deadline = time.monotonic() + SECONDS
    finite = any(runs(number, number, sizes) for number in FIRST)
    kind = np.iinfo(guess.dtype)
    named = largest_named(lambda: runs(0, 1, sizes))
    state = or_else({}, lambda: dict(module.state_dict()))
    tables = [size for tensor in state.values() if isinstance(tensor, torch.Tensor) for size in tensor.shape]
    found = range_of(takes, sizes, min(named, 2**20), (int(kind.min), int(kind.max)), [*tables])
    late = time.monotonic() > deadline
    if found is None or late or any(runs(*found, sizes, seed) is None for seed in range(DRAWN)):
        return None
    low, high = found
    if guess.why == AS_SEEN and guess.values is not None:  # what nobody passes is not asked about
        seen = guess.values["integers"]
        low = low if seen["low"] < 0 else max(low, 0)
        high = max(high, seen["high"]) if isinstance(high, int) else high
    table = f"indices into a table of {high + 1:,} rows" if isinstance(high, int) and high + 1 in tables else ""
    why = table or "as far as the module takes it, which was tried"
    return dataclasses.replace(guess, values={"integers": {"low": low, "high": high}}, why=why, open=False)


def range_of(
    takes: Takes, sizes: Mapping[str, int], named: int, limits: tuple[int, int], tables: Sequence[int] = ()
) -> tuple[int, int | str] | None:
    """Return the lowest and the highest number that an input takes, the highest perhaps as an expression over dims;
    None where there is no such range.

    Args:
        named: the largest whole number that the module computes with (``largest_named``).
        limits: the smallest and the largest number of the input's type.
        tables: sizes beyond which an index may be refused.
    """
    first = next((number for number in FIRST if takes(number, sizes)), None)
    if first is None:
        return None
    top = min(max(TOP, BEYOND * named), limits[1])
    high = _highest(lambda number: takes(number, sizes), first, top, sorted({*tables}))
    if high is None:
        reach = limits[1] if limits[1] < TOP else max(REACH, BEYOND * named)
        below = max(-reach - 1, limits[0]) if limits[1] < TOP else -reach
        negative = first == 0 and limits[0] < 0 and takes(-1, sizes) and takes(below, sizes)
        return (below if negative else first), reach
    return first, _moving(takes, sizes, first, high)


def _highest(takes: Callable[[int], bool], first: int, top: int, tables: Sequence[int]) -> int | None:
    """Return the last number that is taken; None where none is refused."""
    good, step = first, 1
    while good < top:
        number = min(good + step, top)
        if not takes(number):
            return _last(takes, good, number)
        good, step = number, 2 * step
    beyond = next((size for size in tables if size > top == TOP and not takes(size)), None)
    return None if beyond is None else _last(takes, beyond - 1 if takes(beyond - 1) else good, beyond)


def _last(takes: Callable[[int], bool], good: int, bad: int) -> int:
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if takes(middle) else (good, middle)
    return good


def _moving(takes: Takes, sizes: Mapping[str, int], first: int, high: int) -> int | str:
    """Return the highest number, as an expression over the dims that it moves with."""
    slopes = dict(_slopes(takes, sizes, first, high))
    if not slopes:
        return high
    terms = {name if slope == 1 else f"{slope}*{name}": slope * sizes[name] for name, slope in slopes.items()}
    if len(slopes) == 2:
        (one, by_one), (other, by_other) = slopes.items()
        if (by_one, by_other) == (sizes[other], sizes[one]):
            terms = {f"{one}*{other}": sizes[one] * sizes[other]}
    rest = high - sum(terms.values())
    return f"{' + '.join(terms)} {'-' if rest < 0 else '+'} {abs(rest)}" if rest else " + ".join(terms)


def _slopes(takes: Takes, sizes: Mapping[str, int], first: int, high: int) -> Iterator[tuple[str, int]]:
    """Yield the dims with which the highest number moves, and by how much for each step of the dim."""
    for name in sizes:
        larger = {**sizes, name: sizes[name] + 1}
        if not takes(first, larger) or (takes(high, larger) and not takes(high + 1, larger)):
            continue
        moved = _highest(lambda number, larger=larger: takes(number, larger), first, TOP, ())  # type: ignore[misc]  # mypy infers no lambda with a default
        if moved is not None and moved > high:
            yield name, moved - high


def largest_named(call: Callable[[], object]) -> int:
    """Return the largest whole number that a call computes with beside integer tensors, as 7 in ``ids % 7``, or that
    the type has to which it converts them."""
    mode = _NamedNumbers()
    with mode:
        call()
    return max(mode.numbers, default=0)


class _NamedNumbers(OperatorCalls):
    """Notes the whole numbers that operators on integer tensors are called with."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def call(self, func: Operator, args: Arguments, kwargs: Keywords) -> object:
        import torch
        from torch.utils._pytree import tree_leaves

        narrow = (torch.int8, torch.uint8, torch.int16)
        leaves = tree_leaves((args, kwargs))
        if any(isinstance(leaf, torch.Tensor) and _is_whole(leaf) and leaf.numel() > 1 for leaf in leaves):
            self.numbers += [abs(leaf) for leaf in leaves if type(leaf) is int and abs(leaf) < 2**31]
            self.numbers += [
                torch.iinfo(leaf).max for leaf in leaves if isinstance(leaf, torch.dtype) and leaf in narrow
            ]
        return func(*args, **kwargs)


def _is_whole(tensor: Tensor) -> bool:
    import torch

    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
