"""Calls of a captured program as a function of their own, given PyTorch's own values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.diagnose.operators.captured_program import Call, Exhibit, Name, Operator, Program, array, leaves
from conformance.diagnose.operators.first_operator import Search
from conformance.process.arrays import Array

MOST_CALLS = 12
"""How many calls a function may have."""
_SIZES = frozenset({"aten.size", "aten.sym_size", "aten.numel", "aten.sym_numel"})
_HAND_ON = frozenset({"prim.NumToTensor", "aten.Int", "aten.ScalarImplicit"})
_ON_NUMBERS = {
    "aten.floor_divide": "floordiv", "aten.add": "add", "aten.sub": "sub", "aten.mul": "mul", "aten.div": "truediv",
    "aten.remainder": "mod", "aten.neg": "neg", "aten.pow": "pow",
}  # fmt: skip
"""What Python computes of sizes, where tracing sees tensors of one number."""


class Unwritten(Exception):
    """A call, or a value in it, that cannot be written as Python; the text says which."""


@dataclass(frozen=True)
class FunctionStep:
    """One call of a function, and the names of what it gives."""

    outputs: tuple[str, ...]
    call: Call
    operator: str


@dataclass(frozen=True)
class Function:
    """Calls in order with the tensors that they are given; numbers are written into the calls."""

    steps: tuple[FunctionStep, ...]
    returned: tuple[str, ...]
    numbers: frozenset[str]
    """Those of ``returned`` that are numbers."""
    lists: frozenset[str]
    """Those of ``returned`` that are several tensors."""
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array]
    """Weights and other tensors that the module has."""
    dynamic: bool = False
    """Whether it is exported with sizes that are open."""
    own: tuple[str, ...] = ()
    """The operators for which the case's own code is registered."""
    traced: Mapping[str, Array] = field(default_factory=dict)
    """By name of an input what it is exported with, where that has other sizes; empty where it is exported with what
    it is run with."""

    @property
    def arrays(self) -> dict[str, Array]:
        """The inputs and the constants."""
        return {**self.inputs, **self.constants}

    def with_arrays(self, arrays: Mapping[str, Array]) -> Function:
        """Return the function with other inputs and constants in place of some."""
        inputs = {name: arrays.get(name, value) for name, value in self.inputs.items()}
        constants = {name: arrays.get(name, value) for name, value in self.constants.items()}
        return dataclasses.replace(self, inputs=inputs, constants=constants)

    def of_size(self, size: int, fewer: int, arrays: Mapping[str, Array]) -> Iterator[Function]:
        """Yield the function with arrays that are cut from a size to ``fewer``; then also with that number in place
        of the size among those that calls are given. It has to keep sizes that it is not exported with."""
        if self.traced:
            return
        sliced = self.with_arrays(arrays)
        yield sliced
        counted = rewritten(sliced, lambda number: fewer if number == size else number)
        if counted.steps != sliced.steps:
            yield counted


