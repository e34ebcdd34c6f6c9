"""Model what must hold: graphs, tolerances, and failures that are expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from conformance.case.files.field_types import (
    Axis,
    Decibels,
    Listed,
    Once,
    OpsetCondition,
    PrecisionName,
    Requirement,
    Says,
    Short,
    SizeRange,
    TensorName,
    with_key,
)
from conformance.compare.noise import NOISE_LIMITS
from conformance.compare.tolerance import DEFAULTS
from conformance.process.errors import shown
from conformance.results.records.processor import Instruction
from conformance.results.records.settle import why_too_wide
from conformance.results.records.words import Check, Exporter, Fault, Regime, Runtime, Special, Stage, base_of


class Processor(Says):
    """The kind of processor that a declared failure is about, in the words of a run's ``environment.cpu``."""

    has: Listed[Instruction] = []
    """Instruction sets of which the processor has at least one."""
    lacks: Listed[Instruction] = []
    """Instruction sets of which the processor has none."""

    @model_validator(mode="after")
    def _possible(self) -> Processor:
        if not self.has and not self.lacks:
            raise ValueError("name instruction sets under has (at least one is there) or lacks (none is)")
        if self.has and {*self.has} <= {*self.lacks}:
            raise ValueError(f"no processor has {' or '.join(self.has)} and lacks the same")
        return self


class When(Says):
    """Select cells, or draws of a cell; what is left out matches all."""

    exporter: Exporter | None = None
    opset: OpsetCondition | None = None
    runtime: Listed[Runtime] | None = None
    precision: Listed[PrecisionName] | None = None
    """``int8`` means ``int8-entropy`` and the like too. Without a precision, an entry about a stage that comes after
    the conversion is about fp32."""
    check: Listed[Check] | None = None
    given: dict[str, Any] = Field({}, alias="with")
    """Values of ``vary``, so that an entry can be about one combination."""
    at: dict[str, SizeRange] = {}
    """Only draws whose dims lie in these ranges; the other draws of the cell must still hold."""
    values: Listed[Regime | Special] = []
    """Only draws of these value regimes; the other draws of the cell must still hold."""
    cpu: Processor | None = None
    """Only hosts with such a processor; on others the entry is not expected to fail, nor reported as out of date."""
    versions: Listed[Requirement] = []
    """Only environments whose packages are of these versions, as in ``onnxruntime < 1.32``; of several all must be.
    Elsewhere the entry is not expected to fail, nor reported as out of date."""

    @property
    def host(self) -> dict[str, list[str]] | None:
        """The hosts that the entry is about, as ``results.records.host_conditions`` takes them; None for all."""
        kind: dict[str, list[str]] = {} if self.cpu is None else self.cpu.model_dump()
        return {**kind, **({"versions": [*self.versions]} if self.versions else {})} or None

    @property
    def only_some_draws(self) -> bool:
        return bool(self.at or self.values)


def _require_text(value: object) -> object:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError("give the reason for the failure, in a sentence")
    return value


class Fails(Says):
    """An expected failure. Strict: it has to happen, at this stage, with this error."""

    when: When = When()
    """Which cells, or which of their draws."""
    stage: Stage
    """The stage that the failure is at."""
    error: str | None = None
    """The whole name of the error (an exception or its cause, a signal, or a name such as WrongValue), or a part of
    its text: at least 8 characters that not every error of the stage has."""
    fault: Fault | None = None
    """The one at fault, as the author knows; others are then asked only with `--explain all`."""
    because: Annotated[str, BeforeValidator(_require_text)] = Field(min_length=1)
    """The fact behind the failure, in a sentence."""

    @model_validator(mode="after")
    def _tells_errors_apart(self) -> Fails:
        why = None if self.error is None else why_too_wide(self.stage, self.error)
        if why is not None:
            raise ValueError(f"error: {shown(self.error)} would excuse other failures too: {why}")
        return self


class GraphAssertion(Says):
    """State what the exported graph must look like."""

    when: When = When()
    """Which cells this entry is about."""
    nodes: dict[str, Annotated[int, Field(ge=0)]] = {}
    """The number of nodes by operator; ``domain::Operator`` outside of ONNX's own domain."""
    only: bool = False
    """Whether the graph has no operators but those under ``nodes``."""
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


class Rows(Says):
    """Set how the rows along the first axis of an output are compared."""

    match: Literal["in order", "in any order", "iou"]
    """``iou``: rows of boxes (x1, y1, x2, y2), as detectors give them, matched where they overlap by 0.9."""
    with_: Listed[TensorName] = Field([], alias="with", max_length=64)
    """Of boxes: the outputs that have a row for each of them, such as scores and labels."""
    at_least: float = Field(0.9, ge=0.5, le=1)
    """Of boxes: the share of rows that has to have a match, of the side that has more rows. What has a match is
    compared with its tolerance."""

    @model_validator(mode="after")
    def _of_boxes(self) -> Rows:
        if self.match != "iou" and self.model_fields_set - {"match"}:
            raise ValueError("with and at_least are about rows of boxes: match: iou")
        return self


_InOrder = Literal["in order", "in any order"]


