"""A captured program as its operators in order, whichever exporter captured it; and what a capture froze."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.process.arrays import Array
from conformance.process.errors import or_else
from conformance.runtimes.onnxgraph.reads import Graph

if TYPE_CHECKING:
    from onnx import ModelProto


LARGEST = 10_000
"""Numbers above it, of those that an operator is called with, may be sizes."""
Values = dict[str, Any]
"""PyTorch's values by name: tensors, numbers, and lists of them."""


class Unable(Exception):
    """No operator can be looked for; ``why`` is the name of the reason, as a record has it, ``str`` the detail."""

    def __init__(self, why: str, detail: str = "") -> None:
        super().__init__(detail)
        self.why = why


@dataclass(frozen=True)
class Name:
    """The name of a value, where a call takes that value."""

    name: str


@dataclass(frozen=True)
class Call:
    """An operator as Python writes it: a function, and arguments that are plain values, names of others, and lists of
    both."""

    function: str
    """``torch.ops.aten.hardswish.default``; empty for what only hands on its one argument."""
    args: tuple[object, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Operator:
    """A call of one operator in a captured program."""

    name: str
    """That of its first output, which no other operator has."""
    operator: str
    """``aten.floor_divide``, ``operator.floordiv``."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    compute: Callable[[Values], tuple[object, ...]]
    """Its outputs, of the values of its inputs; raises what PyTorch raises."""
    line: str | None = None
    """The innermost line of the user's Python, as ``modules.py:53``."""
    source: str | None = None
    """The text of that line."""
    module: str | None = None
    """The path of the submodule that calls it."""
    called: str | None = None
    """The operator that PyTorch was asked for, where the exporter has decomposed that one into others."""
    plumbing: bool = False
    """Whether it only puts values together."""
    pointwise: bool = False
    """Whether each element of its output is computed of the elements at the same index."""
    constants: tuple[object, ...] = ()
    """What it is called with that no operator computes, in order."""
    arguments: Callable[[Values], Sequence[object]] = field(default=lambda _: (), compare=False)
    """What it is called with, in order."""
    inner: Callable[[Values], tuple[int, Program, list[object]] | None] = field(default=lambda _: None, compare=False)
    """Of an operator that chooses between programs: the number of the one that it runs for these values, the program,
    and what that is given."""
    call: Call | None = field(default=None, compare=False)
    """None where it is no call that Python could write by itself."""
    origin: str | None = None
    """The name of the operator of the captured program that it comes from, where that is another program."""

    def place(self) -> dict[str, object]:
        """Return what a record has of where it is from: as much as is known."""
        known = {"operator": self.operator, "line": self.line, "source": self.source, "module": self.module}
        return {name: value for name, value in known.items() if value}


Begun = Callable[[Operator], object]
"""Gets a call before it is translated."""


@dataclass
class Program:
    """Operators in the order in which they are computed, and where their values are in a graph."""

    operators: list[Operator]
    outputs: list[str | None]
    """The names of the values that the program returns; None for one that is no tensor."""
    start: Values
    """What is known before the first operator but for the inputs: weights, constants."""
    inputs: list[str]
    """The names of the inputs in the order in which they are passed."""
    ties: dict[str, list[str | None]] = field(default_factory=dict)
    """By name of a value, the tensor of the graph that it is, or those of its members."""

    def run(self, inputs: Sequence[object], keep: Callable[[str, object], None] | None = None) -> list[object]:
        """The outputs; ``keep`` is given every value by its name. Raises what PyTorch raises."""
        return self.within(self.start, inputs, keep)

    def values(self, inputs: Sequence[object], names: Container[str]) -> Values:
        """Return the values of these names, as they are before a later call changes them in place. Raises what
        PyTorch raises."""
        start = {**self.start, **dict(zip(self.inputs, inputs, strict=True))}
        kept = {name: value for name, value in start.items() if name in names}

        def keep(name: str, value: object) -> None:
            if name in names:
                kept[name] = value.clone() if hasattr(value, "clone") else value

        self.run(inputs, keep)
        return kept

    def within(
        self, around: Values, inputs: Sequence[object], keep: Callable[[str, object], None] | None = None
    ) -> list[object]:
        """As ``run``, with the values around the program in place of what it starts with."""
        values = {**around, **dict(zip(self.inputs, inputs, strict=True))}
        for operator, done in self.order():
            for name, value in zip(operator.outputs, operator.compute(values), strict=True):
                values[name] = value
                if keep is not None:
                    keep(name, value)
            for name in done:
                values.pop(name, None)
        return [None if name is None else values[name] for name in self.outputs]

    def tied(self) -> Iterator[tuple[Operator, str, str]]:
        """Yield the operators in order, each with its values that the graph has, and their tensors."""
        for operator in self.operators:
            for name in operator.outputs:
                yield from ((operator, name, tensor) for tensor in self.ties.get(name, ()) if tensor is not None)

    def order(self) -> Iterator[tuple[Operator, list[str]]]:
        """Each operator, with the values that nobody needs after it."""
        last: dict[str, int] = {}
        for index, operator in enumerate(self.operators):
            last.update(dict.fromkeys((*operator.outputs, *operator.inputs), index))
        for name in self.outputs:
            last.pop(name or "", None)
        done: dict[int, list[str]] = {}
        for name, index in last.items():
            done.setdefault(index, []).append(name)
        for index, operator in enumerate(self.operators):
            yield operator, done.get(index, [])


@dataclass
class Exhibit:
    """The results of an export with instruments."""

    model: ModelProto
    """The model, as the exporter gave it to the user."""
    captured: Program
    """What was captured of the module; its values are tied to no tensor where ``program`` is another one."""
    program: Program
    """What was translated, after decomposition, with ties to ``raw``, or to ``model`` where there is no raw graph."""
    raw: ModelProto | None = None
    """The graph as it was translated, before any pass over it."""


def called_with(operator: Operator, values: Values) -> tuple[list[float], list[list[int]]]:
    """The numbers that an operator is called with, by default too, and the lists of whole numbers among its
    arguments; ``values`` are those of its inputs."""
    # where its arguments cannot be had, only what is written in the call itself is known
    given = [*operator.constants, *or_else([], lambda: operator.arguments(values))]
    numbers: list[float] = []
    lists: list[list[int]] = []
    for value in (*given, *_defaults(operator)):
        members = leaves(value)
        if isinstance(value, list | tuple) and members and all(type(one) is int for one in members):
            lists.append(list(members))
        for one in members:
            if type(one) in (int, float) and abs(one) <= LARGEST and one not in numbers:
                numbers.append(one)
    return numbers, lists


def _defaults(operator: Operator) -> Iterator[object]:
    """Yield what an operator takes for arguments that its call leaves out."""
    import torch

    call = operator.call
    path, *names = call.function.split(".") if call is not None else [""]
    schema = getattr(functools.reduce(getattr, names, torch), "_schema", None) if path == "torch" else None
    if call is None or schema is None:
        return
    for argument in schema.arguments[len(call.args) :]:
        if argument.name not in call.kwargs:
            yield argument.default_value


def leaves(value: object) -> list[Any]:
    """The members of a value that is a list or tuple, or else the value itself."""
    return list(value) if isinstance(value, list | tuple) else [value]


def joined(value: object, members: Sequence[object]) -> object:
    """Return members as a value that is a list or tuple, or none, as another one."""
    return type(value)(members) if isinstance(value, list | tuple) else members[0]


def array(value: object) -> Array | None:
    """A value of PyTorch's as NumPy has it; complex ones with a last axis of two, as graphs have them. None where
    there is no such array."""
    import torch

    if isinstance(value, torch.Tensor):
        with contextlib.suppress(TypeError, RuntimeError):
            plain = value.detach()
            plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
            if plain.dtype == torch.bfloat16:
                return None
            return np.asarray(plain.resolve_neg().cpu().numpy())
        return None
    if isinstance(value, bool | int | float):
        kinds: Mapping[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
        try:
            return np.asarray(value, kinds[type(value)])
        except (KeyError, OverflowError):
            return None
    return None


def like(value: Any, got: Array) -> object:
    """Return what a graph computed, as a value of the kind that PyTorch's own is; None where it does not fit."""
    import torch

    if isinstance(value, torch.Tensor):
        tensor = torch.from_numpy(np.array(got))
        if value.is_complex():
            tensor = torch.view_as_complex(tensor.contiguous()) if tensor.shape[-1:] == (2,) else tensor
        if tensor.dtype != value.dtype or tensor.shape != value.shape:
            return None
        return tensor
    return type(value)(got.reshape(()).item()) if got.size == 1 else None


def frozen(first: Program, second: Program) -> dict[str, Any] | None:
    """Return the first operator that is another one, or is called with another constant, in the second program."""
    for index, (ours, theirs) in enumerate(zip(first.operators, second.operators, strict=False)):
        if ours.operator != theirs.operator:
            kept = _kept_number(first.operators[index:], second.operators[index:])
            return kept or ours.place() | {"how": "path", "got": ours.operator, "wanted": theirs.operator}
        for got, wanted in zip(ours.constants, theirs.constants, strict=False):
            if got != wanted:
                return ours.place() | {"how": "constant", "got": _plain(got), "wanted": _plain(wanted)}
        for mine, other in zip(ours.inputs, theirs.inputs, strict=False):
            left, right = array(first.start.get(mine)), array(second.start.get(other))
            if left is not None and right is not None and (left.shape != right.shape or (left != right).any()):
                return ours.place() | {"how": "constant", **_elements(left, right)}
    shorter, longer = sorted((first.operators, second.operators), key=len)
    rest = longer[len(shorter) :]
    return (_kept_number(rest, []) or rest[0].place() | {"how": "path"}) if rest else None


_LEFT_OUT = {"aten.mul": 1, "aten.div": 1, "aten.pow": 1, "aten.add": 0, "aten.sub": 0}
"""By operator the number with which PyTorch captures no call of it."""


def _kept_number(ours: Sequence[Operator], theirs: Sequence[Operator]) -> dict[str, object] | None:
    """Return the call that one of two programs has more than the other, as where ``x * n`` was captured with 3 and
    here is ``x * 1``; a branch or a loop may leave it out too. None where they differ in more."""
    for present, others in ((ours, theirs), (theirs, ours)):
        names = [operator.operator for operator in present]
        if names[:1] and names[0] in _LEFT_OUT and names[1:] == [operator.operator for operator in others]:
            number = next((one for one in present[0].constants if type(one) in (int, float)), None)
            if number is not None and number != _LEFT_OUT[names[0]]:
                return present[0].place() | {"how": "number or path", "got": number}
    return None


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _elements(left: Any, right: Any) -> dict[str, object]:
    if left.shape != right.shape:
        return {"got": list(left.shape), "wanted": list(right.shape)}
    at = tuple(int(axis[0]) for axis in (left != right).nonzero()) if left.ndim else ()
    return {"got": left[at].item(), "wanted": right[at].item(), "index": list(at)}


def with_outputs(program: Program, model: ModelProto) -> Program:
    """The program with its outputs tied to those of a graph by their place, where they are tied to nothing in it: the
    exporter's own passes give the outputs other names."""
    outputs = [value.name for value in model.graph.output]
    if len(outputs) != len(program.outputs):
        return program
    ties, made = dict(program.ties), Graph(model).makers
    for name, tensor in zip(program.outputs, outputs, strict=True):
        if name is not None and not any(tied in made for tied in ties.get(name, ())):
            ties[name] = [tensor]
    return dataclasses.replace(program, ties=ties)


def completed(raw: ModelProto, final: ModelProto) -> ModelProto:
    """A graph as it was translated, with the opset that its operators are of, and the case's own functions."""
    known = {(function.domain, function.name) for function in raw.functions}
    raw.functions.extend(one for one in final.functions if (one.domain, one.name) not in known)
    versions = {entry.domain: entry.version for entry in final.opset_import}
    for entry in raw.opset_import:
        entry.version = max(entry.version, versions.pop(entry.domain, 0))
    for domain, version in versions.items():
        raw.opset_import.add(domain=domain, version=version)
    return raw
