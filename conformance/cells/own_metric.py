"""The check ``metric``: a score of the user's own, on data of the user's own, does not drop by more than is allowed.

Module and runtime answer the same samples, and their scores are compared sample by sample (``compare.paired``).
Where the score drops, others run the same data: who loses nothing shows who is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from conformance.case.files.metric import Metric
from conformance.case.files.python import call
from conformance.cells.accuracy import load_model
from conformance.cells.check_recorded import WITNESSES, if_supported
from conformance.compare.paired import PairedLoss, loss_of, loss_of_all
from conformance.compare.vacuity import SHUFFLED, ZEROS
from conformance.judge.draws import Draws
from conformance.judge.verify_converted import opening_literal
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.given_data import bad_data, inputs_among, outputs_for, outputs_of_module, read_arrays
from conformance.models.kept.model_store import Stored
from conformance.models.precision.calibration import count_shared
from conformance.process.arrays import Array, Inputs
from conformance.process.errors import NoVerdict, Stopped, or_else
from conformance.results.records.explanation import Explanation, blame, kernels, unexplained
from conformance.results.records.record import Witness
from conformance.results.records.record_types import Flipped
from conformance.runtimes import Session, opener, registry

NAMED = 10
"""Samples whose score has changed and that are named."""


class OwnScores:
    """The module's outputs on the case's data with their score, which those of others are compared with."""

    def __init__(self, run: CellRun, says: Metric) -> None:
        """Raise Stopped at ``declare`` for data or a metric that cannot be used."""
        self.says, self._function = says, run.reference.folder.resolve(says.of)
        self._batch = read_arrays(run.cell.case, says.data)
        self.inputs, self._size = inputs_among(run.cell.case, run.dims(), self._batch, says.data, says.batch)
        self.samples = len(next(iter(self.inputs.values())))
        odd = [name for name, array in self._batch.items() if array.ndim == 0 or len(array) != self.samples]
        if odd:
            raise bad_data(f"{says.data}: {odd[0]} has shape {self._batch[odd[0]].shape}, not {self.samples} samples")
        self.outputs = outputs_of_module(run.reference, self.inputs, self._size)
        self.before = self.score(self.outputs)
        if not np.array_equal(self.before, self.score(self.outputs)):
            raise Stopped("declare", "NotDeterministic", f"{says.of} gives other scores for the same outputs", "case")

    def outputs_of(self, run: Callable[[Inputs], Sequence[Array]]) -> list[Array]:
        return outputs_for(run, self.inputs, self._size)

    def score(self, outputs: Sequence[Array], at: Array | None = None) -> Array:
        """Return the score of each sample, or one for all (float64[samples] or float64[]); ``at`` chooses samples by
        number. Raises Stopped (BadMetric), and what the metric raises."""
        samples = np.arange(self.samples) if at is None else at
        batch = {name: array[samples] for name, array in self._batch.items()}
        name, given = self.says.of, [array[samples] for array in outputs]
        value = call(f"{name}(outputs, batch)", self._function, given, batch)
        scores = or_else(None, lambda: np.asarray(value, np.float64))
        if scores is None or scores.shape not in ((), (len(samples),)):
            what = type(value).__name__ if scores is None else f"{scores.size} scores, of shape {scores.shape},"
            text = f"{name} returns {what} for {len(samples)} samples; return an array of one each, or one number"
            raise Stopped("declare", "BadMetric", text, "case")
        wrong = ~((scores >= 0) & (scores <= 1))  # NaN too
        if wrong.any():
            where = f" for sample {int(samples[np.argmax(wrong)])}" if scores.ndim else ""
            text = f"{name} returns {scores[wrong][0]:g}{where}; a score is a number from 0 to 1, higher is better"
            raise Stopped("declare", "BadMetric", text, "case")
        return scores

    def loss(self, outputs: Sequence[Array], others: Sequence[Array] | None = None) -> PairedLoss:
        """Return what is lost with these outputs against the module's, or against those of ``others``."""
        others = self.outputs if others is None else others
        before, after = self.score(others), self.score(outputs)
        if after.ndim and before.ndim:
            return loss_of(before, after)

        def both(at: Array) -> tuple[float, float]:
            return float(self.score(others, at)), float(self.score(outputs, at))

        return loss_of_all(both, self.samples)

    def drops(self, outputs: Sequence[Array], others: Sequence[Array] | None = None) -> bool:
        """Return whether certainly more is lost than is allowed."""
        return self.loss(outputs, others).verdict(self.says.drop / 100) == "drops"

    @cached_property
    def passing(self) -> list[str]:
        """Return the wrong outputs with which the score does not drop: zeros, and those of other samples."""
        order = np.random.default_rng(0).permutation(self.samples)
        wrong = {
            ZEROS: [np.zeros_like(array) for array in self.outputs],
            SHUFFLED: [array[order] for array in self.outputs],
        }
        # a metric that raises for these has not let them pass
        return [name for name, outputs in wrong.items() if not or_else(True, partial(self.drops, outputs))]


