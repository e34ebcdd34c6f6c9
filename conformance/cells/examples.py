"""All examples of a cell, those that are declared to fail, and what they prove together."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator
from typing import Any

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
from conformance.compare.excuses import own_error
from conformance.compare.tolerance import Comparison, Worst, failed, subjects
from conformance.diagnose.explain_failure import CaseExplainer
from conformance.judge.comparer import WrongAnswer, count, find_vacuous, tried, vacuous_failure, worst_dict
from conformance.judge.draws import Draws
from conformance.judge.remedy import Remedies
from conformance.judge.verify import Verifier, WrongTogether
from conformance.models.cell_run import CellRun
from conformance.process.arrays import Array
from conformance.process.errors import Details, NoVerdict, Stopped
from conformance.results.records.details import left_open
from conformance.results.records.explanation import Shows, add, blame, note, reconsider, unexplained
from conformance.results.records.record import FLOAT64, Witness
from conformance.results.records.record_types import Warned
from conformance.results.records.settle import MARGIN


class Examples:
    """Runs all examples of one cell and notes in its record what they showed."""

    def __init__(self, run: CellRun, draws: Draws, verify: Verifier, explainer: CaseExplainer) -> None:
        cell = self._cell = run.cell
        self._record, self._draws, self._verify, self._explainer = run.record, draws, verify, explainer
        self._apart = on_host(apart(cell), run.settings.instructions)
        self._specials_shown = False
        self._first = draws.first()
        self._undecided: list[str] = []
        """Why nobody can say what is right, of each example of which that is so."""
        self._outputs: list[Array] = []
        """What PyTorch gives for the first draw."""
        # Whether a converted model loses too much on the case's values is for the check ``fidelity`` to say.
        says = cell.case.says
        declared_values = (entry.values is not None for entry in says.inputs.values() if entry.type.is_float)
        self._conditioned = not cell.converted and not says.is_drafted and all(declared_values)

    def run(self) -> None:
        """Raise Stopped for the first example that fails without being declared to, and where the examples
        together prove nothing."""
        self._outputs = self._verify.first(self._first)
        weak: tuple[Example, Comparison] | None = None
        sizes = _BySize()
        try:
            # a wrong answer that is declared is to be found before a later example ends the process
            outcomes = self._verify.each(self._undeclared(), one_by_one=bool(expectations(self._cell)))
            for example, comparison in tried(self._record, outcomes, self._explain):
                sizes.see(example.draw, comparison)
                if comparison.verdict == "nothing" and comparison.text is not None:
                    self._undecided.append(comparison.text)
                plain = example.draw.regime == "plain"
                self._specials_shown |= comparison.verdict == "verified" and example.draw.regime != "signed zero"
                if _is_weak(comparison) and plain and self._conditioned and weak is None:
                    weak = example, comparison
        except Stopped as stop:
            if self._verify.expects(stop):  # then every run fails so, and none has to ask PyTorch all of it again
                with contextlib.suppress(Stopped):
                    self._check_repeats()
                    self._verify.kept.write(self._outputs)
            raise
        if weak is not None:  # after all others, of which one may be wrong beyond that
            raise self._ill_conditioned(*weak, sizes)
        self._check_repeats()
        self._judge()
        self._verify.kept.write(self._outputs)
        # Last, since some of these may end the process, which then has proved all the rest.
        scoped = [entry for entry in self._apart if entry in declared(self._cell)]
        for entry in scoped:
            if owed(entry, self._cell):
                self._confirm(entry)

    def _check_repeats(self, *, suspected: bool = False) -> None:
        """Stopped where PyTorch, if it was asked anything, does not give its outputs for the first draw again."""
        if self._verify.kept.asked:
            self._verify.check_repeats(self._first, self._outputs, suspected=suspected)

    def _undeclared(self) -> Iterator[Example]:
        """All examples but those that are declared to fail."""
        self._record.dropped_draws = self._draws.unreadable
        for draw in self._draws:
            if not any(about(entry.when, draw) for entry in self._apart):
                yield self._verify.example(draw)

    def _explain(self, example: Example, stop: Stopped) -> Stopped:
        self._explainer.check_counts(stop, example)
        try:
            self._check_repeats(suspected=True)
        except Stopped as random:  # then there is no right answer, and no runtime to blame
            return random
        self._draws.keep(example.draw)
        return self._explainer(*self._clearest(example, stop))

    def _clearest(self, example: Example, stop: Stopped) -> tuple[Example, Stopped]:
        """The example to explain, with its failure.

        Where a declared failure is off by less than ``MARGIN``, that is the first example that is off by more, or the
        one that is off most; an example met on the way that fails in an undeclared way goes before both.
        """
        if not self._explainer.is_declared(stop) or _ratio(stop) >= MARGIN:
            return example, stop
        for candidate in self._undeclared():
            try:
                self._verify(candidate)
            except Stopped as failure:
                if not self._explainer.is_declared(failure):
                    return candidate, failure
                if _ratio(failure) > _ratio(stop):
                    example, stop = candidate, failure
                if _ratio(stop) >= MARGIN:
                    break
        return example, stop

    def _ill_conditioned(self, example: Example, comparison: Comparison, sizes: _BySize) -> Stopped:
        """The failure of an ill-conditioned draw of values that the case declares; where the suite chose the values,
        an ill-conditioned draw is only counted.

        Where another runtime agrees with PyTorch by the ordinary tolerance, it is open whether this one is wrong:
        float64 says no more than that rounding could explain it.
        """
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
        if self._explainer.is_put_off(stop):
            return unexplained(stop)
        found = reconsider(self._explainer.witnessed(stop, example), Shows("ill-conditioned"))
        if worst is not None and isinstance(worst.wanted, int):
            found = reconsider(found, Shows("ties"))
        if worst is None:
            return blame(stop, found, {"conditioning": {"sizes": sizes.told()}, "hints": ["conditioning"]})
        slack = worst.error / worst.ratio if 0 < worst.ratio < math.inf else 0.0
        remedy = None
        with contextlib.suppress(Stopped):  # advice is no further failure
            remedy = Remedies(self._verify, list(self._draws)).tolerance(slack, worst.output)
        conditioning = {**_in_float64(example, worst), "sizes": sizes.told()}
        hints = [] if remedy else ["conditioning"]
        return blame(stop, found, {"conditioning": conditioning, "remedy": remedy, "hints": hints})

    # ---- draws that are declared to fail -----------------------------------------------------------------

    def _confirm(self, entry: Fails) -> None:
        """Stopped unless some of the draws that the entry is about fail as declared, and none in another way."""
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
                if not shows(entry, stop.stage, stop.error, stop.reason):
                    self._record.declared.append(
                        {"outcome": "another", "line": line, "stage": entry.stage, "error": entry.error}
                    )
                    raise self._explainer(example, stop) from stop
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

    # ---- what all examples together mean -----------------------------------------------------------------

    def _judge(self) -> None:
        """Stopped where the examples prove nothing: none verified anything, or wrong outputs would pass all."""
        record, says = self._record, self._cell.case.says
        draw, record.draw = record.draw, None  # what follows is not about one draw
        if not self._specials_shown and has_specials_by_default(self._cell):
            raise NoVerdict(f"{self._why_not_shown()}. specials: true would insist")
        self._note_undecided()
        if not record.examples:
            weak = f"{record.ill_conditioned} ill-conditioned, {record.nothing} mostly NaN"
            if says.is_drafted:
                raise NoVerdict(f"no example that was drawn shows whether the runtime is right: {weak}")
            stop = Stopped("compare", "NothingVerified", f"no example verified anything: {weak}", "case")
            if self._explainer.is_put_off(stop):
                raise unexplained(stop, known="case")
            remedy = None
            with contextlib.suppress(Stopped):  # advice is no further failure
                remedy = Remedies(self._verify, list(self._draws)).of_nothing()
            raise add(stop, self._why_nothing(), {"remedy": remedy})
        try:
            self._verify.conclude()
        except WrongTogether as stop:
            self._explainer.check_counts(stop, self._verify.example(stop.draw))
            raise self._explainer.blamed(self._verify.example(stop.draw), stop) from stop
        assert self._verify.vacuity is not None
        excused = {index for index, output in enumerate(self._verify.outputs()) if output.shows_nothing}
        excused |= {*self._verify.reference.value_free()}  # all that there is to compare is right
        output = find_vacuous(self._verify.vacuity, excused) if says.vacuous is None else None
        if output is not None:
            if says.is_drafted:
                self._note_vacuous(output, self._verify.vacuity.findings().keys() - excused)
                record.draw = draw
                return
            if self._mostly_nothing() and has_specials_by_default(self._cell):
                draws = record.nothing + record.examples
                raise NoVerdict(
                    f"{self._verify.reference.who}'s own outputs are mostly NaN in {record.nothing} of {draws} "
                    "draws, and the others would not show a wrong runtime. specials: true would insist"
                )
            vacuous = vacuous_failure(record, self._verify.vacuity, output, {"hints": ["vacuous"]})
            if self._explainer.is_put_off(vacuous):
                raise unexplained(vacuous, known="case")
            raise add(vacuous, self._advice(vacuous, output, self._verify.vacuity.findings().keys() - excused))
        record.draw = draw

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
            raise NoVerdict(f"{reason}: the values that were drawn do not show whether the runtime is right")
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

    def _advice(self, stop: Stopped, output: int, vacuous: Collection[int]) -> Details:
        """Return what a vacuous output is like, and what to try first."""
        told: Details = {}
        with contextlib.suppress(Stopped):  # advice is no further failure
            remedies = Remedies(self._verify, list(self._draws))
            told = {"vacuous": {**stop.details["vacuous"], "fact": remedies.fact(output)}}
            told |= {"remedy": remedies.of_vacuous(output, vacuous), "hints": []}
        return told

    def _why_nothing(self) -> Details:
        """The fields that say why no example verified anything."""
        first = self._verify.inputs(self._first)
        missing = None if self._verify.reference.oracle(first) else self._verify.reference.oracle_missing
        if self._cell.check == "specials":
            return {"hints": ["specials"]}
        if missing:
            return {"witnesses": [Witness(FLOAT64, "abstains", reason=missing).as_dict()]}
        return {"hints": ["rounding"]}


def _is_weak(comparison: Comparison) -> bool:
    """Return whether float32 is too far off for some of the values, and not that nobody can say what is right."""
    return _is_excused(comparison) and not 0 < comparison.excused <= comparison.left_open


def _is_excused(comparison: Comparison) -> bool:
    """Return whether float32 itself is too far off for some of the values."""
    return comparison.excused > 0 or comparison.verdict == "ill-conditioned"


class _BySize:
    """The results of the examples by size."""

    def __init__(self) -> None:
        self._told: dict[tuple[tuple[str, int], ...], dict[str, Any]] = {}

    def see(self, draw: Draw, comparison: Comparison) -> None:
        sizes = tuple(draw.dims.items())
        told = self._told.get(sizes)
        if told is None:
            told = self._told[sizes] = {"dims": dict(sizes), "verified": 0, "ill_conditioned": 0, "worst": 0.0}
        if _is_excused(comparison):
            told["ill_conditioned"] += 1
        elif comparison.verdict == "verified":
            told["verified"] += 1
            told["worst"] = max(told["worst"], comparison.worst.ratio if comparison.worst else 0.0)

    def told(self) -> list[dict[str, Any]]:
        """By size: how many examples agree without an excuse and how many do not, and the largest error of those that
        do, over what is allowed."""
        return list(self._told.values())[:SIZES]


SIZES = 16
"""Of how many sizes it is told how their examples came out."""


def _in_float64(example: Example, worst: Worst) -> dict[str, Any]:
    """Return what float64 gives for the element, and how far PyTorch's float32 is off in its output at most."""
    if example.exact is None or worst.output >= len(example.exact):
        return {}
    wanted, exact = example.wanted[worst.output], example.exact[worst.output]
    if wanted.shape != exact.shape:
        return {}
    own = own_error(wanted, exact) if wanted.dtype.kind == "f" else None
    return {"float64": exact[worst.index].item(), "own": own}


def _ratio(stop: Stopped) -> float:
    """Error / allowed of a wrong value; infinite for what is wrong in any other way."""
    worst = stop.worst if isinstance(stop, WrongAnswer) and stop.error == "WrongValue" else None
    return math.inf if worst is None else worst.ratio


def _text(when: When) -> str:
    parts = [f"{name}={r}" for name, r in when.at.items()]
    return ", ".join([*parts, *([f"{' and '.join(when.values)} values"] if when.values else [])])
