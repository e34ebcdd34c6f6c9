"""What fp16 and int8 cost to make and to check, and how good they come out."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Row, interleaved, seconds_of
from conformance.case.files.case_file import case_files, load
from conformance.case.files.declaration import Case
from conformance.case.files.precision import Calibration, PrecisionSettings
from conformance.case.plan.cell import Cell
from conformance.case.plan.settings import Settings
from conformance.cells.run_cell import run_cell
from conformance.models.cell_run import CellRun
from conformance.models.conversion import converted_model
from conformance.models.kept.model_store import Stored
from conformance.process.worker.progress_note import Progress
from conformance.process.worker.warm import prepare_process
from conformance.results.records.record import Record

SHIPPED = ROOT / "cases"
NETWORKS = {
    "resnet50": "classifier-name_resnet50",
    "mobilenet_v3_small": "classifier-name_mobilenet_v3_small",
    "swin_t": "swin_t",
    "DeformConv": "deform_conv-masked_true-groups1-offset_groups1",
}
METHODS = {
    "fp16": PrecisionSettings(),
    "int8-minmax": PrecisionSettings(),
    "int8-entropy": PrecisionSettings(calibration=Calibration(method="entropy")),
    "int8-percentile": PrecisionSettings(calibration=Calibration(method="percentile", percentile=99.9)),
}


def rows(quick: bool) -> Iterator[Row]:
    prepare_process()
    known = {case.name: case for file in case_files([SHIPPED]) for case in load(file)}
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(store=Path(name))
        for network in ["DeformConv"] if quick else NETWORKS:
            yield from _conversions(network, known[NETWORKS[network]], settings)
        yield from _cells("a small network", known["calibration_methods"], settings, 2 if quick else 10)
        if not quick:
            yield from _cells("resnet50", known[NETWORKS["resnet50"]], settings, 3)
            yield _sensitivity(known[NETWORKS["resnet50"]], settings)


def _cell(case: Case, check: str, precision: str) -> Cell:
    """A cell of the TorchScript exporter's highest opset, with every method as a precision of the case."""
    case = dataclasses.replace(case, says=case.says.model_copy(update={"precisions": METHODS}))
    target = case.says.export.torchscript
    assert target is not None
    return Cell(
        case, check, "torchscript", max(target.opsets), "onnxruntime" if check == "accuracy" else None, precision
    )


def _models(cell: Cell, settings: Settings) -> tuple[Stored, Stored, CellRun]:
    """The exported and the converted model of a cell, made or found."""
    with CellRun.opened(cell, settings) as run:
        stored = run.model()
        return stored, converted_model(run, stored, refuse=False), run


def _conversions(network: str, case: Case, settings: Settings) -> Iterator[Row]:
    """Converting, calibration included, against exporting the same model; and how far the result is from PyTorch in
    float32, over the examples of the ``fidelity`` cell."""
    for precision in METHODS:
        cell = _cell(case, "fidelity", precision)
        stored, converted, _ = _models(cell, settings)
        seconds, exported = converted.seconds["convert"], stored.seconds["export"]
        found: dict[str, Any] = run_cell(Progress(), cell, settings).fidelity or {}
        size = converted.file.stat().st_size / stored.file.stat().st_size
        yield Row(
            f"{network} to {precision}", f"{seconds:.2f} s; SQNR {found['sqnr']:.1f} dB; {size:.2f} × the size",
            f"its export, {exported:.2f} s", f"{seconds / exported:.1f} ×",
        )  # fmt: skip


def _cells(what: str, case: Case, settings: Settings, repeats: int) -> Iterator[Row]:
    """The cells of a precision against the fp32 ``accuracy`` cell, all models in the store."""
    cells = {
        "fp32": _cell(case, "accuracy", "fp32"),
        "accuracy at fp16": _cell(case, "accuracy", "fp16"),
        "accuracy at int8": _cell(case, "accuracy", "int8-minmax"),
        "fidelity at fp16": _cell(case, "fidelity", "fp16"),
        "fidelity at int8": _cell(case, "fidelity", "int8-minmax"),
    }

    def run(cell: Cell) -> Record:
        return run_cell(Progress(), cell, settings)

    for cell in cells.values():
        run(cell)  # fills the store
    found = interleaved({name: lambda cell=cell: run(cell) for name, cell in cells.items()}, repeats)  # type: ignore[misc]
    for name in [name for name in cells if name != "fp32"]:
        yield Row(
            f"{what}, {name}", f"{found[name] * 1000:.0f} ms", f"accuracy at fp32, {found['fp32'] * 1000:.0f} ms",
            f"{found.ratio(name, 'fp32'):.2f}", repeats=found.repeats,
        )  # fmt: skip


def _sensitivity(case: Case, settings: Settings) -> Row:
    """Ranking all quantized nodes with 8 samples, against quantizing anew for each, measured once and multiplied."""
    import onnx

    from conformance.extras.sensitivity.ranking import evaluation, rank
    from conformance.models.precision import convert

    cell = _cell(case, "fidelity", "int8-minmax")
    stored, converted, run = _models(cell, settings)
    given = convert.source(stored.file, cell.precision, METHODS[cell.precision], cell.exporter)
    feeds = run.prepared.feeds(Calibration(), [], "sensitivity")
    model, nodes = onnx.load(converted.file), 0

    def ranked() -> None:
        nonlocal nodes
        nodes = len(rank(given, model, evaluation(feeds.batches, 8), [], lambda *_: None).nodes)

    seconds, once = seconds_of(ranked), seconds_of(lambda: convert.convert(given, feeds))
    return Row(
        f"sensitivity of resnet50 at int8, {nodes} nodes", f"{seconds:.0f} s",
        f"converting again for each, {once * nodes:.0f} s (one, multiplied)", f"{seconds / (once * nodes):.2f} ×",
    )  # fmt: skip
