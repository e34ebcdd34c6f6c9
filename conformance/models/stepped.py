"""Run a model step by step: what it returned is fed to it again, each side its own, and the tokens are PyTorch's.

A run of all steps is one call with more inputs and more outputs. ``tokens@3`` is the input ``tokens`` of the third
step, and the outputs of all steps follow one another, those of the first run before them. So everything that judges
a call judges all steps too: how far rounding moves the eighth step is measured through the seven before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

from conformance.case.draw.draw import Draw, Maker
from conformance.case.files.declaration import Case
from conformance.case.files.must_hold import Output
from conformance.case.files.step_plan import StepPlan, step_plan
from conformance.models.otherwise.rounding import Rounding
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped
from conformance.runtimes import Session

Call: TypeAlias = Callable[[Inputs], Sequence[Array]]
Spoil: TypeAlias = Callable[[str, Array, Array], Array]
"""Gets a fed input, its array in the step before and the right one for this step, and returns another."""
Token: TypeAlias = tuple[int, int, int, int]
"""A step, a row of the batch, the token of PyTorch and the token of a runtime."""


def at_step(name: str, step: int) -> str:
    """Return the name of an input in a step; of the first run it is the input's own."""
    return f"{name}@{step}" if step else name


class Stepper:
    """The steps of a case, whatever computes them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.plan: StepPlan = step_plan(case.says)[0]
        self.names = [output.name for output in case.says.outputs]
        self._later = {at_step(name, step) for name in case.says.inputs for step in range(1, self.plan.count + 2)}
        self._later |= {at_step("rows", step) for step in range(1, self.plan.count + 1)}
        free = [name for name in case.says.inputs if name not in self.plan.feed] or [*case.says.inputs]
        shape = case.says.inputs[self.plan.token[0] if self.plan.token else free[0]].type.shape
        self._batch = str(shape[0]) if shape and str(shape[0]) != self.plan.along else None

    def batch_axis(self, name: str) -> int | None:
        """Return the axis of an input that is the rows of the batch."""
        shape = [str(size) for size in self.case.says.inputs[name].type.shape]
        return shape.index(self._batch) if self._batch in shape else None

    def sizes_of(self, arrays: Inputs, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return sizes of dims with those that these inputs have."""
        found = dict(sizes)
        for name, array in arrays.items():
            named = zip(map(str, self.case.says.inputs[name].type.shape), array.shape, strict=False)
            found |= {dim: size for dim, size in named if dim in sizes}
        return found

    def run(self, call: Call, inputs: Mapping[str, Array], spoil: Spoil | None = None) -> list[Array]:
        """Return the outputs of all steps; fewer where a step gives another number of them than it should."""
        found: list[Array] = []
        for _, outputs in self.each(call, inputs, spoil):
            found += outputs
            if len(outputs) != len(self.names):
                break
        return found

    def each(
        self, call: Call, inputs: Mapping[str, Array], spoil: Spoil | None = None
    ) -> Iterator[tuple[Inputs, Sequence[Array]]]:
        """Yield the inputs and the outputs of the first run and of each step."""
        current = {name: array for name, array in inputs.items() if name not in self._later}
        yield current, (outputs := call(current))
        for step in range(1, self.plan.count + 1):
            current = self.following(current, outputs, inputs, step, spoil)
            yield current, (outputs := call(current))

    def following(
        self, before: Inputs, outputs: Sequence[Array], inputs: Mapping[str, Array], step: int, spoil: Spoil | None
    ) -> Inputs:
        """Return the inputs of a step after one with these inputs and outputs."""
        by_name = dict(zip(self.names, outputs, strict=True))
        known = {name: inputs[at_step(name, step)] for name in before if at_step(name, step) in inputs}
        fed = {name: by_name[output] for name, output in self.plan.feed.items()}
        if spoil is not None:
            fed = {name: spoil(name, before[name], array) for name, array in fed.items()}
        rows = inputs.get(at_step("rows", step))
        return {**before, **known, **{name: self.ordered(name, array, rows) for name, array in fed.items()}}

    def ordered(self, name: str, array: Array, rows: Array | None) -> Array:
        """Return an input with these rows of the batch."""
        axis = self.batch_axis(name)
        return array if rows is None or axis is None else np.take(array, rows, axis=axis)

    def greedy(self, outputs: Sequence[Array], rows: Array | None) -> Array:
        """Return the likeliest token of each row behind the last that was given, for these rows in this order."""
        assert self.plan.token is not None
        chosen: Array = outputs[self.names.index(self.plan.token[1])].argmax(axis=-1)
        rank = len(self.case.says.inputs[self.plan.token[0]].type.shape)
        chosen = chosen[..., -1] if chosen.ndim == rank else chosen
        return chosen if rows is None or not chosen.ndim else chosen[rows]

    def other_tokens(self, got: Sequence[Array], inputs: Mapping[str, Array]) -> list[Token]:
        """Return the tokens of a run of all steps that are not PyTorch's."""
        found, count = [], len(self.names)
        assert self.plan.token is not None
        for step in range(self.plan.count + 1):
            wanted, rows = inputs[at_step(self.plan.token[0], step + 1)], inputs.get(at_step("rows", step + 1))
            tokens = self.greedy(got[step * count : (step + 1) * count], rows)
            pairs = zip(wanted.reshape(-1).tolist(), tokens.reshape(-1).tolist(), strict=True)
            found += [(step, row, right, token) for row, (right, token) in enumerate(pairs) if right != token]
        return found

    def unrolled(self) -> Case:
        """Return the case with an output for each output of each step, and their tolerances."""
        says, count = self.case.says, len(self.names)
        steps = range(self.plan.count + 1)

        def named(output: Output, step: int) -> Output:
            rows = output.rows.model_copy(update={"with_": [_of_step(name, step) for name in output.rows.with_]})
            of = output.indices_of
            of = _of_step(of, step) if of in self.names else of
            return output.model_copy(update={"name": _of_step(output.name, step), "rows": rows, "indices_of": of})

        def each(key: int | str, step: int) -> int | str:
            return step * count + key if isinstance(key, int) else _of_step(key, step)

        tolerance = {}
        for precision, one in says.tolerance.items():
            own = {each(key, step): entry for key, entry in one.outputs.items() for step in steps}
            tolerance[precision] = one.model_copy(update={"outputs": own})
        outputs = [named(output, step) for step in steps for output in says.outputs]
        unrolled = says.model_copy(update={"outputs": outputs, "tolerance": tolerance})
        return dataclasses.replace(self.case, says=unrolled)