def check_metric(run: CellRun) -> None:
    """Compare the score of the runtime of the cell with the module's."""
    cell, says = run.cell, run.cell.case.says.metric
    assert says is not None and cell.runtime is not None
    with run.stages("declare", "case"):
        measured = _measured(run, says)
    stored = run.model()
    model = converted_model(run, stored) if cell.converted else stored
    _warn_of_calibration(run, measured)
    try:
        session, stop = load_model(
            run, Draws(cell, run.settings, run.prepared, run.dims(), run.prepared.trace()), model
        )
        if session is None:
            assert stop is not None
            raise stop
        with run.stages("run", "runtime"):
            outputs = measured.outputs_of(session.run)
    except Stopped as stop:  # ``accuracy`` finds out who is at fault
        raise stop if stop.fault == "case" else unexplained(if_supported(cell.runtime, stop)) from stop
    shapes, due = [one.shape for one in outputs], [one.shape for one in measured.outputs]
    if shapes != due:
        raise Stopped("compare", "WrongShape", f"on {says.data} the outputs have the shapes {shapes}, not {due}")
    try:
        with run.stages("compare", "case"):
            loss, after = measured.loss(outputs), measured.score(outputs)
    except Stopped as stop:  # by outputs that it cannot score, whoever is at fault for these
        raise Stopped("compare", stop.error, f"scoring the outputs: {stop.reason}") from stop
    found, text = loss.verdict(says.drop / 100), _note(run, measured, loss, after)
    with run.stages("compare", "case"):
        if found == "drops":
            raise blame(Stopped("compare", "MetricDrops", text), _explained(run, measured, stored, model, outputs))
        if found == "cannot tell":
            count = loss.needed(says.drop / 100)
            needed = "more than a billion" if count is None else f"about {float(f'{count:.2g}'):,.0f}"
            raise NoVerdict(f"{text}: {loss.samples:,} samples cannot tell, {needed} would")
        if measured.passing:
            score, passing = f"{float(measured.before.mean()):.1%}", " and ".join(measured.passing)
            text = f"{says.of} is {score} for {run.reference.who}'s outputs, and does not drop by more than "
            text += f"{says.drop:g} points for {passing}: look at the metric, the labels and their order"
            raise Stopped("compare", "Vacuous", text, "case")
    run.record.examples = loss.samples


def _measured(run: CellRun, says: Metric) -> OwnScores:
    """Return what the module makes of the data, measured once for all cells of the case with these dims."""
    name, known = f"{says.model_dump_json()} {run.dims()}", run.prepared.on_data
    found = known.get(name) or known.setdefault(name, OwnScores(run, says))
    assert isinstance(found, OwnScores)
    return found


