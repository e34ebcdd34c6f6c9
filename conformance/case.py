"""What a case says: the schema of a case file, one pydantic model for each mapping in it.

The models are closed (an unknown key is an error) and frozen. Shorthand, such as an input written as a
plain string, is spelled out by a ``BeforeValidator`` before any field is looked at, so that the place of
an error is the place that the author sees. Reading files is the job of ``casefile``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, Field, model_validator

from conformance.compare import DEFAULTS
from conformance.deploy import Latency, TensorRT
from conformance.dims import Dims, Expression, Range
from conformance.errors import did_you_mean
from conformance.fields import (
    Decibels,
    DottedName,
    Listed,
    OperatorName,
    OpsetCondition,
    PrecisionName,
    Says,
    Size,
    SizeRange,
    TensorName,
    Type,
)
from conformance.noise import BUDGETS

Exporter: TypeAlias = Literal["torchscript", "dynamo"]
Runtime: TypeAlias = Literal["onnx-reference", "onnxruntime", "tensorrt"]
Precision: TypeAlias = Literal["fp32", "fp16", "int8"]
Check: TypeAlias = Literal["export", "registration", "accuracy", "specials", "fidelity", "engine", "latency"]
Stage: TypeAlias = Literal["declare", "export", "check", "convert", "load", "run", "compare", "latency"]
Fault: TypeAlias = Literal["exporter", "runtime", "precision", "reference", "case", "harness"]


Regime: TypeAlias = Literal[
    "plain", "large", "ties", "negative", "grid", "equal", "ends", "tiny", "offset", "zero"
]  # fmt: skip
"""Kinds of finite values (``values`` makes them); plain is what the case declares, or standard normal."""
Special: TypeAlias = Literal["nan", "inf", "-inf", "signed zero", "mixed"]
"""Kinds of values that have a check of their own."""

INT8_OPSET = 13
"""Where QuantizeLinear and DequantizeLinear got an axis."""

REGIMES: tuple[str, ...] = get_args(Regime)
SPECIALS: tuple[str, ...] = get_args(Special)


# ---- inputs ------------------------------------------------------------------------------------------


class Between(Says):
    """Both ends included; the ends may be expressions over dims."""

    low: float | Size
    high: float | Size

    @model_validator(mode="after")
    def _ordered(self) -> Between:
        low, high = self.constants
        if low is not None and high is not None and not low <= high:
            raise ValueError(f"low {low:g} is above high {high:g}")
        return self

    @property
    def constants(self) -> tuple[float | None, float | None]:
        """The two ends where they do not depend on dims."""
        return tuple(e.constant if isinstance(e, Expression) else e for e in (self.low, self.high))  # type: ignore[return-value]


class Normal(Says):
    """A normal distribution."""

    mean: float = 0.0
    std: float = Field(1.0, gt=0)


def _spell_out_values(value: object) -> object:
    return {"python": value} if isinstance(value, str) else value


class Values(Says):
    """Where the values of an input come from; exactly one of these."""

    uniform: Between | None = None
    """Floats of this range; every regime stays within it."""
    integers: Between | None = None
    """Whole numbers of this range."""
    normal: Normal | None = None
    """A normal distribution; regimes may go beyond it."""
    choice: Annotated[list[float], Field(min_length=1)] | None = None
    """One of these for each element."""
    permutations: Size | None = None
    """Along the last axis, permutations of 0..n-1; that axis has n entries."""
    python: DottedName | None = None
    """A function ``f(shape, dims, rng) -> array`` in a Python file beside the case file."""

    @model_validator(mode="after")
    def _one(self) -> Values:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}")
        return self


def _spell_out_input(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


class Input(Says):
    type: Type
    values: Annotated[Values, BeforeValidator(_spell_out_values, json_schema_input_type=Values | str)] | None = None
    """Required for integers, as they may be an index; floats are standard normal and bools random without."""
    as_: str | None = Field(None, alias="as", pattern=r"^[A-Za-z_]\w*$")
    """Pass the input by this keyword instead of by position."""

    @model_validator(mode="after")
    def _has_values(self) -> Input:
        if self.type.dtype.lstrip("u").startswith("int") and self.values is None:
            raise ValueError(
                "an integer input needs values, as it may be an index: "
                "add values: {integers: {low: 0, high: n - 1}} or another range"
            )
        return self


# ---- export ------------------------------------------------------------------------------------------


class Symbolic(Says):
    """A TorchScript symbolic function and what its registration check is to find."""

    function: DottedName
    """``f(g, *inputs)``, or under registers a function of no arguments."""
    without: str = "UnsupportedOperatorError"
    """What export does without it: the name of an exception, or ``another graph`` for an override."""
    ignores: dict[str, str] = {}
    """Tensor inputs of the operator that the symbolic may ignore, each with the reason."""


def _spell_out_symbolic(value: object) -> object:
    return {"function": value} if isinstance(value, str) else value


class SavingOptions(Says):
    """Arguments of ``torch.onnx.export`` that both exporters have; those left out keep torch's defaults."""

    keep_initializers_as_inputs: bool | None = None
    export_params: bool | None = None


