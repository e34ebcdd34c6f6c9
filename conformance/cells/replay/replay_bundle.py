"""Replaying a bundle: its cells on this host's runtimes, with the same judges and the same records as in the suite.

Runs with Python 3.10, numpy, onnx and the runtime; needs neither torch nor pytest nor what reads case files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from conformance.case.draw.example import Draw, Example
from conformance.cells.replay import code
from conformance.cells.replay.compile_trial import stop, try_jobs
from conformance.cells.replay.engine_trial import try_engine
from conformance.compare.judges import Judge, Right, judge_from
from conformance.compare.shown import shown
from conformance.compare.tolerance import Comparison
from conformance.diagnose.nodes import saturation
from conformance.diagnose.nodes.blame import Inquiry, Suspect, find
from conformance.judge.comparer import Comparer, count, find_vacuous, note_failing, repeated, vacuous_failure
from conformance.models.bundle.bundle_files import Files
from conformance.models.bundle.bundle_layout import Bundle
from conformance.models.bundle.entry import Entry
from conformance.process.arrays import Array
from conformance.process.disk.value_store import KeptValues
from conformance.process.errors import Stopped, Unavailable, UserError, attempt, or_else, stopping
from conformance.process.worker.isolation import Death, Worker
from conformance.process.worker.progress_note import Progress
from conformance.results.records.death import note_death
from conformance.results.records.environment import environment
from conformance.results.records.explanation import (
    Shows,
    UnexplainedFailure,
    blame,
    fail,
    note,
    note_details,
)
from conformance.results.records.processor import instructions
from conformance.results.records.record import Record, cell_id, cell_label
from conformance.results.records.run_file import RunWriter
from conformance.results.records.settle import Expectation, settle
from conformance.results.records.spent import Spending
from conformance.results.records.text import replay_command
from conformance.runtimes import Session, opener, registry
from conformance.runtimes.onnxruntime import NO_FALLBACK, kernels
from conformance.runtimes.tensorrt.build_options import Build

REFUSED = ("BadBundle", "LibrariesNotAllowed")
"""The errors of cells that were not run, for their files or for libraries in the bundle, which none can declare."""

MODULES = ("numpy", "onnx", "onnxruntime")
"""Modules that workers are forked with; a module that is not installed is left out."""


def replay(
    bundle: Bundle,
    runtime: str,
    report: Path,
    store: Path,
    *,
    keep: Callable[[str], bool] = lambda id: True,
    timeout: float = 600.0,
    required: bool = False,
    require_provider: bool = False,
    libraries: bool = False,
    flags: Sequence[str] = (),
    on_library: Callable[[str], object] = lambda line: None,
    on_record: Callable[[Record], object] = lambda record: None,
) -> list[Record]:
    """Run all entries whose id ``keep`` wants, each in a worker process, and write a run to ``report``.

    ``required`` turns cells that this host cannot run into failures, ``require_provider`` those of which a provider
    of ONNX Runtime leaves nodes to the CPU; ``libraries`` lets code of the bundle run, after ``on_library`` was told
    of each. Raises UserError where nothing is selected, and where ``report`` or ``store`` is
    in the bundle, which could then bring files for them along.
    """
    for place, what in ((report, "--report"), (store, "--store")):
        if _is_in(place, bundle.folder):
            raise UserError(f"{place}: lies in the bundle; say where else it is to be with {what}")
    chosen, limited = chosen_of(bundle, runtime, keep)
    if require_provider and registry.named(runtime).provider:
        chosen = [dataclasses.replace(entry, config={**entry.config, NO_FALLBACK: "1"}) for entry in chosen]
    if libraries:
        for line in code.announced(bundle, chosen):
            on_library(line)
    writer, start = begin_run(report, bundle, flags, limited=limited), time.monotonic()
    absent = registry.absence(runtime)
    records = []
    with contextlib.ExitStack() as stack:
        worker = None if absent is not None else stack.enter_context(Worker(list(MODULES)))
        for entry in chosen:
            if worker is None:
                record = record_of(entry, runtime)
                record.status, record.stage, record.reason = "skipped", "load", absent
            else:
                answer = worker.call(run_entry, bundle.folder, entry, runtime, store, libraries, timeout=timeout)
                record = _died(entry, runtime, answer) if isinstance(answer, Death) else answer
            records.append(conclude(record, bundle, entry, required=required, libraries=libraries))
            writer.add(records[-1].as_dict())
            on_record(records[-1])
    writer.close(time.monotonic() - start)
    return records


def begin_run(report: Path, bundle: Bundle, flags: Sequence[str], *, limited: bool, **more: object) -> RunWriter:
    """Return what writes the run of a bundle's cells; ``more`` is what its header says besides."""
    # A comparison of runs takes the flags for the reason why cells are missing, so a run of all cells has none.
    limits = list(flags) if limited else []
    head = {**environment(limits), "command": list(flags), "packed": bundle.environment, **more}
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return RunWriter(report, {"started": started, "environment": head})