@dataclass
class Place:
    """The call at which an export goes wrong, in the program around it, with the values near it."""

    program: Program
    operator: Operator
    of: int
    """How many calls of operators the program has."""
    makers: dict[str, Operator] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()
    """The values that are sizes or computed of them alone."""
    values: dict[str, object] = field(default_factory=dict)
    traced: dict[str, object] = field(default_factory=dict)
    """The same with the inputs that the module is exported with; empty where they have no other sizes."""

    @classmethod
    def of_search(cls, search: Search, traced: Sequence[object] = ()) -> Place | None:
        """The place that a search has found; None where the program was captured wrongly."""
        if search.parting is None:
            return None
        return cls.in_exhibit(search.exhibit, search.parting.operator, search.inputs, traced)

    @classmethod
    def in_exhibit(
        cls, exhibit: Exhibit, at: Operator, inputs: Sequence[object], traced: Sequence[object] = ()
    ) -> Place | None:
        """The place of an operator in what was captured, or, of one that decomposing has added, in the decomposed
        program; ``traced`` are the inputs that the module is exported with."""
        for program, name in ((exhibit.captured, at.origin), (exhibit.program, at.name)):
            for operator in program.operators:
                if operator.name == name:
                    place = cls.at(program, operator, inputs)
                    shapes = [[getattr(value, "shape", None) for value in values] for values in (inputs, traced)]
                    if traced and shapes[0] != shapes[1]:
                        place.traced = cls.at(program, operator, traced).values
                    return place
        return None

    @classmethod
    def at(cls, program: Program, operator: Operator, inputs: Sequence[object]) -> Place:
        """The place of an operator in a program that is given these inputs. Raises what PyTorch raises."""
        place = cls(program, operator, sum(not one.plumbing for one in program.operators))
        place.makers = {name: one for one in program.operators for name in one.outputs}
        place.numbers = frozenset(_numbers(program))
        near = place._near()
        place.values = program.values(inputs, {name for one in near for name in (*one.inputs, *one.outputs)})
        return place

    def _near(self) -> list[Operator]:
        """The call with those that it is computed of, as many as may be needed, and those that take it apart."""
        near, todo = [self.operator, *self._parts()], [*self.operator.inputs]
        while todo and len(near) < 4 * MOST_CALLS:
            maker = self.makers.get(todo.pop(0))
            if maker is not None and maker not in near:
                near.append(maker)
                todo += maker.inputs
        return near

    def _parts(self) -> list[Operator]:
        """The calls that only take one of several outputs, where all are taken so."""
        readers = [one for one in self.program.operators if self.operator.name in one.inputs]
        whole = self.operator.name in self.program.outputs
        alike = readers and all(one.operator == "operator.getitem" for one in readers)
        return readers if alike and not whole else []

    def plain(self, name: str) -> bool:
        """Return whether a value is no tensor, but for those that stand for a number."""
        return name in self.numbers or not any(hasattr(leaf, "dtype") for leaf in leaves(self.values.get(name)))

    def choices(self) -> Iterator[list[Operator]]:
        """The call alone, then with those that its numbers come from, then with more and more of those before it."""
        chosen = [self.operator]
        yield chosen
        last = len(chosen)
        for tensors in (False, True, True, True):
            before = {name for one in chosen for name in one.inputs} if tensors else set()
            chosen = self._closed([*chosen, *(self.makers[name] for name in before if name in self.makers)])
            if len(chosen) > MOST_CALLS:
                return
            if len(chosen) > last:
                yield chosen
            last = len(chosen)

    def _closed(self, chosen: Sequence[Operator]) -> list[Operator]:
        """The calls with all those from which their numbers come, in the order of the program."""
        names, todo = {one.name for one in chosen}, list(chosen)
        while todo:
            for name in todo.pop().inputs:
                maker = self.makers.get(name)
                if maker is not None and maker.name not in names and self.plain(name):
                    names.add(maker.name)
                    todo.append(maker)
        return [one for one in self.program.operators if one.name in names]

    def counted(self, chosen: Sequence[Operator]) -> bool:
        """Return whether sizes are asked for in these calls."""
        return any(one.operator in _SIZES for one in chosen)

    def as_exported(self, function: Function | None) -> Function | None:
        """The function with inputs to export it with as the module is exported; None where these have no other
        sizes."""
        if function is None or not function.inputs.keys() <= self.traced.keys():
            return None
        traced = {name: array(self.traced[name]) for name in function.inputs}
        if all(value is None or value.shape == function.inputs[name].shape for name, value in traced.items()):
            return None
        arrays = {name: value for name, value in traced.items() if value is not None}
        return dataclasses.replace(function, dynamic=True, traced=arrays) if arrays.keys() == traced.keys() else None

    def function(self, chosen: Sequence[Operator], *, dynamic: bool, own: Collection[str]) -> Function | None:
        """These calls, given the values of what others compute; None where nobody reads theirs. Raises Unwritten."""
        parts = self._parts()
        calls = [*chosen, *parts]
        made = {name for one in calls for name in one.outputs}
        inputs: dict[str, Array] = {}
        constants: dict[str, Array] = {}

        def given(name: str, value: Any) -> object:
            if isinstance(value, list | tuple):
                members = [given(f"{name}_{place}", one) for place, one in enumerate(value)]
                return members if isinstance(value, list) else tuple(members)
            if not hasattr(value, "dtype"):
                return value
            if name in self.numbers or (name in self.program.start and _is_number(value)):
                return value.item()
            fed = array(value)
            if fed is None or value.is_complex():
                raise Unwritten(f"a tensor of {value.dtype}")
            (constants if name in self.program.start else inputs)[name] = fed
            return Name(name)

        def filled(argument: object) -> object:
            if isinstance(argument, Name) and argument.name not in (made | self.values.keys()):
                raise Unwritten("more calls")
            if isinstance(argument, Name):
                return argument if argument.name in made else given(argument.name, self.values[argument.name])
            if isinstance(argument, list | tuple):
                return list(map(filled, argument)) if isinstance(argument, list) else tuple(map(filled, argument))
            return argument

        steps = []
        for one in calls:
            call = self._call(one)
            arguments = tuple(map(filled, call.args)), {name: filled(value) for name, value in call.kwargs.items()}
            steps.append(FunctionStep(one.outputs, Call(call.function, *arguments), one.operator))
        read = {name for one in self.program.operators for name in one.inputs} | {*self.program.outputs}
        shown = [name for one in parts or [self.operator] for name in one.outputs if name in read]
        if not inputs:
            inputs, constants = constants, {}
        if not shown:
            return None
        return Function(
            tuple(steps), tuple(shown), frozenset(name for name in shown if self.plain(name)),
            frozenset(name for name in shown if isinstance(self.values.get(name), list | tuple)), inputs, constants,
            dynamic and bool(inputs), tuple(own),
        )  # fmt: skip

    def _call(self, operator: Operator) -> Call:
        call = operator.call
        if call is None:
            raise Unwritten(operator.operator)
        if operator.outputs and {*operator.outputs} <= self.numbers and operator.operator in _ON_NUMBERS:
            return Call(f"operator.{_ON_NUMBERS[operator.operator]}", call.args[:2])  # what follows is a factor of 1
        return call


def _is_number(value: Any) -> bool:
    """Return whether a constant is what tracing makes of a number in the user's Python."""
    return value.dim() == 0 and str(value.dtype) in ("torch.float64", "torch.int64")


def _numbers(program: Program) -> Iterator[str]:
    """The values that are sizes, or computed of sizes and constants alone."""
    numbers: set[str] = set()
    for one in program.operators:
        others = [name for name in one.inputs if name not in program.start]
        of_numbers = bool(others) and all(name in numbers for name in others)
        computes = one.operator in _HAND_ON or one.operator in _ON_NUMBERS or one.operator.startswith("operator.")
        if one.operator in _SIZES or (computes and of_numbers):
            numbers.update(one.outputs)
            yield from one.outputs


def rewritten(function: Function, change: Callable[[int], int]) -> Function:
    """The function with other plain values in its calls: ``change`` is asked of each integer."""

    def of(argument: object) -> Any:
        if isinstance(argument, list | tuple):
            changed = [of(one) for one in argument]
            return changed if isinstance(argument, list) else tuple(changed)
        return change(argument) if type(argument) is int else argument

    steps = tuple(
        dataclasses.replace(
            step, call=Call(step.call.function, of(step.call.args), {k: of(v) for k, v in step.call.kwargs.items()})
        )
        for step in function.steps
    )
    return dataclasses.replace(function, steps=steps)
