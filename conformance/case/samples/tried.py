"""Read the samples of PyTorch's own tests, and try each call: what of it a case can be, and which sizes may vary.

Runs in a process of its own, as a sample may end it: ``python -m conformance.case.samples.tried`` writes JSON.
"""

from __future__ import annotations

import functools
import json
import random
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree

from conformance.case.files.limits import FORWARD
from conformance.case.samples.calls import Said, Unsaid, Untaken, ascends, call_of, name_of
from conformance.case.samples.told import LeftOut, OfOperator, Told
from conformance.process.errors import attempt, or_else, summarize
from conformance.process.worker import aside

TOGETHER = 16
"""Operators that are asked about in one process."""
TRIED = 16
"""Samples of an operator that are tried until enough of them are cases."""
SECONDS = 60.0
"""That the samples of these may take. Each of PyTorch 2.15 takes below two."""
LARGER = 3
"""By how much a size that may vary grows: two more than itself is what strides of 2 leave unseen."""
CHANCE = 8
"""Of sizes that are tried at once for all dims, beside the ends of each."""
DRAWS = 4
"""Of values in the declared ranges, which an operator has to take all."""
SCALES = (0.1, 1.0, 10.0, 10.0)
"""Of the normally distributed values that an operator has to take before all values are drawn."""


def main() -> None:
    """Write what is told of the samples as JSON to the output; the argument is what ``told.ask`` was asked for."""
    only, but, each, grow = json.loads(sys.argv[1])
    torch.set_num_threads(1)  # a fork has no other threads
    warnings.simplefilter("ignore")
    names = [name for name in operators() if _is_one(name, only) and not _is_one(name, but)]
    parts = [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]
    told = [one.as_dict() for part in parts for one in _asked(part, each, grow)]
    json.dump({"operators": list(operators()), "told": told}, sys.stdout)


