"""The shared work of a cell's checks: its prepared case, and its models, exported and converted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

from conformance.case.files.dims import Dims
from conformance.case.files.python import Folder, check_needs, raised_at
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.models.exporters import graph
from conformance.models.exporters.exporters import Exported, export
from conformance.models.exporters.graph import Facts
from conformance.models.kept.answers import KeptAnswers, key_of
from conformance.models.kept.fingerprint import suite
from conformance.models.kept.gathering import observe, rest_on
from conformance.models.kept.model_store import Store, Stored, place_of
from conformance.models.kept.observed_dependencies import Observed
from conformance.models.kept.outcomes import Outcomes
from conformance.models.kept.results import Keeping, Results
from conformance.models.of_cell import OfCell
from conformance.models.prepared import library, prepare, reference_of
from conformance.models.replaced import replaced_function
from conformance.models.right_outputs import check_again, check_outputs
from conformance.models.stages import Stages
from conformance.process.arrays import Array, Inputs
from conformance.process.disk.onnx_models import Written
from conformance.process.errors import (
    NoVerdict,
    Stopped,
    Unavailable,
    Undecided,
    UserError,
    import_torch,
)
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.state import fence
from conformance.process.worker.warm import one_thread
from conformance.results.records.explanation import Shows, fail, note
from conformance.results.records.record import Record
from conformance.results.records.record_types import Warned
from conformance.results.records.words import Exporter
from conformance.runtimes import registry
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.onnxgraph.random_nodes import in_training
from conformance.runtimes.onnxruntime import NO_FALLBACK, check_config, prefix
from conformance.runtimes.onnxruntime import PROVIDER as CPU

_T = TypeVar("_T")


class CellRun:
    """One cell while it is checked: its prepared case, and its models, rebuilt or read from the store."""

    def __init__(
        self, cell: Cell, settings: Settings, record: Record, stages: Stages, folder: Folder,
        opened: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        """``opened`` is closed with the cell."""
        self.cell, self.settings, self.record, self.stages = cell, settings, record, stages
        self._opened = opened
        with stages("declare", "case"):
            self.prepared = prepare(cell.case, folder)
        self.reference = self.prepared.reference
        self.target = cell.case.says.export.exporters[cell.exporter]
        self.suite = settings.suite or suite()
        self.keeping = self._keeping(cell.exporter)
        self.keeping_of_case = self._keeping(None)
        self.outcomes = Outcomes(cell, settings, self.keeping, self.suite)
        self.warned: list[str] = []
        """What the exporter has warned of as it made the model."""
        self.new_failure: Stopped | None = None
        """The failure of the exporter that came last and about which nobody has been asked."""

    def _keeping(self, exporter: Exporter | None) -> Keeping:
        """Return how results are kept that depend on an exporter, or on the case alone."""
        case, folders = self.cell.case, self.settings.own_folders()

        def observed() -> Observed | None:
            return observe(case, exporter, folders) if self.settings.observe else None

        return Keeping(case.folder.resolve(), observed, partial(rest_on, case, exporter))

    def of_cell(self, stored: Stored, kept: KeptAnswers | None = None) -> OfCell:
        """Return what the examples of the cell are verified with, whose exported model is ``stored``; ``kept`` is
        what an earlier run asked PyTorch."""
        names, kept = tuple(stored.facts.outputs), KeptAnswers() if kept is None else kept
        return OfCell(
            self.cell, self.record, self.stages, self.reference, self.prepared.maker, names,
            self.outcomes.is_declared, kept,
        )  # fmt: skip

    @property
    def key(self) -> str:
        """The key of what is stated of the exported model."""
        return self.prepared.key(self.cell.exporter, self.cell.opset, self.suite)

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls,
        cell: Cell,
        settings: Settings,
        record: Record | None = None,
        progress: Progress | None = None,
    ) -> Iterator[CellRun]:
        """Open a cell; inside the block the Python beside its case can be imported.

        What ends the block is written into the record, and raised as Stopped, or as Unavailable where this host lacks
        something; KeyboardInterrupt is raised as it is, and so is UserError by a command, which wants no record.
        """
        run: CellRun | None = None
        own = (KeyboardInterrupt,) if record is not None else (KeyboardInterrupt, UserError)
        record = cell.record() if record is None else record
        stages = Stages(record, Progress() if progress is None else progress, cell.case.folder)
        try:
            check_needs(cell.case)
            if cell.case.says.onnx is None:
                import_torch("the module of this case needs")
            with Folder.of(cell.case.folder).active() as folder, contextlib.ExitStack() as stack:
                run = cls(cell, settings, record, stages, folder, stack)
                yield run
        except own:
            raise
        except Unavailable as reason:
            record.status, record.stage, record.reason = "skipped", reason.stage or stages.current, str(reason)
            if isinstance(reason, NoVerdict):
                record.undecided, record.doubted = True, reason.doubted
            raise
        except Undecided as stop:
            record.status, record.stage, record.reason, record.undecided = "skipped", stop.stage, stop.reason, True
            raise
        except Stopped as stop:
            fail(record, stop)
            record.place = record.place or raised_at(stop, cell.case.folder)
            if run is not None and stop.fault in ("exporter", None):
                more = (warning for warning in run.warnings() if warning not in record.warnings)
                record.warnings = [*record.warnings, *more]
            if isinstance(cell.case.says.onnx, str) and record.fault == "exporter" and not _has_target(cell):
                note(record, Shows("not exported"))
            raise
        except UserError as error:  # of ``import_torch``
            stopped = Stopped("declare", "MissingPackage", str(error), "harness")
            fail(record, stopped)
            raise stopped from error
        except BaseException as error:  # a SystemExit of the case's own code, or a mistake in this package
            stopped = stages.stopped_by(error)
            fail(record, stopped)
            raise stopped from error

    def enter(self, context: contextlib.AbstractContextManager[_T]) -> _T:
        """Enter a context, such as a loaded model, that is left when the cell is closed."""
        return self._opened.enter_context(context)

    def of_exporter(self, stop: Stopped) -> Stopped:
        """Return a failure of the exporter about which nobody has been asked."""
        self.new_failure = stop
        return stop

    def set_apart(self) -> None:
        """Have a process that was forked off tell nobody of its steps, and compute on one thread: the others of the
        process that it comes of are not there."""
        self.stages.told_to_nobody()
        one_thread()

    def export(self, *, odd: bool = False, with_symbolics: bool = True, inputs: Inputs | None = None) -> Exported:
        """Export now, without the store, with other ``inputs`` where there are any; afterwards the module has to be
        what it was."""
        sizes = self.prepared.trace(odd=odd)
        inputs = self.prepared.inputs(odd=odd) if inputs is None else inputs
        reference = self.reference
        reference.restore()
        warned: list[str] = []
        with reference.standing(told=False):
            try:
                exported = export(
                    reference, self.cell.exporter, self.cell.opset, inputs, sizes, with_symbolics=with_symbolics,
                    warned=warned,
                )  # fmt: skip
            finally:
                self.warned = self.warned or warned
            if not reference.restore() and reference.fingerprint() != reference.weights:
                self._check_changes_itself(inputs)
        return exported

    def warnings(self) -> list[Warned]:
        """Return what the exporter has warned of, as a record has it."""
        return [{"name": "export", "text": text} for text in self.warned]

    def _check_changes_itself(self, inputs: Inputs) -> None:
        """Stopped for an export that changed the module, unless calling the module does and can be undone."""
        fresh = reference_of(self.cell.case, self.reference.folder)
        fresh(inputs)
        if fresh.fingerprint() != fresh.weights:
            text = "calling the module changes its weights or buffers, and they cannot be put back between calls"
            raise Stopped("declare", "NotDeterministic", text, "case")
        if not {*fresh.changed_by_calls} & fresh.module.state_dict().keys():
            text = "exporting changed the module's weights or buffers"
            raise Stopped("export", "ChangedModule", text, "exporter")

    def note_changes(self) -> None:
        """Note in the record what calls change in the module, and have put back, and which outputs are random."""
        for output in self.reference.outputs():
            if output.random:
                text = (
                    f"output {output.name} is random on purpose ({output.random}): its dtype, shape and range are "
                    "compared, and no value"
                )
                self.record.warnings = [*self.record.warnings, {"name": "random", "error": "Random", "text": text}]
        names = self.reference.changed_by_calls
        if names:
            text = (
                f"calling the module changes {', '.join(names[:6])}; each call was compared with a call of the "
                "module as it was built. An exported model keeps no state: where callers need it, take it as an "
                "input and return it"
            )
            entry: Warned = {"name": "state", "error": "ChangesItself", "text": text}
            self.record.warnings = [*self.record.warnings, entry]

    def kept_model(self) -> Stored | None:
        """The exported model from the store; None where it has none that holds."""
        with self.stages("declare", "case"):
            place = self.keeping.get(self.settings.index, self.key)
        return Store(self.settings.store).get(place) if isinstance(place, str) else None

    def models_otherwise(self) -> Iterator[tuple[Exporter, int, Stored]]:
        """Yield the exported models of the case by other exporters and at other opsets that the store has already."""
        for exporter, target in self.cell.case.says.export.exporters.items():
            keeping = self._keeping(exporter)
            for opset in sorted(target.opsets, reverse=True):
                if (exporter, opset) == (self.cell.exporter, self.cell.opset):
                    continue
                key = self.prepared.key(exporter, opset, self.suite)
                place = keeping.get(self.settings.index, key)
                stored = Store(self.settings.store).get(place) if isinstance(place, str) else None
                if stored is not None:
                    yield exporter, opset, stored

    def keep_model(
        self,
        model: Written,
        facts: Facts,
        seconds: dict[str, float],
        observed: Observed,
        told: dict[str, Any] | None = None,
    ) -> Stored:
        """Keep an exported model under what was observed of its export."""
        place = place_of(self.key, observed)
        stored = Store(self.settings.store).put(place, model, facts, seconds, told)
        Results(self.settings.index, self.keeping.home).put(self.key, place, observed)
        return stored

    def model(self) -> Stored:
        """The exported model, from the store or new; Stopped where it is not a valid model of what was asked."""
        cell, stored = self.cell, self.kept_model()
        name = self.key
        stored = stored or self.prepared.models.get(name)
        if stored is None:
            known = self.prepared.failed.get(name)
            if known is not None:
                raise known if name in self.prepared.explained else self.of_exporter(known)
            failed = self.outcomes.failed_export(name)
            if failed is not None:
                raise failed
            with self.stages("declare", "case"):
                # what PyTorch cannot run, or what returns something else, is not the exporter's fault
                wanted = self.prepared.answer()
                check_outputs(cell.case, self.reference.layout or [])
                if len(wanted) > 1 or self.reference.layout != [1] or cell.case.says.script:
                    self.prepared.answer(odd=True)  # only in one list may it depend on sizes how many there are
                    check_outputs(cell.case, self.reference.layout or [])
            try:
                with self.stages("export", "exporter"):
                    start = time.perf_counter()
                    exported = self.export()
                    seconds = time.perf_counter() - start
                # cells that find the model in the store have nothing of this done to their process
                replaced = replaced_function(fence.settle())
                if replaced is not None:
                    raise replaced
            except Stopped as stop:
                if stop.fault == "exporter":
                    self._check_repeats(wanted)
                self.prepared.failed[name] = self.of_exporter(stop)
                raise
            with self.stages("check", "exporter"):
                facts = graph.read(exported.model, exported.data)
                stored = self._put(exported.data, facts, {"export": round(seconds, 6)})
        self.warned = list(stored.told.get("warned", ()))
        self.record.graph = stored.in_record()
        with self.stages("check", "exporter"):
            self._check_mode(stored)
            self._check_valid(stored)
        return stored

    def _check_mode(self, stored: Stored) -> None:
        """Stopped where a file that somebody else has exported trains, and what it is compared with does not."""
        if self.cell.exporter == "onnx":
            text = in_training(read_graph(stored.file))
            if text is not None and not self.reference.training(self.prepared.inputs()):
                raise Stopped("check", "TrainingMode", text, "case")

    def _put(self, model: Written, facts: Facts, seconds: dict[str, float]) -> Stored:
        """Keep the exported model, or have it for this process alone."""
        observed, told = self.keeping.observe(), {"warned": self.warned}
        if observed is not None and observed.lasts:
            stored = self.keep_model(model, facts, seconds, observed, told)
        else:
            stored = Store(self.settings.store).put(self.key, model, facts, seconds, told, keep=False)
        if not stored.file.is_relative_to(self.settings.store):  # it goes with the last who holds it
            self.prepared.models[self.key] = stored
        return stored

    def _check_repeats(self, before: list[Array]) -> None:
        """Stopped where PyTorch itself gives other outputs than before the export that failed: what it computes by
        chance has no right export. Nothing is shown where the export has changed the module."""
        if self.reference.fingerprint() == self.reference.weights:
            with self.stages("declare", "case"):
                check_again(self.reference, self.prepared.inputs(), before)

    def kept_answers(self, model: Stored, *purpose: str) -> KeptAnswers:
        """Return what an earlier run asked PyTorch about the draws of this cell, whose model is ``model``; each
        ``purpose`` has its own. A run that draws anew keeps nothing."""
        if self.settings.random is not None or self.settings.answers is None:
            return KeptAnswers()
        parts = (self.cell.id, self.key, model.facts.sha, sorted(self.settings.instructions), *purpose)
        name, keeping, index = key_of(parts), self.keeping_of_case, self.settings.index
        place = keeping.get(index, name)

        def new_place() -> str | None:
            observed = keeping.observe()
            if observed is None or not observed.lasts:
                return None
            Results(index, keeping.home).put(name, place_of(name, observed), observed)
            return place_of(name, observed)

        return KeptAnswers(self.settings.answers, place if isinstance(place, str) else "", new_place)

    def dims(self) -> Dims:
        """The dims that the model was exported for."""
        traced = self.prepared.trace()
        return self.cell.case.dims.fixing({name: traced[name] for name in self.target.static})

    def config(self) -> dict[str, str]:
        """The session options of ONNX Runtime; Stopped at ``load`` for one that it does not know."""
        options = dict(self.cell.case.says.onnxruntime.config)
        own = registry.named(self.cell.runtime).provider if self.cell.runtime else ""
        if own:
            options |= {f"{prefix(own)}{key}": value for key, value in self.settings.provider_option.items()}
        others = tuple(prefix(entry.provider) for entry in registry.RUNTIMES if entry.provider not in ("", own))
        options = {key: value for key, value in options.items() if not key.startswith(others)}
        with self.stages("load", "case"):
            if options:
                try:
                    check_config(options, own or CPU)
                except ValueError as error:
                    raise Stopped("load", "UnknownOption", str(error), "case") from None
        if self.settings.require_provider and self.cell.runtime and registry.named(self.cell.runtime).provider:
            options[NO_FALLBACK] = "1"
        return options

    def libraries(self) -> list[str]:
        """The paths of the case's custom-operator libraries."""
        with self.stages("load", "case"):
            return [library(self.reference, self.cell.case, name) for name in self.cell.case.says.libraries]

    def _check_valid(self, stored: Stored) -> None:
        """Stopped where the exported model is at another opset than was asked for, or is no valid ONNX."""
        facts = stored.facts
        if facts.opset != self.cell.opset:
            text = f"the model is at opset {facts.opset} instead of {self.cell.opset}"
            raise Stopped("check", "WrongOpset", text, "exporter")
        if facts.invalid:
            error, text = facts.invalid
            raise self.of_exporter(graph.invalid_model(error, text, {"own_code": self.cell.own_code}))
        if facts.doubted:
            error, text = facts.doubted
            self.record.warnings = [{"name": "shape inference", "error": error, "text": text}]


def _has_target(cell: Cell) -> bool:
    """Return whether another file is run in place of that which the case is about; whoever made it is at fault for
    it."""
    target = cell.case.says.export.onnx
    return target is not None and target.file is not None