def _warn_of_calibration(run: CellRun, measured: OwnScores) -> None:
    """Note in the record where the conversion has seen samples of the metric's data: it was fitted to them, so that
    their score says little about others."""
    cell = run.cell
    says = cell.case.says.precisions[cell.precision].calibration if cell.converted else None
    if says is None or says.data is None:
        return
    shared = count_shared(measured.inputs, run.prepared.feeds(says, run.target.static).batches)
    if shared:
        text = f"{shared:,} of {measured.samples:,} samples of {measured.says.data} are in the calibration data too, "
        text += f"{says.data}: the score says little about samples that the conversion has not seen"
        run.record.warnings = [*run.record.warnings, {"name": "calibration", "error": "SameData", "text": text}]


def _note(run: CellRun, measured: OwnScores, loss: PairedLoss, after: Array) -> str:
    """Write what was measured into the record, and return it in words."""
    says, before = measured.says, measured.before
    paired = after.ndim == before.ndim == 1
    changed = int(np.count_nonzero(before != after)) if paired else 0
    most = np.argsort(-np.abs(before - after), kind="stable") if changed else np.zeros(0, int)
    flipped: list[Flipped] = [{"sample": int(one), "before": float(before[one]), "after": float(after[one])}
                              for one in most[: min(NAMED, changed)]]  # fmt: skip
    run.record.metric = {
        "of": says.of, "before": float(before.mean()), "after": float(after.mean()), "drop": 100 * loss.drop,
        "interval": (100 * loss.low, 100 * loss.high), "allowed": says.drop, "samples": loss.samples,
        "changed": changed, "flipped": flipped,
    }  # fmt: skip
    named = ", ".join(f"{one['sample']} ({one['before']:.3g} to {one['after']:.3g})" for one in flipped)
    return (
        f"{says.of} is {before.mean():.2%} for {run.reference.who} and {after.mean():.2%} here, a drop of "
        f"{100 * loss.drop:.2f} points (95 %: {100 * loss.low:.2f} to {100 * loss.high:.2f}), allowed {says.drop:g}"
        f"{f'; {changed:,} samples changed: {named}' if named else ''}"
    )


# ---- who is at fault -----------------------------------------------------------------------------------------


def _explained(
    run: CellRun, measured: OwnScores, stored: Stored, model: Stored, outputs: Sequence[Array]
) -> Explanation:
    """Return who by himself loses more than is allowed: on the way from the module to the exported model, from there
    to the converted one, or from a model to these outputs of the runtime; nobody where no part of the way does."""
    told: list[Witness] = []

    def ask(name: str, after: Sequence[Array], opened: Callable[[], Session] | None = None) -> Sequence[Array] | None:
        """Return what a runtime gives for the data, if the score drops with that too; it runs the exported model."""
        which = "exported" if run.cell.converted and opened is None else None
        opened = opened or (lambda: run.enter(opener(name)(stored.file, run.libraries())))
        given = or_else(None, lambda: measured.outputs_of(opened().run))
        wrong = given is not None and bool(or_else(False, lambda: measured.drops(given)))
        agrees = given is not None and bool(or_else(False, lambda: measured.drops(after, given)))
        told.append(Witness(name, "wrong" if wrong else "agrees" if agrees else "abstains", model=which))
        return given if wrong else None

    if run.cell.converted:
        meant = ask(registry.LITERAL, outputs, opening_literal(run, model))
        if meant is not None:
            ask(registry.LITERAL, meant)
        fault = {"wrong": "exporter", "agrees": "precision" if meant is not None else "runtime"}.get(told[-1].answer)
        return Explanation(fault, None, tuple(told))
    of_file = run.cell.case.says.onnx is not None  # ONNX's evaluator says what that means, and may be wrong itself
    for name in WITNESSES:
        alike = kernels(name) == kernels(run.cell.runtime or "") or (of_file and name == "onnx-reference")
        if not alike and registry.absence(name) is None:
            ask(name, outputs)
    said = {one.answer for one in told} - {"abstains"}
    fault = "runtime" if said == {"agrees"} else "exporter" if said == {"wrong"} and not of_file else None
    return Explanation(fault, None, tuple(told))