def _is_one(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _asked(names: Sequence[str], each: int, grow: Sequence[str]) -> list[Told]:
    """Return what is told of operators by a process of their own; where it ends, each is asked about alone."""
    try:
        return aside.ask(partial(_told_of_all, names, each, grow), SECONDS)
    except aside.Lost as lost:
        if len(names) > 1:
            return [one for name in names for one in _asked([name], each, grow)]
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
    with ``sizes`` and ``values`` to ``grow`` in as far as PyTorch takes more than the sample's."""
    info = operators()[name]
    seed(0)
    samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
    if info.name in MEMORY:
        return [LeftOut(name, 0, "its outputs are memory as it was found")]
    path = name_of(info.op, info.name)
    if path is None:
        return [LeftOut(name, 0, "nothing in torch has the operator's name")]
    distinct: dict[str, tuple[int, Said | str, list[torch.Tensor]]] = {}
    for number, sample in enumerate(samples):
        tensors: list[torch.Tensor] = []
        said: Said | str
        try:
            said, tensors = call_of(path, (sample.input, *sample.args), sample.kwargs)
        except (Untaken, Unsaid) as why:
            said = str(why)
        distinct.setdefault(_kind(said), (number, said, tensors))
    kinds = [*_with_order(distinct.values())]
    cases: list[Told] = []
    left_out: list[Told] = []
    for place in _spread(len(kinds), each):
        one = _told(name, *kinds[place], grow)
        (cases if isinstance(one, OfOperator) else left_out).append(one)
        if len(cases) == each:
            break
    return cases or left_out[:1]


def _with_order(
    kinds: Iterable[tuple[int, Said | str, list[torch.Tensor]]],
) -> Iterator[tuple[int, Said | str, list[torch.Tensor]]]:
    """Yield the samples, with those inputs declared sorted that ascend in each of them."""
    kinds = [*kinds]
    places = zip_longest(*(tensors for _, said, tensors in kinds if not isinstance(said, str)))
    ordered = [ascends([tensor for tensor in place if tensor is not None]) for place in places]
    for number, said, tensors in kinds:
        if not isinstance(said, str):
            inputs = {
                name: {**entry, "sorted": True} if is_ordered and tensor.dim() else entry
                for (name, entry), tensor, is_ordered in zip(said["inputs"].items(), tensors, ordered, strict=False)
            }
            said = {**said, "inputs": inputs}
        yield number, said, tensors


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


def _told(name: str, number: int, said: Said | str, tensors: list[torch.Tensor], grow: Sequence[str]) -> Told:
    if isinstance(said, str):
        return LeftOut(name, number, said)
    if not tensors:
        return LeftOut(name, number, "it takes no tensor")
    if len(said["forward"]) > FORWARD:
        return LeftOut(name, number, "its arguments are too long to be written out")
    call = eval(f"lambda {', '.join(said['inputs'])}: {said['forward']}", {"torch": torch})
    before = [tensor.clone() for tensor in tensors]
    outputs = attempt(partial(_outputs, call, before, 0))
    if isinstance(outputs, Exception):
        return LeftOut(name, number, f"called by its name PyTorch raises on the sample: {summarize(outputs)}")
    if (why := _no_outputs(outputs)) is not None:
        return LeftOut(name, number, why)
    if not all(map(_alike, before, tensors)):
        said = {**said, "clones": True}
    own = [tensor.shape for tensor in tensors]
    drawn: list[list[torch.Tensor]] = []
    for draw in range(DRAWS):
        given = _drawn(tensors, said, own, draw)
        once, again = (
            or_else(None, partial(_outputs, call, [tensor.clone() for tensor in given], other)) for other in (0, 1)
        )
        if once is None or again is None:
            return LeftOut(name, number, "PyTorch raises on other values of the sample's ranges")
        if not all(map(_alike, once, again)):
            return LeftOut(name, number, "it draws random numbers")
        drawn.append(once)
    zeros = or_else(None, partial(_outputs, call, [torch.zeros_like(tensor) for tensor in tensors], 0))
    others = drawn[1:] if zeros is None else [*drawn[1:], zeros]
    if all(len(drawn[0]) == len(one) and all(map(_alike, drawn[0], one)) for one in others):
        return LeftOut(name, number, "its outputs are the same whatever the values of its inputs are")
    if all(torch.cat([part.flatten().isnan() for part in one]).float().mean() > 0.5 for one in drawn):
        return LeftOut(name, number, "its outputs are mostly NaN")
    if "sizes" in grow:
        said = _with_dims(said, tensors, call, outputs)
    if "values" in grow and not any(one.isnan().any() for one in outputs):
        said = _with_any_values(said, tensors, call)
    return OfOperator(name, number, said)


def _no_outputs(outputs: Sequence[torch.Tensor]) -> str | None:
    """Say why these are no outputs of a case; None where they are."""
    if not outputs:
        return "it returns no tensor"
    if any(one.is_complex() for one in outputs):
        return "complex outputs"
    if any(one.layout is not torch.strided or one.is_quantized or one.is_nested for one in outputs):
        return "sparse, nested or quantized outputs"
    return "outputs that NumPy cannot hold" if any(one.dtype is torch.bfloat16 for one in outputs) else None


def _outputs(call: Callable[..., Any], tensors: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
    seed(number)
    with torch.no_grad():
        given = _pytree.tree_leaves(call(*tensors))
    return [one for one in given if isinstance(one, torch.Tensor)]


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


# ---- what may vary ---------------------------------------------------------------------------------------------


def _with_dims(
    said: Said, tensors: Sequence[torch.Tensor], call: Callable[..., Any], outputs: Sequence[torch.Tensor]
) -> Said:
    """Return the declaration with a dim in place of each size that PyTorch takes others of, where it gives outputs of
    the same number and ranks: of one axis where that may vary alone, else of the axes at one place of all inputs,
    else of all axes of that size; from 1 on where PyTorch takes 1, else from the sample's own."""
    ranks = [one.dim() for one in outputs]

    def takes(sizes: Mapping[Axis, int]) -> bool:
        return _ranks(call, said, tensors, sizes) == ranks

    dims: list[_Dim] = []
    for together in _groups([tuple(tensor.shape) for tensor in tensors]):
        axes = together - {axis for dim in dims for axis in dim.axes}
        if not any(number == 0 for number, _ in axes):
            continue
        [size] = {tensors[number].shape[axis] for number, axis in axes}
        for low in (1, size):
            wider = [*dims, _Dim(frozenset(axes), size, low)]
            if all(map(takes, _ends(wider))):
                dims = wider
                break
    names = {axis: f"n{number}" for number, dim in enumerate(dims) for axis in dim.axes}
    inputs = {
        name: {
            **entry,
            "type": f"{entry['type'].partition('[')[0]}"
            f"[{', '.join(names.get((number, axis), str(size)) for axis, size in enumerate(tensor.shape))}]",
        }
        for number, ((name, entry), tensor) in enumerate(zip(said["inputs"].items(), tensors, strict=True))
    }
    ranges = {f"n{number}": f"{dim.low}..{dim.size + LARGER}" for number, dim in enumerate(dims)}
    return {**said, "inputs": inputs, "dims": ranges} if ranges else said


Axis = tuple[int, int]
"""The number of a tensor, and of an axis of it."""


class _Dim(NamedTuple):
    """Axes of one size that vary together."""

    axes: frozenset[Axis]
    size: int
    """As the sample has it."""
    low: int


def _groups(shapes: Sequence[tuple[int, ...]]) -> Iterator[frozenset[Axis]]:
    """Yield axes of one size above 1 that may be a dim: each alone, those at one place from the end or from the
    start, and all. An axis of the first tensor is among them: those of weights vary in no model by themselves."""
    axes = [(number, axis) for number, shape in enumerate(shapes) for axis, size in enumerate(shape) if size > 1]
    kinds: tuple[Callable[[int, int], object], ...] = (
        lambda number, axis: (number, axis),
        lambda number, axis: (shapes[number][axis], axis - len(shapes[number])),
        lambda number, axis: (shapes[number][axis], axis),
        lambda number, axis: shapes[number][axis],
    )
    for kind in kinds:
        for first in dict.fromkeys(kind(number, axis) for number, axis in axes if number == 0):
            yield frozenset(each for each in axes if kind(*each) == first)


def _ends(dims: Sequence[_Dim]) -> Iterator[dict[Axis, int]]:
    """Yield all at their least and at their most, each alone at either and one above its own, and some by chance."""
    rng = np.random.default_rng(0)

    def sized(sizes: Iterable[int]) -> dict[Axis, int]:
        return {axis: size for dim, size in zip(dims, sizes, strict=True) for axis in dim.axes}

    yield sized(dim.low for dim in dims)
    yield sized(dim.size + LARGER for dim in dims)
    for one in dims:
        for size in (one.low, one.size + 1, one.size + LARGER):
            yield sized(size if dim is one else dim.size for dim in dims)
    for _ in range(CHANCE):
        yield sized(int(rng.integers(dim.low, dim.size + LARGER, endpoint=True)) for dim in dims)


def _ranks(
    call: Callable[..., Any], said: Said, tensors: Sequence[torch.Tensor], sizes: Mapping[Axis, int]
) -> list[int] | None:
    """Return the ranks of the outputs where sizes are changed so; None where PyTorch raises, or gives no value."""
    shapes = [
        [sizes.get((number, axis), size) for axis, size in enumerate(tensor.shape)]
        for number, tensor in enumerate(tensors)
    ]
    outputs = or_else([], lambda: _outputs(call, _drawn(tensors, said, shapes, 0), 0))
    return [one.dim() for one in outputs] if any(one.numel() for one in outputs) else None


def _with_any_values(said: Said, tensors: Sequence[torch.Tensor], call: Callable[..., Any]) -> Said:
    """Return the declaration without ranges of floats, where ordinary numbers of either sign make no NaN."""
    rng = np.random.default_rng(0)
    for scale in SCALES:
        given = [
            _in_order(torch.from_numpy(rng.normal(0, scale, tensor.shape)).to(tensor.dtype), entry)
            if tensor.is_floating_point()
            else tensor.clone()
            for tensor, entry in zip(tensors, said["inputs"].values(), strict=True)
        ]
        outputs = or_else(None, partial(_outputs, call, given, 0))
        if outputs is None or any(one.isnan().any() for one in outputs):
            return said
    inputs = {
        name: {key: said for key, said in entry.items() if key != "values" or "uniform" not in said}
        for name, entry in said["inputs"].items()
    }
    return {**said, "inputs": inputs}


def _drawn(
    tensors: Sequence[torch.Tensor], said: Said, shapes: Sequence[Sequence[int]], number: int
) -> list[torch.Tensor]:
    """Return inputs of these shapes with values of the declared ranges."""
    rng = np.random.default_rng(number)
    return [
        _in_order(torch.from_numpy(_values(rng, entry.get("values"), shape)).to(tensor.dtype), entry)
        for tensor, entry, shape in zip(tensors, said["inputs"].values(), shapes, strict=True)
    ]


def _in_order(tensor: torch.Tensor, entry: Said) -> torch.Tensor:
    return tensor.sort(-1).values if "sorted" in entry else tensor


def _values(rng: np.random.Generator, said: Said | None, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if said is None:  # of a bool, or of a tensor without a finite value
        return rng.integers(0, 2, shape)
    if "integers" in said:
        return rng.integers(said["integers"]["low"], said["integers"]["high"], shape, endpoint=True)
    return np.asarray(rng.uniform(said["uniform"]["low"], said["uniform"]["high"], shape))


MEMORY = (
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
    "resize_as_",
)  # fmt: skip
"""Operators whose outputs are memory as it was found."""


@functools.cache
def operators() -> dict[str, Any]:
    """Return by name the entry of each operator that takes float32, as ``nn.functional.pad.reflect``: a variant
    stands behind a point. Raises ImportError where this PyTorch has no such table."""
    stand_in_for_expecttest()
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        ".".join(filter(None, (info.name, info.variant_test_name))): info
        for info in op_db
        if torch.float32 in info.dtypes
    }


def stand_in_for_expecttest() -> None:
    """Let PyTorch's tests be imported without expecttest, which compares texts and has no part in their samples."""
    if "expecttest" not in sys.modules:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        vars(sys.modules["expecttest"])["TestCase"] = unittest.TestCase


def seed(number: int) -> None:
    """Set the seeds of all that samples and operators draw from."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


if __name__ == "__main__":
    main()