class TorchScriptOptions(SavingOptions):
    do_constant_folding: bool | None = None
    training: Literal["eval", "preserve", "train"] | None = None
    custom_opsets: dict[str, int] | None = None


class DynamoOptions(SavingOptions):
    optimize: bool | None = None


class ExportTo(Says):
    opsets: Annotated[Listed[Annotated[int, Field(ge=1, le=40)]], Field(min_length=1)]
    """Each is exported by itself."""
    static: Listed[str] = []
    """Dims that are fixed at the traced size instead of exported as symbolic."""
    functions: Listed[DottedName] = []
    """onnxscript functions that go into the model as ONNX local functions, for a custom domain."""
    simplify: bool = False
    """Pass the model through onnxsim; what is checked and run is the simplified model."""

    def own_code(self) -> dict[str, str]:
        """What the case itself puts into the export: by operator or name, the function beside the case file."""
        return {name: name for name in self.functions}


class TorchScript(ExportTo):
    """``torch.onnx.export(dynamo=False)``."""

    options: TorchScriptOptions = TorchScriptOptions()
    """Arguments of torch.onnx.export."""
    symbolics: dict[
        OperatorName,
        Annotated[Symbolic, BeforeValidator(_spell_out_symbolic, json_schema_input_type=Symbolic | str)],
    ] = {}
    """Symbolic functions by operator, registered for this export only."""
    registers: dict[
        OperatorName,
        Annotated[Symbolic, BeforeValidator(_spell_out_symbolic, json_schema_input_type=Symbolic | str)],
    ] = {}
    """Operators that a function of no arguments registers itself, for example with a decorator."""

    def own_code(self) -> dict[str, str]:
        registered = {**self.symbolics, **self.registers}
        return {**super().own_code(), **{name: one.function for name, one in registered.items()}}


class Dynamo(ExportTo):
    """``torch.onnx.export(dynamo=True)``."""

    options: DynamoOptions = DynamoOptions()
    """Arguments of torch.onnx.export."""
    translations: dict[OperatorName, DottedName] = {}
    """``custom_translation_table``: an onnxscript function for a torch operator."""

    def own_code(self) -> dict[str, str]:
        return {**super().own_code(), **self.translations}


def _spell_out_exporter(value: object) -> object:
    return {"opsets": value} if isinstance(value, (int, list)) and not isinstance(value, bool) else value


class Export(Says):
    torchscript: (
        Annotated[
            TorchScript,
            BeforeValidator(_spell_out_exporter, json_schema_input_type=TorchScript | list[int] | int),
        ]
        | None
    ) = None
    dynamo: (
        Annotated[Dynamo, BeforeValidator(_spell_out_exporter, json_schema_input_type=Dynamo | list[int] | int)]
        | None
    ) = None

    @property
    def exporters(self) -> dict[Exporter, TorchScript | Dynamo]:
        found = {"torchscript": self.torchscript, "dynamo": self.dynamo}
        return {name: target for name, target in found.items() if target is not None}  # type: ignore[misc]


