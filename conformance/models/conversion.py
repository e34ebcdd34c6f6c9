"""Convert the exported model of a cell to its precision, once for all cells that run it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.case.files.precision import PrecisionSettings
from conformance.models.cell_run import CellRun
from conformance.models.exporters import graph
from conformance.models.exporters.exporters import named_as_in_case_of
from conformance.models.kept.model_store import Store, Stored, derived_key, place_of
from conformance.models.precision import convert as conversion
from conformance.models.precision import int8
from conformance.models.precision.by_others import changed_weights, precision_of
from conformance.models.precision.calibration import Feeds
from conformance.models.precision.fp16 import has_floats
from conformance.models.reference import float64_model
from conformance.models.reference.carried_types import carry
from conformance.process.disk.onnx_models import WEIGHTS, serialized
from conformance.process.errors import NoVerdict, Stopped, Unavailable
from conformance.results.records.words import base_of
from conformance.runtimes import opener
from conformance.runtimes.onnxgraph.mapped import read_graph
from conformance.runtimes.unsupported import refusal

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_CHANGED = 20
"""Names of changed weights that a record keeps."""


def converted_model(run: CellRun, stored: Stored, *, refuse: bool = True, precision: str | None = None) -> Stored:
    """The exported model in the cell's precision, or in another one, from the store or new.

    Stopped where something is wrong with it, unless ``refuse`` is off.
    """
    cell, store = run.cell, Store(run.settings.store)
    precision = precision or cell.precision
    settings = cell.case.says.precisions[precision]
    if settings.of_others:
        return _of_others(run, stored, precision)
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
                if base_of(precision) == "int8":
                    run.stages.expect(int8.expected_seconds(given.model.graph, given.operators))
                model, told = conversion.convert(given, feeds, measured)
                data = serialized(model)
                seconds = {"convert": round(time.perf_counter() - start, 6)}
                keep, facts = run.settings.observe, graph.read(model, data)
                result = run.prepared.models[name] = store.put(name, data, facts, seconds, told, keep=keep)
        except Stopped as stop:
            run.prepared.failed[name] = stop
            raise
    _note(run, result)
    with run.stages("convert", "precision"):
        finding = conversion.findings(result.told, stored.facts, result.facts)
        if finding is not None and refuse:
            if cell.case.says.onnx is not None and finding.reason.startswith(conversion.REFUSED):
                raise NoVerdict(f"the {precision} converter makes no valid model of the file: {finding.reason}")
            raise finding
    return result


def _note(run: CellRun, converted: Stored) -> None:
    """Write into the record how the model was converted, and its graph."""
    run.record.conversion = dict(converted.told)
    run.record.graph = converted.in_record()


def _of_others(run: CellRun, stored: Stored, precision: str) -> Stored:
    """The model that a file has, or a function beside the case makes, from the store or new; Stopped where it is no
    valid model, or has not the exported model's inputs and outputs."""
    cell, store, keeping = run.cell, Store(run.settings.store), run.keeping_of_case
    settings = cell.case.says.precisions[precision]
    with run.stages("declare", "case"):
        feeds = None if settings.by is None else run.prepared.feeds(settings.calibration, run.target.static)
        parts = [cell.exporter, precision, settings.model_dump_json(), feeds and feeds.as_dict()]
        name = derived_key(stored.facts.sha, parts, run.suite)
        place = keeping.get(run.settings.index, name)
    result = (store.get(place) if isinstance(place, str) else None) or run.prepared.models.get(name)
    if result is None:
        start = time.perf_counter()
        made, model = _made_by_others(run, stored, settings, feeds)
        with run.stages("convert", "precision"):
            original = _original(stored)
            model = carry(model, halves=not _has_halves(original))
            model = named_as_in_case_of(run.reference, made, model, run.prepared.inputs())
            data = serialized(model)
            changed = changed_weights(original, model)[:MOST_CHANGED]
            told: dict[str, object] = {"tool": made, "found": precision_of(model), "changed": changed}
            told |= {} if feeds is None else {"calibration": feeds.as_dict()}
            seconds = {} if feeds is None else {"convert": round(time.perf_counter() - start, 6)}
            facts, observed = graph.read(model, data), keeping.observe()
            lasts = observed is not None and observed.lasts
            place = place_of(name, observed) if observed is not None and lasts else name
            result = run.prepared.models[name] = store.put(place, data, facts, seconds, told, keep=lasts)
            if observed is not None:
                keeping.put(run.settings.index, name, place)
    _note(run, result)
    if result.facts.invalid:
        error, text = result.facts.invalid
        raise Stopped("convert", error, f"onnx.checker refuses {result.told['tool']}: {text}", "precision")
    return result


def _made_by_others(
    run: CellRun, stored: Stored, settings: PrecisionSettings, feeds: Feeds | None
) -> tuple[str, ModelProto]:
    """Return what sentences call the model of somebody else, and the model."""
    if settings.by is None:
        with run.stages("convert", "case"):
            return Path(str(settings.file)).name, float64_model.load(run.reference.folder.path / str(settings.file))
    with run.stages("declare", "case"):
        function = run.reference.folder.resolve(settings.by)
    called = f"the model of {settings.by}"
    with run.stages("convert", "precision"), tempfile.TemporaryDirectory() as name:
        file = Path(shutil.copy2(stored.file, name))  # beside which a converter may write
        if (weights := stored.file.with_name(WEIGHTS)).is_file():
            shutil.copy2(weights, name)
        try:
            given = function(str(file), [] if feeds is None else feeds.batches)
        except ModuleNotFoundError as error:
            text = f"{settings.by} needs the package {error.name}, which is not installed"
            raise Stopped("convert", "MissingPackage", text, "case") from error
        if isinstance(given, (str, os.PathLike)):
            if not (file.parent / given).is_file():
                text = f"{settings.by} returns the path {Path(given).name}, and has written no such file"
                raise Stopped("convert", "NoModel", text, "case")
            return called, float64_model.load(file.parent / given)
        if type(given).__name__ == "ModelProto":
            return called, given
        text = f"{settings.by} returns {type(given).__name__}; it has to return an ONNX model, or a path of one"
        raise Stopped("convert", "NoModel", text, "case")


def _original(stored: Stored) -> ModelProto:
    import onnx

    return onnx.load(stored.file)


def _has_halves(model: ModelProto) -> bool:
    """Return whether a model takes or gives float16, as one that was converted to it may in place of float32."""
    from onnx import TensorProto

    ends = (*model.graph.input, *model.graph.output)
    return any(value.type.tensor_type.elem_type == TensorProto.FLOAT16 for value in ends)


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
