"""Make calls that no sample has, as far as the signature of what is called allows others.

Nothing here knows an operator: each rule reads the names, types and defaults of arguments, and PyTorch is asked
whether it takes the call and gives something else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, product
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree

from conformance.case.samples.vary import outputs_of
from conformance.process.errors import or_else

EACH = 2
"""Calls that one change of one argument gives at most, of tensors of unlike ranks."""
TRIED = 6
"""Calls that a change is tried on."""
AXES = 4
"""Axes of the first tensor that may be doubled."""
COMBINED = 16
"""Choices of unlike numbers for all lists that are tried."""
SHOWS = 0.02
"""Relative difference of outputs that are other ones: of more than rounding, at any tolerance of a case."""


class OtherCall(NamedTuple):
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def given(self, others: Mapping[str, Any], names: Sequence[str]) -> OtherCall:
        """Return the call with other values of arguments, where ``names`` is the order of all."""
        args = tuple(
            others.get(name, value) for name, value in zip(names, self.args, strict=False)
        ) + self.args[len(names) :]  # fmt: skip
        named = {name: value for name, value in others.items() if name not in names[: len(self.args)]}
        return OtherCall(args, {**self.kwargs, **named})

    @property
    def tensors(self) -> list[torch.Tensor]:
        leaves = _pytree.tree_leaves((self.args, dict(self.kwargs)))
        return [one for one in leaves if isinstance(one, torch.Tensor)]


class Signed(NamedTuple):
    """An argument, as a signature declares it."""

    name: str
    type: str
    default: object
    length: int
    """Of a list of numbers that one number may stand for; 0 of any other."""


Change = Callable[[OtherCall], Iterator[OtherCall]]
"""Makes other calls of one, of which the first that PyTorch takes counts."""


def made(called: Callable[..., Any], calls: Sequence[OtherCall]) -> Iterator[OtherCall]:
    """Yield calls like these with another argument: one that samples leave out, one fewer, a list of other length,
    several numbers in place of one, a mask of booleans, twice a size."""
    whole = [call for call in calls if call.tensors and all(one.numel() for one in call.tensors)]
    for arguments in signatures(called):
        fitting = sorted((one for one in whole if _fits(one, arguments)), key=partial(_order, arguments))
        for change in _changes(called, arguments):
            yield from islice(_first_of_ranks(called, fitting, change), EACH)


def _first_of_ranks(called: Callable[..., Any], calls: Sequence[OtherCall], change: Change) -> Iterator[OtherCall]:
    ranks = set[int]()
    changing = ((call, first) for call in calls if (first := next(change(call), None)) is not None)
    for call, _ in islice(changing, TRIED):
        rank = call.tensors[0].dim()
        other = next((one for one in change(call) if _shows(called, call, one)), None) if rank not in ranks else None
        if other is not None:
            ranks.add(rank)
            yield other


def _shows(called: Callable[..., Any], call: OtherCall, other: OtherCall) -> bool:
    """Return whether PyTorch takes another call and gives something else."""
    was, now = (or_else(None, partial(_outputs, called, one)) for one in (call, other))
    if was is None or not now or not any(one.numel() for one in now):
        return False
    if [(one.shape, one.dtype) for one in was] != [(one.shape, one.dtype) for one in now]:
        return True
    pairs = [(one.double(), another.double()) for one, another in zip(was, now, strict=True) if not one.is_complex()]
    return not all(torch.allclose(*pair, rtol=SHOWS, atol=SHOWS, equal_nan=True) for pair in pairs)


def _outputs(called: Callable[..., Any], call: OtherCall) -> list[torch.Tensor]:
    leaves, tree = _pytree.tree_flatten((call.args, dict(call.kwargs)))
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in leaves]
    args, kwargs = _pytree.tree_unflatten(copies, tree)
    return outputs_of(lambda: called(*args, **kwargs), (), 0)


def signatures(called: Callable[..., Any]) -> Iterator[list[Signed]]:
    """Yield the arguments of what is called: of a function in Python, or else of each operator of its name."""
    parameters = or_else({}, lambda: dict(inspect.signature(called).parameters))
    if parameters and not any(one.kind is one.VAR_POSITIONAL for one in parameters.values()):
        yield [_of_parameter(one) for one in parameters.values()]
        return
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{getattr(called, '__name__', '')}"):
        if not any(one.is_out for one in schema.arguments):
            yield [
                Signed(
                    one.name, str(one.real_type), one.default_value,
                    (getattr(one, "N", None) or 2) if "List[int]" in str(one.real_type) else 0,
                )
                for one in schema.arguments
            ]  # fmt: skip


def _of_parameter(one: inspect.Parameter) -> Signed:
    default = None if one.default is one.empty else one.default
    said = str(one.annotation) if one.annotation is not one.empty else type(default).__name__
    return Signed(one.name, said, default, 2 if "ist[int]" in said else 0)


def _fits(call: OtherCall, arguments: Sequence[Signed]) -> bool:
    names = [one.name for one in arguments]
    placed = zip(call.args, arguments, strict=False)
    return (
        len(call.args) <= len(names) and set(call.kwargs) <= set(names)
        and all(isinstance(value, torch.Tensor) <= ("Tensor" in one.type or "_empty" in one.type)
                for value, one in placed)
    )  # fmt: skip


def _order(arguments: Sequence[Signed], call: OtherCall) -> tuple[int, int]:
    """Return how many arguments of a call are no tensors and other than what they are when left out, then its rank,
    the highest first: exporters take most where little is asked for, and low ranks show little."""
    names = [one.name for one in arguments]
    values = [(one.default, _value(call, one.name, names, one.default)) for one in arguments]
    others = sum(not isinstance(value, torch.Tensor) and value != default for default, value in values)
    return others, -call.tensors[0].dim()


def _changes(called: Callable[..., Any], arguments: Sequence[Signed]) -> Iterator[Change]:
    """Yield all that may be changed, what samples lack most often first."""
    names = [one.name for one in arguments]
    for one in arguments:
        for values in _of_type(one):
            yield partial(_given, one, values, names)
    yield partial(_several, arguments)
    yield from (partial(_masked, name, names) for name in names[1:])
    yield from (partial(_fewer, name, names) for name in names[1:])
    yield from (partial(_twice, called, axis) for axis in range(AXES))
    yield from (partial(_left_out, name, names) for name in names[1:])


def _of_type(one: Signed) -> Iterator[Sequence[Any]]:
    """Yield values for an argument that is left out: of each kind the first that shows is taken."""
    if "ScalarType" in one.type or "dtype" in one.type:
        yield from ([torch.float64], [torch.int64])
    elif one.type in ("bool", "Optional[bool]") or isinstance(one.default, bool):
        yield [not one.default]
    elif any(word in one.type for word in ("float", "number", "Scalar")):
        yield [value for value in (0.5, 2.0, -0.5) if value != one.default]
    elif "int" in one.type:
        least = one.default if isinstance(one.default, int) else 0
        yield [least + 1, least + 2, least - 1]


def _value(call: OtherCall, name: str, names: Sequence[str], default: object = None) -> Any:
    place = names.index(name)
    return call.args[place] if place < len(call.args) else call.kwargs.get(name, default)


def _given(one: Signed, values: Sequence[Any], names: Sequence[str], call: OtherCall) -> Iterator[OtherCall]:
    now = _value(call, one.name, names, one.default)
    if not isinstance(now, torch.Tensor) and now == one.default:
        yield from (call.given({one.name: value}, names) for value in values)


def _several(arguments: Sequence[Signed], call: OtherCall) -> Iterator[OtherCall]:
    """Yield unlike numbers in place of one or of equal ones, in all lists of numbers at once."""
    names = [one.name for one in arguments]
    lists: dict[str, list[list[int]]] = {}
    for one in arguments:
        value = _value(call, one.name, names)
        numbers = [*value] if isinstance(value, list | tuple) else [value]
        if one.length and len(set(map(str, numbers))) == 1 and type(numbers[0]) is int:
            count = max(len(numbers), one.length, 2)
            lists[one.name] = [[numbers[0] + sign * number for number in range(count)] for sign in (1, -1)]
    for chosen in islice(product(*lists.values()), COMBINED if lists else 0):
        yield call.given(dict(zip(lists, chosen, strict=True)), names)


def _masked(name: str, names: Sequence[str], call: OtherCall) -> Iterator[OtherCall]:
    value = _value(call, name, names)
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim():
        yield call.given({name: value > value.mean()}, names)


def _fewer(name: str, names: Sequence[str], call: OtherCall) -> Iterator[OtherCall]:
    value = _value(call, name, names)
    if isinstance(value, list | tuple) and len(value) > 1 and all(type(number) is int for number in value):
        yield from (call.given({name: type(value)(other)}, names) for other in (value[1:], (2, *value)))


def _left_out(name: str, names: Sequence[str], call: OtherCall) -> Iterator[OtherCall]:
    if name in call.kwargs:
        yield OtherCall(call.args, {other: value for other, value in call.kwargs.items() if other != name})
    elif names.index(name) < len(call.args):
        yield OtherCall(call.args[: names.index(name)], call.kwargs)


def _twice(called: Callable[..., Any], axis: int, call: OtherCall) -> Iterator[OtherCall]:
    """Yield the call with twice a size of its first tensor that PyTorch takes no other of: not one more."""
    first = call.tensors[0]
    if axis < first.dim() and call.args and call.args[0] is first:
        longer, twice = (
            OtherCall((torch.cat([first, more], axis), *call.args[1:]), call.kwargs)
            for more in (first.narrow(axis, 0, 1), first)
        )
        if first.shape[axis] > 1 and or_else(None, partial(_outputs, called, longer)) is None:
            yield twice
