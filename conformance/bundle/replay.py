"""Replaying a bundle: its cells on this host's runtimes, with the same judges and the same records as in the suite.

Runs with Python 3.10, numpy, onnx and the runtime; needs neither torch nor pytest nor what reads case files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.arrays import Array
from conformance.bundle.layout import Bundle, Entry
from conformance.bundle.trial import try_engine
from conformance.compare.judges import judge_from
from conformance.compare.tolerance import Comparison
from conformance.errors import Stopped, Unavailable, UserError
from conformance.records.environment import environment
from conformance.records.processor import instructions
from conformance.records.record import Record, cell_id, cell_label
from conformance.records.run_file import RunWriter
from conformance.records.settle import Expectation, settle
from conformance.runtimes import Session, opener, registry
from conformance.runtimes.tensorrt.options import Build
from conformance.verdict import blame, saturation
from conformance.verdict.example import DataSet
from conformance.worker.isolation import Death, Worker
from conformance.worker.progress import Progress

MODULES = ("numpy", "onnx", "onnxruntime")
"""What workers are forked with; one that is not there is left out."""


def replay(
    bundle: Bundle,
    runtime: str,
    report: Path,
    store: Path,
    *,
    keep: Callable[[str], bool] = lambda id: True,
    timeout: float = 600.0,
    required: bool = False,
    flags: Sequence[str] = (),
    on_record: Callable[[dict[str, Any]], object] = lambda record: None,
) -> list[dict[str, Any]]:
    """Runs all entries whose id ``keep`` wants, each in a worker process, and writes a run to ``report``.

    ``required`` turns cells that this host cannot run into failures. Raises UserError where nothing is selected.
    """
    cells = [cell for entry in bundle.entries for cell in _cells(entry, runtime)]
    chosen = [entry for entry in cells if keep(id_of(entry, runtime))]
    if not chosen:
        text = f"none of its {len(cells)} cells of {runtime} is selected"
        raise UserError(f"{bundle.folder}: {text}")
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    # Whoever compares runs takes the flags for what left cells out, which the command and its bundle did not.
    limits = list(flags) if len(chosen) < len(cells) else []
    head = {**environment(limits), "command": list(flags), "packed": bundle.environment}
    writer = RunWriter(report, {"started": started, "environment": head})
    start = time.monotonic()
    absent = registry.absence(runtime)
    records = []
    with contextlib.ExitStack() as stack:
        worker = None if absent is not None else stack.enter_context(Worker(list(MODULES)))
        for entry in chosen:
            if worker is None:
                record = record_of(entry, runtime)
                record.status, record.stage, record.reason = "skipped", "load", absent
            else:
                answer = worker.call(run_entry, bundle.folder, entry, runtime, store, timeout=timeout)
                record = _died(entry, runtime, answer) if isinstance(answer, Death) else answer
            if required and record.status == "skipped":
                record.status, record.error = "failed", "NotRun"
                record.reason = f"--require: this host cannot run {runtime}: {record.reason}"
            record.command = f"conformance replay {bundle.folder} --runtime {runtime} -k '{record.id}'"
            records.append(record.as_dict())
            writer.add(records[-1])
            on_record(records[-1])
    writer.close(time.monotonic() - start)
    return records


def _cells(entry: Entry, runtime: str) -> Iterator[Entry]:
    """The entry's own check where the case has this runtime, and what only an engine can show."""
    if runtime not in entry.runtimes:
        return
    yield entry
    if registry.named(runtime).builds and entry.trial is not None:
        yield dataclasses.replace(entry, check="engine")


def id_of(entry: Entry, runtime: str) -> str:
    """The id that the cell has in the suite."""
    return cell_id(entry.check, cell_label(entry.case, entry.exporter, entry.opset, runtime, entry.precision))


def record_of(entry: Entry, runtime: str) -> Record:
    """An empty record of the cell."""
    record = Record(
        id=id_of(entry, runtime), case=entry.case, exporter=entry.exporter, opset=entry.opset, runtime=runtime,
        precision=entry.precision, check=entry.check, source=entry.source,
    )  # fmt: skip
    record.graph, record.conversion = entry.graph, entry.conversion
    return record


