"""Model the deployment of a case: its sessions, its engines, and its budgets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from conformance.case.files.field_types import (
    BudgetText,
    Listed,
    Mebibytes,
    Positive,
    PrecisionName,
    Says,
    Short,
    SizeNumber,
)
from conformance.process.errors import UserError, did_you_mean
from conformance.results.records.words import Runtime
from conformance.runtimes import registry


class TensorRT(Says):
    """Set how engines are built; the rest is as TensorRT has it, except for TF32."""

    opsets: Annotated[Listed[int], Field(min_length=1)] | None = None
    """Which of the exported models are run; the default is the highest opset of each exporter."""
    typical: dict[str, SizeNumber] = {}
    """The sizes that the engine is tuned for; dims left out are as in the export."""
    workspace: Mebibytes | None = None
    """Device memory that kernels may use, in MiB, or with its unit as in 1 GiB."""
    optimization_level: int | None = Field(None, ge=0, le=5)
    """How long the builder looks for faster kernels, 0 to 5."""
    tf32: bool = False
    """Allow TF32, which rounds fp32 to ten bits of mantissa; TensorRT's own default allows it."""
    hardware_compatibility: Literal["none", "ampere_plus"] = "none"
    """``ampere_plus``: an engine that runs on all GPUs since Ampere, not only on the one it is built on."""
    timing_cache: bool = True
    """Keep the timings of kernels beside the engines, so that the next build picks the same ones."""
    cuda_graph: bool = False
    """Launch the engine as one CUDA graph where its latency is measured."""
    plugins: Listed[str] = []
    """Plugin libraries beside the case file, or file.function that returns the path of one."""
    targets: Annotated[Listed[Annotated[str, Field(pattern=r"^sm[0-9]{2,3}$")]], Field(min_length=1)] = ["sm80"]
    """The GPUs that the check ``build`` has TensorRT for RTX build for: ``sm89`` is compute capability 8.9."""


def _option(value: object) -> object:
    return str(value) if type(value) is int else value


class OnnxRuntime(Says):
    """Make ONNX Runtime's sessions as the deployment makes them."""

    config: dict[
        Annotated[str, Field(min_length=1)],
        Annotated[str, BeforeValidator(_option, json_schema_input_type=str | int)],
    ] = {}
    """Session options by their keys, as in ``session.x64quantprecision: 1``, or a provider's options, as in
    ``ep.cudaexecutionprovider.use_tf32: 1``. One that the installed ONNX Runtime does not know stops the cell at
    ``load``."""


class Latency(Says):
    """Set how fast a runtime has to be, or what is to be measured of it."""

    runtime: Runtime = "onnxruntime"
    """The runtime that is measured."""
    precision: PrecisionName = "fp32"
    """The precision that is measured."""
    exporter: Literal["torchscript", "dynamo"] | None = None
    """The exporter whose model is measured; by default that of each exporter, at its highest opset."""
    at: dict[str, Positive] = {}
    """The dims to measure at; those left out are as in the export."""
    at_most: BudgetText | None = None
    """A relation, such as ``1.2 x pytorch`` or ``1.0 x tensorrt fp16``, or a time, such as ``5 ms``."""
    percentile: float = Field(50, gt=0, lt=100)
    """The percentile of the measured times that a budget in seconds is about."""
    throughput: Annotated[Listed[Positive], Short] = []
    """Batch sizes at which rows a second are measured; the case needs a dim that is the first of all inputs."""
    transfers: bool = False
    """TensorRT: count the copies to and from the device."""
    seconds: float = Field(4.0, gt=0, le=300)
    """How long to measure at most; a verdict that is certain sooner ends it."""

    @model_validator(mode="after")
    def _something(self) -> Latency:
        if self.at_most is None and not self.throughput:
            raise ValueError("give at_most (a budget), throughput (batch sizes), or both")
        if self.percentile != 50 and (self.at_most is None or self.at_most.kind == "relation"):
            raise ValueError("percentile is for a budget in seconds, such as 5 ms")
        if registry.named(self.runtime).only_builds:
            raise ValueError(f"{self.runtime} runs nothing, so there is no time to measure")
        if self.transfers and not registry.named(self.runtime).on_device:
            devices = ", ".join(runtime.name for runtime in registry.RUNTIMES if runtime.on_device)
            raise ValueError(f"transfers is for {devices}; other runtimes have no device")
        return self

    @property
    def label(self) -> str:
        """Tell this entry from others of the same runtime and precision."""
        sizes = [f"{name}{size}" for name, size in self.at.items()]
        return "-".join([*sizes, *(["throughput"] if self.at_most is None else [])])


NOT_OF_THE_BUILDER = {"opsets", "typical", "plugins", "targets"}


def builder_options(text: str) -> dict[str, object]:
    """Options that a run sets in place of its cases, from a text such as ``optimization_level=5,workspace=1GiB``.

    Raises UserError for a key that is not known or a value that does not fit.
    """
    given: dict[str, str] = {}
    known = TensorRT.model_fields.keys() - NOT_OF_THE_BUILDER
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in known:
            raise UserError(f"there is no option '{name}'{did_you_mean(name, known)}")
        given[name] = value
    try:
        options = TensorRT.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}") from None
    return options.model_dump(include=set(given))
