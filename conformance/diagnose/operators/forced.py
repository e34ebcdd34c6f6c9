"""Each operator in PyTorch on what the graph computed of the operators before: which of them the graph has wrong.

What a sound operator makes of an earlier error is then no difference at all, so that comparing can be far stricter
than for whole networks, and argmax or a rounding accuse nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from conformance.compare.close import Limit, differs, ratios
from conformance.compare.nudge import largest_movement
from conformance.compare.zeros import turned
from conformance.diagnose.operators.captured_program import Operator, Program, Values, array, joined, leaves, like
from conformance.diagnose.operators.inside import Inside
from conformance.diagnose.operators.tensor_values import Stops, Tensors
from conformance.process.arrays import Array, equal
from conformance.process.errors import attempt, or_else

UNITS = 16.0
"""Units in the last place of a value within which two kernels give the same of the same inputs, and multiples of what
the rounding of these inputs makes of it."""
LARGEST = 8.0
"""The same in units of the output's largest value: kernels approximate what they cannot compute exactly."""
NUDGES = 2
ALONE = Limit(share=1e-5, floor=0.1)
"""How far an element may be from what the operator gives of its arguments alone."""
FOLDED = 50.0
"""Times what two kernels may differ by, within which a tensor is that of the operator after: folding rounds anew."""

UNDEFINED = frozenset({"aten.empty", "aten.empty_like", "aten.new_empty", "aten.empty_strided"})
"""Operators whose values are whatever lies in memory."""


@dataclass
class Parting:
    """An operator of which the graph has something else than PyTorch, though what it is computed from is the same."""

    operator: Operator
    tensor: str
    how: str
    """``value``, ``shape``, ``dtype``, or ``stops`` where the graph cannot be computed."""
    index: tuple[int, ...] = ()
    got: object = None
    wanted: object = None
    arguments: list[object] = field(default_factory=list)
    """What the element is computed of, where that is known: one value for each argument."""
    count: int = 0
    """How many elements differ, of ``size``."""
    size: int = 0
    why: str | None = None
    untied: list[Operator] = field(default_factory=list)
    """Operators between it and the nearest tensors that are known, any of which may be the one."""
    value: Any = None
    """What the graph has, as a value of PyTorch's; None where it does not fit."""
    right: list[Any] = field(default_factory=list)
    """The outputs of the operator."""
    inside: Inside | None = None
    """The program that the operator runs."""
    array: Array | None = None
    """What the graph has, where all of it has the right shape."""
    instead: Array | None = None
    """What the graph should have; in its own dtype and shape where only the values are wrong."""
    exact: Array | None = None
    """What the operator gives in float64, where it takes that and the values are wrong."""


@dataclass
class Step:
    """An operator, one of its values, and what the graph has for that."""

    operator: Operator
    tensor: str | None
    """None where the graph is not known to have it."""
    ratio: float | None = None
    """The largest error over what is allowed; None where it was not compared."""
    parting: Parting | None = None
    form: Parting | None = None
    """Where the values agree and the graph has them in another dtype or shape, as it may where the operators after
    take that."""
    turned: Parting | None = None
    """The step at which values agree and the graph has zeros of the other sign, by which it may divide."""
    put_right: bool = False
    """Set by who looks at the steps, to go on with what the graph should have."""


def steps(program: Program, inputs: Sequence[object], tensors: Tensors) -> Iterator[Step]:
    """The operators in order, as far as the graph can be followed."""
    values: Values = {**program.start, **dict(zip(program.inputs, inputs, strict=True))}
    untied: dict[str, list[Operator]] = {}
    read = {*program.outputs, *(name for operator in program.operators for name in operator.inputs)}
    for operator, done in program.order():
        results = attempt(partial(operator.compute, values))
        if isinstance(results, Exception):  # what the graph computed before is of no use to it
            return
        before = [*dict.fromkeys(one for name in operator.inputs for one in untied.get(name, ()))]
        for output, (name, right) in enumerate(zip(operator.outputs, results, strict=True)):
            members, known = [], True
            for place, (member, tensor) in enumerate(tied(program, name, right)):
                step = Step(operator, tensor)
                unknown = tensor is None or tensor not in tensors or array(member) is None
                if unknown or name not in read or operator.operator in UNDEFINED:
                    known, value, step.tensor = False, member, None
                else:
                    value = _look(step, partial(picked, output, place), results, tensors, values)
                    if step.parting is not None and _folded(program, step, {**values, name: right}, tensors):
                        known, value, step.tensor, step.parting = False, member, None, None
                    for parting in filter(None, (step.parting, step.form, step.turned)):
                        parting.untied = before
                        parting.right = [array(member) for right in results for member in leaves(right)]
                        inner = operator.inner(values)
                        parting.inside = None if inner is None else Inside(*inner)
                yield step
                wrong = step.parting or step.form
                if step.put_right and tensor is not None and wrong is not None and wrong.instead is not None:
                    tensors.put(tensor, wrong.instead)
                    value = member
                if value is None and member is not None:
                    return
                members.append(value)
            values[name] = joined(right, members)
            if not known:
                untied[name] = [*before, operator]
        for name in done:
            values.pop(name, None)