# ---- what must hold ------------------------------------------------------------------------------------


class When(Says):
    """Which cells, or which draws of a cell; what is left out matches all."""

    exporter: Exporter | None = None
    opset: OpsetCondition | None = None
    runtime: Listed[Runtime] | None = None
    precision: Listed[PrecisionName] | None = None
    """``int8`` means ``int8-entropy`` and the like too. Without it, what follows the conversion is about fp32."""
    check: Listed[Check] | None = None
    given: dict[str, Any] = Field({}, alias="with")
    """Values of ``vary``, so that an entry can be about one combination."""
    at: dict[str, SizeRange] = {}
    """Only draws whose dims lie here; the rest of the cell must still hold."""
    values: Listed[Regime | Special] = []
    """Only draws of these value regimes; the rest of the cell must still hold."""

    @property
    def only_some_draws(self) -> bool:
        return bool(self.at or self.values)


class Fails(Says):
    """An expected failure. Strict: it has to happen, at this stage, with this error."""

    when: When = When()
    """Which cells, or which of their draws."""
    stage: Stage
    """The stage that stops."""
    error: str | None = None
    """The name of the error (an exception, a signal, or one of ours such as WrongValue) or a part of its text."""
    fault: Fault | None = None
    """Who is at fault, where that is known better than the suite can tell."""
    because: str = Field(min_length=1)
    """The fact behind it, in a sentence."""


class Graph(Says):
    """What the exported graph must look like."""

    when: When = When()
    """Which cells this entry is about."""
    nodes: dict[str, Annotated[int, Field(ge=0)]] = {}
    """How many nodes of each of these operators; ``domain::Operator`` outside of ONNX's own domain."""
    only: bool = False
    """There are no nodes but those."""
    absent: Listed[str] = []
    """Operators that have no node."""
    inputs: list[str] | None = None
    """Names of the graph's inputs, in order."""
    outputs: list[str] | None = None
    """Names of the graph's outputs, in order."""
    initializers: int | None = Field(None, ge=0)
    """How many initializers there are in all."""
    overridable: int | None = Field(None, ge=0)
    """How many initializers are graph inputs too, so that a caller can replace them."""
    domains: dict[str, int] = {}
    """Operator sets that the model imports, with their versions."""
    dims: dict[str, list[int | str | None]] = {}
    """The dims of a graph input or output: a size, ``symbolic``, or null where anything will do."""


class OutputTolerance(Says):
    """What is left out keeps the default: of the output's dtype for fp32, of the precision for the others."""

    rtol: float | None = Field(None, ge=0, allow_inf_nan=False)
    """fp32: relative to the value that PyTorch gives."""
    atol: float | None = Field(None, ge=0, allow_inf_nan=False)
    """fp32: absolute, as it stands; the default one shrinks with outputs below 1."""
    sqnr: Decibels | None = None
    """fp16, int8: signal to quantization noise against PyTorch in float32, at least; ``20 dB``."""
    cosine: float | None = Field(None, gt=0, le=1)
    """fp16, int8: in place of ``sqnr``, the cosine similarity, at least. It is blind to scale, which is why
    ``magnitude`` goes with it."""
    magnitude: float | None = Field(None, gt=0, lt=1)
    """With ``cosine``: how far the output's size may be off, relative to PyTorch's."""
    runtime: Decibels | None = None
    """fp16, int8: signal to noise of a runtime against the converted graph's own semantics, at least."""

    def gives(self, *names: str) -> bool:
        return any(getattr(self, name) is not None for name in names)


