"""Packing cells: everything that needs PyTorch is done here, so that a bundle can be run without it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.case.draw.draw import Draw, about
from conformance.case.draw.example import Example
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import apart, expectations
from conformance.case.plan.settings import Settings
from conformance.cells.engine import trial_of
from conformance.compare.tolerance import subjects
from conformance.judge.draws import Draws
from conformance.judge.red_cell import CheckedCell
from conformance.judge.verify import Verifier
from conformance.judge.verify_converted import RuntimeVerifier, opening_literal, rounding_otherwise
from conformance.models.bundle.bundle_files import CELLS
from conformance.models.bundle.bundle_layout import BundleWriter, write_model, write_set, write_trial
from conformance.models.bundle.entry import Entry, may_set
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.engine_build import engine_build
from conformance.models.kept.model_store import Stored
from conformance.process.errors import Stopped, Unavailable, display_path
from conformance.process.worker.progress_note import Progress
from conformance.results.records.environment import environment
from conformance.results.records.record import Record, cell_label
from conformance.runtimes import registry


def pack_cell(progress: Progress, cell: Cell, settings: Settings, folder: Path, most: int) -> Entry | Record:
    """Write one entry below ``folder`` with at most ``most`` examples, and give it back; where the cell cannot be
    packed, a record that says why."""
    record = cell.record()
    with (
        contextlib.suppress(Stopped, Unavailable),
        CellRun.opened(cell, settings, record, progress) as run,
    ):
        return _pack(run, folder, most)
    return record


def _pack(run: CellRun, folder: Path, most: int) -> Entry:
    stored = run.model()
    converted = converted_model(run, stored) if run.cell.converted else None
    verify = _verifier(run, stored, converted)
    draws = Draws(run.cell, run.settings, run.prepared, run.dims(), run.prepared.trace())
    verify.check_repeats(draws.first(), verify.first(draws.first()))
    chosen = _spread(_undeclared(run.cell, draws), run.cell.case.says.examples.values, most)
    examples = (_seen(verify, verify.example(draw)) for draw in chosen)
    entry = write_entry(CheckedCell(run, verify, draws, stored, converted), folder, examples)
    if _builds(run.cell):
        with run.stages("declare", "case"):
            told = write_trial(folder / entry.name, trial_of(run, verify, draws), entry.inputs)
        entry = dataclasses.replace(entry, trial=told)
    assert verify.vacuity is not None
    vacuous = verify.vacuity.findings().keys() - {*entry.excused}
    if vacuous:
        shutil.rmtree(folder / entry.name, ignore_errors=True)
        output = subjects(len(verify.vacuity), tuple(run.record.outputs))[min(vacuous)]
        text = f"{output}: wrong outputs would pass all {len(entry.sets)} examples; pack more of them"
        raise Stopped("compare", "Vacuous", text, "case")
    return entry


def _verifier(run: CellRun, stored: Stored, converted: Stored | None) -> Verifier:
    of = run.of_cell(stored)
    if converted is None:
        return Verifier(of)
    meaning, otherwise = opening_literal(run, converted), rounding_otherwise(run, converted)
    meaning()  # what cannot be loaded stops the packing before anything is drawn
    return RuntimeVerifier(of, meaning=meaning, otherwise=otherwise)


def _undeclared(cell: Cell, draws: Draws) -> Iterator[Draw]:
    """The draws of the cell but for those that are declared to fail on every host, which may end a process."""
    everywhere = [entry for entry in apart(cell) if entry.when.host is None]
    return (draw for draw in draws if not any(about(entry.when, draw) for entry in everywhere))


def _spread(draws: Iterable[Draw], values: int, most: int) -> list[Draw]:
    """At most ``most`` draws: the first of each shape, then the second of each, and so on."""
    in_order = list(draws)
    rounds = (in_order[first::values] for first in range(values))
    return list(itertools.islice(itertools.chain.from_iterable(rounds), most))


def _seen(verify: Verifier, example: Example) -> Example:
    """The example, after its outputs have made the cell's judge, if there was none yet, and were shown to the judge
    of vacuity."""
    verify.judge_of(example.wanted)
    assert verify.vacuity is not None
    verify.vacuity.see(example.wanted, example.inputs)
    return example


def write_entry(of: CheckedCell, folder: Path, examples: Iterable[Example]) -> Entry:
    """Write model, libraries and examples of a cell below ``folder``. Stopped where a bundle may not hold it."""
    run, verify, model = of.run, of.verify, of.model
    cell, says = run.cell, run.cell.case.says
    for key in says.onnxruntime.config:
        if not may_set(key):
            text = f"a bundle may not set ONNX Runtime's option {key}, by which files could be read or written"
            raise Stopped("declare", "BadBundle", text, "case")
    name = f"test_{cell.check}-{cell_label(cell.case.name, cell.exporter, cell.opset, None, cell.precision)}"
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    build = engine_build(run, model, of.draws.sizes())
    libraries = write_model(place, model.file, run.libraries())
    plugins = write_model(place, model.file, build.options.plugins)
    # in the order of the graph; a model exported without its parameters takes those as inputs too
    names = [name for name in model.facts.inputs if name in says.inputs]
    sets = []
    for index, example in enumerate(examples):
        declared_apart = _apart(cell, example.draw)
        sets.append(write_set(place, index, example, names, declared_apart, converted=cell.converted))
    assert verify.judge is not None
    every = range(sum(run.reference.layout or []))
    excused = [index for index, output in enumerate(verify.outputs()) if output.shows_nothing]
    return Entry(
        name=name, case=cell.case.name, exporter=cell.exporter, opset=cell.opset, precision=cell.precision,
        check="accuracy" if cell.check == "steps" else cell.check,  # whose steps are examples as any other
        source=run.record.source, graph=run.record.graph or {}, inputs=names,
        judge=verify.judge.as_dict(),
        build=dataclasses.replace(
            build, options=dataclasses.replace(build.options, plugins=tuple(plugins))
        ).as_dict(),
        sets=sets, expected=_expected_by_runtime(cell), excused=[*every] if says.vacuous else excused,
        own_code=[*run.target.own_code(), *_seen_code(run)],
        libraries=libraries, conversion=run.record.conversion, runtimes=_runtimes(cell),
        config=says.onnxruntime.config,
    )  # fmt: skip


def _seen_code(run: CellRun) -> list[str]:
    """The code of the case's own that was seen while a failure was explained, and that the case does not declare."""
    seen = run.prepared.own_code.get((run.cell.exporter, run.cell.opset), ())
    return [own.text for own in seen if own.name not in run.target.own_code().values()]


