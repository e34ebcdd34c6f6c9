"""All examples of a cell: boundary shapes, drawn shapes, draws that are declared to fail, and what they prove."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from conformance.case import REGIMES, SPECIALS, Fails, When
from conformance.compare import Comparison
from conformance.dims import Dims
from conformance.errors import Stopped
from conformance.expect import agrees
from conformance.explain import Explainer, worst_dict
from conformance.inputs import Draw, about, boundary_sizes, regimes_of, seed_of
from conformance.plan import Cell, expected, owed
from conformance.prepared import Prepared
from conformance.record import Record
from conformance.settings import DRAWN_SHAPES, Settings
from conformance.verify import Verifier


class Examples:
    """Runs all examples of one cell and notes in its record what they showed."""

    def __init__(
        self,
        cell: Cell,
        settings: Settings,
        record: Record,
        prepared: Prepared,
        verify: Verifier,
        explainer: Explainer,
    ) -> None:
        self._prepared = prepared
        self._cell, self._settings, self._record = cell, settings, record
        self._verify, self._explainer = verify, explainer
        self._scoped = [entry for entry in expected(cell) if entry.when.only_some_draws]
        self._declares_values = all(
            one.values is not None for one in cell.case.says.inputs.values() if one.type.is_float
        )
        self._failures = _Failures(settings, cell)
        self._count = 0

    def run(self, dims: Dims, traced: dict[str, int]) -> None:
        """``dims`` are those that the model was exported for. Raises Stopped for the first example that fails
        without being declared to, and where the examples together prove nothing."""
        first = self._draw(traced, self._regimes(0)[0], seed_of(self._cell.id, "first"))
        outputs = self._verify.check_deterministic(first)
        for draw in self._draws(dims, traced):
            if not any(about(entry.when, draw) for entry in self._scoped):
                self._run_one(draw)
        self._verify.check_deterministic(first, outputs)
        self._judge()
        # Last, since some of these may end the process, which then has proved all the rest.
        for entry in self._scoped:
            if owed(entry, self._cell):
                self._confirm(entry, dims, traced)

    def _run_one(self, draw: Draw) -> None:
        try:
            found = self._verify(draw)
        except Stopped as stop:
            self._failures.keep(draw)
            raise self._explainer(draw, stop) from stop
        self._note(draw, found)
        if found.verdict == "ill-conditioned" and draw.regime == "plain" and self._declares_values:
            raise self._ill_conditioned(found, draw)

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
        if record.worst is None or worst.ratio > record.worst["ratio"]:
            record.worst = worst_dict(worst, draw)
            record.draw = draw.as_dict()

    # ---- which examples --------------------------------------------------------------------------------

    def _draws(self, dims: Dims, traced: dict[str, int]) -> Iterator[Draw]:
        """Earlier failures, then every boundary shape, then drawn ones; several value draws for each."""
        yield from self._failures.replayed()
        says = self._cell.case.says.examples
        shapes = [
            (sizes, seed_of(self._cell.id, *sizes.items())) for sizes in boundary_sizes(dims, traced)[: says.boundary]
        ]
        count = says.shapes if self._settings.examples is None else self._settings.examples
        count = DRAWN_SHAPES if count is None else count
        shapes += self._prepared.drawn_shapes(dims, count, anew=self._settings.random)
        for index, (sizes, seed) in enumerate(shapes):
            for k, regime in enumerate(self._regimes(index)):
                yield self._draw(sizes, regime, seed_of(self._cell.id, seed, k))

    def _regimes(self, shape: int) -> list[str]:
        """The value regimes of the how-many-th shape."""
        return regimes_of(self._cell.check, self._cell.case.says.examples.values, shape)

    def _draw(self, sizes: dict[str, int], regime: str, seed: int) -> Draw:
        self._count += 1
        return Draw(sizes, regime, seed, self._count - 1)

    # ---- draws that are declared to fail -----------------------------------------------------------------

    def _confirm(self, entry: Fails, dims: Dims, traced: dict[str, int]) -> None:
        """At least one of the draws that the entry is about fails as declared, and none in another way."""
        where = f"line {self._cell.case.line_of(entry)}"
        condition = _text(entry.when)
        draws = list(self._draws_about(entry.when, dims, traced))
        if not draws:
            raise Stopped("declare", "NoSuchDraw", f"{where}: the cell has no draw at {condition}", "case")
        hits = 0
        for draw in draws:
            try:
                self._note(draw, self._verify(draw))
            except Stopped as stop:
                if not agrees(entry, stop.stage, stop.error, stop.reason):
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

    def _draws_about(self, when: When, dims: Dims, traced: dict[str, int]) -> Iterator[Draw]:
        held = {name: r.values({})[0] for name, r in when.at.items()}
        own = SPECIALS if self._cell.check == "specials" else REGIMES
        # Several of each, as where special values fall decides whether they show.
        regimes = [regime for regime in when.values if regime in own] * 4 or self._regimes(0)
        for sizes in boundary_sizes(dims.fixing(held), {**traced, **held}):
            for k, regime in enumerate(regimes):
                draw = self._draw(sizes, regime, seed_of(self._cell.id, "declared", k, *sizes.items()))
                if dims.allow(sizes) and about(when, draw):
                    yield draw

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


def _text(when: When) -> str:
    parts = [f"{name}={r}" for name, r in when.at.items()]
    return ", ".join([*parts, *([f"{' and '.join(when.values)} values"] if when.values else [])])


class _Failures:
    """Draws that failed in earlier runs, kept in a Hypothesis example database."""

    def __init__(self, settings: Settings, cell: Cell) -> None:
        self._key = cell.id.encode()
        self._cell = cell
        self._database: Any = None
        if settings.failures is not None:
            from hypothesis.database import DirectoryBasedExampleDatabase

            self._database = DirectoryBasedExampleDatabase(str(settings.failures))

    def replayed(self) -> Iterator[Draw]:
        """The kept draws that the case still allows; one that fails again is kept anew."""
        for data in list(self._database.fetch(self._key)) if self._database else ():
            self._database.delete(self._key, data)
            try:
                draw = Draw(**json.loads(data))
                allowed = self._cell.case.dims.allow(draw.dims)
            except (ValueError, TypeError, KeyError):
                continue
            if allowed:
                yield dataclasses.replace(draw, index=-1)

    def keep(self, draw: Draw) -> None:
        if self._database is not None:
            self._database.save(self._key, json.dumps(draw.as_dict(), sort_keys=True).encode())
