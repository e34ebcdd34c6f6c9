"""Read the samples of PyTorch's own tests, and try each call: what of it a case can be, and which sizes may vary.

Runs in a process of its own, as a sample may end it: ``python -m conformance.case.samples.tried`` writes JSON.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import combinations, islice, zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree

from conformance.case.files.limits import FORWARD
from conformance.case.samples.calls import Said, Unsaid, Untaken, ascends, at, call_of, name_of
from conformance.case.samples.made_calls import OtherCall, made
from conformance.case.samples.told import LeftOut, OfOperator, Told
from conformance.case.samples.vary import alike, draw_inputs, outputs_of, seed, with_any_values, with_dims
from conformance.process.errors import attempt, or_else, summarize
from conformance.process.worker import aside

TOGETHER = 16
"""Operators that are asked about in one process."""
TRIED = 16
"""Samples of an operator that are tried until enough of them are cases."""
DTYPES = (torch.float32, torch.int64, torch.int32, torch.bool)
"""Of the samples; all but the first with ``dtypes``."""
MORE = 8
"""Samples of an operator and a dtype that ``arguments`` adds at most."""
MADE = 16
"""Calls of an operator that ``signature`` adds at most."""
SECONDS = 180.0
"""That the samples of these may take, on a busy host. Each of PyTorch 2.15 takes below two."""
DRAWS = 4
"""Of values in the declared ranges, which an operator has to take all."""


def main() -> None:
    """Write what is told of the samples as JSON to the output; the argument is what ``told.ask`` was asked for."""
    only, but, each, grow = json.loads(sys.argv[1])
    torch.set_num_threads(1)  # a fork has no other threads
    warnings.simplefilter("ignore")
    takes = set(DTYPES if "dtypes" in grow else DTYPES[:1])
    known = [name for name, info in operators().items() if not takes.isdisjoint(info.dtypes)]
    names = [name for name in known if _is_one(name, only) and not _is_one(name, but)]
    parts = [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]
    told = [one.as_dict() for part in parts for one in _asked(part, each, grow)]
    json.dump({"operators": known, "told": told}, sys.stdout)


def _is_one(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _asked(names: Sequence[str], each: int, grow: Sequence[str]) -> list[Told]:
    """Return what is told of operators by a process of their own; where it ends, each is asked about alone."""
    try:
        return aside.ask(partial(_told_of_all, names, each, grow), SECONDS)
    except aside.Lost as lost:
        if len(names) > 1:
            return [one for name in names for one in _asked([name], each, grow)]
        if "signature" in grow:  # a call that no sample has may be what ends it
            return _asked(names, each, [one for one in grow if one != "signature"])
        return [LeftOut(names[0], 0, f"the process ends on PyTorch's own sample ({lost})")]


def _told_of_all(names: Sequence[str], each: int, grow: Sequence[str]) -> list[Told]:
    told: list[Told] = []
    for name in names:
        of_one = attempt(partial(told_of, name, each, grow))
        if isinstance(of_one, Exception):
            of_one = [LeftOut(name, 0, f"PyTorch makes no sample: {summarize(of_one)}")]
        told += of_one
    return told


def told_of(name: str, each: int, grow: Sequence[str]) -> list[Told]:
    """Return at most ``each`` calls of an operator that are unlike, spread over its samples, or why none is a case;
    what ``grow`` names is varied as far as PyTorch takes more than the sample's. ``dtypes`` adds one of each further
    dtype and one of another ``dtype=``, and ``arguments``, ``negative`` and ``signature`` add calls."""
    info = operators()[name]
    if info.name in MEMORY:
        return [LeftOut(name, 0, "its outputs are memory as it was found")]
    path = name_of(info.op, info.name)
    if path is None:
        return [LeftOut(name, 0, "nothing in torch has the operator's name")]
    cases: list[Told] = []
    left_out: list[Told] = []
    first, seen = 0, set[str]()
    for dtype in DTYPES if "dtypes" in grow else DTYPES[:1]:
        if dtype not in info.dtypes:
            continue
        seed(0)
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
        calls = [((sample.input, *sample.args), sample.kwargs) for sample in samples]
        wider = [(args, {**named, "dtype": torch.float64}) for args, named in calls if named.get("dtype") is dtype]
        distinct: dict[str, _Sample] = {}
        for number, (args, named) in enumerate(calls, first):
            made = _call(number, path, args, named)
            distinct.setdefault(_kind(made.said), made)
        first += len(calls)
        kinds = [*_with_order(distinct.values())]
        count, left = 0, {*range(len(kinds))}
        for place in _spread(len(kinds), each):
            left.discard(place)
            one = _told(name, kinds[place], grow)
            (cases if isinstance(one, OfOperator) else left_out).append(one)
            if isinstance(one, OfOperator):
                count += 1
                seen.update(_arguments(kinds[place]))
            if count == (each if dtype is DTYPES[0] else 1):
                break
        others = [kinds[place] for place in sorted(left)]
        cases += _more(name, others, seen, grow) if "arguments" in grow else ()
        if "dtypes" in grow and wider:
            other = _told(name, _call(first, path, *wider[0]), grow)
            cases += [other] if isinstance(other, OfOperator) else []
            first += 1
        if "negative" in grow and (negative := _negative(name, first, path, samples, grow)) is not None:
            cases.append(negative)
            first += 1
        if "signature" in grow and dtype is DTYPES[0]:
            numbers = {one.number for one in cases}
            known = {_kind(one.said) for one in kinds if one.number in numbers}
            own = [*islice(_made(name, first, path, calls, known, grow), MADE)]
            cases += own
            first += len(own)
    return cases or left_out[:1]


class _Sample(NamedTuple):
    """A sample: its number, what a case says of it or why it is none, its tensors, and its arguments."""

    number: int
    said: Said | str
    tensors: list[torch.Tensor]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def _call(number: int, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Sample:
    try:
        return _Sample(number, *call_of(path, args, kwargs), args, kwargs)
    except (Untaken, Unsaid) as why:
        return _Sample(number, str(why), [], args, kwargs)


def _arguments(sample: _Sample) -> Iterator[str]:
    """Yield what is given, and each argument that is no tensor as text: of several numbers if each is below, at or
    above 0 and 1, and if there are more or fewer than the first tensor has dims. Beside these each pair of flags, the
    dtype of each tensor, and the ranks of all."""
    if isinstance(sample.said, str):
        return
    given = [*enumerate(sample.args), *sample.kwargs.items()]
    yield f"given: {[name for name, value in given if value is not None]}"
    yield from map(str, combinations([one for one in given if isinstance(one[1], bool)], 2))
    rank = sample.tensors[0].dim() if sample.tensors else 0
    for name, value in given:
        flat = [one for one in _pytree.tree_leaves(value) if not isinstance(one, torch.Tensor)]
        signs = [str((one > 0) + (one > 1) - (one < 0)) if type(one) in (int, float) else str(one) for one in flat]
        beside = f"{np.sign(len(value) - rank)}" if isinstance(value, list | tuple) else f"{flat}"
        yield f"{name}: {len(set(map(str, flat))) > 1} {signs} {beside} {getattr(value, 'dtype', None)}"
    yield f"ranks: {[tensor.dim() for tensor in sample.tensors]}"


def _more(name: str, samples: Sequence[_Sample], seen: set[str], grow: Sequence[str]) -> Iterator[OfOperator]:
    """Yield at most ``MORE`` cases of samples that have arguments which none before has, those with most of them
    first; ``seen`` grows by these."""
    left, count = [(sample, frozenset(_arguments(sample))) for sample in samples], 0
    for _ in range(4 * TRIED):
        left = [one for one in left if one[1] - seen]
        if not left or count == MORE:
            return
        most = max(range(len(left)), key=lambda place: len(left[place][1] - seen))
        sample, arguments = left.pop(most)
        if isinstance(told := _told(name, sample, grow), OfOperator):
            seen |= arguments
            count += 1
            yield told


def _made(
    name: str, number: int, path: str, calls: Sequence[tuple[Any, ...]], known: set[str], grow: Sequence[str]
) -> Iterator[OfOperator]:
    """Yield cases of one size of calls that no case before has; ``known`` grows by these."""
    for call in made(at(path), [OtherCall(*one) for one in calls]):
        sample = _call(number, path, *call)
        if _kind(sample.said) not in known:
            known.add(_kind(sample.said))
            sample = sample._replace(said=_showing(sample.said))
            if isinstance(told := _told(name, sample, [one for one in grow if one != "sizes"]), OfOperator):
                yield told
                number += 1


def _showing(said: Said | str) -> Said | str:
    """Return the declaration with masks of which each row shows something: of others PyTorch gives zeros, which is a
    question of its own."""
    if isinstance(said, str):
        return said
    shown = {
        name: {**entry, "values": {"padding": [0, 1]}} if number and re.match(r"bool\[\d", entry["type"]) else entry
        for number, (name, entry) in enumerate(said["inputs"].items())
    }
    return {**said, "inputs": shown}


def _negative(name: str, number: int, path: str, samples: Sequence[Any], grow: Sequence[str]) -> Told | None:
    """Return the first call in which a number counts from the end: less the rank, it gives the same. Samples of more
    than two dims go first, where it is another one without its sign too."""

    def is_odd(sample: Any) -> bool:
        return getattr(sample.input, "ndim", 0) > 2

    for sample in sorted(samples, key=is_odd, reverse=True):
        args, rank = (sample.input, *sample.args), getattr(sample.input, "ndim", 0)
        for place, value in enumerate(args[1:], 1):
            if type(value) is not int or not 0 < value < rank or (rank > 2 and abs(value - rank) == value):
                continue
            own = _call(number, path, args, sample.kwargs)
            from_end = _call(number, path, (*args[:place], value - rank, *args[place + 1 :]), sample.kwargs)
            if not isinstance(own.said, str) and not isinstance(from_end.said, str) and _same(own, from_end):
                told = _told(name, from_end, grow)
                return told if isinstance(told, OfOperator) else None
    return None


def _same(one: _Sample, other: _Sample) -> bool:
    none: list[torch.Tensor] = []
    of_one, of_other = (
        or_else(none, partial(outputs_of, _function(each.said), each.tensors, 0)) for each in (one, other)
    )
    return 0 < len(of_one) == len(of_other) and all(map(alike, of_one, of_other))


def _function(said: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = eval(f"lambda {', '.join(said['inputs'])}: {said['forward']}", {"torch": torch})
    return made


def _with_order(kinds: Iterable[_Sample]) -> Iterator[_Sample]:
    """Yield the samples, with those inputs declared sorted that ascend in each of them."""
    kinds = [*kinds]
    places = zip_longest(*(kind.tensors for kind in kinds if not isinstance(kind.said, str)))
    ordered = [ascends([tensor for tensor in place if tensor is not None]) for place in places]
    for kind in kinds:
        said = kind.said
        if not isinstance(said, str):
            inputs = {
                name: {**entry, "sorted": True} if is_ordered and tensor.dim() else entry
                for (name, entry), tensor, is_ordered in zip(
                    said["inputs"].items(), kind.tensors, ordered, strict=False
                )
            }
            said = {**said, "inputs": inputs}
        yield kind._replace(said=said)


def _spread(count: int, each: int) -> list[int]:
    """Return at most ``TRIED`` of so many places, ``each`` of them evenly from all, then those between them."""
    parts = (each << power for power in range(TRIED.bit_length()))
    places = (place * count // of for of in parts for place in range(of))
    return list(dict.fromkeys(places))[:TRIED] if count else []


def _kind(said: Said | str) -> str:
    """Return all that is said of a sample but the ranges of its values: samples with the same are alike."""
    if isinstance(said, str):
        return said
    return f"{said['forward']} {[entry['type'] for entry in said['inputs'].values()]}"


def _told(name: str, sample: _Sample, grow: Sequence[str]) -> Told:
    number, said, tensors = sample[:3]
    if isinstance(said, str):
        return LeftOut(name, number, said)
    if not tensors:
        return LeftOut(name, number, "it takes no tensor")
    if len(said["forward"]) > FORWARD:
        return LeftOut(name, number, "its arguments are too long to be written out")
    call = _function(said)
    before = [tensor.clone() for tensor in tensors]
    outputs = attempt(partial(outputs_of, call, before, 0))
    if isinstance(outputs, Exception):
        return LeftOut(name, number, f"called by its name PyTorch raises on the sample: {summarize(outputs)}")
    if (why := _no_outputs(outputs)) is not None:
        return LeftOut(name, number, why)
    if not all(map(alike, before, tensors)):
        said = {**said, "clones": True}
    own = [tensor.shape for tensor in tensors]
    if any(or_else(None, partial(outputs_of, call, one, 0)) is None for one in _all_drawn(tensors, said)):
        said = _without_zero(said)
    drawn: list[list[torch.Tensor]] = []
    for draw in range(DRAWS):
        given = draw_inputs(tensors, said, own, draw)
        once, again = (
            or_else(None, partial(outputs_of, call, [tensor.clone() for tensor in given], other)) for other in (0, 1)
        )
        if once is None or again is None:
            return LeftOut(name, number, "PyTorch raises on other values of the sample's ranges")
        if not all(map(alike, once, again)):
            return LeftOut(name, number, "it draws random numbers")
        drawn.append(once)
    others = drawn[1:]
    for share in (0.0, 0.5):  # of numbers that are not zero
        some = [_where(tensor, share, number) for number, tensor in enumerate(given)]
        zeros = or_else(None, partial(outputs_of, call, some, 0))
        others = [*others, *([] if zeros is None else [zeros])]
    if all(len(drawn[0]) == len(one) and all(map(alike, drawn[0], one)) for one in others):
        if "signature" not in grow or not any(one.numel() for one in outputs):
            return LeftOut(name, number, "its outputs are the same whatever the values of its inputs are")
        said = {**said, "vacuous": "the call's arguments and the shapes of its inputs say it all"}
    if all(torch.cat([part.flatten().isnan() for part in one]).float().mean() > 0.5 for one in drawn):
        return LeftOut(name, number, "its outputs are mostly NaN")
    if "sizes" in grow:
        said = with_dims(said, tensors, call, outputs)
    if "values" in grow and not any(one.isnan().any() for one in outputs):
        said = with_any_values(said, tensors, call)
    return OfOperator(name, number, said)


def _all_drawn(tensors: Sequence[torch.Tensor], said: Said) -> Iterator[list[torch.Tensor]]:
    return (draw_inputs(tensors, said, [tensor.shape for tensor in tensors], draw) for draw in range(DRAWS))


def _without_zero(said: Said) -> Said:
    """Return the declaration with whole numbers below zero in place of a range around it, as divisors need, but for
    the first input."""
    inputs = dict(said["inputs"])
    for name, entry in [*inputs.items()][1:]:
        of = entry.get("values", {}).get("integers", {})
        if of and of["low"] < 0 <= of["high"]:
            inputs[name] = {**entry, "values": {"integers": {"low": of["low"], "high": -1}}}
    return {**said, "inputs": inputs}


def _where(tensor: torch.Tensor, share: float, number: int) -> torch.Tensor:
    """Return a tensor with zeros but for a share of its elements."""
    kept = np.asarray(np.random.default_rng(number).random(tuple(tensor.shape)) < share)
    return tensor.masked_fill(~torch.from_numpy(kept), 0)


def _no_outputs(outputs: Sequence[torch.Tensor]) -> str | None:
    """Say why these are no outputs of a case; None where they are."""
    if not outputs:
        return "it returns no tensor"
    if any(one.is_complex() for one in outputs):
        return "complex outputs"
    if any(one.layout is not torch.strided or one.is_quantized or one.is_nested for one in outputs):
        return "sparse, nested or quantized outputs"
    return "outputs that NumPy cannot hold" if any(one.dtype is torch.bfloat16 for one in outputs) else None


MEMORY = (
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
    "resize_as_",
)  # fmt: skip
"""Operators whose outputs are memory as it was found."""


@functools.cache
def operators() -> dict[str, Any]:
    """Return by name the entry of each operator that takes one of ``DTYPES``, as ``nn.functional.pad.reflect``: a
    variant stands behind a point. Raises ImportError where this PyTorch has no such table."""
    stand_in_for_expecttest()
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        ".".join(filter(None, (info.name, info.variant_test_name))): info
        for info in op_db
        if not set(DTYPES).isdisjoint(info.dtypes)
    }


def stand_in_for_expecttest() -> None:
    """Let PyTorch's tests be imported without expecttest, which compares texts and has no part in their samples."""
    if "expecttest" not in sys.modules:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        vars(sys.modules["expecttest"])["TestCase"] = unittest.TestCase


if __name__ == "__main__":
    main()