def leave(of: CheckedCell, example: Example) -> Path:
    """Write a bundle of one failing example beside the store; the record says where, and which code it has. The
    bundle's folder."""
    run = of.run
    folder = run.settings.store.parent / "failing" / f"{run.cell.check}-{run.cell.label}"
    writer = BundleWriter(folder, environment([]))
    entry = write_entry(of, folder / CELLS, [_seen(of.verify, example)])
    # The bundle only shows whether the example still fails. One example would be vacuous, which is excused.
    writer.add(dataclasses.replace(entry, excused=list(range(sum(run.reference.layout or [])))))
    run.record.bundle, run.record.bundle_libraries = display_path(folder), entry.code
    return folder


def _expected_by_runtime(cell: Cell) -> dict[str, list[dict[str, object]]]:
    """The declared failures of each runtime, so that any of them can run the bundle.

    A failure to load shows in every bundle; a declared failure to run, or wrong value, need not show in the examples
    that are packed.
    """
    by_runtime = {}
    for runtime in registry.RUNNING:
        declared = expectations(dataclasses.replace(cell, runtime=runtime))
        sampled = ("run", "compare")
        by_runtime[runtime] = [
            (dataclasses.replace(known, owed=False, margin=False) if known.stage in sampled else known).as_dict()
            for known in declared
        ]
    by_runtime = {runtime: declared for runtime, declared in by_runtime.items() if declared}
    if _builds(cell):  # all that the check ``engine`` tries is packed, so its failures have to show
        engine = dataclasses.replace(cell, check="engine")
        by_runtime["engine"] = [known.as_dict() for known in expectations(engine)]
    for check in ("parse", "build"):  # of TensorRT for RTX
        compiled = dataclasses.replace(cell, check=check, runtime=registry.RTX)
        own = [known.as_dict() for known in expectations(compiled)]
        by_runtime |= {check: own} if own else {}
    return by_runtime


def _builds(cell: Cell) -> bool:
    return cell.runtime is not None and registry.named(cell.runtime).builds


def _runtimes(cell: Cell) -> list[str]:
    """The runtimes that the case has for this model."""
    return [name for name in cell.case.says.runtimes if not cell.converted or registry.named(name).converted]


def _apart(cell: Cell, draw: Draw) -> list[str | dict[str, object]]:
    """The runtimes that are declared to fail at this draw, with the hosts that this is about where not all are."""
    return [
        runtime if entry.when.host is None else {"runtime": runtime, "host": entry.when.host}
        for runtime in _runtimes(cell)
        for entry in apart(dataclasses.replace(cell, runtime=runtime))
        if about(entry.when, draw)
    ]