def _folded(program: Program, step: Step, values: Values, tensors: Tensors) -> bool:
    """Return whether the tensor is not that of the operator, but of one after it that the exporter has folded into
    its node, as a batch norm is into a convolution. The tensor is then tied to that one."""
    parting, operator = step.parting, step.operator
    if parting is None or parting.array is None or step.tensor is None or len(operator.outputs) != 1:
        return False
    readers = [one for one in program.operators if operator.name in one.inputs]
    if len(readers) != 1 or len(readers[0].outputs) != 1 or program.ties.get(readers[0].name):
        return False
    wanted = or_else(None, lambda: array(readers[0].compute(values)[0]))
    got = parting.array
    if wanted is None or wanted.shape != got.shape or (ratios(got, wanted, limit_of(readers[0])) > FOLDED).any():
        return False
    program.ties[readers[0].name], program.ties[operator.name] = [step.tensor], [None]
    tensors.back(step.tensor, got)
    return True


def tied(program: Program, name: str, right: object) -> list[tuple[object, str | None]]:
    """The members of a value, each with its tensor."""
    members = leaves(right)
    ties = program.ties.get(name, [])
    padded = ties if len(ties) == len(members) else [None] * len(members)
    return list(zip(members, padded, strict=True))


_Pick = Callable[[Sequence[object]], object]
"""Picks a value out of all outputs of an operator."""


def picked(output: int, place: int, results: Sequence[object]) -> object:
    return leaves(results[output])[place]


def _look(step: Step, pick: _Pick, results: Sequence[object], tensors: Tensors, values: Values) -> object:
    """Note how a tensor of the graph parts from the right value. Gives what to go on with, or None where nothing
    fits."""
    operator, tensor, right = step.operator, step.tensor, pick(results)
    assert tensor is not None
    wanted = array(right)
    assert wanted is not None
    try:
        got = tensors[tensor]
    except Stops as error:
        step.parting = Parting(operator, tensor, "stops", why=str(error), instead=wanted)
        return None
    if got is None:
        return right
    instead = wanted.astype(got.dtype).reshape(got.shape) if got.size == wanted.size else None
    form = _form(operator, tensor, right, got, wanted)
    if got.size == wanted.size == 1:  # numbers have one axis, or none
        got = got.reshape(wanted.shape)
    if got.shape != wanted.shape:
        step.parting = Parting(
            operator, tensor, "shape", got=list(got.shape), wanted=list(wanted.shape), instead=wanted
        )
        return None
    if wanted.dtype == np.float64 and not hasattr(right, "dtype"):
        wanted = wanted.astype(got.dtype)
    if got.dtype.kind != wanted.dtype.kind and not _holds(got, wanted):
        step.parting = Parting(
            operator, tensor, "dtype", got=str(got.dtype), wanted=str(wanted.dtype), instead=wanted
        )
        return None
    errors = ratios(got, wanted, limit_of(operator), lambda: rough(operator, values, wanted, pick))
    step.ratio = float(errors.max(initial=0.0))
    value = like(right, got.astype(wanted.dtype))
    off = errors > 1
    agrees = not off.any()
    if agrees:
        step.form, off = form, turned(got, wanted)
    if not off.any():
        return right if value is None else value
    at = tuple(int(i) for i in np.argwhere(off)[0]) if off.ndim else ()
    arguments = or_else([], lambda: _arguments(operator, values, wanted, at, pick))  # it may take no single elements
    parting = Parting(
        operator, tensor, "value", at, got[at].item(), wanted[at].item(), arguments, int(off.sum()), off.size,
        value=value, array=got, instead=instead, exact=or_else(None, lambda: _in_float64(operator, values, pick)),
    )  # fmt: skip
    step.parting, step.turned = (None, parting) if agrees else (parting, None)
    return value


def _in_float64(operator: Operator, values: Values, pick: _Pick) -> Array | None:
    """Return what an operator gives in float64; raises what PyTorch raises where it takes none."""
    import torch

    def doubled(value: object) -> object:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    given = {name: doubled(values[name]) for name in operator.inputs if name in values}
    return array(pick(operator.compute({**values, **given})))