class PrecisionTolerance(OutputTolerance):
    outputs: dict[int | str, OutputTolerance] = {}
    """By index or name of the output."""
    because: str | None = None
    """Required where it is looser than the default."""

    def for_output(self, index: int, name: str) -> OutputTolerance:
        """What is said of one output, and of all where nothing is said of this one."""
        own = self.outputs.get(index) or self.outputs.get(name) or OutputTolerance()
        general = {key: getattr(self, key) for key in OutputTolerance.model_fields}
        if own.gives("sqnr", "cosine"):
            general |= {"sqnr": None, "cosine": None, "magnitude": None}
        return OutputTolerance(**{**general, **own.model_dump(exclude_none=True)})

    def inconsistencies(self, precision: str) -> Iterator[str]:
        """What does not fit the precision that this is said of, or is looser than the default for no reason."""
        for given in (self, *self.outputs.values()):
            if precision == "fp32" and given.gives("sqnr", "cosine", "magnitude", "runtime"):
                yield "sqnr, cosine, magnitude and runtime are for fp16 and int8; for fp32 give rtol and atol"
            if precision != "fp32" and given.gives("rtol", "atol"):
                yield "rtol and atol are for fp32; for other precisions give sqnr, or cosine and magnitude"
            if given.sqnr is not None and given.cosine is not None:
                yield "give sqnr or cosine, not both"
            if (given.cosine is None) != (given.magnitude is None):
                yield "cosine and magnitude go together: cosine alone is blind to scale"
            if self.because is None and (text := _looser(given, precision)):
                yield f"looser than the default ({text}): say because"


def _looser(given: OutputTolerance, precision: str) -> str | None:
    """The default that ``given`` is looser than, as text; a cosine can be compared with no default."""
    if precision == "fp32":
        default = DEFAULTS["float32"]
        loose = (given.rtol or 0) > default.rtol or (given.atol or 0) > default.atol
        return f"rtol {default.rtol:g}, atol {default.atol:g}" if loose else None
    budget = BUDGETS[base_of(precision)]
    loose = given.cosine is not None or (given.sqnr is not None and given.sqnr < budget.sqnr)
    loose = loose or (given.runtime is not None and given.runtime < budget.runtime)
    return f"sqnr {budget.sqnr:g} dB, runtime {budget.runtime:g} dB" if loose else None


def base_of(precision: str) -> str:
    """``int8`` of ``int8-entropy``."""
    return precision.partition("-")[0]


# ---- precisions ----------------------------------------------------------------------------------------


class Calibration(Says):
    """The inputs that ranges are measured on."""

    method: Literal["minmax", "entropy", "percentile"] = "minmax"
    """int8: how a range is made of what was measured."""
    percentile: float = Field(99.99, gt=50, le=100)
    """With ``method: percentile``, the share of values inside the range, in percent."""
    samples: int = Field(32, ge=8)
    """How many there are in all; with data of your own, how many of them are taken."""
    batch: int = Field(8, ge=1)
    """How many the model sees at once, where the case has a dim that is the first of all inputs."""
    at: dict[str, Annotated[int, Field(ge=1)]] = {}
    """The other dims; those left out are as in the export."""
    data: str | None = None
    """Instead of plain draws of the case: a ``.npy`` or ``.npz`` file beside the case file (samples along the first
    axis, by input name), or ``file.function``, a Python function ``f(rng)`` that yields ``{input: array}``, one batch
    each."""


def _spell_out_exclude(value: object) -> object:
    return {"torchscript": value, "dynamo": value} if isinstance(value, (str, list)) else value


class Exclude(Says):
    """By exporter, since they name nodes differently."""

    torchscript: Listed[str] = []
    """Names of nodes, patterns such as ``/head/*``, or operators such as ``LayerNormalization``."""
    dynamo: Listed[str] = []
    """Names of nodes, patterns such as ``node_conv2d*``, or operators such as ``LayerNormalization``."""


class PrecisionSettings(Says):
    """How the model is converted to a precision. fp16 has no ``operators``."""

    left_out: str | None = Field(None, min_length=1)
    """Why this case has no such precision."""
    opsets: Annotated[Listed[int], Field(min_length=1)] | None = None
    """Which of the exported models are converted; the default is the highest opset of each exporter."""
    exclude: Annotated[
        Exclude, BeforeValidator(_spell_out_exclude, json_schema_input_type=Exclude | list[str] | str)
    ] = Exclude()
    """What stays in fp32. An entry that matches nothing is an error."""
    operators: Listed[str] | None = None
    """int8: the operators that are quantized; the default is Conv, ConvTranspose, MatMul and Gemm."""
    calibration: Calibration = Calibration()
    """int8: where ranges come from. fp16: what overflow is looked for with."""


