"""Running a loaded model on many examples, and finding the smallest one that shows what is wrong."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from conformance import blame
from conformance.case import Fails, When
from conformance.compare import DEFAULTS, Array, Comparison, Tolerance, Worst, compare
from conformance.errors import Stopped
from conformance.expect import agrees
from conformance.inputs import Draw, Inputs, Maker, about, boundary_sizes, drawn, regimes_of, seed_of, shrink
from conformance.plan import Cell, expected, owed
from conformance.record import Record
from conformance.runtimes import Session
from conformance.runtimes.pytorch import Reference
from conformance.settings import DRAWN_SHAPES, Settings
from conformance.simplest import simplest
from conformance.source import describe
from conformance.store import Stored
from conformance.vacuity import Vacuity

SHRINK_SECONDS = 20.0
"""How long to look for a smaller example; a slow model is shown with the one that was found."""


class Stages(Protocol):
    """What is needed of ``cell.Stages``."""

    current: str

    def __call__(self, stage: str, fault: str) -> AbstractContextManager[None]: ...

    def note(self, draw: Draw, stage: str) -> None: ...


class WrongAnswer(Stopped):
    """An example whose outputs are not PyTorch's."""

    def __init__(self, found: Comparison) -> None:
        super().__init__("compare", found.error or "WrongValue", found.text or "", None)
        self.worst = found.worst


