"""Find contradictions between the parts of a case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from conformance.case.files.dims import DTYPES, OF_FILES
from conformance.case.files.must_hold import Output
from conformance.case.files.precision import INT8_OPSET
from conformance.case.files.step_plan import step_plan
from conformance.process.errors import did_you_mean, shown
from conformance.results.records.words import CONVERTED, base_of

if TYPE_CHECKING:
    from conformance.case.files.declaration import Declaration

Mistake: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where in the case, and what is wrong."""


def inconsistencies(says: Declaration) -> Iterator[Mistake]:
    """Find contradictions in a case, each with its place."""
    if [says.forward, says.module, says.onnx].count(None) != 2:
        yield (), "give either forward (an expression), module (a class) or onnx (a file), one of them"
    yield from _onnx_inconsistencies(says)
    if says.submodule and not says.module:
        yield ("submodule",), "submodule is a part of module; an expression has none"
    if not says.export.exporters:
        yield ("export",), "export names no exporter, so that nothing is run; give torchscript or dynamo"
    for name in says.dims.keys() & {"min", "max"}:
        yield ("dims", name), f"'{name}' is a function in expressions over dims; call the dim something else"
    if says.script and says.export.dynamo is not None:
        yield ("script",), "script: true is for the TorchScript exporter only; leave dynamo out of export"
    if says.script and says.call is not None:
        yield ("script",), "lists, mappings and constants as inputs, clones and returns need a forward in Python"
    for key, names in (("clones", says.clones if isinstance(says.clones, list) else ()), ("unused", says.unused)):
        for name in names:
            if name not in says.inputs:
                yield (key,), f"there is no input {shown(name)}{did_you_mean(name, says.inputs)}"
    for name in says.specials or ():
        if name not in says.inputs:
            yield ("specials",), f"there is no input {shown(name)}{did_you_mean(name, says.inputs)}"
    yield from _output_inconsistencies(says)
    known = _sizes(says)
    shapes = frozenset[str]().union(*(declared.type.names for declared in says.inputs.values()))
    for name, declared in says.inputs.items():
        for dim in sorted(declared.type.names - known):
            yield (
                ("inputs", name, "type"),
                f"the dim '{dim}' is not declared; add it to dims, as in {dim}: 1..8",
            )
        of = declared.values.positions_of if declared.values else None
        mask = says.inputs.get(of or "")
        if of is not None and (mask is None or mask.values is None or mask.values.mask is None):
            near = did_you_mean(of, says.inputs) if mask is None else ""
            text = f"there is no padding mask {shown(of)}{near}; say values: {{left_padding: [0, 1]}} of it"
            yield ("inputs", name, "values"), text
    for name, sizes in says.dims.items():
        yield from _unknown_dims(says, ("dims", name), sizes.names)
    for index, condition in enumerate(says.where):
        yield from _unknown_dims(says, ("where", index), condition.names)
    related = [sizes.names for sizes in says.dims.values()] + [condition.names for condition in says.where]
    for name in sorted(says.dims.keys() - shapes.union(*related)):
        yield ("dims", name), f"no input, range or condition uses the dim '{name}'"
    yield from _unknown_dims(says, ("trace",), says.trace)
    for exporter, target in says.export.exporters.items():
        yield from _unknown_dims(says, ("export", exporter, "static"), target.static)
    yield from _precision_inconsistencies(says)
    yield from _tensorrt_inconsistencies(says)
    yield from _latency_inconsistencies(says)
    if says.preprocess is not None and says.preprocess.data is None and says.metric is None:
        yield ("preprocess",), "name the raw data, as in data: raw.npz; there is no metric whose data it could be"
    yield from step_plan(says)[1] if says.steps is not None else ()
    for index, graph in enumerate(says.graph):
        if graph.when.cpu is not None:
            yield ("graph", index, "when", "cpu"), "an exported graph does not depend on the processor"
    for index, entry in enumerate(says.fails):
        for dim, sizes in entry.when.at.items():
            yield from _unknown_dims(says, ("fails", index, "when", "at"), {dim, *sizes.names})
        for word in entry.when.given:
            if word not in says.vary:
                where = ("fails", index, "when", "with")
                yield where, f"vary has no {shown(word)}{did_you_mean(word, says.vary)}"


