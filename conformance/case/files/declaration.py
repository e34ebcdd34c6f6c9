"""Model a case as a whole, and check what its parts say against one another.

The models of a case file (here and in the other modules of this folder) are frozen and closed: an unknown key is an
error. Shorthand, such as an input written as a plain string, is spelled out by a ``BeforeValidator`` before any field
is looked at, so that the place of an error is the place that the author sees. ``case_file`` reads files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from conformance.case.files.built import Built
from conformance.case.files.deploy import Latency, OnnxRuntime, TensorRT
from conformance.case.files.dims import Dims, Range
from conformance.case.files.export_keys import Dynamo, Export, TorchScript
from conformance.case.files.field_types import (
    PATH,
    ChoiceName,
    DottedName,
    FilesBeside,
    InputName,
    Listed,
    Many,
    Once,
    PrecisionName,
    ReturnedPath,
    Says,
    Short,
    Size,
    SizeNumber,
    SizeRange,
    SubmodulePath,
    Word,
)
from conformance.case.files.inputs import ExampleLimits, InputOrType
from conformance.case.files.limits import FORWARD
from conformance.case.files.metric import Metric, Preprocess
from conformance.case.files.must_hold import Fails, Graphs, OutputOrName, PrecisionTolerance
from conformance.case.files.precision import PrecisionSettings
from conformance.case.files.recording import Recorded, spell_out
from conformance.case.files.sampled import FromSamples
from conformance.case.files.stepwise import Steps, spell_out_steps
from conformance.case.files.structure import flattened
from conformance.process.errors import shown
from conformance.results.records.words import Exporter, Runtime, base_of
from conformance.runtimes.registry import IN_CASES

COMMAND = "command:"
"""Before the name of a command among what a case needs."""


def _spell_out_specials(value: object) -> object:
    if not isinstance(value, bool | list | None):
        raise ValueError(f"say true, false or a list of inputs, not {value!r}")
    return {True: None, False: []}[value] if isinstance(value, bool) else value


class Declaration(Says):
    """One case as the file says it."""

    about: str = Field(min_length=1)
    """What the case is for, for the reader of a report."""
    tags: Listed[str] = []
    """Words that pytest's -k selects by."""
    forward: str | None = Field(None, max_length=FORWARD)
    """A Python expression over the inputs; torch, F, math, and the Python files beside the case file are in scope."""
    module: DottedName | None = None
    """A torch.nn.Module class, or a function that returns a module, in a Python file beside the case file, in the
    working directory, or in any package that is installed, as ``torch.nn.GroupNorm``."""
    onnx: FilesBeside | None = None
    """An ONNX file beside the case file, in place of a module: what it means by ONNX's evaluator is what runtimes are
    held against. Inputs, outputs, dims and opset are the file's, where the case does not say them."""
    samples: FromSamples | None = None
    """In place of a module and inputs: a case for each of these samples of PyTorch's own tests."""
    submodule: SubmodulePath | None = None
    """The part of ``module`` that is exported and run, as ``encoder.layer.0``; the inputs are its own."""
    given: dict[str, Any] = Field({}, alias="with")
    """Constructor arguments of ``module``, or names for ``forward``; "torch.int32" is the dtype. Objects are made by
    ``{new: package.Class, with: {...}}``, or of JSON by ``{file: x.json, of: package.Class}``."""
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
    inputs: Annotated[dict[InputName, InputOrType], Many]
    """The inputs by their ONNX names, in the order of forward's parameters."""
    call: Annotated[list[dict[str, Any]] | None, SkipJsonSchema()] = None
    """Made of ``inputs`` where some are lists, mappings or constants: how forward is called
    (``case.files.structure``)."""
    clones: bool | list[str] = False
    """Inputs that forward changes in place, or true for all: it is given clones of them."""
    unused: Listed[str] = []
    """Inputs that forward does not use, which an exporter may leave out of the graph."""
    returns: Listed[ReturnedPath] = []
    """What the graph returns of what forward returns, by keys, attributes and numbers: ``logits``, ``past.0.key``.
    Without ``outputs`` the paths are the names."""
    outputs: list[OutputOrName] = []
    """Names of all outputs, depth first. A list that a scripted module returns is one output of the graph: it has one
    name, and its tensors are ``name.0``, ``name.1`` in tolerances; or each of its tensors has a name."""
    dims: Annotated[dict[Word, SizeRange], Many] = {}
    """The range of each dim; both ends always run."""
    where: Annotated[Listed[Size], Many] = []
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
    examples: ExampleLimits = ExampleLimits()
    """How many shapes and values are drawn."""
    recorded: Annotated[
        Recorded | None, BeforeValidator(spell_out, json_schema_input_type=Recorded | list[str] | str)
    ] = None
    """Of an ONNX file: inputs and outputs that somebody recorded, which are compared in a check of their own. Draws
    have values of the recorded ranges, and the recorded sizes where no dims are given."""
    metric: Metric | None = None
    """A score of one's own that must not drop, in a check of its own for each runtime and precision."""
    preprocess: Preprocess | None = None
    """Two ways to make inputs of raw data, of which the module has to make the same, in a check of its own."""
    steps: Annotated[Steps | None, BeforeValidator(spell_out_steps, json_schema_input_type=Steps | int)] = None
    """Of a decoder with a cache: also run it step by step, each side with a cache of its own, as a check of its own.
    A number alone is how many steps follow the first run."""
    needs: Listed[str] = []
    """Packages (import names), or ``command:g++``, without which the case is skipped with a reason."""
    depends: Listed[FilesBeside] = []
    """Data files that the case's Python reads, so that editing one exports again."""

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, said: object) -> object:
        if isinstance(said, dict) and "call" in said:
            raise ValueError("unknown key 'call'")
        if not (isinstance(said, dict) and isinstance(said.get("inputs"), dict)):
            return said
        returns = said.get("returns")
        tensors, call = flattened(said["inputs"], written=bool(said.get("clones") or returns))
        paths = list(map(str, returns if isinstance(returns, list) else [returns])) if returns else []
        if all(map(PATH.fullmatch, paths)) and paths and not said.get("outputs"):
            said = {**said, "outputs": [path if path[:1].isalpha() else f"output_{path}" for path in paths]}
        return said if call is None else {**said, "inputs": tensors, "call": call}

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

    @property
    def own_precision(self) -> str | None:
        """Return the precision that the case's own file is in already: then it has no cells in float32."""
        own = (name for name, settings in self.precisions.items() if self.onnx and settings.file == self.onnx)
        return next(own, None)

    def tolerance_for(self, precision: str) -> PrecisionTolerance:
        """Return what is declared for a precision, or for what it is a variant of."""
        return self.tolerance.get(precision) or self.tolerance.get(base_of(precision)) or PrecisionTolerance()

    @property
    def is_drafted(self) -> bool:
        """Return whether the case is a file about whose inputs nobody has said more than recorded data shows."""
        unsaid = self.recorded is not None or all(entry.is_drafted for entry in self.inputs.values())
        return self.onnx is not None and unsaid

    @property
    def is_given(self) -> bool:
        """Return whether the case is a file of whose inputs somebody has given all values."""
        values = [entry.values for entry in self.inputs.values()]
        return self.onnx is not None and all(one is not None and one.exactly is not None for one in values)

    def takes_specials(self, name: str) -> bool:
        """Return whether NaN and infinities go into this input."""
        return self.inputs[name].type.is_float and (self.specials is None or name in self.specials)


@dataclass(frozen=True)
class Case:
    """A declaration with its name and the place it comes from; what all later stages work on."""

    name: str
    says: Declaration
    file: Path
    line: int
    varied: Mapping[str, object]
    """The values of ``vary`` in this case."""
    fails_lines: tuple[int, ...] = ()
    """The line of each entry of ``fails``."""
    graph_lines: tuple[int, ...] = ()
    """The line of each entry of ``graph``."""
    built: Built | None = None
    """The module, where it is built already."""

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
    def arguments(self) -> dict[str, object]:
        """``with`` and the varied values together."""
        return {**self.says.given, **self.varied}