class Verifier:
    """The examples of one cell: runs them, judges them, explains the first that fails."""

    def __init__(
        self,
        cell: Cell,
        settings: Settings,
        record: Record,
        stages: Stages,
        reference: Reference,
        maker: Maker,
        stored: Stored,
        libraries: Sequence[str],
    ) -> None:
        self.cell, self.settings, self.record, self.stages = cell, settings, record, stages
        self.reference, self.maker, self.stored, self.libraries = reference, maker, stored, libraries
        says = cell.case.says
        static = says.export.exporters[cell.exporter].static  # type: ignore[index]
        self._static = static
        self._any_order = [one.rows == "in any order" for one in says.outputs]
        self._tolerances: list[Tolerance | None] = []
        self._vacuity: Vacuity | None = None
        self._session: Session
        self._count = 0

    # ---- all examples ------------------------------------------------------------------------------

    def run(self, session: Session, traced: dict[str, int]) -> None:
        """Runs all examples of the cell; raises Stopped for the first that fails and is not declared to."""
        self._session = session
        dims = self.cell.case.dims.fixing({name: traced[name] for name in self._static})
        first = self._draw(traced, self._regimes(0, 1)[0], seed_of(self.cell.id, "first"))
        self._check_deterministic(first)
        failures = Failures(self.settings, self.cell)
        scoped = [entry for entry in expected(self.cell) if entry.when.only_some_draws]
        verify = self._unless_declared(scoped, failures)
        for draw in failures.replayed():
            verify(draw)
        shape = 0

        def at(sizes: dict[str, int], seed: int) -> None:
            nonlocal shape
            for k, regime in enumerate(self._regimes(shape)):
                verify(self._draw(sizes, regime, seed_of(str(seed), k)))
            shape += 1

        examples = self.cell.case.says.examples
        for sizes in boundary_sizes(dims, traced)[: examples.boundary]:
            at(sizes, seed_of(self.cell.id, *sizes.items()))
        count = self.settings.examples
        if count is None:
            count = DRAWN_SHAPES if examples.shapes is None else examples.shapes
        drawn(dims, count, None if self.settings.random else seed_of(self.cell.id), at)
        for entry in scoped:
            if owed(entry, self.cell):
                self._confirm(entry, dims, traced)
        self._check_deterministic(first)
        self._judge()

    def _regimes(self, shape: int, count: int | None = None) -> list[str]:
        count = count or self.cell.case.says.examples.values
        return list(regimes_of(self.cell.check, count, shape * (count - 1 or 1)))

    def _draw(self, sizes: dict[str, int], regime: str, seed: int) -> Draw:
        self._count += 1
        return Draw(sizes, regime, seed, self._count - 1)

    def _unless_declared(self, scoped: Sequence[Fails], failures: Failures) -> Callable[[Draw], None]:
        """``verify``, leaving out the draws that are declared to fail and explaining those that do."""

        def verify(draw: Draw) -> None:
            if any(about(entry.when, draw) for entry in scoped):
                return
            try:
                self._note(draw, self.verify(draw))
            except Stopped as stop:
                failures.keep(draw)
                raise self._explained(draw, stop) from stop

        return verify

    def _note(self, draw: Draw, found: Comparison) -> None:
        record = self.record
        if found.verdict == "verified":
            record.examples += 1
        elif found.verdict == "nothing":
            record.nothing += 1
            return
        else:
            record.ill_conditioned += 1
            return
        worst = found.worst
        if worst is not None and (record.worst is None or worst.ratio > record.worst["ratio"]):
            record.worst = _worst_dict(worst, draw)
            record.draw = draw.as_dict()

    # ---- one example ---------------------------------------------------------------------------------

    def verify(self, draw: Draw) -> Comparison:
        """Runs and compares one example; raises Stopped where it fails, at whatever stage."""
        self.stages.note(draw, "declare")
        try:
            inputs = self.maker(draw)
        except ValueError as error:
            raise Stopped("declare", "BadInput", str(error), "case") from None
        except Exception as error:
            text = f"making the inputs: {describe(error, self.cell.case.folder)}"
            raise Stopped("declare", type(error).__name__, text, "case") from error
        return self.verify_inputs(inputs, draw)

    def verify_inputs(self, inputs: Inputs, draw: Draw) -> Comparison:
        """The same for given arrays."""
        seconds = self.record.seconds
        started = time.perf_counter()
        self.reference.restore()
        wanted = self.reference(inputs)
        exact = self.reference.oracle(inputs)
        reference_done = time.perf_counter()
        self.stages.note(draw, "run")
        try:
            got = self._session.run(inputs)
        except Exception as error:
            raise Stopped("run", type(error).__name__, _shortened(error), None) from error
        run_done = time.perf_counter()
        found = self._compare(got, wanted, exact)
        seconds["reference"] = seconds.get("reference", 0.0) + reference_done - started
        seconds["run"] = seconds.get("run", 0.0) + run_done - reference_done
        seconds["compare"] = seconds.get("compare", 0.0) + time.perf_counter() - run_done
        if found.verdict == "failed":
            raise WrongAnswer(found)
        return found

    def _compare(self, got: list[Array], wanted: list[Array], exact: list[Array] | None) -> Comparison:
        if self._vacuity is None:
            self._prepare_outputs(wanted)
        found = compare(got, wanted, exact, self._tolerances, self._any_order)
        if self._vacuity is not None and found.verdict in ("verified", "ill-conditioned"):
            self._vacuity.see(wanted)
        return found

    def _prepare_outputs(self, wanted: list[Array]) -> None:
        """Tolerances by output, once the outputs are known."""
        names = list(self.stored.facts.outputs)
        given = self.cell.case.says.tolerance.get("fp32")
        for index, array in enumerate(wanted):
            default = DEFAULTS.get(str(array.dtype))
            if default is not None and given is not None:
                own = given.for_output(index, names[index] if index < len(names) else "")
                default = Tolerance(
                    default.rtol if own.rtol is None else own.rtol,
                    default.atol if own.atol is None else own.atol,
                )
            self._tolerances.append(default)
        self._any_order += [False] * (len(wanted) - len(self._any_order))
        self._vacuity = Vacuity(self._tolerances)

    def _check_deterministic(self, draw: Draw) -> None:
        """A module that is random, keeps state or reads something that changes has no right answer."""
        with self.stages("declare", "case"):
            inputs = self.maker(draw)
            self.reference.restore()
            now = self.reference(inputs)
            before = getattr(self, "_first_outputs", None)
            if before is None:
                before = [array.copy() for array in now]
                self._first_outputs = before
                self.reference.restore()
                now = self.reference(inputs)
            tolerances = [DEFAULTS.get(str(array.dtype)) for array in before]
            found = compare(now, before, None, tolerances, [False] * len(before))
            if found.verdict == "failed":
                text = (
                    "PyTorch gives different outputs for the same input: the module is random, keeps state "
                    f"between calls, or reads something that changes ({found.text})"
                )
                raise Stopped("declare", "NotDeterministic", text, "case")

    # ---- draws that are declared to fail ---------------------------------------------------------------

    def _confirm(self, entry: Fails, dims: Any, traced: dict[str, int]) -> None:
        """At least one of the draws that the entry is about fails as declared, and none otherwise."""
        index = next(i for i, one in enumerate(self.cell.case.says.fails) if one is entry)
        where = f"line {self.cell.case.fails_lines[index]}"
        hits = 0
        draws = list(self._draws_about(entry.when, dims, traced))
        for draw in draws:
            try:
                self._note(draw, self.verify(draw))
            except Stopped as stop:
                if not agrees(entry, stop.stage, stop.error, stop.reason):
                    failed = self._explained(draw, stop)
                    failed.details.append(
                        f"{where} declares another failure: stage {entry.stage}, {entry.error}"
                    )
                    raise failed from stop
                hits += 1
        if not draws:
            raise Stopped(
                "declare",
                "NoSuchDraw",
                f"fails, {where}: no draw of this cell is at {entry.when.at or entry.when.values}",
                "case",
            )
        if not hits:
            text = f"it works at {entry.when.at or entry.when.values}, where {where} declares that it fails; take the entry out"
            raise Stopped("compare", "UnexpectedPass", text, "case")
        self.record.details.append(f"fails as declared at {_when_text(entry.when)}: {entry.because}")
        self.record.status = "xfailed"
        self.record.stage = entry.stage
        self.record.reason = entry.because
        self.record.fault = entry.fault

    def _draws_about(self, when: When, dims: Any, traced: dict[str, int]) -> Iterator[Draw]:
        held = {name: r.values({})[0] for name, r in when.at.items()}
        sizes_list = (
            boundary_sizes(dims.fixing(held), {**traced, **held}) if held else boundary_sizes(dims, traced)
        )
        regimes = [when.values] if when.values else self._regimes(0)
        for sizes in sizes_list:
            for k, regime in enumerate(regimes):
                draw = self._draw(sizes, regime, seed_of(self.cell.id, "declared", k, *sizes.items()))
                if about(when, draw):
                    yield draw

    # ---- explaining a failure ------------------------------------------------------------------------

    def _explained(self, draw: Draw, stop: Stopped) -> Stopped:
        """The failure at its smallest example, with who is at fault."""
        again = self._failure(draw)
        if again is None:
            text = f"failed once and not again with the same input: {stop.reason}"
            return Stopped("compare", "NotRepeatable", text, "runtime")
        declared = [entry for entry in expected(self.cell) if not entry.when.only_some_draws]
        inputs: Inputs | None = None
        if not any(agrees(entry, stop.stage, stop.error, stop.reason) for entry in declared):
            draw, again, inputs = self._smallest(draw, again)
        if isinstance(again, WrongAnswer) and again.worst is not None:
            self.record.worst = _worst_dict(again.worst, draw)
        self.record.draw = draw.as_dict()
        if again.stage == "declare":
            return again
        return self.blamed(again, self.maker(draw) if inputs is None else inputs)

    def _failure(self, draw: Draw, inputs: Inputs | None = None) -> Stopped | None:
        try:
            self.verify(draw) if inputs is None else self.verify_inputs(inputs, draw)
        except Stopped as stop:
            return stop
        return None

    def _smallest(self, draw: Draw, stop: Stopped) -> tuple[Draw, Stopped, Inputs | None]:
        """The smallest shape, by Hypothesis, and then the simplest values with the same failure."""
        deadline = time.monotonic() + SHRINK_SECONDS
        best: dict[tuple[tuple[str, int], ...], tuple[Draw, Stopped]] = {}

        def same(found: Stopped | None) -> bool:
            return found is not None and (found.stage, found.error) == (stop.stage, stop.error)

        def fails(sizes: dict[str, int]) -> bool:
            if time.monotonic() > deadline:
                return False
            for k in range(3):
                smaller = dataclasses.replace(
                    draw, dims=sizes, seed=draw.seed if k == 0 else seed_of("smaller", k)
                )
                found = self._failure(smaller)
                if same(found):
                    assert found is not None
                    best[tuple(sorted(sizes.items()))] = (smaller, found)
                    return True
            return False

        dims = self.cell.case.dims.fixing({name: draw.dims[name] for name in self._static})
        sizes = shrink(dims, draw.dims, fails)
        draw, stop = best.get(tuple(sorted(sizes.items())), (draw, stop))
        if stop.stage == "declare":
            return draw, stop, None

        def still(inputs: Inputs) -> bool:
            return time.monotonic() < deadline and same(self._failure(draw, inputs))

        inputs = simplest(self.cell.case, draw.dims, self.maker(draw), still)
        last = self._failure(draw, inputs)
        return (draw, last, inputs) if last is not None and same(last) else (draw, stop, None)

    def blamed(self, stop: Stopped, inputs: Inputs) -> Stopped:
        """The failure with the fault that the other runtimes' answers point at."""
        if stop.fault is None or stop.stage == "load":
            opinion = blame.find(self, stop, inputs)
            stop.fault = opinion.fault
            stop.details += opinion.lines
        stop.details += blame.show(inputs)
        return stop

    # ---- what all examples together mean -----------------------------------------------------------------

    def _judge(self) -> None:
        """Examples that could not have failed, or that were none, are no proof."""
        record, says = self.record, self.cell.case.says
        if not record.examples:
            text = f"no example verified anything: {record.ill_conditioned} ill-conditioned, {record.nothing} mostly NaN"
            stop = Stopped("compare", "NothingVerified", text, "case")
            stop.details = self._hints()
            raise stop
        if says.vacuous is not None or self._vacuity is None:
            return
        excused = {index for index, one in enumerate(says.outputs) if one.vacuous}
        for output, wrong in self._vacuity.findings().items():
            if output not in excused:
                text = f"output {output}: {' and '.join(wrong)} would have passed every one of {record.examples} examples"
                stop = Stopped("compare", "Vacuous", text, "case")
                stop.details = [
                    "give the case inputs or weights that show in this output, or say vacuous: and why"
                ]
                raise stop

    def _hints(self) -> list[str]:
        if self.cell.check == "specials":
            return ["where NaN and infinities spread to all outputs, say specials: false"]
        if self.reference.oracle_missing:
            return [f"there is no float64 form: {self.reference.oracle_missing}"]
        return [
            "PyTorch's own float32 is too far from float64 to compare with; declare values or a tolerance"
        ]