class Examples(Says):
    """How much is drawn, where the case is too slow for the defaults."""

    shapes: int | None = Field(None, ge=0)
    """Drawn shapes a cell, besides the boundary ones; the default is what --examples says."""
    values: int = Field(4, ge=1)
    """Value draws for each shape."""
    boundary: int | None = Field(None, ge=1)
    """At most so many boundary shapes."""


class Output(Says):
    """One output of the module; its name may stand alone."""

    name: TensorName
    """Its name in the graph."""
    rows: Literal["in order", "in any order"] = "in order"
    """``in any order``: compare as a set of rows along the first axis (NMS, top-k with ties)."""
    vacuous: str | None = None
    """Why zeros, shuffled rows or another draw's values would be right too for this output."""


def _spell_out_output(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _spell_out_graph(value: object) -> object:
    return [value] if isinstance(value, Mapping) else value


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
    forward: str | None = None
    """A Python expression over the inputs; torch, F, math, and the Python files beside are in scope."""
    module: DottedName | None = None
    """A torch.nn.Module class (or a function that returns a module), in a Python file beside the case file."""
    given: dict[str, Any] = Field({}, alias="with")
    """Constructor arguments of ``module``, or names for ``forward``; "torch.int32" is the dtype."""
    vary: dict[str, Annotated[list[Any] | dict[str, Any], Field(min_length=1)]] = {}
    """A grid of values for ``with``; each combination is its own case."""
    script: bool = False
    """torch.jit.script the module, so that its control flow is kept (TorchScript exporter only)."""
    mode: Literal["eval", "train"] = "eval"
    """The mode that the module is exported and run in."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seeds the weights."""
    prepare: DottedName | None = None
    """A function ``f(module)`` that sets weights or statistics after construction."""
    inputs: Annotated[
        dict[
            TensorName,
            Annotated[Input, BeforeValidator(_spell_out_input, json_schema_input_type=Input | str)],
        ],
        Field(min_length=1),
    ]
    """By ONNX name, in the order of forward's parameters."""
    outputs: list[Annotated[Output, BeforeValidator(_spell_out_output, json_schema_input_type=Output | str)]] = []
    """Names of all outputs, depth first."""
    dims: dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], SizeRange] = {}
    """The range of each dim; both ends always run."""
    where: Listed[Size] = []
    """Conditions between dims, such as ``k <= n``."""
    draw: DottedName | None = None
    """A function ``f(dims, rng) -> {input: array}`` for inputs that depend on one another."""
    trace: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Dims to trace at; those left out are chosen."""
    export: Export = Export(torchscript=TorchScript(opsets=[17]), dynamo=Dynamo(opsets=[20]))
    """Exporters with their opsets; those left out are not run. The default is TorchScript 17 and dynamo 20."""
    runtimes: Annotated[Listed[Runtime], Field(min_length=1)] = ["onnx-reference", "onnxruntime"]
    """What runs the model: onnx-reference, onnxruntime, tensorrt."""
    tensorrt: TensorRT = TensorRT()
    """How TensorRT's engines are built, where it is one of the runtimes."""
    libraries: Listed[str] = []
    """Custom-operator libraries: a file, or file.function that returns the path of one."""
    graph: Annotated[list[Graph], BeforeValidator(_spell_out_graph, json_schema_input_type=list[Graph] | Graph)] = []
    """What the exported graph must look like, one entry or several with conditions."""
    precisions: dict[PrecisionName, PrecisionSettings] = {}
    """Besides fp32: ``fp16`` and ``int8``, or variants of them with a name of their own, as in ``int8-entropy``."""
    tolerance: dict[PrecisionName, PrecisionTolerance] = {}
    """By precision; one that is looser than the default says because."""
    specials: Annotated[
        list[str] | None, BeforeValidator(_spell_out_specials, json_schema_input_type=bool | list[str])
    ] = None
    """Also run NaN, infinities and signed zeros, as a check of their own: in all inputs, unless it is false or
    a list of inputs."""
    vacuous: str | None = None
    """Why outputs that would pass whatever the inputs are right for this case (``ones_like``)."""
    fails: list[Fails] = []
    """Expected failures."""
    latency: list[Latency] = []
    """Budgets of time; each is a cell of its own."""
    examples: Examples = Examples()
    """How much is drawn."""
    needs: Listed[str] = []
    """Packages (import names), or ``command:g++``, without which the case is skipped with a reason."""
    depends: Listed[str] = []
    """Data files that the case's Python reads, so that editing one exports again."""

    def inconsistencies(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """What the parts of the case say against one another: where in the case, and what is wrong."""
        if (self.forward is None) == (self.module is None):
            yield (), "give either forward (an expression) or module (a class), one of them"
        if self.script and self.export.dynamo is not None:
            yield ("script",), "script: true is for the TorchScript exporter only; leave dynamo out of export"
        for name in self.specials or ():
            if name not in self.inputs:
                yield ("specials",), f"there is no input '{name}'{did_you_mean(name, self.inputs)}"
        shapes = frozenset[str]().union(*(one.type.names for one in self.inputs.values()))
        for name, one in self.inputs.items():
            for dim in sorted(one.type.names - self._sizes()):
                yield (
                    ("inputs", name, "type"),
                    f"the dim '{dim}' is not declared; add it to dims, as in {dim}: 1..8",
                )
        for name, sizes in self.dims.items():
            yield from self._unknown_dims(("dims", name), sizes.names)
        for index, condition in enumerate(self.where):
            yield from self._unknown_dims(("where", index), condition.names)
        related = [sizes.names for sizes in self.dims.values()] + [one.names for one in self.where]
        for name in sorted(self.dims.keys() - shapes.union(*related)):
            yield ("dims", name), f"no input, range or condition uses the dim '{name}'"
        yield from self._unknown_dims(("trace",), self.trace)
        for exporter, target in self.export.exporters.items():
            yield from self._unknown_dims(("export", exporter, "static"), target.static)
        yield from self._precision_inconsistencies()
        yield from self._tensorrt_inconsistencies()
        yield from self._latency_inconsistencies()
        for index, entry in enumerate(self.fails):
            for dim, sizes in entry.when.at.items():
                yield from self._unknown_dims(("fails", index, "when", "at"), {dim, *sizes.names})
            for word in entry.when.given:
                if word not in self.vary:
                    yield (
                        ("fails", index, "when", "with"),
                        f"vary has no '{word}'{did_you_mean(word, self.vary)}",
                    )

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
            yield where, f"there is no dim '{name}'{did_you_mean(name, self.dims)}"


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

    def line_of(self, entry: Fails) -> int:
        """The line of an entry of this case's ``fails``."""
        return next(line for one, line in zip(self.says.fails, self.fails_lines, strict=True) if one is entry)

    @property
    def folder(self) -> Path:
        return self.file.parent

    @cached_property
    def dims(self) -> Dims:
        """The dims, with those whole numbers of ``with`` and ``vary`` that a shape, range or condition uses."""
        says = self.says
        used = frozenset[str]().union(
            *(one.type.names for one in says.inputs.values()),
            *(sizes.names for sizes in says.dims.values()),
            *(condition.names for condition in says.where),
        )
        held = {}
        for name in sorted(used - says.dims.keys()):
            value = self.arguments.get(name)
            if type(value) is not int:
                raise ValueError(f"'{name}' is used as a size, but is {value!r}")
            held[name] = Range.parse(value)
        return Dims.build({**held, **says.dims}, says.where)

    @property
    def arguments(self) -> dict[str, Any]:
        """``with`` and the varied values together."""
        return {**self.says.given, **self.varied}