def _of_step(name: str, step: int) -> str:
    return f"{name} at step {step}"


class SteppedSession:
    """A loaded model whose ``run`` runs all steps, with a cache of its own."""

    def __init__(self, session: Session, stepper: Stepper) -> None:
        self._session, self._stepper = session, stepper
        self.arithmetic = session.arithmetic
        self.tokens = 0
        self.others: list[Token] = []
        """Of these tokens those that are not PyTorch's."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        found = self._stepper.run(self._session.run, inputs)
        plan = self._stepper.plan
        if plan.token and len(found) == len(self._stepper.names) * (plan.count + 1):
            self.tokens += inputs[at_step(plan.token[0], 1)].size * (plan.count + 1)
            self.others += self._stepper.other_tokens(found, inputs)
        return found


class SteppedMaker(Maker):
    """Makes the inputs of all steps: those that are not fed, with PyTorch's tokens."""

    def __init__(self, case: Case, reference: Reference, stepper: Stepper, *, reorder: bool) -> None:
        super().__init__(case, reference.folder.resolve)
        self._reference, self._stepper, self._reorder = reference, stepper, reorder

    def __call__(self, draw: Draw) -> Inputs:
        """Return the inputs by name. Raises Stopped, WrongPast, where an output is no such input as it is fed to."""
        stepper, plan, inputs = self._stepper, self._stepper.plan, self._stepper.case.says.inputs
        current, sizes = {**super().__call__(draw)}, dict(draw.dims)
        if plan.written is not None:
            if inputs[plan.written].is_drafted:  # else there may be no room behind for all steps
                current[plan.written] = np.zeros_like(current[plan.written])
            end = current[plan.written] + sizes.get(plan.along or "", 1)
            current |= {name: end.astype(current[name].dtype) for name, way in plan.next.items() if way == "filled"}
        made = dict(current)
        axes = ((name, stepper.batch_axis(name)) for name in plan.feed)
        batch = next((current[name].shape[axis] for name, axis in axes if axis is not None), 0)
        rng = np.random.default_rng(draw.seed)
        for step in range(1, plan.count + 2):
            outputs = self._reference.afresh(current)
            rows = rng.permutation(batch) if self._reorder and batch and step <= plan.count else None
            made |= {} if rows is None else {at_step("rows", step): rows}
            if plan.token is not None:
                name, kind = plan.token[0], inputs[plan.token[0]].type
                token = stepper.greedy(outputs, rows)
                shape = (*token.shape, *[1] * (len(kind.shape) - token.ndim))
                made[at_step(name, step)] = token.astype(kind.carrier).reshape(shape)
            if step > plan.count:
                break
            given = sizes.get(plan.along or "", 1)
            sizes = self.sizes_after(sizes, outputs)
            anew = "drawn" in plan.next.values()
            drawn = super().__call__(dataclasses.replace(draw, dims=sizes, seed=draw.seed + step)) if anew else {}
            for name, way in plan.next.items():
                kind, before = inputs[name].type, stepper.ordered(name, current[name], rows)
                by = 1 if way == "filled" or plan.along in kind.names else given  # all that was given
                after = drawn[name] if way == "drawn" else _going_on(before, kind.at(sizes), way, by)
                made |= {} if way == "same" else {at_step(name, step): after}
            current = stepper.following(current, outputs, made, step, None)
        return made

    def sizes_after(self, sizes: Mapping[str, int], outputs: Sequence[Array]) -> dict[str, int]:
        """Return the sizes of dims in the step after one with these sizes and outputs."""
        plan, inputs = self._stepper.plan, self._stepper.case.says.inputs
        by_name = dict(zip(self._stepper.names, outputs, strict=True))
        fed = {name: by_name[output] for name, output in plan.feed.items()}
        after = self._stepper.sizes_of(fed, {**sizes, **({plan.along: 1} if plan.along else {})})
        for name, array in fed.items():
            kind = inputs[name].type
            if array.dtype != np.dtype(kind.carrier) or array.shape != kind.at(after):
                text = (
                    f"steps: {plan.feed[name]} is fed to {name}, which takes {kind}, and is "
                    f"{array.dtype}{list(array.shape)}: feed another output, or declare the input as it is"
                )
                raise Stopped("declare", "WrongPast", text, "case")
        return after