def conclude(record: Record, bundle: Bundle, entry: Entry, *, required: bool, libraries: bool) -> Record:
    """Return the record of a cell as it is written: with the command that replays it, and failed where it was skipped
    and ``--require`` says that it is not to be."""
    if required and record.status == "skipped":
        record.status, record.error = "failed", "NotRun"
        record.reason = f"--require: this host cannot run {record.runtime}: {record.reason}"
    allowed, runtime = libraries and bool(entry.code), str(record.runtime)
    record.command = replay_command(str(bundle.folder), runtime, "-k", record.id, libraries=allowed)
    return record


def chosen_of(bundle: Bundle, runtime: str, keep: Callable[[str], bool]) -> tuple[list[Entry], bool]:
    """The cells of a runtime whose id ``keep`` wants, and whether there are others. UserError where there is none."""
    cells = [cell for entry in bundle.entries for cell in _cells(entry, runtime)]
    chosen = [entry for entry in cells if keep(id_of(entry, runtime))]
    if not chosen:
        raise UserError(f"{bundle.folder}: none of its {len(cells)} cells of {runtime} is selected")
    return chosen, len(chosen) < len(cells)


def _cells(entry: Entry, runtime: str) -> Iterator[Entry]:
    """The entry where the case has this runtime, and again with the check ``engine`` where it has a trial; of a
    runtime that runs nothing the checks ``parse`` and ``build`` where the case names TensorRT, and ``meaning``
    of what failed in it."""
    if registry.named(runtime).only_builds:
        if {"tensorrt", runtime} & {*entry.runtimes}:
            yield from (dataclasses.replace(entry, check=check) for check in ("parse", "build"))
            if entry.check == "meaning":
                yield entry
        return
    if runtime not in entry.runtimes:
        return
    yield entry
    if registry.named(runtime).builds and entry.trial is not None:
        yield dataclasses.replace(entry, check="engine")


def _is_in(place: Path, folder: Path) -> bool:
    """Return whether ``place`` lies in ``folder``, by its name or after all links."""
    by_name = Path(os.path.normpath(place.absolute())).is_relative_to(os.path.normpath(folder.absolute()))
    return by_name or place.resolve().is_relative_to(folder.resolve())


def id_of(entry: Entry, runtime: str) -> str:
    """The id that the cell has in the suite."""
    return cell_id(entry.check, cell_label(entry.case, entry.exporter, entry.opset, runtime, entry.precision))


def record_of(entry: Entry, runtime: str) -> Record:
    """An empty record of the cell."""
    record = Record(
        id=id_of(entry, runtime), case=entry.case, exporter=entry.exporter, opset=entry.opset, runtime=runtime,
        precision=entry.precision, check=entry.check, source=entry.source, outputs=entry.judge.get("names", []),
    )  # fmt: skip
    record.graph, record.conversion = entry.graph, entry.conversion
    return record


