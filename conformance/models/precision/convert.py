"""From the exported fp32 model to a model of another precision, with what is wrong with that."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import math
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case.files.precision import PrecisionSettings
from conformance.case.files.python import describe
from conformance.models.exporters.graph import Facts
from conformance.models.precision import fp16, int8, int8_rules
from conformance.models.precision.calibration import DRAWN, Feeds
from conformance.models.precision.ranges import Extremes, extremes, not_finite, ranges
from conformance.process.arrays import Array
from conformance.process.errors import Details, Stopped, did_you_mean, noting, stopping
from conformance.results.records.words import base_of
from conformance.runtimes.onnxgraph.reads import graphs, held, nodes
from conformance.runtimes.onnxruntime import OnnxRuntimeSession

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

SHOWN = 5
"""Nodes that a message names; the rest it counts."""


@dataclass(frozen=True)
class ConversionSource:
    """An exported model, ready to be converted: all nodes named, local functions inlined."""

    model: ModelProto
    precision: str
    settings: PrecisionSettings
    kept: frozenset[str]
    """Names of the nodes that stay fp32."""

    @property
    def operators(self) -> list[str]:
        return list(self.settings.operators or int8.OPERATORS)


def source(file: Path, precision: str, settings: PrecisionSettings, exporter: str) -> ConversionSource:
    """Read an exported model. Raises Stopped at ``convert`` (UnknownNode) for an entry of ``exclude`` that
    matches no node."""
    import onnx
    from onnx import inliner

    model = onnx.load(file)
    if model.functions:
        model = inliner.inline_local_functions(model)
    _name_nodes(model)
    _plain_constants(model)
    entries = getattr(settings.exclude, exporter)
    return ConversionSource(model, precision, settings, frozenset(_matching(model, entries)))


def _name_nodes(model: ModelProto) -> None:
    every = [node for graph in graphs(model.graph) for node in graph.node]
    taken = Counter(node.name for node in every)
    for index, node in enumerate(every):
        if not node.name or taken[node.name] > 1:
            taken[node.name] -= 1
            node.name = f"{node.name or node.op_type}_{index}"


def _plain_constants(model: ModelProto) -> None:
    """Make tensors of constants given as ``value_float``: the fp16 converter knows no other form."""
    from onnx import TensorProto, helper

    for node in nodes(model.graph):
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name in ("value_float", "value_floats"):
                scalar = attribute.name == "value_float"
                values = [attribute.f] if scalar else list(attribute.floats)
                tensor = helper.make_tensor("value", TensorProto.FLOAT, [] if scalar else [len(values)], values)
                attribute.CopyFrom(helper.make_attribute("value", tensor))


def _matching(model: ModelProto, entries: Sequence[str]) -> Iterator[str]:
    known = {node.name: node.op_type for node in nodes(model.graph)}
    for entry in entries:
        names = [name for name, kind in known.items() if entry == kind or fnmatch.fnmatchcase(name, entry)]
        if not names:
            near = (
                did_you_mean(entry, known) if len(known) <= 20 else did_you_mean(entry, known).partition("; known")[0]
            )
            text = f"exclude: the model has no node or operator '{entry}'{near}"
            raise Stopped("convert", "UnknownNode", text, "case")
        yield from names


def measure(given: ConversionSource, feeds: Feeds) -> Extremes:
    """Measure what the tensors of the model reach on the calibration data.

    It depends on neither precision nor settings.

    Raises Stopped at ``convert`` (BadCalibration) where the model does not run on it.
    """
    with noting(lambda _: _check_runs(given.model, feeds)):
        return extremes(given.model, feeds.batches)


def convert(
    given: ConversionSource, feeds: Feeds, measured: Extremes | None = None
) -> tuple[ModelProto, dict[str, object]]:
    """The converted model, and what a record tells of it (``findings`` reads it too); ``measured`` is what
    ``measure`` gives, where that is known already.

    Raises Stopped at ``convert``, and whatever the converters raise.
    """
    measured = measured or measure(given, feeds)
    if measured.nan is not None:  # which is in no range
        raise not_finite(measured.nan)
    if base_of(given.precision) == "int8":
        model, facts = _to_int8(given, feeds, measured)
    else:
        model, facts = _to_fp16(given, measured)
    tool = f"onnxruntime {importlib.metadata.version('onnxruntime')}"
    return model, {"tool": tool, "calibration": feeds.as_dict(), "kept": sorted(given.kept), **facts}


def _to_int8(given: ConversionSource, feeds: Feeds, measured: Extremes) -> tuple[ModelProto, dict[str, object]]:
    says = given.settings.calibration
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = ranges(given.model, measured, feeds.batches, given.operators, says, folder)
        model = int8.quantize(given.model, data, given.operators, given.kept, folder, given.settings.reduce_range)
    return model, {
        "method": says.method,
        **({"percentile": says.percentile} if says.method == "percentile" else {}),
        **({"reduce_range": True} if given.settings.reduce_range else {}),
        "quantized": len(int8.quantized_nodes(model)),
        "broken": [*int8_rules.broken(model), *int8_rules.unfaithful(given.model, model, data)],
    }


def _to_fp16(given: ConversionSource, measured: Extremes) -> tuple[ModelProto, dict[str, object]]:
    model = fp16.convert(given.model, given.kept)
    overflow, underflow = _beyond(given, measured)
    wrong = fp16.wrongly_rounded(given.model, model)
    facts = {"overflow": list(overflow.values()), "overflow_at": list(overflow), "underflow": underflow}
    return model, {**facts, **({"broken": wrong} if wrong else {})}


def _check_runs(model: ModelProto, feeds: Feeds) -> None:
    """Raise Stopped where the exported model itself does not run on the calibration data: no conversion is to
    blame."""
    session = OnnxRuntimeSession(model, [], optimize=False)
    fault = "exporter" if feeds.source == DRAWN else "case"

    def say(index: int, error: Exception) -> str:
        text = f"calibration: the exported model does not run on batch {index}, {feeds.source}"
        return f"{text}: {describe(error, Path('/'))}"

    for index, batch in enumerate(feeds.batches):
        with stopping("convert", fault, partial(say, index), "BadCalibration"):
            session.run(batch)


REFUSED = "onnx.checker refuses the converted model"


def findings(told: Mapping[str, Any], exported: Facts, converted: Facts) -> Stopped | None:
    """Find what is wrong with a converted model.

    By what ``convert`` told of it and what is in the two models.
    """

    def stop(error: str, text: str, details: Details | None = None) -> Stopped:
        return Stopped("convert", error, text, "precision", details)

    if told.get("broken"):
        rule = "the rules for explicit quantization" if "quantized" in told else "a rule"
        return stop("BrokenRule", f"the converted model breaks {rule}: {_few(told['broken'])}")
    if told.get("overflow"):
        where = f"beyond what fp16 holds ({fp16.LARGEST:g}) on the calibration data"
        return stop("Overflow", f"{where}: {_few(told['overflow'])}", {"hints": ["exclude"]})
    refused = converted.invalid or (None if exported.doubted else converted.doubted)
    if refused:
        error, text = refused
        return stop(error, f"{REFUSED}: {text}")
    for what in ("inputs", "outputs"):
        before, after = list(getattr(exported, what)), list(getattr(converted, what))
        if before != after:
            return stop("WrongSignature", f"the converted model has the {what} {after} instead of {before}")
    changed = [name for name, dtype in exported.dtypes.items() if converted.dtypes.get(name) != dtype]
    if changed:
        return stop("WrongSignature", f"the converted model has another dtype for {', '.join(changed)}")
    return None


def _few(texts: Sequence[str]) -> str:
    more = f", and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{'; '.join(texts[:SHOWN])}{more}"


def _beyond(given: ConversionSource, measured: Extremes) -> tuple[dict[str, str], list[str]]:
    """Find what does not fit fp16.

    What is too large, by node; and, in words, which values and constants are too small.
    """
    makers = {name: node for node in given.model.graph.node for name in node.output}
    users: dict[str, list[str]] = {}
    for node in nodes(given.model.graph):
        for name in node.input:
            users.setdefault(name, []).append(node.name)
    staying = fp16.staying(given.model, given.kept)
    masks = _masks(given.model)
    overflow: dict[str, str] = {}
    underflow: list[str] = []
    order = {name: position for position, name in enumerate(makers)}
    for name, ends in sorted(measured.ends.items(), key=lambda item: (order.get(item[0], -1), item[0])):
        largest = max(abs(float(end.item())) for end in ends)
        maker = makers.get(name)
        if {*users.get(name, ()), *([maker.name] if maker else [])} <= staying:
            continue
        where = f"{maker.op_type} {maker.name}" if maker is not None else f"the input {name}"
        masked = any(mask / 2 <= largest <= 2 * mask for mask in masks)
        if fp16.LARGEST < largest < _INFINITE and not masked:
            at = maker.name if maker is not None else users.get(name, [name])[0]
            overflow[at] = f"{where} reaches {largest:g}"
        elif 0 < largest < fp16.SMALLEST_NORMAL:
            vanish = "are raised to" if maker is not None and maker.op_type == "Constant" else "all become"
            to = fp16.SMALLEST if vanish == "are raised to" else 0
            what = f"{vanish} {to:.2g}" if largest < fp16.SMALLEST / 2 else "lose digits"
            underflow.append(f"the values of {where} are at most {largest:.2g} and {what} in fp16")
    for reader, text, high in _constants_beyond(given, users, staying):
        if high:
            overflow.setdefault(reader, text)
        else:
            underflow.append(text)
    return overflow, underflow


_MASK = 1e8
"""Constants of at least this size stand for minus infinity in masks, and may become infinite."""

_INFINITE = 1e30
"""Computed values of at least this size stand for infinity."""


def _masks(model: ModelProto) -> list[float]:
    """The sizes of constants that stand for minus infinity; what is computed from them is about as large."""
    from onnx import TensorProto, numpy_helper

    outermost = [(node.output[0], node.attribute[0].t) for node in model.graph.node
                 if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value"]  # fmt: skip
    floats = [tensor for _, tensor in (*_constants(model), *outermost) if tensor.data_type == TensorProto.FLOAT]
    sizes = [_largest(numpy_helper.to_array(tensor)) for tensor in floats]
    return [size for size in sizes if _MASK <= size < math.inf]


def _largest(values: Array) -> float:
    """The largest size of all values, NaN if there is one among them."""
    return float(max(values.max(initial=0.0), -values.min(initial=0.0)))


def _constants_beyond(
    given: ConversionSource, users: Mapping[str, list[str]], staying: Collection[str]
) -> Iterator[tuple[str, str, bool]]:
    """For each constant that does not fit fp16: the node that reads it, what is wrong, and whether it is too large.

    A constant that is too small for fp16 is made the smallest fp16 number by the converter.
    """
    from onnx import TensorProto, numpy_helper

    for name, tensor in _constants(given.model):
        if tensor.data_type != TensorProto.FLOAT or {*users.get(name, ())} <= {*staying}:
            continue
        values = numpy_helper.to_array(tensor)
        reader, largest = users.get(name, ["nobody"])[0], _largest(values)
        if not largest < _MASK:
            size = np.abs(values)
            largest = float(size.max(initial=0.0, where=size < _MASK))
        if largest > fp16.LARGEST:
            yield reader, f"the constant {name} of {reader} reaches {largest:g}", True
        elif 0 < largest < fp16.SMALLEST / 2:
            to = f"is raised to {fp16.SMALLEST:.2g} in fp16"
            yield reader, f"the constant {name} of {reader} is {largest:.2g} and {to}", False


def _constants(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Initializers, and constants inside a branch or a body, where nothing is measured."""
    outermost, *inner = graphs(model.graph)
    for graph in (outermost, *inner):
        yield from ((initializer.name, initializer) for initializer in graph.initializer)
    for graph in inner:
        yield from held(graph.node).items()