def _going_on(before: Array, shape: Sequence[int], way: str, by: int) -> Array:
    """Return an input of this shape in the step after one where it was ``before``: the last values along each axis,
    and behind them as many as it lacks."""
    last = before[tuple(slice(-size, None) if size < have else slice(None)
                        for size, have in zip(shape, before.shape, strict=True))]  # fmt: skip
    more = [(0, size - have) for size, have in zip(shape, last.shape, strict=True)]
    padded: Array = np.pad(last, more, constant_values=1) if way == "ones" else np.pad(last, more, mode="edge")
    return padded + np.asarray(by, padded.dtype) if way in ("count", "filled") else padded


def _of_inner(name: str) -> Any:
    """Return a method that is that of the reference of one call."""
    return lambda self, *given, **named: getattr(self._inner, name)(*given, **named)


def _of_first(name: str) -> Any:
    """Return a method that asks the reference of one call about the first run."""

    def ask(self: SteppedReference, inputs: Inputs, *given: object) -> Any:
        inner, first = self.first(inputs)
        return getattr(inner, name)(first, *given)

    return ask


class SteppedReference(Reference):
    """Computes what is right for all steps, each form with a cache of its own: float32, float64, and any rounding."""

    def __init__(self, inner: Reference, stepper: Stepper) -> None:
        super().__init__(stepper.unrolled(), inner.folder)
        self._inner, self._stepper = inner, stepper
        self.who, self.weights, self.passing, self.abstains = inner.who, inner.weights, inner.passing, inner.abstains
        self.changed_by_calls, self.half = inner.changed_by_calls, inner.half
        self.oracle_missing = inner.oracle_missing
        self.layout = [1] * len(stepper.names) * (stepper.plan.count + 1)

    def __call__(self, inputs: Mapping[str, Array]) -> list[Array]:
        return self._stepper.run(self._inner.afresh, inputs)

    def oracle(self, inputs: Mapping[str, Array], rounding: Rounding | None = None) -> list[Array] | None:
        def call(given: Inputs) -> list[Array]:
            return self._inner.oracle(given, rounding) or []

        found = self._stepper.run(call, inputs)
        self.oracle_missing = self._inner.oracle_missing
        return found if len(found) == len(self.layout or []) else None

    def otherwise(self, inputs: Inputs, way: AbstractContextManager[object]) -> list[Array]:
        return self._stepper.run(lambda given: self._inner.otherwise(given, way), inputs)

    def first(self, inputs: Mapping[str, Array]) -> tuple[Reference, Inputs]:
        """Return the reference of one call, and the inputs of the first run."""
        return self._inner, {name: inputs[name] for name in self._stepper.case.says.inputs}

    def find_half(self, inputs: Mapping[str, Array]) -> str | None:
        self.half = _of_first("find_half")(self, inputs)
        return self.half

    def keeps_signs(self, inputs: Inputs) -> bool:
        return False

    def for_case(self, case: Case) -> Reference | None:
        return None

    def copied(self) -> Reference:
        return SteppedReference(self._inner.copied(), self._stepper)

    def value_free(self) -> Collection[int]:
        free, count = self._inner.value_free(), len(self._stepper.names)
        return [step * count + output for step in range(self._stepper.plan.count + 1) for output in free]

    may_vary = property(lambda self: self._inner.may_vary)
    bytes = property(lambda self: self._inner.bytes)
    arguments, operators, caller = _of_first("arguments"), _of_first("operators"), _of_first("caller")
    training, leaves_range = _of_first("training"), _of_first("leaves_range")
    other_ways, undefined, standing = _of_inner("other_ways"), _of_inner("undefined"), _of_inner("standing")
    fingerprint, changed, restore = _of_inner("fingerprint"), _of_inner("changed"), _of_inner("restore")