def _when_text(when: When) -> str:
    parts = [f"{name}={r}" for name, r in when.at.items()]
    return ", ".join([*parts, *([f"{when.values} values"] if when.values else [])])


def _worst_dict(worst: Worst, draw: Draw) -> dict[str, Any]:
    return {**dataclasses.asdict(worst), "index": list(worst.index), "dims": dict(draw.dims)}


def _shortened(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no text"
    return text if len(text) <= 300 else text[:297] + "..."


class Failures:
    """Draws that failed in earlier runs, kept in a Hypothesis example database."""

    def __init__(self, settings: Settings, cell: Cell) -> None:
        self._key = cell.id.encode()
        self._cell = cell
        self._database: Any = None
        if settings.failures is not None:
            from hypothesis.database import DirectoryBasedExampleDatabase

            self._database = DirectoryBasedExampleDatabase(str(settings.failures))

    def replayed(self) -> Iterator[Draw]:
        """The kept draws that the case still allows."""
        if self._database is None:
            return
        for data in list(self._database.fetch(self._key)):
            try:
                draw = Draw(**json.loads(data))
                allowed = self._cell.case.dims.allow(draw.dims)
            except (ValueError, TypeError, KeyError):
                allowed = False
            if allowed:
                yield draw
            # One that fails again is kept anew by whoever runs it.
            self._database.delete(self._key, data)

    def keep(self, draw: Draw) -> None:
        if self._database is not None:
            self._database.save(self._key, json.dumps(draw.as_dict(), sort_keys=True).encode())
