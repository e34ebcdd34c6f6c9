"""The check ``fidelity``: what a precision costs, and whether the converted model stays finite where PyTorch does, on
every kind of values that the case allows, or else where it first leaves the range of its format."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from conformance.case.draw.draw import about
from conformance.case.plan.expected import apart, on_host
from conformance.cells.examples import Examples, fails_again
from conformance.diagnose.beyond import beyond
from conformance.judge.draws import Draws
from conformance.judge.finite import NOT_FINITE, FinitenessVerifier
from conformance.judge.red_cell import CheckedCell, RedCell
from conformance.judge.spoiled_how import describe_clipped
from conformance.judge.spoiled_weights import ConvertedFile, spoiled
from conformance.judge.verify_converted import FidelityVerifier, meaning_of, opening_literal
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.process.errors import Stopped, attempt, summarize
from conformance.process.worker import aside
from conformance.results.records.words import STORAGE, base_of


def check_fidelity(run: CellRun) -> RedCell | None:
    """The converted model, by its own semantics, is as close to PyTorch in float32 as its precision is due to be, and
    gives numbers wherever PyTorch does."""
    cell = run.cell
    stored = run.model()
    converted = converted_model(run, stored)
    session = opening_literal(run, converted)()
    run.record.arithmetic = {**session.arithmetic, "storage": STORAGE[base_of(cell.precision)]}
    verify = FidelityVerifier(run.of_cell(stored, run.kept_answers(converted)), session)
    draws = Draws(cell, run.settings, run.prepared, run.dims(), run.prepared.trace())
    of = CheckedCell(run, verify, draws, stored, converted)
    wrong = None
    if cell.case.says.precisions[cell.precision].of_others and not cell.is_of_own_file:
        wrong = _wrong_beside_original(of)
    if wrong is not None:
        attempt(lambda: Examples(of).run())  # its decibels are told too
        raise wrong
    return Examples(of).run() or check_finite(of, trusting=verify.kept.first is not None)


MOST_BYTES = 2**29
"""The size of a file up to which it is compared with its original tensor by tensor."""
SECONDS = 60.0
"""The time that comparing may take; after that nothing is said."""
DRAWN = 8
"""Draws on which it is tried what putting a tensor right gives back."""
NAMED = 4


def _wrong_beside_original(of: CheckedCell) -> Stopped | None:
    """Return the failure (BrokenRule) where weights of a file that others have converted are not the original's
    rounded, a tensor is read by another scale than it is written with, or a range leaves out what the original
    computes there."""
    run, converted = of.run, of.model
    if sum(one.file.stat().st_size for one in (of.exported, converted)) > MOST_BYTES:
        return None
    with run.stages("declare", "case"):
        plain = (draw for draw in of.draws if draw.regime == "plain")
        feeds = [run.prepared.maker(draw) for draw in itertools.islice(plain, DRAWN)]
    meaning, libraries = meaning_of(run.cell.precision), run.libraries()

    def compared() -> tuple[list[str], list[str]]:
        import onnx

        original, model = (onnx.load(one.file) for one in (of.exported, converted))
        file = ConvertedFile(original, model, feeds, meaning, libraries)
        beside = (describe_clipped(one.weight, one.name, one.right) for one in file.beside)
        return spoiled(file), [*filter(None, beside)]

    with run.stages("convert", "precision"):
        found = attempt(lambda: aside.ask(compared, SECONDS))
        if isinstance(found, Exception):  # what another tool has written may be anything
            text = f"its weights were not compared with the original's: {summarize(found)}"
            run.record.warnings = [*run.record.warnings, {"name": "weights", "text": text}]
            return None
        wrong, beyond_range = found
        if wrong:
            text = f"{converted.told['tool']} is not {run.cell.case.says.onnx or 'the model'} converted: "
            return Stopped("convert", "BrokenRule", text + _few(wrong), "precision")
        if beyond_range:
            run.record.conversion = {**(run.record.conversion or {}), "clipped": _few(beyond_range)}
    return None


def _few(found: list[str]) -> str:
    return "; ".join(found[:NAMED]) + (f"; and {len(found) - NAMED} more" if len(found) > NAMED else "")


TOO_LARGE = ("large", "offset")
"""Regimes whose values do not fit fp16 in much that is sound, as in x * x at 1000. Where the case does not declare
the values of an input, such an overflow is told and is no failure."""


def check_finite(of: CheckedCell, *, trusting: bool) -> RedCell | None:
    """Return the first example of which the converted model makes NaN or infinities where PyTorch's outputs are
    finite. Answers of PyTorch that an earlier run kept are taken if ``trusting``, which is for a cell that has seen
    that PyTorch still answers alike.

    What a precision costs is measured on the values that a model is made for; whether it holds shows at their ends:
    the norm of a row of zeros, a row that is masked out, a sum of large values.
    """
    run = of.run
    cell, record, model = run.cell, run.record, of.model
    parts = run.of_cell(of.exported, run.kept_answers(model, "finite"))
    parts = dataclasses.replace(parts, expects=lambda stop: stop.error in NOT_FINITE)
    verify = FinitenessVerifier(parts, of.verify.session)
    of = dataclasses.replace(of, verify=verify)
    if not trusting:
        verify.kept.forget()
    declared = on_host(apart(cell), run.settings.instructions)
    inputs = cell.case.says.inputs.values()
    # a normal distribution is no range either
    chosen = any(
        entry.type.is_float and (entry.values is None or entry.values.normal is not None) for entry in inputs
    )
    compared: list[Mapping[str, int]] = []
    for draw in of.draws.of_every_regime():
        if any(about(entry.when, draw) for entry in declared):
            continue
        example = verify.example(draw)
        # PyTorch has no say in numbers; the first example of each size shows that the outputs have PyTorch's shapes
        if draw.dims in compared and verify.gives_numbers(example):
            continue
        compared.append(draw.dims)
        stop = verify.failure(example)
        if stop is None:
            continue
        if chosen and draw.regime in TOO_LARGE and stop.error in NOT_FINITE:
            record.beyond.append(beyond(of, example, stop))
            continue
        return fails_again(of, example, stop)
    verify.kept.write([])
    return None
