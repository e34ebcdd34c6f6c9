"""The check ``steps``: a runtime that is fed what it returned gives what PyTorch gives, step by step.

Both get PyTorch's tokens, and each has a cache of its own. A step that is wrong is asked about by itself, with
PyTorch's cache: then it is an example as any other, and who is at fault is found as for any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from conformance.case.draw.draw import Draw, Maker
from conformance.case.draw.example import Example
from conformance.cells.accuracy import load_model
from conformance.cells.doubts import check_doubts
from conformance.cells.examples import Examples, fails_again
from conformance.compare.judges import Right
from conformance.judge.comparer import repeated
from conformance.judge.draws import Draws
from conformance.judge.red_cell import CheckedCell, RedCell
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import RuntimeVerifier, opening_literal, rounding_otherwise
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.kept.model_store import Stored
from conformance.models.of_cell import OfCell
from conformance.models.stepped import Spoil, SteppedMaker, SteppedReference, SteppedSession, Stepper, Token, at_step
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import Stopped, attempt
from conformance.runtimes import Session

TRIED = 6
"""Number of examples that are tried with a wrong cache, which has to show, and with all tokens at once."""


def check_steps(run: CellRun) -> RedCell | None:
    """The runtime's outputs are PyTorch's at each step; at another precision, what the converted model means."""
    stored = run.model()
    model = converted_model(run, stored) if run.cell.converted else stored
    return _Steps(run, stored, model).check()


class _Steps:
    """The steps of one cell."""

    def __init__(self, run: CellRun, stored: Stored, model: Stored) -> None:
        self._run, self._stored, self._model = run, stored, model
        self._stepper = Stepper(run.cell.case)
        self._plan = self._stepper.plan
        self._reference = SteppedReference(run.reference, self._stepper)
        assert run.cell.case.says.steps is not None
        self._says = run.cell.case.says.steps
        self._maker = self._made(reorder=self._says.reorder)

    def _made(self, *, reorder: bool) -> SteppedMaker:
        return SteppedMaker(self._run.cell.case, self._run.reference, self._stepper, reorder=reorder)

    def check(self) -> RedCell | None:
        """Return a wrong step, or None. Raises Stopped for what speaks for itself."""
        run, record = self._run, self._run.record
        with run.stages("declare", "case"):
            draws = self._draws()
        session, stopped = load_model(run, draws, self._model)
        one = self._of_one(session, draws, run.prepared.maker)
        if stopped is not None:
            unloaded = RedCell(one, stopped, one.verify.example(draws.first(), run.prepared.inputs()))
            check_doubts(unloaded)
            return unloaded
        assert session is not None
        record.arithmetic = dict(session.arithmetic)
        self._session = SteppedSession(session, self._stepper)
        parts = dataclasses.replace(
            run.of_cell(self._stored, run.kept_answers(self._model, "steps", repr(self._says))),
            cell=dataclasses.replace(run.cell, case=self._reference.case), reference=self._reference,
            maker=self._maker, names=[output.name for output in self._reference.case.says.outputs],
        )  # fmt: skip
        verify = self._verifier(self._session, parts, lambda inner: SteppedSession(inner, self._stepper))
        of = dataclasses.replace(one, verify=verify)
        names, record.outputs = record.outputs, list(parts.names)
        alone = partial(self._alone, session, draws)
        red = _SteppedExamples(of, alone, len(self._stepper.names)).run()
        if red is None:
            if self._says.at_once and self._plan.along is not None and not run.cell.converted:
                self._check_all_at_once(of)
            self._check_shown(of)
            self._note_tokens()
            return None
        if red.of.verify is verify:  # which is about all examples together, or about what is declared of one
            raise Stopped(red.stop.stage, red.stop.error, red.stop.reason, red.stop.fault or "case", red.stop.details)
        record.outputs = names
        return red

    def _verifier(self, session: Session | None, parts: OfCell, wrap: Callable[[Session], Session]) -> Verifier:
        if not self._run.cell.converted:
            return Verifier(parts, session)
        opened, otherwise = opening_literal(self._run, self._model), rounding_otherwise(self._run, self._model)
        return RuntimeVerifier(parts, session, lambda: wrap(opened()), otherwise and (lambda: wrap(otherwise())))

    def _of_one(self, session: Session | None, draws: Draws, maker: Maker) -> CheckedCell:
        """Return the cell with what verifies a step by itself."""
        parts = dataclasses.replace(self._run.of_cell(self._stored), maker=maker)
        converted = self._model if self._run.cell.converted else None
        return CheckedCell(self._run, self._verifier(session, parts, _as_it_is), draws, self._stored, converted)

    # ---- which sizes there is room for -------------------------------------------------------------------------

    def _draws(self) -> Draws:
        """Return draws that leave room for all steps. Raises Stopped, NoRoom, where none does."""
        run, traced = self._run, self._run.prepared.trace()
        after, along = self._maker.sizes_after(traced, run.prepared.answer()), self._plan.along
        grow = {dim for dim in after if dim != along and after[dim] != traced[dim]}
        dims = run.dims()

        def allowed(sizes: Mapping[str, int]) -> bool:
            first = sizes.get(along or "", 1)
            later = ({**sizes, **({along: 1} if along else {}), **{dim: sizes[dim] + first + step for dim in grow}}
                     for step in range(self._plan.count))  # fmt: skip
            return dims.allow(sizes) and all(map(dims.allow, later))

        def fitted(sizes: Mapping[str, int]) -> dict[str, int] | None:
            small = {**sizes, **{dim: dims.ranges[dim].values(sizes)[0] for dim in sizes if dim in grow}}
            least = {**small, **({along: dims.ranges[along].values(small)[0]} if along else {})}
            return next((dict(one) for one in (sizes, small, least) if allowed(one)), None)

        start = fitted(traced)
        if start is None:
            ranges = ", ".join(f"{dim} is {dims.ranges[dim]}" for dim in sorted(grow))
            text = (
                f"steps: {self._plan.count} steps need {self._plan.count} sizes of the past behind the first tokens, "
                f"and {ranges or 'the dims leave none'}: let it reach further, or say fewer steps"
            )
            raise Stopped("declare", "NoRoom", text, "case")
        return Draws(run.cell, run.settings, run.prepared, dims, start, fitted)

    # ---- what PyTorch itself shows -----------------------------------------------------------------------------

    def _check_all_at_once(self, of: CheckedCell) -> None:
        """Raise Stopped, StepsDiffer, where PyTorch gives other outputs for all tokens in one call."""
        maker, said = self._made(reorder=False), ""
        for draw in _few(of.draws):
            example = of.verify.example(draw, maker(draw) if self._says.reorder else None)
            outputs = attempt(partial(self._at_once, draw, example.inputs))
            if isinstance(outputs, Exception):
                said = str(outputs)
                continue
            comparison = of.verify.judged(example, self._as_steps(outputs, example.wanted))
            if comparison.verdict == "failed":
                self._run.record.draw = draw.as_dict()
                text = (
                    f"{self._run.reference.who} itself gives other outputs step by step than for all tokens at once "
                    f"({comparison.text}): feed or next is wrong, or what forward does with its past; at_once: false "
                    "if that is meant"
                )
                raise Stopped("declare", "StepsDiffer", text, "case")
        if said:
            self._warn(f"steps were not compared with all tokens at once: {said}")

    def _at_once(self, draw: Draw, inputs: Inputs) -> list[Array]:
        """Return the outputs of one call with the tokens of all steps; ValueError where an input has no such form."""
        plan, case = self._plan, self._run.cell.case
        assert plan.along is not None
        sizes = {**draw.dims, plan.along: draw.dims.get(plan.along, 1) + plan.count}
        together = {}
        for name, declared in case.says.inputs.items():
            array, shape = inputs[name], list(map(str, declared.type.shape))
            last = inputs.get(at_step(name, plan.count), array)
            if plan.along in shape and name not in plan.feed and at_step(name, 1) in inputs:
                steps = [inputs[at_step(name, step)] for step in range(plan.count + 1)]
                array = np.concatenate(steps, axis=shape.index(plan.along))
            elif plan.next.get(name) in ("filled", "ones", "repeat"):
                array = last
            if array.shape != declared.type.at(sizes):
                raise ValueError(f"what {name} is step by step cannot be put together")
            together[name] = array
        return self._run.reference.afresh(together)

    def _as_steps(self, outputs: Sequence[Array], wanted: Sequence[Array]) -> list[Array]:
        """Return ``wanted`` with what one call gives for the token of each step; the rest is as it was."""
        steps, count = self._plan.count, len(self._stepper.names)
        found = list(wanted)
        for output in self._free():
            first, all_of_it = wanted[output], outputs[output]
            for step in range(1, steps + 1):
                right = wanted[step * count + output]
                longer = [axis for axis, size in enumerate(right.shape)
                          if size == 1 and all_of_it.ndim == right.ndim
                          and all_of_it.shape[axis] == first.shape[axis] + steps]  # fmt: skip
                if longer:
                    place = all_of_it.shape[longer[-1]] - steps + step - 1
                    found[step * count + output] = np.take(all_of_it, [place], axis=longer[-1])
                elif step == steps and all_of_it.shape == right.shape:
                    found[step * count + output] = all_of_it
        return found

    def _free(self) -> list[int]:
        """Return the outputs that are fed to nothing; all of them where there is no other."""
        names, fed = self._stepper.names, {*self._plan.feed.values()}
        return [at for at, name in enumerate(names) if name not in fed] or [*range(len(names))]

    def _check_shown(self, of: CheckedCell) -> None:
        """Raise Stopped, Vacuous, where steps on a wrong cache would have passed all of the examples tried."""
        count, free = len(self._stepper.names), self._free()
        unseen = dict(_WRONG)
        if self._run.cell.case.says.vacuous is not None:
            return
        for draw in _few(of.draws):
            example = of.verify.example(draw)
            wanted = of.verify.of_pytorch(example)
            right = Right(wanted) if self._run.cell.converted else example.right()
            for what, spoil in [*unseen.items()]:
                wrong = attempt(partial(self._stepper.run, self._run.reference.afresh, example.inputs, spoil))
                if isinstance(wrong, Exception):
                    continue
                got = [wrong[at] if at >= count and at % count in free else one for at, one in enumerate(wanted)]
                if of.verify.compare(got, right).verdict == "failed":
                    del unseen[what]
            if not unseen:
                return
        text = f"{' and '.join(unseen)} would have passed: the outputs of later steps do not show what the past is"
        raise Stopped("compare", "Vacuous", text, "case")

    # ---- what the runtime shows --------------------------------------------------------------------------------

    def _alone(self, session: Session, draws: Draws, example: Example, stop: Stopped) -> RedCell:
        """Return the first step that fails with the right cache. Raises Stopped where each is right with it."""
        run = self._run
        steps = self._inputs_of_steps(example)
        self._session.others = []
        attempt(partial(self._session.run, example.inputs))
        said = f"; {_told(self._session.others[0])}" if self._session.others else ""
        for step, inputs in enumerate(steps):
            draw = dataclasses.replace(example.draw, dims=self._stepper.sizes_of(inputs, example.draw.dims))
            one = self._of_one(session, draws, _WithStep(run, draw, inputs))
            failing = one.verify.example(draw)
            failure = one.verify.failure(failing)
            if failure is not None:
                self._warn(f"first wrong at step {step} of {self._plan.count}, also with the cache of PyTorch{said}")
                check_doubts(RedCell(one, failure, failing))
                return fails_again(one, failing, failure)
        text = f"each step is right with the cache of PyTorch, and with its own it is not: {stop.reason}{said}"
        run.record.draw = example.draw.as_dict()
        raise Stopped(stop.stage, stop.error, text, stop.fault)

    def _inputs_of_steps(self, example: Example) -> list[Inputs]:
        """Return the inputs of each step with the right cache."""
        count, steps = len(self._stepper.names), iter(range(self._plan.count + 1))

        def call(_: Inputs) -> Sequence[Array]:
            step = next(steps)
            return example.wanted[step * count : (step + 1) * count]

        return [given for given, _ in self._stepper.each(call, example.inputs)]

    def _note_tokens(self) -> None:
        """Note in the record the greedy tokens that are others than PyTorch's: it is open which are right."""
        others, tokens = self._session.others, self._session.tokens
        if others:
            why = (
                f"which {self._run.cell.precision} costs" if self._run.cell.converted
                else "where the logits agree within their tolerance: near-ties, and open"
            )  # fmt: skip
            self._warn(f"{len(others)} of {tokens} greedy tokens are not PyTorch's, {why}; {_told(others[0])}")

    def _warn(self, text: str) -> None:
        record = self._run.record
        record.warnings = [*record.warnings, {"name": "steps", "error": "Steps", "text": text}]