def _form(operator: Operator, tensor: str, right: object, got: Array, wanted: Array) -> Parting | None:
    """Return how a tensor's dtype or shape differs; None where both are PyTorch's, or PyTorch has no tensor."""
    import torch

    if not isinstance(right, torch.Tensor) or right.is_complex():
        return None
    forms = {"shape": (list(got.shape), list(wanted.shape)), "dtype": (str(got.dtype), str(wanted.dtype))}
    how = next((name for name, (ours, theirs) in forms.items() if ours != theirs), None)
    if how is None:
        return None
    return Parting(
        operator, tensor, how, got=forms[how][0], wanted=forms[how][1], value=torch.from_numpy(got.copy()),
        instead=wanted,
    )  # fmt: skip


def _holds(got: Array, wanted: Array) -> bool:
    """Return whether an array has the same values in another type."""
    with np.errstate(all="ignore"):
        return equal(got.astype(wanted.dtype), wanted)


def limit_of(operator: Operator) -> Limit:
    """Return how far two kernels of an operator may differ."""
    return Limit(UNITS, LARGEST if operator.pointwise else 4 * LARGEST, spread=not operator.pointwise)


def rough(operator: Operator, values: Values, wanted: Array, pick: _Pick, *, each_way: bool = False) -> Array | None:
    """Return how far each element moves when every float that the operator is given moves by a unit in its last
    place; ``each_way`` where all of them move up once, and down once, too. Whole numbers stay in operators on single
    elements: what these give at a step, such as 0, is defined."""
    rng = np.random.default_rng(0)
    given = {name: values[name] for name in operator.inputs if name in values}

    def near(ways: Sequence[float]) -> list[Array] | None:
        shifted = {name: _shifted(value, ways, rng, operator.pointwise) for name, value in given.items()}
        result = or_else(None, lambda: array(pick(operator.compute({**values, **shifted}))))
        return None if result is None else [result]

    ways = [[-np.inf, np.inf]] * NUDGES + ([[np.inf], [-np.inf]] if each_way else [])
    moved = largest_movement(map(near, ways), [wanted])
    return None if moved is None else moved[0]


def _shifted(value: object, ways: Sequence[float], rng: np.random.Generator, whole_stay: bool) -> object:
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    way = torch.from_numpy(rng.choice(ways, tuple(value.shape))).to(value.dtype)
    try:
        near = torch.nextafter(value.detach(), way)
        return torch.where(value == value.round(), value.detach(), near) if whole_stay else near
    except RuntimeError:  # half precision
        return value


def _arguments(operator: Operator, values: Values, wanted: Array, at: tuple[int, ...], pick: _Pick) -> list[object]:
    """The numbers that an element is computed of, if the operator gives that element of these alone; else none."""
    import torch

    def element(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return torch.broadcast_to(value, wanted.shape)[at].reshape((1,) * wanted.ndim)
        return value

    alone = {**values, **{name: element(values[name]) for name in operator.inputs}}
    result = array(pick(operator.compute(alone)))
    if result is None or result.size != 1 or differs(result.ravel(), wanted[at].ravel(), ALONE, dtypes=False):
        return []
    given = [array(value) for value in operator.arguments(alone) if not isinstance(value, str | type(None))]
    return [] if any(value is None for value in given) else [value.item() for value in given if value is not None]


def explains(
    program: Program,
    inputs: Sequence[object],
    parting: Parting,
    fails: Callable[[list[Array]], bool],
    *,
    raising: bool = True,
) -> bool:
    """Return whether PyTorch's outputs are wrong as soon as this operator alone gives what the graph has; ``raising``
    where PyTorch cannot go on with that."""
    if parting.value is None:
        return True
    values: Values = {**program.start, **dict(zip(program.inputs, inputs, strict=True))}
    for operator, done in program.order():
        results = attempt(partial(operator.compute, values))
        if isinstance(results, Exception):
            return raising
        for name, right in zip(operator.outputs, results, strict=True):
            values[name] = right
            if operator is parting.operator and parting.tensor in program.ties.get(name, ()):
                members = [
                    parting.value if tensor == parting.tensor else member
                    for member, tensor in tied(program, name, right)
                ]
                values[name] = joined(right, members)
        for name in done:
            values.pop(name, None)
    arrays = [array(values[name]) for name in program.outputs if name is not None]
    return any(found is None for found in arrays) or fails([found for found in arrays if found is not None])