_OF_MODULES = ("given", "submodule", "script", "mode", "weights", "prepare", "call", "clones", "unused", "returns")
"""What is about how PyTorch's module is made or called."""


def _onnx_inconsistencies(says: Declaration) -> Iterator[Mistake]:
    if not says.inputs and says.recorded is None:
        yield ("inputs",), "inputs: a case has at least one input"
    if says.recorded is None and any(one.values and one.values.recorded for one in says.inputs.values()):
        yield ("inputs",), "values: {recorded: true} are those of the recorded data, which recorded names"
    if says.onnx is None:
        for name, entry in says.inputs.items():
            if entry.type.dtype in OF_FILES:
                near = did_you_mean(entry.type.dtype, DTYPES)
                text = f"{entry.type.dtype} is a type of inputs of ONNX files alone{near}"
                yield ("inputs", name), text
        if says.recorded is not None:
            yield ("recorded",), "recorded data is of an ONNX file, and this case names none under onnx"
        if says.export.onnx is not None and says.export.onnx.file is None:
            yield ("export", "onnx"), "name the file of the model: {onnx: {file: shipped.onnx}}"
        return
    for key in _OF_MODULES:
        if key in says.model_fields_set:
            told = "with" if key == "given" else key
            yield (told,), f"{told} is about a module of PyTorch, and this case names an ONNX file"
    if says.export.torchscript is not None or says.export.dynamo is not None:
        yield ("export",), "an ONNX file is not exported; leave export out, or give onnx"
    if "onnx-reference" in says.runtimes:
        yield ("runtimes",), "onnx-reference computes what the runtimes are held against; leave it out"


def _output_inconsistencies(says: Declaration) -> Iterator[Mistake]:
    """Find outputs of indices whose axis or values cannot be."""
    by_name = {output.name: output for output in says.outputs}
    yield from _row_inconsistencies(says, by_name)
    for index, output in enumerate(says.outputs):
        if output.name in says.inputs and says.onnx is None:
            text = f"{shown(output.name)} is the name of an input; in a graph each tensor has a name of its own"
            yield ("outputs", index), text
        where, name = ("outputs", index, "indices_of"), output.indices_of
        if name is None:
            continue
        if name == output.name:
            yield where, f"{shown(name)} would hold indices of itself; name what they index"
        elif name in by_name and by_name[name].indices_of is not None:
            yield where, f"{shown(name)} holds indices itself; name what they index"
        elif name in says.inputs:
            rank = len(says.inputs[name].type.shape)
            wrong = [axis for axis in output.axis if not -rank <= axis < rank]
            sides = sorted({axis % rank for axis in output.axis}) if rank else []
            if wrong:
                text = f"axis {wrong[0]} is out of range: {shown(name)} has {rank} dims"
                yield ("outputs", index, "axis" if "axis" in output.model_fields_set else "indices_of"), text
            elif len(sides) < len(output.axis) or sides[-1] - sides[0] >= len(sides):
                yield ("outputs", index, "axis"), "axes that are flattened lie side by side, each once"
        elif name not in by_name:
            known = {*says.inputs, *by_name} - {output.name}
            yield where, f"there is no input or output {shown(name)}{did_you_mean(name, known)}"


def _row_inconsistencies(says: Declaration, by_name: Mapping[str, Output]) -> Iterator[Mistake]:
    """Find outputs of boxes that cannot go with the outputs beside them."""
    boxes_of: dict[str, str] = {}
    for index, output in enumerate(says.outputs):
        where = ("outputs", index, "rows")
        if output.rows.match != "iou":
            continue
        for name in (output.name, *output.rows.with_):
            if name not in by_name:
                known = by_name.keys() - {output.name}
                yield where, f"there is no output {shown(name)}{did_you_mean(name, known)}"
            elif name in boxes_of:
                yield where, f"{shown(name)} has rows of {shown(boxes_of[name])} already"
            elif by_name[name].indices_of is not None:
                yield where, f"{shown(name)} holds indices, which are looked up and not matched"
            elif name != output.name and by_name[name].rows.match != "in order":
                yield where, f"{shown(name)} says itself how its rows are matched"
            boxes_of.setdefault(name, output.name)


_OF_CONVERTERS = {"exclude", "operators", "reduce_range", "calibration"}