def run_entry(
    progress: Progress,
    folder: Path,
    entry: Entry,
    runtime: str,
    store: Path,
    libraries: bool = False,
    *,
    host: frozenset[str] | None = None,
) -> Record:
    """One cell of a bundle, from loading its model to its verdict. Raises nothing for what the cell did.

    ``libraries``: whether those of the entry may run. ``host``: the instruction sets of the processor, where they are
    not those of this one. What a bundle declares of a cell does not count for one that was refused."""
    host = instructions() if host is None else host
    record = record_of(entry, runtime)
    try:
        if entry.code and not libraries:
            raise Stopped("load", "LibrariesNotAllowed", code.refusal(Files(folder), entry))
        run = _Replay(progress, Files(folder), entry, runtime, record, store, host)
        checks = {"engine": run.engine, "parse": run.compile, "build": run.compile}
        checks.get(entry.check, run.all)()
    except Unavailable as reason:
        record.status, record.stage, record.reason = "skipped", "load", str(reason)
    except Stopped as stop:
        fail(record, stop)
    except Exception as error:  # a mistake of ours, or of who edited the bundle; it is in the record
        record.status, record.error = "failed", type(error).__name__
        note(record, Shows("harness"))
        record.reason = f"a mistake in the harness, or a bundle that was edited: {_line(error)}"
        note_details(record, {"traceback": traceback.format_exception(error)[-6:]})
    record.seconds = {name: round(seconds, 6) for name, seconds in record.seconds.items()}
    if record.error in REFUSED:
        return record
    return settle(record, _declared(entry, runtime), host)


def _declared(entry: Entry, runtime: str) -> list[Expectation]:
    which = entry.check if entry.check in entry.expected else runtime
    return [Expectation.from_dict(expected) for expected in entry.expected.get(which, [])]


class _RecordedAnswers(Comparer):
    """Compares with the answers that a bundle holds."""

    def __init__(self, judge: Judge, session: Session | None, run: _Replay) -> None:
        super().__init__(session, run.note, run.record.seconds)
        self.judge, self.vacuity = judge, judge.vacuity()

    def compare(self, got: list[Array], right: Right) -> Comparison:
        return self.judge.compare(got, right)

    def said(self, error: Exception) -> str:
        return _line(error)

    def again(self, example: Example) -> Example:
        return example