def run_entry(progress: Progress, folder: Path, entry: Entry, runtime: str, store: Path) -> Record:
    """One cell of a bundle, from loading its model to its verdict. Raises nothing for what the cell did."""
    record = record_of(entry, runtime)
    try:
        run = _Replay(progress, Bundle(folder), entry, runtime, record, store)
        (run.engine if entry.check == "engine" else run.all)()
    except Unavailable as reason:
        record.status, record.stage, record.reason = "skipped", "load", str(reason)
    except Stopped as stop:
        record.status = "failed"
        record.stage, record.error, record.reason, record.fault = stop.stage, stop.error, stop.reason, stop.fault
        record.details += stop.details
    except Exception as error:
        record.status, record.fault, record.error = "failed", "harness", type(error).__name__
        record.reason = f"a mistake in the harness, or a bundle that was edited: {_line(error)}"
        record.details += traceback.format_exception(error)[-6:]
    record.seconds = {name: round(seconds, 6) for name, seconds in record.seconds.items()}
    return settle(record, _declared(entry, runtime), instructions())


def _declared(entry: Entry, runtime: str) -> list[Expectation]:
    which = "engine" if entry.check == "engine" and "engine" in entry.expected else runtime
    return [Expectation.from_dict(one) for one in entry.expected.get(which, [])]


class _Replay:
    """One entry on its way through load, run and compare."""

    def __init__(
        self, progress: Progress, bundle: Bundle, entry: Entry, runtime: str, record: Record, store: Path
    ) -> None:
        self._progress, self._bundle, self._entry, self._runtime = progress, bundle, entry, runtime
        self._record, self._store = record, store
        self._judge = judge_from(entry.judge)

    def all(self) -> None:
        entry, record = self._entry, self._record
        vacuity = self._judge.vacuity()
        with contextlib.ExitStack() as stack:
            session = self._load(stack)
            record.arithmetic = dict(session.arithmetic)
            for example in self._examples():
                if example.fails_in(self._runtime, instructions()):
                    record.details.append(f"declared to fail, and not run: {example.draw['dims']}")
                    continue
                found = self._one(session, example)
                vacuity.see(example.wanted)
                self._note(found, example)
        if not record.examples:
            raise Stopped("compare", "NothingVerified", "no example verified anything", "case")
        weak = {output: wrong for output, wrong in vacuity.findings().items() if output not in entry.excused}
        for output, wrong in weak.items():
            text = f"output {output}: {' and '.join(wrong)} would have passed every one of {record.examples} examples"
            raise Stopped("compare", "Vacuous", text, "case")

    def engine(self) -> None:
        """What only an engine can show."""
        try:
            trial = self._bundle.trial(self._entry, self._judge)
        except ValueError as error:
            raise Stopped("declare", "BadBundle", str(error), "case") from None
        try_engine(self._record, self._guarded, self._bundle.model(self._entry), self._build(), trial)

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """A stage in which whatever is raised is the runtime's fault."""
        with self._stage(name):
            try:
                yield
            except (Stopped, Unavailable):
                raise
            except Exception as error:
                raise Stopped(name, type(error).__name__, _line(error), "runtime") from error

    def _build(self) -> Build:
        build = Build.from_dict(self._entry.build, self._store)
        plugins = self._bundle.plugins(self._entry)
        return dataclasses.replace(build, options=dataclasses.replace(build.options, plugins=plugins))

    def _examples(self) -> Iterator[DataSet]:
        try:
            yield from self._bundle.data_sets(self._entry)
        except ValueError as error:
            raise Stopped("declare", "BadBundle", str(error), "case") from None

    def _load(self, stack: contextlib.ExitStack) -> Session:
        bundle, entry = self._bundle, self._entry
        with self._stage("load"):
            open_model = opener(self._runtime, self._build(), entry.config)
            try:
                return stack.enter_context(open_model(bundle.model(entry), bundle.libraries(entry)))
            except ImportError as error:
                raise Unavailable(f"{self._runtime} cannot be imported: {error}") from None
            except Unavailable:
                raise
            except Exception as error:
                stop = Stopped("load", type(error).__name__, _line(error), "runtime")
                first = next(self._examples())
                raise self._blamed(stop, None, first) from error

    def _one(self, session: Session, example: DataSet) -> Comparison:
        """What comparing one example found; Stopped where it is wrong, and wrong again."""
        self._progress.note(stage="run", draw=_draw(example), examples=self._record.examples)
        try:
            found = self._compared(session, example)
            if found.verdict == "failed":
                again = self._compared(session, example)
                if again.verdict != "failed":
                    text = f"failed once and not again with the same input: {found.text}"
                    raise Stopped("compare", "NotRepeatable", text, "runtime")
                self._note_worst(again, example)
                raise Stopped("compare", again.error or "WrongValue", again.text or "", None)
        except Stopped as stop:
            self._record.draw = _draw(example)
            raise self._blamed(stop, session, example) from None
        return found

    def _compared(self, session: Session, example: DataSet) -> Comparison:
        got = self._run(session, example)
        with self._stage("compare"):
            found = self._judge.compare(got, example.wanted, example.exact)
            if found.error == "WrongValue" and example.conditioning is not None:
                found = self._judge.compare(got, example.wanted, example.exact, example.conditioning)
            return found

    def _run(self, session: Session, example: DataSet) -> list[Array]:
        with self._stage("run"):
            try:
                return session.run(example.inputs)
            except Exception as error:
                raise Stopped("run", type(error).__name__, _line(error), "runtime") from error

    def _blamed(self, stop: Stopped, session: Session | None, example: DataSet) -> Stopped:
        entry = self._entry
        if stop.error != "NotRepeatable":
            if entry.precision == "fp32":
                opinion = blame.find(
                    blame.Example(
                        self._runtime, self._bundle.model(entry), self._bundle.libraries(entry), example.inputs,
                        example.wanted, example.exact, self._judge, session, bool(entry.own_code), entry.config,
                    ),
                    stop,
                )  # fmt: skip
                stop.fault, stop.details = opinion.fault, [*stop.details, *opinion.lines]
            else:
                stop.fault = "runtime"
            if stop.stage == "compare" and session is not None:
                self._ask_the_switch(stop, session, example)
        stop.details += blame.show(example.inputs)
        return stop

    def _ask_the_switch(self, stop: Stopped, session: Session, example: DataSet) -> None:
        """Whether ONNX Runtime is right where its 8-bit kernels cannot saturate."""
        entry = self._entry
        nodes = entry.graph.get("nodes") or {}
        if self._runtime != "onnxruntime" or not saturation.possible(nodes, entry.config, instructions()):
            return

        def agrees(outputs: list[Array]) -> bool:
            found = self._judge.compare(outputs, example.wanted, example.exact, example.conditioning)
            return found.verdict != "failed"

        answer = saturation.ask(
            self._bundle.model(entry), self._bundle.libraries(entry), entry.config, example.inputs,
            self._run(session, example), agrees,
        )  # fmt: skip
        stop.details += answer.lines
        if answer.cause is not None:
            self._record.cause, stop.fault = answer.cause, "runtime"

    def _note(self, found: Comparison, example: DataSet) -> None:
        record, worst = self._record, found.worst
        record.examples += found.verdict == "verified"
        record.ill_conditioned += found.verdict == "ill-conditioned"
        record.nothing += found.verdict == "nothing"
        if found.verdict != "verified" or worst is None:
            return
        if record.worst is None or worst.ratio > record.worst["ratio"]:
            self._note_worst(found, example)

    def _note_worst(self, found: Comparison, example: DataSet) -> None:
        if found.worst is not None:
            index = list(found.worst.index)
            self._record.worst = {**dataclasses.asdict(found.worst), "index": index, "dims": example.draw["dims"]}
            self._record.draw = _draw(example)

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._progress.note(stage=name)
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = self._record.seconds
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


