"""One example: make its inputs, run PyTorch and the runtime, compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from conformance.case.draw.draw import Draw
from conformance.case.draw.example import Answers, Effort, Example
from conformance.case.files.must_hold import Output, OutputTolerance
from conformance.case.files.python import describe
from conformance.case.plan.expected import has_specials_by_default
from conformance.compare.compared_values import Reading
from conformance.compare.judges import Judge, Right, Tolerances
from conformance.compare.tolerance import DEFAULTS, Comparison, Tolerance, Worst
from conformance.judge.comparer import Comparer, Outcome
from conformance.judge.conditioning import Roundings, left_open, merged, unsettled_rows
from conformance.judge.halves import outputs_in_halves
from conformance.judge.usual_moves import UsualMoves
from conformance.judge.wrong_reference import held_against_float64
from conformance.models.of_cell import OfCell
from conformance.models.reference.output_layout import names_of_tensor
from conformance.models.right_outputs import check_again, check_outputs, check_steady, hold_alike, reading_of
from conformance.process.arrays import Array, Inputs, in_dtype_of, same
from conformance.process.errors import Stopped, Undecided
from conformance.results.records.spent import Spending
from conformance.results.records.words import HUGE
from conformance.runtimes import Session, registry

CALLS = 8
"""How often PyTorch is called to see how far apart random values are."""


class WrongTogether(Stopped):
    """Examples that have too much noise together; ``draw`` is that of the example which shows it best."""

    def __init__(self, text: str, draw: Draw) -> None:
        super().__init__("compare", "LowFidelity", text, "precision")
        self.draw = draw


class Verifier(Comparer):
    """Verifies single examples of one cell in ``session``, which has loaded its model."""

    def __init__(self, of: OfCell, session: Session | None = None) -> None:
        super().__init__(session, of.stages.note, of.record.seconds)
        self.cell, self.reference, self.maker = of.cell, of.reference, of.maker
        self.judge: Judge | None = None
        self._listed_seen: tuple[int | None, str | None] = None, None
        self._halves: set[int] | None = None
        """The outputs that PyTorch computes in 16 bits inside; None until a comparison makes that a question."""
        self.kept, self.expects = of.kept, of.expects
        self.rules: set[str] = set()
        """What leaves values open in the example that was measured last (``results.records.details`` has the
        words)."""
        self._operators: frozenset[str] | None = None
        self._signed = False
        """True if the signs of zeros are compared, once ``first`` has seen what computes them."""
        self._names = of.names
        self.record, self._stages = of.record, of.stages
        self._first: tuple[Draw, Inputs, list[Array]] | None = None
        """The draw of ``first`` with what PyTorch gave, until its example takes it."""
        self._spreads: dict[int, float] = {}
        """How far the values of outputs that are random on purpose were apart in several calls."""
        self._usual = UsualMoves()
        self._roundings: tuple[Inputs, Roundings, dict[bool, set[int]]] | None = None
        """The inputs asked about last, how far values move there, and the outputs whose rows are others there, with
        PyTorch's float32 and without."""

    def example(self, draw: Draw, inputs: Inputs | None = None) -> Example:
        """The example of a draw, with ``inputs`` in place of its own values where they are given."""
        if inputs is not None:
            return Example(draw, lambda: inputs, self._timed_answers, self.conditioning)
        kept = self.kept.of(draw)
        if self._first is not None and draw == self._first[0]:
            first = self._first[1]
            return Example(draw, lambda: first, partial(self._asked, draw), partial(self._conditioned, draw))
        if kept is not None:
            again = partial(self._exact, draw, lambda: self.answers(kept[0])[1]())
            return Example(draw, lambda: kept[0], lambda _: (kept[1], again), partial(self._conditioned, draw))
        return Example(draw, lambda: self.inputs(draw), partial(self._asked, draw), partial(self._conditioned, draw))

    def again(self, example: Example) -> Example:
        return self.example(example.draw)

    def spared(self) -> float:
        return self.kept.spent

    def doubted(self, example: Example, failure: Stopped) -> Outcome:
        """An example that fails by a kept answer is run again with what PyTorch answers now, unless the case declares
        the failure and PyTorch still gives the same answer. Of huge values nothing is said where float64 does not
        show that the module is precise enough for them."""
        if example.draw.regime == HUGE and not self._is_precise(example):
            return Comparison("nothing")
        kept = self.kept.of(example.draw)
        if kept is None or (self.expects(failure) and self._answers_still(example.draw, *kept)):
            return failure
        self.kept.forget()
        return self.outcome(self.example(example.draw))

    def _is_precise(self, example: Example) -> bool:
        """Return whether PyTorch's float32 is all finite and float64's by the tolerance of the outputs."""
        try:
            exact, wanted = example.exact, example.wanted
        except Stopped:
            return False
        if exact is None or [one.shape for one in exact] != [one.shape for one in wanted]:
            return False
        if not all(np.isfinite(one).all() for one in (*exact, *wanted) if one.dtype.kind == "f"):
            return False
        rounded = [in_dtype_of(right, true) for right, true in zip(wanted, exact, strict=True)]
        return self.compare(rounded, example.right_in_float32()).verdict == "verified"

    def _answers_still(self, draw: Draw, before: Inputs, wanted: list[Array]) -> bool:
        """Return whether a draw still makes the inputs ``before``, and PyTorch answers them with ``wanted``."""
        inputs = self.inputs(draw)
        return same([*inputs.values(), *self._timed_answers(inputs)[0]], [*before.values(), *wanted])

    def inputs(self, draw: Draw) -> Inputs:
        """The arrays of a draw; Stopped at ``declare`` where the case's own Python makes others."""
        try:
            return self.maker(draw)
        except Stopped:
            raise
        except ValueError as error:
            raise Stopped("declare", "BadInput", str(error), "case") from None
        except (Exception, SystemExit) as error:  # of the case's own Python: the Stopped has all of it
            text = f"making the inputs: {describe(error, self.cell.case.folder)}"
            raise Stopped("declare", type(error).__name__, text, "case") from error

    def said(self, error: Exception) -> str:
        return describe(error, Path("/"))

    def _asked(self, draw: Draw, inputs: Inputs) -> Answers:
        """Return what is right for a draw, asked now; kept for a later run."""
        wanted, exact = self._timed_answers(inputs)
        self.kept.add(draw, inputs, wanted)
        return wanted, partial(self._exact, draw, exact)

    def _exact(self, draw: Draw, ask: Callable[[], list[Array] | None]) -> list[Array] | None:
        """The second of a draw's answers, by an earlier run or asked now and kept."""
        known, exact = self.kept.exact(draw)
        if not known:
            exact = ask()
            self.kept.add_exact(draw, exact)
        return exact

    def _conditioned(
        self, draw: Draw, inputs: Inputs, wanted: list[Array], exact: list[Array] | None, effort: Effort
    ) -> list[Array] | None:
        """Return how far the outputs of a draw move with rounding, by an earlier run or asked now and kept."""
        moved = self.kept.moved(draw, effort)
        if moved is None:
            moved = self.conditioning(inputs, wanted, exact, effort)
            if moved is not None and not self.rules:  # a later run is to name them too
                self.kept.add_moved(draw, moved, effort)
        if moved is not None and exact is not None and effort != "all":
            self._usual.learn(exact, moved)
        return moved

    def usual(self, example: Example) -> Right | None:
        moved = None if example.exact is None else self._usual.of(example.exact)
        return None if moved is None else Right(example.wanted, example.exact, moved, example.inputs)

    def _timed_answers(self, inputs: Inputs) -> Answers:
        with Spending(self._seconds, "reference"):
            return self.answers(inputs)

    def answers(self, inputs: Inputs) -> Answers:
        """PyTorch's outputs in float32, and what asks for them in float64 where the module has such a form."""
        return self.in_pytorch(inputs), partial(self.reference.oracle, inputs)

    def in_pytorch(self, inputs: Inputs) -> list[Array]:
        """PyTorch's outputs in float32; those of ``first`` are given out once."""
        if self._first is not None and inputs is self._first[1]:
            (_, _, wanted), self._first = self._first, None
            return wanted
        with self._undecided_for_specials():
            return self.reference.afresh(inputs)

    @contextmanager
    def _undecided_for_specials(self, more: str = "") -> Iterator[None]:
        """Raise Undecided where PyTorch itself raises for NaN or infinities that the case does not ask for."""
        try:
            yield
        except Stopped as stop:
            if stop.stage == "declare" and has_specials_by_default(self.cell) and not self.expects(stop):
                raise Undecided(stop.stage, stop.error, f"{stop.reason}{more}") from stop
            raise

    def of_pytorch(self, example: Example) -> list[Array]:
        """PyTorch's outputs in float32, whatever the example is compared with."""
        return example.wanted

    def tell(self, stop: Stopped, example: Example) -> None:
        """Have the failure be known, should the process end while it is explained."""
        self._stages.failed(stop, example.draw)

    def alone(self, example: Example) -> Comparison:
        """One example by itself, where a case declares that it fails."""
        return self(example)

    def conclude(self) -> None:
        """Raise WrongTogether where all examples together are wrong, though none of them is by itself."""

    def compare(self, got: list[Array], right: Right) -> Comparison:
        return self.judge_of(right.wanted).compare(got, right)

    def judged(self, example: Example, got: list[Array]) -> Comparison:
        if isinstance(self.judge_of(example.wanted), Tolerances):
            # Most outputs are right by float32 alone, where float64 has no say.
            plain = self.compare(got, example.right_in_float32())
            if plain.verdict == "failed" and self._halves is None:
                self._allow_halves(example)
                plain = self.compare(got, example.right_in_float32())
            if plain.verdict == "nothing" or (plain.verdict == "verified" and _is_rounding(plain.worst)):
                return plain
        comparison = super().judged(example, got)
        if comparison.verdict != "failed":  # a failing example is asked about again
            self._roundings = None
        if comparison.left_open and example.draw.regime != HUGE:
            self.record.left_open = sorted({*self.record.left_open, *self.rules})
        if comparison.left_open and self.rules - {"kernels"}:  # then float64 is no more right than float32
            return comparison
        if (comparison.excused or comparison.verdict == "ill-conditioned") and not self.cell.converted:
            return held_against_float64(self, example, got) or comparison
        return comparison

    def conditioning(
        self, inputs: Inputs, wanted: list[Array], exact: list[Array] | None, effort: Effort = "all"
    ) -> list[Array] | None:
        """Return how far each value of the outputs moves with rounding, for ``Right``, which is infinitely far where
        the last effort finds it open; None where nothing is and the module has no float64 form to measure it with."""
        found, rules = self.open_values(inputs, wanted) if wanted and effort == "all" else ([], set())
        self.rules = rules
        if exact is None:
            self.rules = rules if rules and self._repeats(inputs, wanted) else set()
            return found if self.rules else None
        # a failing example has its arrays made anew
        if self._roundings is None or not same([*self._roundings[0].values()], [*inputs.values()]):
            self._roundings = inputs, Roundings(self.reference, inputs, exact), {}
        _, roundings, unsettled = self._roundings
        if bool(wanted) not in unsettled:
            reading = self.judge_of(exact).reading
            unsettled[bool(wanted)] = unsettled_rows(self.reference, reading, inputs, wanted, exact)
        moved = roundings.moves(effort)
        if found:
            moved = merged(moved, found)
            self.rules = rules | roundings.rules
        if self.rules and not self._repeats(inputs, wanted):  # what changes by itself is no question of rounding
            self.rules, moved = set(), [np.where(np.isinf(each), 0.0, each) for each in moved]
        for boxes in unsettled[bool(wanted)]:
            moved[boxes] = np.array(math.inf)
        return moved

    def _repeats(self, inputs: Inputs, wanted: Sequence[Array]) -> bool:
        """Return whether PyTorch gives the same three times in a row, which a module that takes turns does not."""
        return all(same(self.reference.afresh(inputs), wanted) for _ in range(3))

    def open_values(self, inputs: Inputs, wanted: Sequence[Array]) -> tuple[list[Array], set[str]]:
        """Return how far PyTorch parts from its own outputs, and the rules that leave it open (``left_open``)."""
        if self._operators is None:
            self._operators, _ = self.reference.operators(inputs)
        return left_open(self.reference, self._operators, inputs, wanted)

    def judge_of(self, wanted: Sequence[Array]) -> Judge:
        """The cell's judge, made of the first outputs of PyTorch, as it depends on their number and dtypes."""
        seen = self.reference.listed, self.reference.listed_dtype
        if self.judge is None or seen != self._listed_seen:
            check_outputs(self.cell.case, self.reference.layout or [1] * len(wanted))
            self._listed_seen = seen
            wanted = self._one_for_the_list(wanted)
            outputs = self.outputs()
            rows = [entry.rows.match == "in any order" for entry in outputs] or [False] * len(wanted)
            self.judge = self.make_judge(wanted, tuple(rows), reading_of(self.cell.case, outputs))
            self.vacuity = self.judge.vacuity()
            if self.cell.case.says.is_given:
                self.vacuity.have_no_other()
        return self.judge

    def _allow_halves(self, example: Example) -> None:
        """Compare what PyTorch computes in 16 bits, between wider inputs and outputs, by the tolerance of these from
        now on. Whether it does is asked only where outputs are off by the tolerance of their own dtype."""
        self._halves = outputs_in_halves(self.reference, example.inputs, example.wanted)
        if self._halves and self.vacuity is not None:
            seen, self.judge = self.vacuity, None
            seen.limits = self.judge_of(example.wanted).vacuity().limits
            self.vacuity = seen
            half = self.reference.half
            who = "forward" if self.cell.case.says.onnx is None else self.reference.who
            text = f"{who} computes in {half} inside, and its outputs are compared by the tolerance of that"
            self.record.warnings = [*self.record.warnings, {"name": "half", "error": str(half), "text": text}]

    def _one_for_the_list(self, wanted: Sequence[Array]) -> Sequence[Array]:
        """Return the outputs with one array in place of a list whose length varies, whose values decide nothing."""
        at = self.reference.listed_among()
        if at is None:
            return wanted
        after = sum(self.reference.layout or []) - 1 - at
        empty = np.zeros(0, self.reference.listed_dtype or "float32")
        return [*wanted[:at], empty, *wanted[len(wanted) - after :]]

    def make_judge(self, wanted: Sequence[Array], any_order: tuple[bool, ...], reading: Reading) -> Judge:
        """A judge with the default tolerances by dtype, but for those that the case declares. Indices have the
        tolerance of what they index."""
        inputs = self.cell.case.says.inputs

        random = {number for number, entry in enumerate(self.outputs()) if entry.random}

        def tolerance(output: int) -> Tolerance | None:
            if output in random:
                return Tolerance(0.0, 0.0, spread=self._spreads.get(output, 0.0))
            known = reading.indices_of(output)
            about = known.of if known is not None and isinstance(known.of, int) else output
            named = inputs[known.of].type.dtype if known is not None and isinstance(known.of, str) else None
            half = self.reference.half if about in (self._halves or ()) else None
            default = DEFAULTS.get(half or named or str(wanted[about].dtype))
            if default is None:
                return None
            own = self.declared(about)
            return Tolerance(
                rtol=default.rtol if own.rtol is None else own.rtol,
                atol=default.atol if own.atol is None else own.atol,
                absolute=own.atol is not None,
            )

        tolerances = tuple(tolerance(output) for output in range(len(wanted)))
        return Tolerances(tolerances, any_order, reading, self.reference.listed_among(), self._signed)

    def declared(self, output: int) -> OutputTolerance:
        """Return what the case declares for an output at this cell's precision."""
        names = names_of_tensor(output, self._names, self.cell.case.says.outputs, self.reference.layout or [])
        return self.cell.case.says.tolerance_for(self.cell.precision).for_output(output, *names)

    def outputs(self) -> list[Output]:
        """Return what the case declares of each tensor that forward returns, of the tensors of a list one by one."""
        return self.reference.outputs()

    def first(self, draw: Draw) -> list[Array]:
        """PyTorch's outputs for the draw that shows whether they repeat themselves; its example takes these.

        Where an earlier run has kept answers, this call shows whether PyTorch still gives them; if not, they are
        forgotten.
        """
        with self._stages("declare", "case"):
            inputs = self.inputs(draw)
            self._stages.note(draw, "declare")
            self._measure_spreads(inputs)
            signs = self.cell.check == "specials" and registry.named(self.cell.runtime or "onnxruntime").signs
            self._signed = signs and self.reference.keeps_signs(inputs)
            if self.kept.first is not None:
                try:
                    hold_alike(self.reference, inputs, self.reference.once(inputs), self.kept.first)
                    return self.kept.first
                except Stopped:
                    self.kept.forget()
        with Spending(self._seconds, "reference"), self._undecided_for_specials(". specials: true would insist"):
            outputs = self.reference.once(inputs)
            check_steady(self.reference, inputs, outputs)
        self._first = draw, inputs, outputs
        return outputs

    def _measure_spreads(self, inputs: Inputs) -> None:
        """Calls PyTorch several times where outputs are random on purpose, to see how far apart their values are."""
        if not any(output.random for output in self.cell.case.says.outputs):
            return
        answers = [self.in_pytorch(inputs) for _ in range(CALLS)]
        for number, output in enumerate(self.outputs()):
            if output.random:
                values = np.concatenate([answer[number].reshape(-1).astype(np.float64) for answer in answers])
                finite = values[np.isfinite(values)]
                self._spreads[number] = float(np.ptp(finite)) if finite.size else 0.0

    def check_repeats(self, draw: Draw, before: list[Array], *, suspected: bool = False) -> None:
        """Stopped where PyTorch does not give its outputs of ``before`` again.

        A module that is random, keeps state or reads something that changes has no right answer. It is called three
        times in a row where it is ``suspected``. Otherwise once is enough, as ``check_steady`` has called it twice in
        a row: one that takes turns may be at the same turn again after what was asked of it in between.
        """
        with self._stages("declare", "case"):
            inputs = self.inputs(draw)
            self._stages.note(draw, "declare")
            for _ in range(3 if suspected else 1):
                check_again(self.reference, inputs, before)


def _is_rounding(worst: Worst | None) -> bool:
    """Return whether another order of the same sums explains an error, by float32 alone; where it does not, the
    record tells what float64 says of it."""
    return worst is None or (worst.rounding is not None and worst.rounding <= 1)