class _Replay:
    """One entry that is loaded, run and compared."""

    def __init__(
        self, progress: Progress, bundle: Files, entry: Entry, runtime: str, record: Record, store: Path,
        host: frozenset[str],
    ) -> None:  # fmt: skip
        self._progress, self._bundle, self._entry, self._runtime = progress, bundle, entry, runtime
        self.record, self._host = record, host
        self._judge = judge_from(entry.judge)
        with _sound():
            self._model, self._libraries = bundle.checked_model(entry), bundle.libraries(entry)
            self._build = self._build_in(store)

    def all(self) -> None:
        """Run all examples of the entry and note in the record what they showed."""
        entry, record = self._entry, self.record
        with contextlib.ExitStack() as stack:
            session, stopped = self._load(stack)
            comparer = _RecordedAnswers(self._judge, session, self)
            if stopped is not None:
                raise self._blamed(next(self._examples()), stopped, comparer)
            assert session is not None and comparer.vacuity is not None
            record.arithmetic = dict(session.arithmetic) | self._nodes()
            may_fail = bool(_declared(entry, self._runtime))
            for example, outcome in comparer.each(self._undeclared(), one_by_one=may_fail):
                if isinstance(outcome, Stopped):
                    example, stop = repeated(comparer, example, outcome)
                    note_failing(record, example, stop)
                    raise stop if stop.stage == "declare" else self._blamed(example, stop, comparer)
                count(record, example.draw, outcome)
        if not record.examples:
            raise Stopped("compare", "NothingVerified", "no example verified anything", "case")
        output = find_vacuous(comparer.vacuity, entry.excused)
        if output is not None:
            raise vacuous_failure(record, comparer.vacuity, output)

    def _nodes(self) -> dict[str, object]:
        """Return what an execution provider of ONNX Runtime computes, and what it leaves to the CPU."""
        provider, example = registry.named(self._runtime).provider, next(self._examples(), None)
        if not provider or example is None:
            return {}
        with self._stage("run"):
            ask = partial(kernels, self._model, self._libraries, example.inputs, self._entry.config, provider)
            return or_else({}, ask)  # it fails later, at its first example

    def engine(self) -> None:
        """TensorRT's check ``engine``, with what the bundle holds for it."""
        with _sound():
            trial = self._bundle.trial(self._entry, self._judge)
        try_engine(self.record, self._guarded, self._model, self._build, trial)

    def compile(self) -> None:
        """Have TensorRT for RTX parse the model, or build an engine of it."""
        from conformance.runtimes.tensorrt.rtx import USUAL, Job, tried

        job = Job() if self._entry.check == "parse" else Job(self._build, USUAL)
        with self._guarded("load"):
            answer = partial(tried, self._model, "", kept=KeptValues(None))
            refusing = try_jobs(self.record, self._model, [job], lambda job: answer(job=job))
        if refusing is not None:
            raise stop(refusing, "runtime")

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """A stage in which whatever is raised is the runtime's fault."""
        with self._stage(name), stopping(name, "runtime", _line):
            yield

    def _build_in(self, store: Path) -> Build:
        build = Build.from_dict(self._entry.build, store)
        plugins = self._bundle.plugins(self._entry)
        return dataclasses.replace(build, options=dataclasses.replace(build.options, plugins=plugins))

    def _examples(self) -> Iterator[Example]:
        examples = self._bundle.examples(self._entry)
        while True:
            with _sound():
                example = next(examples, None)
            if example is None:
                return
            yield example

    def _undeclared(self) -> Iterator[Example]:
        """All examples but those that are declared to fail."""
        for example in self._examples():
            if example.fails_in(self._runtime, self._host):
                self.record.declared.append({"outcome": "not run", "dims": dict(example.draw.dims)})
            else:
                yield example

    def _load(self, stack: contextlib.ExitStack) -> tuple[Session | None, Stopped | None]:
        """The runtime with the model loaded, and None; or None, and what stopped the loading."""
        with self._stage("load"):
            open_model = opener(self._runtime, self._build, self._entry.config)
            session = attempt(lambda: stack.enter_context(open_model(self._model, self._libraries)))
        if isinstance(session, ImportError):
            raise Unavailable(f"{self._runtime} cannot be imported: {session}")
        if isinstance(session, Unavailable):
            raise session
        if isinstance(session, Exception):
            return None, Stopped("load", type(session).__name__, _line(session), "runtime")
        return session, None

    def _blamed(self, example: Example, stop: Stopped, comparer: Comparer) -> Stopped:
        """Return a failure with who is at fault: of a model in fp32 by the answers of other runtimes, and else the
        runtime."""
        entry, model, libraries = self._entry, self._model, self._libraries
        inquiry = Inquiry(UnexplainedFailure(stop.stage, "runtime"))
        if entry.precision == "fp32":
            suspect = Suspect(
                self._runtime, model, libraries, comparer.judged, comparer.session, lambda: bool(entry.own_code),
                entry.config,
            )  # fmt: skip
            inquiry = find(suspect, example, stop)
        nodes = entry.graph.get("nodes") or {}
        if stop.stage == "compare" and saturation.possible(self._runtime, nodes, self._host):
            config = entry.config
            inquiry = saturation.ask_about(inquiry, self._runtime, example, comparer, model, libraries, config)
        return blame(stop, inquiry.explained(), {"inputs": shown(example.inputs)})

    def note(self, draw: Draw, stage: str) -> None:
        """Tell the parent process that this draw comes next, in case it ends the process."""
        self._progress.note(stage=stage, draw=draw.as_dict(), examples=self.record.examples)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._progress.note(stage=name)
        with Spending(self.record.seconds, name):
            yield


@contextlib.contextmanager
def _sound() -> Iterator[None]:
    """Yield what the bundle holds is the case's fault, if it cannot be used."""
    try:
        yield
    except UserError as error:
        raise Stopped("declare", "BadBundle", str(error), "case") from None


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _died(entry: Entry, runtime: str, death: Death) -> Record:
    """The record of a cell whose worker ended instead of answering."""
    record = record_of(entry, runtime)
    note_death(record, death)
    return settle(record, _declared(entry, runtime), instructions())


def summary(records: Sequence[Record], width: int) -> Iterator[str]:
    """Yield what a replay shows at its end: each failure, the matrix, the counts."""
    from conformance.results.records import matrix, text

    for record in records:
        if record.status in ("failed", "xpassed"):
            yield f"---- {record.id}"
            yield from text.failure(record).split("\n")
    table = [*matrix.lines(records, width)]
    yield from (*table, "", *matrix.legend(table), matrix.counts(records))
