"""Model the exports of a case: exporters, opsets and what it registers for them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from conformance.case.files.field_types import DottedName, FilesBeside, Listed, Once, OperatorName, Says, with_key
from conformance.results.records.words import Exporter


class Symbolic(Says):
    """A TorchScript symbolic function, and what the check ``registration`` is to find of it."""

    function: DottedName
    """The function: ``f(g, *inputs)`` under ``symbolics``, without arguments under ``registers``."""
    without: str = "UnsupportedOperatorError"
    """What the export gives without the symbolic: the name of an exception, or ``another graph`` for an override."""
    ignores: dict[str, str] = {}
    """Tensor inputs of the operator that the symbolic may ignore, each with the reason."""


SymbolicOrFunction: TypeAlias = Annotated[Symbolic, with_key("function", Symbolic | str)]
"""A symbolic, or its function alone."""


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
    opsets: Annotated[Listed[Annotated[int, Field(ge=1, le=40)]], Field(min_length=1, max_length=40), Once]
    """The opsets to export at; each gives a model of its own."""
    static: Listed[str] = []
    """Dims that are fixed at the traced size instead of exported as symbolic."""
    functions: Listed[DottedName] = []
    """onnxscript functions that go into the model as ONNX local functions, for a custom domain."""
    simplify: Literal[True, False, "onnxsim", "onnxslim"] = False
    """Pass the model through onnxsim, or onnxslim where it is named, which takes minutes for 20,000 nodes; what is
    checked and run is the simplified model."""

    @property
    def simplifier(self) -> str:
        """Return the package that the model goes through, or an empty text."""
        return "onnxsim" if self.simplify is True else self.simplify or ""

    def own_code(self) -> dict[str, str]:
        """Return the functions of the case's own in the export, by operator or name."""
        return {name: name for name in self.functions}


class TorchScript(ExportTo):
    """``torch.onnx.export(dynamo=False)``."""

    options: TorchScriptOptions = TorchScriptOptions()
    """Arguments of torch.onnx.export."""
    symbolics: dict[OperatorName, SymbolicOrFunction] = {}
    """Symbolic functions by operator, registered for this export only."""
    registers: dict[OperatorName, SymbolicOrFunction] = {}
    """Operators that a function of no arguments registers itself, for example with a decorator."""

    def own_code(self) -> dict[str, str]:
        registered = {**self.symbolics, **self.registers}
        return {**super().own_code(), **{name: symbolic.function for name, symbolic in registered.items()}}


class Dynamo(ExportTo):
    """``torch.onnx.export(dynamo=True)``."""

    options: DynamoOptions = DynamoOptions()
    """Arguments of torch.onnx.export."""
    translations: dict[OperatorName, DottedName] = {}
    """``custom_translation_table``: an onnxscript function for a torch operator."""

    def own_code(self) -> dict[str, str]:
        return {**super().own_code(), **self.translations}


class OnnxFile(ExportTo):
    """A model that is there already, of a case that names its file under ``onnx``."""

    file: FilesBeside | None = None
    """Another file to run, such as a simplified one: it has to compute what the case's own file means."""


def _spell_out_exporter(value: object) -> object:
    return {"opsets": value} if isinstance(value, (int, list)) and not isinstance(value, bool) else value


def _or_opsets(target: object) -> BeforeValidator:
    """Return what takes opsets alone for an export to these."""
    return BeforeValidator(_spell_out_exporter, json_schema_input_type=target | list[int] | int)


class Export(Says):
    torchscript: Annotated[TorchScript, _or_opsets(TorchScript)] | None = None
    dynamo: Annotated[Dynamo, _or_opsets(Dynamo)] | None = None
    onnx: Annotated[OnnxFile, _or_opsets(OnnxFile)] | None = None

    @property
    def exporters(self) -> dict[Exporter, TorchScript | Dynamo | OnnxFile]:
        targets: dict[Exporter, TorchScript | Dynamo | OnnxFile | None] = {
            "torchscript": self.torchscript, "dynamo": self.dynamo, "onnx": self.onnx
        }  # fmt: skip
        return {name: target for name, target in targets.items() if target is not None}
