"""All examples of a cell, those that are declared to fail, and what they prove together."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Collection, Iterable, Iterator, Sequence

from conformance.case.draw.draw import Draw, about
from conformance.case.draw.example import Example
from conformance.case.files.must_hold import Fails, When
from conformance.case.plan.expected import (
    apart,
    declared,
    expectations,
    has_specials_by_default,
    on_host,
    owed,
    shows,
)
from conformance.cells.doubts import check_doubts
from conformance.compare.tolerance import Comparison, failed, subjects
from conformance.judge.comparer import (
    WrongAnswer,
    check_runs_agree,
    count,
    find_vacuous,
    note_failing,
    repeated,
    vacuous_failure,
    worst_dict,
)
from conformance.judge.in_time import InTime
from conformance.judge.red_cell import CheckedCell, RedCell
from conformance.judge.verify import WrongTogether
from conformance.process.arrays import Array
from conformance.process.errors import NoVerdict, Stopped
from conformance.results.records.details import left_open
from conformance.results.records.explanation import Shows, note
from conformance.results.records.record_types import Size, Warned
from conformance.results.records.settle import MARGIN
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.random_nodes import random_nodes


class Examples:
    """Runs all examples of one cell and notes in its record what they showed."""

    def __init__(self, of: CheckedCell) -> None:
        cell = self._cell = of.run.cell
        self._of, self._record, self._draws, self._verify = of, of.run.record, of.draws, of.verify
        self._apart = on_host(apart(cell), of.run.settings.instructions)
        self._specials_shown = False
        self._first = of.draws.first()
        self._undecided: list[str] = []
        """Why nobody can say what is right, of each example of which that is so."""
        self._outputs: list[Array] = []
        """What PyTorch gives for the first draw."""
        # Whether a converted model loses too much on the case's values is for the check ``fidelity`` to say.
        says = cell.case.says
        declared_values = (entry.values is not None for entry in says.inputs.values() if entry.type.is_float)
        self._conditioned = not cell.converted and not says.is_drafted and all(declared_values)

    def run(self) -> RedCell | None:
        """Return the first example that fails without being declared to, or that the examples together prove nothing;
        None where all is well. Raises Stopped for a failure about which nobody has to be asked."""
        self._outputs = self._verify.first(self._first)
        try:
            red = self._all()
        except Stopped as stop:
            self._keep_declared(stop)
            raise
        if red is not None:
            self._keep_declared(red.stop)
            return red
        self._check_repeats()
        red = self._judge()
        if red is not None:
            return red
        self._verify.kept.write(self._outputs)
        # Last, since some of these may end the process, which then has proved all the rest.
        scoped = [entry for entry in self._apart if entry in declared(self._cell) and owed(entry, self._cell)]
        return next((red for entry in scoped if (red := self._confirm(entry)) is not None), None)

    def _all(self) -> RedCell | None:
        """Run all examples but those that are declared to fail."""
        weak: tuple[Example, Comparison] | None = None
        sizes = _BySize()
        # a wrong answer that is declared is to be found before a later example ends the process
        more = self._undeclared(self._draws.more())
        in_time = self._in_time(more)
        outcomes = self._verify.each(self._examples(in_time), one_by_one=bool(expectations(self._cell)))
        for example, comparison in outcomes:
            if isinstance(comparison, Stopped):
                return self._failing(example, comparison)
            if example.draw in more:  # which a slow host leaves out, so that no count hangs on them
                continue
            count(self._record, example.draw, comparison)
            sizes.see(example.draw, comparison)
            if comparison.verdict == "nothing" and comparison.text is not None:
                self._undecided.append(comparison.text)
            plain = example.draw.regime == "plain"
            self._specials_shown |= comparison.verdict == "verified" and example.draw.regime != "signed zero"
            if _is_weak(comparison) and plain and self._conditioned and weak is None:
                weak = example, comparison
            del example  # with its arrays, before those of the next are made
        self._note_left(in_time)
        # after all others, of which one may be wrong beyond that
        return None if weak is None else self._ill_conditioned(*weak, sizes)

    def _keep_declared(self, stop: Stopped) -> None:
        """Keep what PyTorch gave where the cell fails as declared: then every run fails so, and none has to ask
        PyTorch all of it again."""
        if self._verify.expects(stop):
            with contextlib.suppress(Stopped):
                self._check_repeats()
                self._verify.kept.write(self._outputs)

    def _check_repeats(self, *, suspected: bool = False) -> None:
        """Stopped where PyTorch, if it was asked anything, does not give its outputs for the first draw again."""
        if self._verify.kept.asked:
            self._verify.check_repeats(self._first, self._outputs, suspected=suspected)

    def _undeclared(self, draws: Iterable[Draw]) -> list[Draw]:
        return [draw for draw in draws if not any(about(entry.when, draw) for entry in self._apart)]

    def _in_time(self, more: Sequence[Draw] = ()) -> InTime:
        """All draws but those that are declared to fail, and ``more`` of them, as long as the cell's time lasts."""
        self._record.dropped_draws = self._draws.unreadable
        undeclared = self._undeclared(self._draws)
        self._of.run.stages.planned = len(undeclared)
        budget = self._of.run.settings.budget
        if budget is None and expectations(self._cell):
            budget = math.inf  # else a declared failure would not show on a slow host
        # what is kept counts as when it was computed: else each run from the store would have time for more examples
        return InTime(undeclared, budget, lambda: time.process_time() + self._verify.spared(), more)

    def _examples(self, draws: Iterable[Draw]) -> Iterator[Example]:
        return map(self._verify.example, draws)

    def _note_left(self, in_time: InTime) -> None:
        """Note the examples for which the time did not last. Raises NoVerdict where a dim was not at its ends."""
        count = len(in_time.left)
        if not count:
            return
        self._record.left_out = {"examples": count, "seconds": in_time.seconds}
        if in_time.lacks_ends():
            done = self._record.examples + self._record.ill_conditioned + self._record.nothing
            raise NoVerdict(
                f"--budget {in_time.seconds:g}s was over after {done} of {done + count} examples, before each dim "
                "was at its smallest and largest size; give it more, or smaller dims"
            )

    def _failing(self, example: Example, stop: Stopped) -> RedCell:
        """Return a failing example, which fails again. Raises NoVerdict where it accuses nobody, and Stopped where
        there is no right answer, and no runtime to blame."""
        check_doubts(RedCell(self._of, stop, example))
        self._check_repeats(suspected=True)
        self._draws.keep(example.draw)
        return fails_again(self._of, *self._clearest(example, stop))

    def _clearest(self, example: Example, stop: Stopped) -> tuple[Example, Stopped]:
        """The example to explain, with its failure.

        Where a declared failure is off by less than ``MARGIN``, that is the first example that is off by more, or the
        one that is off most; an example met on the way that fails in an undeclared way goes before both.
        """
        if not self._of.is_declared(stop) or _ratio(stop) >= MARGIN:
            return example, stop
        for candidate in self._examples(self._in_time()):
            try:
                self._verify(candidate)
            except Stopped as failure:
                if not self._of.is_declared(failure):
                    return candidate, failure
                if _ratio(failure) > _ratio(stop):
                    example, stop = candidate, failure
                if _ratio(stop) >= MARGIN:
                    break
        return example, stop

    def _ill_conditioned(self, example: Example, comparison: Comparison, sizes: _BySize) -> RedCell:
        """The failure of an ill-conditioned draw of values that the case declares; where the suite chose the values,
        an ill-conditioned draw is only counted."""
        worst, draw = comparison.excuse or comparison.worst, example.draw
        self._record.worst = None if worst is None else worst_dict(worst, draw)
        self._record.draw = draw.as_dict()
        if worst is None:
            text = f"{comparison.text}, on the values that the case declares; nothing can be said of a runtime"
        else:
            called = subjects(worst.output + 1, tuple(self._record.outputs))[worst.output]
            text = (
                f"{called}: on the values that the case declares, {self._verify.reference.who}'s float32 is so far "
                f"from float64 that nothing can be said of a runtime"
            )
        stop = WrongAnswer(failed("IllConditioned", text, worst))
        return RedCell(self._of, stop, example, sizes=sizes.told())

    # ---- draws that are declared to fail -----------------------------------------------------------------

    def _confirm(self, entry: Fails) -> RedCell | None:
        """Return a draw that the entry is about and that fails in another way. Raises Stopped where none fails."""
        line = self._cell.case.line_of(entry)
        where = f"line {line}"
        condition = _text(entry.when)
        draws = list(self._draws.about(entry.when))
        if not draws:
            raise Stopped("declare", "NoSuchDraw", f"{where}: the cell has no draw at {condition}", "case")
        hits = 0
        for draw in draws:
            example = self._verify.example(draw)
            try:
                count(self._record, draw, self._verify.alone(example))
            except Stopped as stop:
                if not shows(entry, stop):
                    self._record.declared.append(
                        {"outcome": "another", "line": line, "stage": entry.stage, "error": entry.error}
                    )
                    return fails_again(self._of, example, stop)
                hits += 1
        if not hits:
            text = f"it works at {condition}, where {where} declares that it fails; take the entry out"
            self._record.declared.append(
                {"outcome": "works", "line": line, "at": condition, "because": entry.because}
            )
            raise Stopped("compare", "UnexpectedPass", text, "case")
        record = self._record
        record.declared.append({"outcome": "confirmed", "at": condition, "because": entry.because})
        record.status, record.stage, record.reason = "xfailed", entry.stage, entry.because
        note(record, Shows("draws", entry.fault))
        record.declared_for = entry.when.host
        return None

    # ---- what all examples together mean -----------------------------------------------------------------

    def _judge(self) -> RedCell | None:
        """Return that the examples prove nothing: none verified anything, or wrong outputs would pass all."""
        record, says = self._record, self._cell.case.says
        draw, record.draw = record.draw, None  # what follows is not about one draw
        if not self._specials_shown and has_specials_by_default(self._cell):
            raise NoVerdict(f"{self._why_not_shown()}. specials: true would insist")
        self._note_undecided()
        if not record.examples:
            weak = f"{record.ill_conditioned} ill-conditioned, {record.nothing} mostly NaN"
            if says.is_drafted:
                raise NoVerdict(f"no example that was drawn shows whether the runtime is right: {weak}")
            text = f"no example verified anything: {weak}"
            return RedCell(self._of, Stopped("compare", "NothingVerified", text, "case"))
        try:
            self._verify.conclude()
        except WrongTogether as stop:
            red = RedCell(self._of, stop, self._verify.example(stop.draw))
            check_doubts(red)
            return red
        assert self._verify.vacuity is not None
        excused = {index for index, output in enumerate(self._verify.outputs()) if output.shows_nothing}
        excused |= {*self._verify.reference.value_free()}  # all that there is to compare is right
        output = find_vacuous(self._verify.vacuity, excused) if says.vacuous is None else None
        if output is not None:
            vacuous = self._verify.vacuity.findings().keys() - excused
            if says.is_drafted or says.is_given:
                self._note_vacuous(output, vacuous)
                record.draw = draw
                return None
            if self._mostly_nothing() and has_specials_by_default(self._cell):
                count = record.nothing + record.examples
                raise NoVerdict(
                    f"{self._verify.reference.who}'s own outputs are mostly NaN in {record.nothing} of {count} "
                    "draws, and the others would not show a wrong runtime. specials: true would insist"
                )
            if record.left_out is not None and record.examples == 1:
                raise NoVerdict(
                    "the time was over after one example that verifies anything, which no other tells from a wrong "
                    "one: give it more by --budget"
                )
            nothing = vacuous_failure(record, self._verify.vacuity, output, {"hints": ["vacuous"]})
            return RedCell(self._of, nothing, vacuous=vacuous)
        record.draw = draw
        return None

    def _note_undecided(self) -> None:
        """Note how many examples nobody can judge; NoVerdict where these are all that have no verdict."""
        record, count = self._record, len(self._undecided)
        if count and not record.examples:
            raise NoVerdict(self._undecided[0])
        if count:
            text = f"{count} of {count + record.examples} examples have no verdict: {self._undecided[0]}"
            record.warnings = [*record.warnings, {"name": "reference", "error": "Undecided", "text": text}]

    def _note_vacuous(self, output: int, vacuous: Collection[int]) -> None:
        """Note that outputs of a file show nothing, ``output`` first; NoVerdict where none shows anything."""
        assert self._verify.vacuity is not None
        reason = vacuous_failure(self._record, self._verify.vacuity, output).reason
        if len(vacuous) >= len(self._verify.vacuity):
            which = "given" if self._cell.case.says.is_given else "drawn"
            raise NoVerdict(f"{reason}: the values that were {which} do not show whether the runtime is right")
        warning: Warned = {"name": "vacuous", "error": "Vacuous", "text": reason}
        self._record.warnings = [*self._record.warnings, warning]

    def _why_not_shown(self) -> str:
        """Say why no draw of specials verified anything."""
        if self._undecided:  # such as that PyTorch itself raises
            return self._undecided[0]
        if self._record.left_open:
            return f"nothing can be said of NaN and infinities here: {'; '.join(left_open(self._record))}"
        who = self._verify.reference.who
        return f"{who}'s own outputs are mostly NaN in every draw: NaN and infinities spread to all of them"

    def _mostly_nothing(self) -> bool:
        """Return whether NaN and infinities have spread to the outputs of most draws of specials, or leave them
        open."""
        record = self._record
        return self._cell.check == "specials" and record.nothing + record.ill_conditioned > record.examples