class Output(Says):
    """One output of the module; its name may stand alone."""

    name: TensorName
    """The output's name in the graph."""
    rows: Annotated[Rows, with_key("match", Rows | _InOrder)] = Rows(match="in order")
    """``in order``, which goes without saying; ``in any order``: compare as a set of rows along the first axis (NMS,
    top-k with ties); rows of boxes: ``{match: iou, with: [scores, labels], at_least: 0.9}``."""
    indices_of: TensorName | None = None
    """The values are indices of this input or other output: what stands there is compared, as any of equal values may
    be named (``topk``, ``sort``, ``argmax``)."""
    axis: Annotated[Listed[Axis], Once, Field(min_length=1, max_length=8)] = [-1]
    """With ``indices_of``: the axis that is indexed; several, side by side, where indices count as if these were
    flattened (max pooling)."""
    vacuous: str | None = None
    """Why zeros, shuffled rows or another draw's values would be right too for this output."""
    random: str | None = None
    """Why its values are random on purpose: at fp32 its dtype, its shape and the range of its values are compared."""

    @property
    def shows_nothing(self) -> bool:
        """Return whether its values say nothing of a model."""
        return bool(self.vacuous or self.random)

    @model_validator(mode="after")
    def _indexes(self) -> Output:
        if self.indices_of is None and "axis" in self.model_fields_set:
            raise ValueError("axis says along which axis indices count; indices_of says of what")
        return self


OutputOrName: TypeAlias = Annotated[Output, with_key("name", Output | str)]
"""An output, or its name alone."""


OF_NOISE = ("sqnr", "cosine", "magnitude", "runtime", "channel_sqnr", "bias")
"""The keys that limit the noise of a reduced precision."""


def _spell_out_graph(value: object) -> object:
    return [value] if isinstance(value, Mapping) else value


Graphs: TypeAlias = Annotated[
    list[GraphAssertion],
    Short,
    BeforeValidator(_spell_out_graph, json_schema_input_type=list[GraphAssertion] | GraphAssertion),
]
"""One entry about the graph, or several with conditions."""


class OutputTolerance(Says):
    """Limits of error. What is left out keeps the default, which depends on the output's dtype for fp32 and on the
    precision otherwise."""

    rtol: float | None = Field(None, ge=0, allow_inf_nan=False)
    """fp32: the error that is allowed, relative to the value that PyTorch gives."""
    atol: float | None = Field(None, ge=0, allow_inf_nan=False)
    """fp32: the error that is allowed whatever the size of the outputs; the default shrinks with outputs below 1."""
    sqnr: Decibels | None = None
    """fp16, int8: the least signal to quantization noise against PyTorch in float32, as in ``20 dB``."""
    cosine: float | None = Field(None, gt=0, le=1)
    """fp16, int8: in place of ``sqnr``, the least cosine similarity. Cosine similarity is blind to scale, so
    ``magnitude`` goes with it."""
    magnitude: float | None = Field(None, gt=0, lt=1)
    """With ``cosine``: how far the output's size may be off, relative to PyTorch's."""
    runtime: Decibels | None = None
    """fp16, int8: the least signal to noise of a runtime against the converted graph's own semantics."""
    channel_sqnr: Decibels | None = None
    """fp16, int8: as ``sqnr``, of each channel of an output by itself; without it none is judged."""
    bias: float | None = Field(None, gt=0, lt=1)
    """fp16, int8: the most that all values together may be too large or too small by, relative to them: ``0.01``."""

    def gives(self, *names: str) -> bool:
        return any(getattr(self, name) is not None for name in names)


class PrecisionTolerance(OutputTolerance):
    outputs: dict[int | str, OutputTolerance] = {}
    """Limits of single outputs, by index or name."""
    because: str | None = None
    """Why the tolerance is right; required where it is looser than the default."""

    def for_output(self, index: int, *names: str) -> OutputTolerance:
        """Return the tolerance of this output, by its index or its first known name.

        Where nothing is said of it, what is said of all outputs.
        """
        keys = [key for key in (index, *names) if key in self.outputs]
        own = self.outputs[keys[0]] if keys else OutputTolerance()
        general = {key: getattr(self, key) for key in OutputTolerance.model_fields}
        if own.gives("sqnr", "cosine"):
            general |= {"sqnr": None, "cosine": None, "magnitude": None}
        return OutputTolerance(**{**general, **own.model_dump(exclude_none=True)})

    def inconsistencies(self, precision: str) -> Iterator[str]:
        """Find what does not fit ``precision``, or is loose without a ``because``."""
        for given in (self, *self.outputs.values()):
            if precision == "fp32" and given.gives(*OF_NOISE):
                yield f"{', '.join(OF_NOISE)} are for fp16, int8 and the like; for fp32 give rtol and atol"
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
    limit = NOISE_LIMITS[base_of(precision)]
    loose = given.cosine is not None or (given.sqnr is not None and given.sqnr < limit.sqnr)
    loose = loose or (given.runtime is not None and given.runtime < limit.runtime)
    return f"sqnr {limit.sqnr:g} dB, runtime {limit.runtime:g} dB" if loose else None