def _told(token: Token) -> str:
    step, row, wanted, got = token
    return f"the first token that differs is that of step {step}, row {row}: {got} instead of {wanted}"


def _as_it_is(session: Session) -> Session:
    return session


def _few(draws: Iterable[Draw]) -> list[Draw]:
    return [draw for draw in draws if draw.regime == "plain"][:TRIED]


def _stale(before: Array, right: Array) -> Array:
    """Return the cache of a step without what that step has added: the first entries twice, or the cache before."""
    axes = [axis for axis, (old, new) in enumerate(zip(before.shape, right.shape, strict=True)) if new != old]
    if not axes:
        return before
    (axis, *_), size = axes, right.shape[axes[0]]
    more = size - before.shape[axis]
    return np.take(right, [*range(more), *range(size - more)], axis=axis)


_WRONG: dict[str, Spoil] = {
    "zeros in place of the past": lambda name, before, right: np.zeros_like(right),
    "a past without its last entries": lambda name, before, right: _stale(before, right),
}


class _WithStep(Maker):
    """Makes the inputs of one step for its draw, and of others what the case says."""

    def __init__(self, run: CellRun, draw: Draw, inputs: Inputs) -> None:
        super().__init__(run.cell.case, run.reference.folder.resolve)
        self._draw, self._inputs = draw, inputs

    def __call__(self, draw: Draw) -> Inputs:
        same = (dict(draw.dims), draw.regime, draw.seed) == (self._draw.dims, self._draw.regime, self._draw.seed)
        return dict(self._inputs) if same else super().__call__(draw)


class _SteppedExamples(Examples):
    """Runs the examples of all steps, and asks about a failure step by step."""

    def __init__(self, of: CheckedCell, alone: Callable[[Example, Stopped], RedCell], outputs: int) -> None:
        """``outputs`` is how many outputs a step has."""
        super().__init__(of)
        self._alone, self._outputs_of_a_step = alone, outputs

    def _judge(self) -> RedCell | None:
        if self._verify.vacuity is not None:
            self._verify.vacuity.together(self._outputs_of_a_step)
        return super()._judge()

    def _failing(self, example: Example, stop: Stopped) -> RedCell:
        if stop.stage == "declare":
            raise stop
        self._check_repeats(suspected=True)
        self._draws.keep(example.draw)
        return self._alone(*repeated(self._verify, example, stop))