def fails_again(of: CheckedCell, example: Example, stop: Stopped) -> RedCell:
    """Return a failing example that is run again, and note it in the record. Raises Stopped where it does not fail
    again, or where its inputs cannot be made or PyTorch itself stops."""
    example, stop = repeated(of.verify, example, stop)
    if isinstance(stop, WrongAnswer):
        drawing = random_nodes(read_graph(of.model.file))
        check_runs_agree(of.verify, example, stop, drawing, of.run.cell.own_code)
    note_failing(of.run.record, example, stop)
    if stop.stage == "declare":
        raise stop
    return RedCell(of, stop, example)


def _is_weak(comparison: Comparison) -> bool:
    """Return whether float32 is too far off for some of the values, and not that nobody can say what is right."""
    return _is_excused(comparison) and not 0 < comparison.excused <= comparison.left_open


def _is_excused(comparison: Comparison) -> bool:
    """Return whether float32 itself is too far off for some of the values."""
    return comparison.excused > 0 or comparison.verdict == "ill-conditioned"


class _BySize:
    """The results of the examples by size."""

    def __init__(self) -> None:
        self._told: dict[tuple[tuple[str, int], ...], Size] = {}

    def see(self, draw: Draw, comparison: Comparison) -> None:
        sizes = tuple(draw.dims.items())
        told = self._told.get(sizes)
        if told is None:
            told = self._told[sizes] = {"dims": dict(sizes), "verified": 0, "ill_conditioned": 0, "worst": 0.0}
        if _is_excused(comparison):
            told["ill_conditioned"] += 1
        elif comparison.verdict == "verified":
            told["verified"] += 1
            told["worst"] = max(told["worst"] or 0.0, comparison.worst.ratio if comparison.worst else 0.0)

    def told(self) -> list[Size]:
        """By size: how many examples agree without an excuse and how many do not, and the largest error of those that
        do, over what is allowed."""
        return list(self._told.values())[:SIZES]


SIZES = 16
"""Of how many sizes it is told how their examples came out."""


def _ratio(stop: Stopped) -> float:
    """Error / allowed of a wrong value; infinite for what is wrong in any other way."""
    worst = stop.worst if isinstance(stop, WrongAnswer) and stop.error == "WrongValue" else None
    return math.inf if worst is None else worst.ratio


def _text(when: When) -> str:
    parts = [f"{name}={r}" for name, r in when.at.items()]
    return ", ".join([*parts, *([f"{' and '.join(when.values)} values"] if when.values else [])])
