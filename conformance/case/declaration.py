"""What a case says as a whole, and what its parts say against one another.

The models of a case file (here and in the other modules of this folder) are frozen and closed: an unknown key is an
error. Shorthand, such as an input written as a plain string, is spelled out by a ``BeforeValidator`` before any field
is looked at, so that the place of an error is the place that the author sees. ``conformance.case.file`` reads files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from conformance.case.deploy import Latency, OnnxRuntime, TensorRT
from conformance.case.dims import Dims, Range
from conformance.case.export import Dynamo, Export, TorchScript
from conformance.case.fields import (
    ChoiceName,
    DottedName,
    FilesBeside,
    Listed,
    Once,
    PrecisionName,
    Says,
    Short,
    Size,
    SizeNumber,
    SizeRange,
    TensorName,
    Word,
)
from conformance.case.inputs import Examples, InputOrType
from conformance.case.must_hold import Fails, Graphs, Output, OutputOrName, PrecisionTolerance
from conformance.case.precision import INT8_OPSET, PrecisionSettings
from conformance.case.words import Exporter, Runtime, base_of
from conformance.errors import did_you_mean, shown
from conformance.runtimes.registry import IN_CASES


def _spell_out_specials(value: object) -> object:
    if value is True:
        return None
    return [] if value is False else value


class Declaration(Says):
    """One case as the file says it."""

    about: str = Field(min_length=1)
    """What the case is for, for the reader of a report."""
    tags: Listed[str] = []
    """Words that pytest's -k selects by."""
    forward: str | None = Field(None, max_length=4000)
    """A Python expression over the inputs; torch, F, math, and the Python files beside the case file are in scope."""
    module: DottedName | None = None
    """A torch.nn.Module class (or a function that returns a module), in a Python file beside the case file."""
    given: dict[str, Any] = Field({}, alias="with")
    """Constructor arguments of ``module``, or names for ``forward``; "torch.int32" is the dtype."""
    vary: dict[Word, Annotated[list[Any] | dict[ChoiceName, Any], Field(min_length=1)]] = {}
    """A grid of values for ``with``; each combination is its own case."""
    script: bool = False
    """torch.jit.script the module, so that its control flow is kept (TorchScript exporter only)."""
    mode: Literal["eval", "train"] = "eval"
    """The mode that the module is exported and run in."""
    seed: int = Field(0, ge=0, lt=2**32)
    """The seed that the weights are drawn with."""
    weights: Literal["awake"] | FilesBeside | None = None
    """A file of weights beside the case file (a state_dict, or safetensors); or ``awake``: parameters of a fresh
    module that hardly show in its outputs get a scale at which they do."""
    prepare: DottedName | None = None
    """A function ``f(module)`` that sets weights or statistics after construction."""
    inputs: Annotated[dict[TensorName, InputOrType], Field(min_length=1), Short]
    """The inputs by their ONNX names, in the order of forward's parameters."""
    outputs: list[OutputOrName] = []
    """Names of all outputs, depth first. A list that a scripted module returns is one output of the graph: it has one
    name, and its tensors are ``name.0``, ``name.1`` in tolerances; or each of its tensors has a name."""
    dims: Annotated[dict[Word, SizeRange], Short] = {}
    """The range of each dim; both ends always run."""
    where: Annotated[Listed[Size], Short] = []
    """Conditions between dims, such as ``k <= n``."""
    draw: DottedName | None = None
    """A function ``f(dims, rng) -> {input: array}`` for inputs that depend on one another."""
    trace: dict[str, SizeNumber] = {}
    """Sizes of dims in the example that the export traces; sizes of other dims are chosen."""
    export: Export = Export(torchscript=TorchScript(opsets=[17]), dynamo=Dynamo(opsets=[20]))
    """Exporters with their opsets; those left out are not run. The default is TorchScript 17 and dynamo 20."""
    runtimes: Annotated[
        Listed[Runtime], Once, Field(min_length=1, description=f"What runs the model: {', '.join(IN_CASES)}.")
    ] = ["onnx-reference", "onnxruntime"]
    tensorrt: TensorRT = TensorRT()
    """How TensorRT's engines are built, where it is one of the runtimes."""
    onnxruntime: OnnxRuntime = OnnxRuntime()
    """How ONNX Runtime's sessions are made."""
    libraries: Listed[str] = []
    """Custom-operator libraries: a file, or file.function that returns the path of one."""
    graph: Graphs = []
    """What the exported graph must look like, one entry or several with conditions."""
    precisions: Annotated[dict[PrecisionName, PrecisionSettings], Short] = {}
    """Besides fp32: ``fp16`` and ``int8``, or variants of them with a name of their own, as in ``int8-entropy``."""
    tolerance: dict[PrecisionName, PrecisionTolerance] = {}
    """Limits of error by precision; a tolerance that is looser than the default says why, under ``because``."""
    specials: Annotated[
        list[str] | None, BeforeValidator(_spell_out_specials, json_schema_input_type=bool | list[str])
    ] = None
    """Also run NaN, infinities and signed zeros, as a check of their own: in all inputs, unless it is false or
    a list of inputs."""
    vacuous: str | None = None
    """Why outputs that would pass whatever the inputs are right for this case (``ones_like``)."""
    hollow: str | None = None
    """Why less than 90 % of the module's operator calls have to show in its outputs."""
    fails: Annotated[list[Fails], Short] = []
    """Expected failures."""
    latency: Annotated[list[Latency], Short] = []
    """Budgets of time; each is a cell of its own."""
    examples: Examples = Examples()
    """How many shapes and values are drawn."""
    needs: Listed[str] = []
    """Packages (import names), or ``command:g++``, without which the case is skipped with a reason."""
    depends: Listed[FilesBeside] = []
    """Data files that the case's Python reads, so that editing one exports again."""

    def inconsistencies(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """What the parts of the case say against one another: where in the case, and what is wrong."""
        if (self.forward is None) == (self.module is None):
            yield (), "give either forward (an expression) or module (a class), one of them"
        if not self.export.exporters:
            yield ("export",), "export names no exporter, so that nothing is run; give torchscript or dynamo"
        for name in self.dims.keys() & {"min", "max"}:
            yield ("dims", name), f"'{name}' is a function in expressions over dims; call the dim something else"
        if self.script and self.export.dynamo is not None:
            yield ("script",), "script: true is for the TorchScript exporter only; leave dynamo out of export"
        for name in self.specials or ():
            if name not in self.inputs:
                yield ("specials",), f"there is no input {shown(name)}{did_you_mean(name, self.inputs)}"
        yield from self._output_inconsistencies()
        shapes = frozenset[str]().union(*(declared.type.names for declared in self.inputs.values()))
        for name, declared in self.inputs.items():
            for dim in sorted(declared.type.names - self._sizes()):
                yield (
                    ("inputs", name, "type"),
                    f"the dim '{dim}' is not declared; add it to dims, as in {dim}: 1..8",
                )
        for name, sizes in self.dims.items():
            yield from self._unknown_dims(("dims", name), sizes.names)
        for index, condition in enumerate(self.where):
            yield from self._unknown_dims(("where", index), condition.names)
        related = [sizes.names for sizes in self.dims.values()] + [condition.names for condition in self.where]
        for name in sorted(self.dims.keys() - shapes.union(*related)):
            yield ("dims", name), f"no input, range or condition uses the dim '{name}'"
        yield from self._unknown_dims(("trace",), self.trace)
        for exporter, target in self.export.exporters.items():
            yield from self._unknown_dims(("export", exporter, "static"), target.static)
        yield from self._precision_inconsistencies()
        yield from self._tensorrt_inconsistencies()
        yield from self._latency_inconsistencies()
        for index, graph in enumerate(self.graph):
            if graph.when.cpu is not None:
                yield ("graph", index, "when", "cpu"), "an exported graph does not depend on the processor"
        for index, entry in enumerate(self.fails):
            for dim, sizes in entry.when.at.items():
                yield from self._unknown_dims(("fails", index, "when", "at"), {dim, *sizes.names})
            for word in entry.when.given:
                if word not in self.vary:
                    where = ("fails", index, "when", "with")
                    yield where, f"vary has no {shown(word)}{did_you_mean(word, self.vary)}"

    def _output_inconsistencies(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """What outputs of indices say that cannot be: what they index, and along which axis."""
        by_name = {output.name: output for output in self.outputs}
        yield from self._row_inconsistencies(by_name)
        for index, output in enumerate(self.outputs):
            where, name = ("outputs", index, "indices_of"), output.indices_of
            if name is None:
                continue
            if name in by_name and name in self.inputs:
                yield where, f"both an input and an output are called {shown(name)}; call one of them otherwise"
            elif name == output.name:
                yield where, f"{shown(name)} would hold indices of itself; name what they index"
            elif name in by_name and by_name[name].indices_of is not None:
                yield where, f"{shown(name)} holds indices itself; name what they index"
            elif name in self.inputs:
                rank = len(self.inputs[name].type.shape)
                wrong = [axis for axis in output.axis if not -rank <= axis < rank]
                sides = sorted({axis % rank for axis in output.axis}) if rank else []
                if wrong:
                    text = f"axis {wrong[0]} is out of range: {shown(name)} has {rank} dims"
                    yield ("outputs", index, "axis" if "axis" in output.model_fields_set else "indices_of"), text
                elif len(sides) < len(output.axis) or sides[-1] - sides[0] >= len(sides):
                    yield ("outputs", index, "axis"), "axes that are flattened lie side by side, each once"
            elif name not in by_name:
                known = {*self.inputs, *by_name} - {output.name}
                yield where, f"there is no input or output {shown(name)}{did_you_mean(name, known)}"

    def _row_inconsistencies(self, by_name: Mapping[str, Output]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """What outputs of boxes say of the outputs beside them that cannot be."""
        boxes_of: dict[str, str] = {}
        for index, output in enumerate(self.outputs):
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

    def _precision_inconsistencies(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for precision, tolerance in self.tolerance.items():
            for text in tolerance.inconsistencies(precision):
                yield ("tolerance", precision), text
        exported = {opset for target in self.export.exporters.values() for opset in target.opsets}
        for precision, settings in self.precisions.items():
            where = ("precisions", precision)
            if precision == "fp32":
                yield where, "fp32 is what is exported, and needs no conversion"
            if settings.operators is not None and base_of(precision) != "int8":
                yield (*where, "operators"), "operators is for int8; exclude keeps operators in fp32"
            if settings.reduce_range and base_of(precision) != "int8":
                yield (*where, "reduce_range"), "reduce_range is for int8"
            yield from self._unknown_dims((*where, "calibration", "at"), settings.calibration.at)
            for opset in settings.opsets or ():
                if opset not in exported:
                    yield (*where, "opsets"), f"opset {opset} is not exported"
            converted = [
                opset for target in self.export.exporters for opset in self.converted_opsets(precision, target)
            ]
            for opset in sorted(set(converted)):
                if base_of(precision) == "int8" and opset < INT8_OPSET and settings.left_out is None:
                    yield where, f"int8 needs opset {INT8_OPSET} or higher (scales for each channel), not {opset}"
        known = {"fp32", *self.precisions, *map(base_of, self.precisions)}
        for precision in self.tolerance.keys() - known:
            yield ("tolerance", precision), f"the case has no precision '{precision}'{did_you_mean(precision, known)}"

    def _tensorrt_inconsistencies(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        if "tensorrt" not in self.model_fields_set:
            return
        if "tensorrt" not in self.runtimes:
            yield ("tensorrt",), "tensorrt is not one of the runtimes; add it to runtimes, or take this out"
        exported = {opset for target in self.export.exporters.values() for opset in target.opsets}
        for opset in self.tensorrt.opsets or ():
            if opset not in exported:
                yield ("tensorrt", "opsets"), f"opset {opset} is not exported"
        yield from self._unknown_dims(("tensorrt", "typical"), self.tensorrt.typical)

    def _latency_inconsistencies(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        seen: dict[object, int] = {}
        for index, entry in enumerate(self.latency):
            where = ("latency", index)
            yield from self._unknown_dims((*where, "at"), entry.at)
            if entry.exporter is not None and entry.exporter not in self.export.exporters:
                yield (*where, "exporter"), f"{entry.exporter} is not one of the case's exporters"
            sides = [("precision", entry.precision)]
            if entry.at_most is not None and entry.at_most.precision is not None:
                sides.append(("at_most", entry.at_most.precision))
            for key, precision in sides:
                if precision != "fp32" and precision not in self.precisions:
                    known = {"fp32", *self.precisions}
                    yield (*where, key), f"the case has no precision '{precision}'{did_you_mean(precision, known)}"
            name = (entry.runtime, entry.precision, entry.exporter, entry.label)
            if name in seen:
                yield where, f"entry {seen[name] + 1} is about the same; tell them apart by at, or put them together"
            seen.setdefault(name, index)

    def tensorrt_opsets(self, exporter: Exporter) -> list[int]:
        """The opsets of an exporter whose models TensorRT runs."""
        opsets, wanted = self.export.exporters[exporter].opsets, self.tensorrt.opsets
        return [max(opsets)] if wanted is None else [opset for opset in opsets if opset in wanted]

    def converted_opsets(self, precision: str, exporter: Exporter) -> list[int]:
        """The opsets of an exporter whose models are converted to a precision."""
        settings, opsets = self.precisions[precision], self.export.exporters[exporter].opsets
        if settings.left_out is not None:
            return []
        return [max(opsets)] if settings.opsets is None else [opset for opset in opsets if opset in settings.opsets]

    def tolerance_for(self, precision: str) -> PrecisionTolerance:
        """What is declared for a precision, or for what it is a variant of."""
        return self.tolerance.get(precision) or self.tolerance.get(base_of(precision)) or PrecisionTolerance()

    def takes_specials(self, name: str) -> bool:
        """Whether NaN and infinities go into this input."""
        return self.inputs[name].type.is_float and (self.specials is None or name in self.specials)

    def _sizes(self) -> set[str]:
        """The names that an expression over dims may use."""
        return {*self.dims, *self.given, *self.vary}

    def _unknown_dims(
        self, where: tuple[str | int, ...], names: Iterable[str]
    ) -> Iterator[tuple[tuple[str | int, ...], str]]:
        for name in sorted(set(names) - self._sizes()):
            yield where, f"there is no dim {shown(name)}{did_you_mean(name, self.dims)}"


@dataclass(frozen=True)
class Case:
    """A declaration with its name and the place it comes from; what all later stages work on."""

    name: str
    says: Declaration
    file: Path
    line: int
    varied: Mapping[str, Any]
    """The values of ``vary`` in this case."""
    fails_lines: tuple[int, ...] = ()
    """The line of each entry of ``fails``."""
    graph_lines: tuple[int, ...] = ()
    """The line of each entry of ``graph``."""

    def line_of(self, entry: Fails) -> int:
        """The line of an entry of this case's ``fails``."""
        return next(line for own, line in zip(self.says.fails, self.fails_lines, strict=True) if own is entry)

    @property
    def folder(self) -> Path:
        return self.file.parent

    @cached_property
    def dims(self) -> Dims:
        """The dims, with those whole numbers of ``with`` and ``vary`` that a shape, range or condition uses."""
        says = self.says
        used = frozenset[str]().union(
            *(declared.type.names for declared in says.inputs.values()),
            *(sizes.names for sizes in says.dims.values()),
            *(condition.names for condition in says.where),
            *({dim, *sizes.names} for entry in says.fails for dim, sizes in entry.when.at.items() if sizes.names),
        )
        held = {}
        for name in sorted(used - says.dims.keys()):
            value = self.arguments.get(name)
            if type(value) is not int:
                raise ValueError(f"'{name}' is used as a size, but is {shown(value)}")
            held[name] = Range.parse(value)
        return Dims.build({**held, **says.dims}, says.where)

    @property
    def arguments(self) -> dict[str, Any]:
        """``with`` and the varied values together."""
        return {**self.says.given, **self.varied}