def _precision_inconsistencies(says: Declaration) -> Iterator[Mistake]:
    for precision, tolerance in says.tolerance.items():
        for text in tolerance.inconsistencies(precision):
            yield ("tolerance", precision), text
    exported = {opset for target in says.export.exporters.values() for opset in target.opsets}
    for precision, settings in says.precisions.items():
        where = ("precisions", precision)
        if precision == "fp32":
            yield where, "fp32 is what is exported, and needs no conversion"
        if settings.operators is not None and base_of(precision) != "int8":
            yield (*where, "operators"), "operators is for int8; exclude keeps operators in fp32"
        if settings.reduce_range and base_of(precision) != "int8":
            yield (*where, "reduce_range"), "reduce_range is for int8"
        if not settings.of_others and base_of(precision) not in ("fp32", *CONVERTED):
            yield where, (f"the suite converts to {' and '.join(CONVERTED)}; say which file has it, as "
                          "{file: net.onnx}, or what makes it, as {by: converters.quantize}")  # fmt: skip
        if settings.file is not None and settings.by is not None:
            yield (*where, "by"), "file and by exclude one another: a model is converted already, or here"
        for key in sorted(settings.model_fields_set & _OF_CONVERTERS) if settings.of_others else ():
            if key != "calibration" or settings.by is None:
                yield (*where, key), f"{key} is for a conversion that the suite makes"
        yield from _unknown_dims(says, (*where, "calibration", "at"), settings.calibration.at)
        for opset in settings.opsets or ():
            if opset not in exported:
                yield (*where, "opsets"), f"opset {opset} is not exported"
        converted = [opset for target in says.export.exporters for opset in says.converted_opsets(precision, target)]
        for opset in sorted(set(converted)):
            made_here = settings.left_out is None and not settings.of_others
            if base_of(precision) == "int8" and opset < INT8_OPSET and made_here:
                yield where, f"int8 needs opset {INT8_OPSET} or higher (scales for each channel), not {opset}"
    known = {"fp32", *says.precisions, *map(base_of, says.precisions)}
    for precision in says.tolerance.keys() - known:
        yield ("tolerance", precision), f"the case has no precision '{precision}'{did_you_mean(precision, known)}"


def _tensorrt_inconsistencies(says: Declaration) -> Iterator[Mistake]:
    if "tensorrt" not in says.model_fields_set:
        return
    if "tensorrt" not in says.runtimes:
        yield ("tensorrt",), "tensorrt is not one of the runtimes; add it to runtimes, or take this out"
    exported = {opset for target in says.export.exporters.values() for opset in target.opsets}
    for opset in says.tensorrt.opsets or ():
        if opset not in exported:
            yield ("tensorrt", "opsets"), f"opset {opset} is not exported"
    yield from _unknown_dims(says, ("tensorrt", "typical"), says.tensorrt.typical)


def _latency_inconsistencies(says: Declaration) -> Iterator[Mistake]:
    seen: dict[object, int] = {}
    for index, entry in enumerate(says.latency):
        where = ("latency", index)
        yield from _unknown_dims(says, (*where, "at"), entry.at)
        if entry.exporter is not None and entry.exporter not in says.export.exporters:
            yield (*where, "exporter"), f"{entry.exporter} is not one of the case's exporters"
        sides = [("precision", entry.precision)]
        if entry.at_most is not None and entry.at_most.precision is not None:
            sides.append(("at_most", entry.at_most.precision))
        for key, precision in sides:
            if precision != "fp32" and precision not in says.precisions:
                known = {"fp32", *says.precisions}
                yield (*where, key), f"the case has no precision '{precision}'{did_you_mean(precision, known)}"
        name = (entry.runtime, entry.precision, entry.exporter, entry.label)
        if name in seen:
            yield where, f"entry {seen[name] + 1} is about the same; tell them apart by at, or put them together"
        seen.setdefault(name, index)


def _sizes(says: Declaration) -> set[str]:
    """The names that an expression over dims may use."""
    return {*says.dims, *says.given, *says.vary}


def _unknown_dims(says: Declaration, where: tuple[str | int, ...], names: Iterable[str]) -> Iterator[Mistake]:
    unknown = {name for name in names if name not in says.dims}  # of thousands, none as a rule
    for name in sorted(unknown - _sizes(says) if unknown else ()):
        yield where, f"there is no dim {shown(name)}{did_you_mean(name, says.dims)}"
