"""Convert the exported model of a cell to its precision, once for all cells that run it."""

from __future__ import annotations

import time

from conformance.models.cell_run import CellRun
from conformance.models.exporters import graph
from conformance.models.kept.model_store import Store, Stored
from conformance.models.precision import convert as conversion
from conformance.models.precision.fp16 import has_floats
from conformance.process.disk.onnx_models import serialized
from conformance.process.errors import NoVerdict, Stopped, Unavailable
from conformance.results.records.words import base_of
from conformance.runtimes import opener
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.unsupported import refusal


def converted_model(run: CellRun, stored: Stored, *, refuse: bool = True, precision: str | None = None) -> Stored:
    """The exported model in the cell's precision, or in another one, from the store or new.

    Stopped where something is wrong with it, unless ``refuse`` is off.
    """
    cell, store = run.cell, Store(run.settings.store)
    precision = precision or cell.precision
    settings = cell.case.says.precisions[precision]
    with run.stages("declare", "case"):
        feeds = run.prepared.feeds(settings.calibration, run.target.static)
    name = run.prepared.converted_key(cell.exporter, stored.facts.sha, precision, feeds, run.suite)
    result = store.get(name) if run.settings.observe else run.prepared.models.get(name)
    if result is None:
        if name in run.prepared.failed:
            raise run.prepared.failed[name]
        try:
            _check_convertible(run, stored, precision)
            with run.stages("convert", "precision"):
                start = time.perf_counter()
                given = conversion.source(stored.file, precision, settings, cell.exporter)
                measured = run.prepared.extremes(stored.facts.sha, feeds, lambda: conversion.measure(given, feeds))
                model, told = conversion.convert(given, feeds, measured)
                data = serialized(model)
                seconds = {"convert": round(time.perf_counter() - start, 6)}
                keep, facts = run.settings.observe, graph.read(model, data)
                result = run.prepared.models[name] = store.put(name, data, facts, seconds, told, keep=keep)
        except Stopped as stop:
            run.prepared.failed[name] = stop
            raise
    run.record.conversion = dict(result.told)
    run.record.graph = {"opset": result.facts.opset, "nodes": result.facts.nodes, "sha": result.facts.canonical}
    with run.stages("convert", "precision"):
        finding = conversion.findings(result.told, stored.facts, result.facts)
        if finding is not None and refuse:
            if cell.case.says.onnx is not None and finding.reason.startswith(conversion.REFUSED):
                raise NoVerdict(f"the {precision} converter makes no valid model of the file: {finding.reason}")
            raise finding
    return result


def _check_convertible(run: CellRun, stored: Stored, precision: str) -> None:
    """Stopped where calibration cannot run the exported model (it does not load, or needs a library), or the
    converter would change the type of its outputs. Unavailable where ONNX Runtime does not support a file, NoVerdict
    where an output is a list whose precision is not measured."""
    if stored.facts.sequences:
        run.prepared.see_lengths()
    if run.reference.listed is not None:
        raise NoVerdict(
            f"the output {stored.facts.sequences[0]} is a list whose length depends on the inputs, of which a "
            "converted model's noise is not measured"
        )
    of_file = run.cell.case.says.onnx is not None
    if of_file and base_of(precision) == "fp16" and not has_floats(read_graph(stored.file)):
        raise NoVerdict("there is nothing to convert: the model has no floats of 32 bits")
    if stored.facts.sequences and base_of(precision) == "fp16":
        text = f"the output {stored.facts.sequences[0]} is a sequence, whose type the fp16 converter changes"
        if run.cell.case.says.onnx is not None:  # which nobody can write in another way
            raise NoVerdict(text)
        how = "return a tuple in place of a list, or say why with left_out:"
        raise Stopped("convert", "SequenceOutput", f"{text}; {how}", "case")
    try:
        with run.stages("load", "exporter"), opener("onnxruntime-unoptimized")(stored.file, run.libraries()):
            pass
    except Stopped as stop:
        said = None if run.cell.case.says.onnx is None else refusal("onnxruntime", stop.__cause__)
        if said is None:
            raise
        raise Unavailable(said) from stop
    if run.cell.case.says.libraries:
        text = "ONNX Runtime's calibrators load no custom-operator libraries; say why with left_out:"
        raise Stopped("convert", "CustomLibraries", text, "case")
