"""All examples of a cell, those that are declared to fail, and what they prove together."""

from __future__ import annotations

import math
from collections.abc import Iterator

from conformance.case.must_hold import Fails, When
from conformance.checks.draws import Draws
from conformance.checks.explain import Explainer, worst_dict
from conformance.checks.verify import Verifier, WrongAnswer
from conformance.compare.tolerance import Comparison
from conformance.draw.draw import Draw, about
from conformance.errors import Stopped
from conformance.plan.cell import Cell
from conformance.plan.expected import apart, declared, on_host, owed, shows
from conformance.plan.settings import Settings
from conformance.records.record import Record
from conformance.records.settle import MARGIN


class Examples:
    """Runs all examples of one cell and notes in its record what they showed."""

    def __init__(
        self,
        cell: Cell,
        settings: Settings,
        record: Record,
        draws: Draws,
        verify: Verifier,
        explainer: Explainer,
    ) -> None:
        self._cell, self._record, self._draws = cell, record, draws
        self._verify, self._explainer = verify, explainer
        self._apart = on_host(apart(cell), settings.instructions)
        # At other precisions the noise of the precision decides, which has a check of its own.
        self._conditioned = not cell.converted and all(
            one.values is not None for one in cell.case.says.inputs.values() if one.type.is_float
        )

    def run(self) -> None:
        """Raises Stopped for the first example that fails without being declared to, and where the examples
        together prove nothing."""
        first = self._draws.first()
        outputs = self._verify.check_deterministic(first)
        for draw in self._undeclared():
            self._run_one(draw)
        self._verify.check_deterministic(first, outputs)
        self._judge()
        # Last, since some of these may end the process, which then has proved all the rest.
        scoped = [entry for entry in self._apart if entry in declared(self._cell)]
        for entry in scoped:
            if owed(entry, self._cell):
                self._confirm(entry)

    def _undeclared(self) -> Iterator[Draw]:
        """All draws but those that are declared to fail."""
        return (draw for draw in self._draws if not any(about(entry.when, draw) for entry in self._apart))

    def _run_one(self, draw: Draw) -> None:
        try:
            found = self._verify(draw)
        except Stopped as stop:
            self._draws.keep(draw)
            raise self._explainer(*self._clearest(draw, stop)) from stop
        self._note(draw, found)
        if found.verdict == "ill-conditioned" and draw.regime == "plain" and self._conditioned:
            raise self._ill_conditioned(found, draw)

    def _clearest(self, draw: Draw, stop: Stopped) -> tuple[Draw, Stopped]:
        """Of a declared failure that is off by less than ``MARGIN``, a draw that shows it clearly, or else the
        clearest; any draw that fails in another way goes before."""
        if not self._explainer.is_declared(stop) or _ratio(stop) >= MARGIN:
            return draw, stop
        for other in self._undeclared():
            try:
                self._verify(other)
            except Stopped as found:
                if not self._explainer.is_declared(found):
                    return other, found
                if _ratio(found) > _ratio(stop):
                    draw, stop = other, found
                if _ratio(stop) >= MARGIN:
                    break
        return draw, stop

    def _ill_conditioned(self, found: Comparison, draw: Draw) -> Stopped:
        """On values that the suite chose, such a draw is only counted; these are the case's own."""
        assert found.worst is not None
        self._record.worst, self._record.draw = worst_dict(found.worst, draw), draw.as_dict()
        text = (
            f"output {found.worst.output}: on the values that the case declares, PyTorch's float32 is further from "
            f"float64 than this comparison can tell ({found.worst.ratio:.2g} times what is allowed)"
        )
        stop = Stopped("compare", "IllConditioned", text, "case")
        stop.details = ["declare values that are better conditioned, or a tolerance and because"]
        return stop

    def _note(self, draw: Draw, found: Comparison) -> None:
        record, worst = self._record, found.worst
        record.examples += found.verdict == "verified"
        record.ill_conditioned += found.verdict == "ill-conditioned"
        record.nothing += found.verdict == "nothing"
        if found.verdict != "verified" or worst is None:
            return
        record.histogram = counted(record.histogram, worst.ratio)
        if record.worst is None or worst.ratio > record.worst["ratio"]:
            record.worst = worst_dict(worst, draw)
            record.draw = draw.as_dict()

    # ---- draws that are declared to fail -----------------------------------------------------------------

    def _confirm(self, entry: Fails) -> None:
        """At least one of the draws that the entry is about fails as declared, and none in another way."""
        where = f"line {self._cell.case.line_of(entry)}"
        condition = _text(entry.when)
        draws = list(self._draws.about(entry.when))
        if not draws:
            raise Stopped("declare", "NoSuchDraw", f"{where}: the cell has no draw at {condition}", "case")
        hits = 0
        for draw in draws:
            try:
                self._note(draw, self._verify.alone(draw))
            except Stopped as stop:
                if not shows(entry, stop.stage, stop.error, stop.reason):
                    failed = self._explainer(draw, stop)
                    failed.details.append(
                        f"{where} declares another failure there: stage {entry.stage}, {entry.error}"
                    )
                    raise failed from stop
                hits += 1
        if not hits:
            text = f"it works at {condition}, where {where} declares that it fails; take the entry out"
            raise Stopped("compare", "UnexpectedPass", text, "case")
        record = self._record
        record.details.append(f"fails as declared at {condition}: {entry.because}")
        record.status, record.stage = "xfailed", entry.stage
        record.reason, record.fault = entry.because, entry.fault
        record.declared_for = None if entry.when.cpu is None else entry.when.cpu.model_dump()

    # ---- what all examples together mean -----------------------------------------------------------------

    def _judge(self) -> None:
        """Examples that could not have failed, or that were none, are no proof."""
        record, says = self._record, self._cell.case.says
        draw, record.draw = record.draw, None  # what follows is not about one draw
        if not record.examples:
            weak = f"{record.ill_conditioned} ill-conditioned, {record.nothing} mostly NaN"
            stop = Stopped("compare", "NothingVerified", f"no example verified anything: {weak}", "case")
            stop.details = [self._hint()]
            raise stop
        self._verify.conclude()
        assert self._verify.vacuity is not None
        excused = {index for index, one in enumerate(says.outputs) if one.vacuous}
        for output, wrong in self._verify.vacuity.findings().items():
            if says.vacuous is None and output not in excused:
                passes = f"{' and '.join(wrong)} would have passed every one of {record.examples} examples"
                stop = Stopped("compare", "Vacuous", f"output {output}: {passes}", "case")
                stop.details = ["give the case inputs or weights that show in this output, or say vacuous: and why"]
                raise stop
        record.draw = draw

    def _hint(self) -> str:
        if self._cell.check == "specials":
            return "where NaN and infinities spread to all outputs, say specials: false"
        if self._verify.reference.oracle_missing:
            return f"there is no float64 form: {self._verify.reference.oracle_missing}"
        return "PyTorch's own float32 is too far from float64 to compare with; declare values or a tolerance"


def _ratio(stop: Stopped) -> float:
    """Error / allowed of a wrong value; infinite for what is wrong in any other way."""
    worst = stop.worst if isinstance(stop, WrongAnswer) and stop.error == "WrongValue" else None
    return math.inf if worst is None else worst.ratio


EDGES = list(range(-6, 4))
"""Powers of ten between which the largest errors of examples are counted, relative to what is allowed."""


def counted(histogram: dict[str, list[int]] | None, ratio: float) -> dict[str, list[int]]:
    """The histogram with one more example; what is beyond its ends counts in the outermost bins."""
    found = histogram or {"edges": EDGES, "counts": [0] * (len(EDGES) - 1)}
    power = math.floor(math.log10(ratio)) if 0 < ratio < math.inf else (EDGES[0] if ratio <= 0 else EDGES[-1])
    found["counts"][min(max(power - EDGES[0], 0), len(EDGES) - 2)] += 1
    return found


def _text(when: When) -> str:
    parts = [f"{name}={r}" for name, r in when.at.items()]
    return ", ".join([*parts, *([f"{' and '.join(when.values)} values"] if when.values else [])])