def _draw(example: DataSet) -> dict[str, Any]:
    """The draw as records have it."""
    return {name: value for name, value in example.draw.items() if name != "apart"}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


_STACK = ("File ", "Fatal Python error", "Current thread", "Thread ", "Extension modules")
"""What ``faulthandler`` writes of a process that ends."""


def _died(entry: Entry, runtime: str, death: Death) -> Record:
    """The record of a cell whose worker ended instead of answering."""
    record = record_of(entry, runtime)
    stage = str(death.last.get("stage", "load"))
    kind = "Timeout" if death.how.startswith("timeout") else death.how
    record.status, record.stage, record.error = "failed", stage, kind
    record.signal, record.draw, record.fault = death.how, death.last.get("draw"), "runtime"
    record.examples = int(death.last.get("examples", 0))
    record.reason = f"the process ended at stage {stage}: {death.how}"
    lines = [line.strip() for line in death.output.splitlines() if line.strip()]
    stack = [line for line in lines if line.startswith(_STACK)]
    # What was said goes first: of the stack below it only the innermost frames tell anything.
    record.details = [*[line for line in lines if line not in stack][-4:], *stack[:4]]
    return settle(record, _declared(entry, runtime), instructions())


def summary(records: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """What a replay shows at its end: each failure, the matrix, the counts."""
    from conformance.records import matrix, text

    for record in records:
        if record["status"] in ("failed", "xpassed"):
            yield f"---- {record['id']}"
            yield text.failure(record)
    yield from matrix.lines(records, width)
    yield ""
    yield from (*matrix.LEGEND, matrix.counts(records))
