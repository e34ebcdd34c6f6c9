"""From a module to an ONNX model, as a user would export it, with either exporter of torch.onnx; and which sizes
are left open."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import io
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.case.files.declaration import Case
from conformance.case.files.dims import Sizes, TensorType
from conformance.case.files.export_keys import Dynamo, ExportTo, OnnxFile, TorchScript
from conformance.models.exporters import dynamo_cache, symbolics
from conformance.models.exporters.shipped import Side, named_as_in_case, named_as_in_file
from conformance.models.exporters.taken_file import TakenFile
from conformance.models.kept import lowerings
from conformance.models.reference import float64_model
from conformance.models.reference.reference import Reference
from conformance.process.arrays import Array
from conformance.process.disk.onnx_models import Written, serialized
from conformance.process.errors import Stopped, Unavailable, causes, noting
from conformance.results.records.sanitize import one_line
from conformance.results.records.words import Exporter
from conformance.runtimes.onnxgraph.mapped import MappedModel

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass
class Exported:
    """A model as the exporter gave it, with the case's local functions added and simplified if declared."""

    model: ModelProto
    """One that is ``taken`` of a file has no values of its large weights."""
    usage: symbolics.Usage = field(default_factory=symbolics.Usage)
    taken: TakenFile | None = None

    @functools.cached_property
    def data(self) -> Written:
        """The model as it is written."""
        return serialized(self.model) if self.taken is None else self.taken


def export(
    reference: Reference,
    exporter: Exporter,
    opset: int,
    inputs: Mapping[str, Array],
    sizes: Sizes,
    *,
    with_symbolics: bool = True,
    warned: list[str] | None = None,
) -> Exported:
    """Export the case's module with ``inputs``, which were made at ``sizes``.

    ``with_symbolics=False`` leaves out what the case registers. What the exporter warns of goes into ``warned``, also
    where it raises. Raises what the exporter raises.
    """
    import onnx

    case = reference.case
    target = case.says.export.exporters[exporter]
    usage = symbolics.Usage()
    with _hearing([] if warned is None else warned), lowerings.noting((case.file, case.name), exporter):
        if isinstance(target, TorchScript):
            functions, registrars = _symbolics(reference, target) if with_symbolics else ({}, [])
            data, usage = _torchscript(reference, target, opset, inputs, functions, registrars)
            model = onnx.load_from_string(data)
        elif isinstance(target, OnnxFile):
            found = _from_file(reference, target, inputs)
            if found.weights:
                return Exported(found.model, taken=TakenFile(found))
            model = found.model
        else:
            model = _dynamo(reference, target, opset, inputs)
    model = _add_functions(reference, target, opset, model)
    if target.simplify:
        model = _simplify(model, target.simplifier)
    return Exported(model, usage)


def _from_file(reference: Reference, target: OnnxFile, inputs: Mapping[str, Array]) -> MappedModel:
    """Return the model of a file, which is the case's own or was exported of its module somewhere else. Large weights
    stay in a file of which nothing else is made."""
    file = target.file or str(reference.case.says.onnx)
    place = reference.case.folder / file
    as_it_is = not (target.simplify or target.functions)
    found = float64_model.load_mapped(place) if as_it_is else MappedModel(place, float64_model.load(place))
    if target.file is None:
        return found
    named = found.altered(lambda model: named_as_in_case_of(reference, file, model, inputs))
    if named is None:  # a weight has another name
        return MappedModel(place, named_as_in_case_of(reference, file, float64_model.load(place), inputs))
    return named


def named_as_in_case_of(
    reference: Reference, file: str, model: ModelProto, inputs: Mapping[str, Array]
) -> ModelProto:
    """Return the model of another file with the inputs and outputs of the case's own file or module. Raises Stopped
    where they are others."""
    if reference.case.says.onnx is not None:
        first = str(reference.case.says.onnx)
        return named_as_in_file(model, float64_model.load_mapped(reference.case.folder / first).model, file, first)
    declared = {name: inputs[name] for name in reference.passing.in_graph()}
    types = {name: reference.case.says.inputs[name].type for name in declared}
    sizes = {name: [size({}) if not size.names else size.text for size in types[name].shape] for name in declared}
    ours = [Side(name, array.dtype.name, tuple(sizes[name])) for name, array in declared.items()]
    names, arrays = reference.output_names(inputs), reference(inputs)
    given = [Side(name, array.dtype.name, array.shape) for name, array in zip_longest(names, arrays)]
    return named_as_in_case(model, ours, given, file)


def _symbolics(
    reference: Reference, target: TorchScript
) -> tuple[dict[str, Callable[..., object]], list[Callable[[], None]]]:
    resolve = reference.folder.resolve
    functions = {name: resolve(symbolic.function) for name, symbolic in target.symbolics.items()}
    registrars = {symbolic.function: resolve(symbolic.function) for symbolic in target.registers.values()}
    return functions, list(registrars.values())


WARNED = 5
"""How many warnings of one export are kept."""
_OF_NO_MODEL = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)
"""Warnings that say nothing of the model."""


@contextlib.contextmanager
def _hearing(said: list[str]) -> Iterator[None]:
    """Note the warnings inside the block, each once with its line, in place of showing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            telling = [one for one in caught if not issubclass(one.category, _OF_NO_MODEL)]
            lines = (f"{one_line(str(one.message), 240)} ({Path(one.filename).name}:{one.lineno})" for one in telling)
            said += list(dict.fromkeys(lines))[:WARNED]


@contextlib.contextmanager
def _closing_transforms() -> Iterator[None]:
    """Close what torch.func has opened and left open, as an export that raises may: the module would be called in
    it."""
    import torch

    transforms: Any = torch._C._functorch
    depth = transforms.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        transforms.pop_dynamic_layer_stack_and_undo_to_depth(depth)


@_closing_transforms()
def _torchscript(
    reference: Reference,
    target: TorchScript,
    opset: int,
    inputs: Mapping[str, Array],
    functions: Mapping[str, Callable[..., object]],
    registrars: list[Callable[[], None]],
) -> tuple[bytes, symbolics.Usage]:
    import torch

    if isinstance(reference.module, getattr(torch.onnx, "ExportableModule", ())):  # which older releases lack
        text = "torch.onnx.export gives a torch.onnx.ExportableModule to dynamo, whatever dynamo= says"
        raise Stopped("export", "OtherExporter", text, "case")
    case = reference.case
    positional, keywords = reference.arguments(inputs)
    options = target.options.model_dump(exclude_none=True)
    modes = {"eval": "EVAL", "preserve": "PRESERVE", "train": "TRAINING"}
    training = options.pop("training", "preserve" if case.says.mode == "train" else None)
    if training is not None:
        options["training"] = getattr(torch.onnx.TrainingMode, modes[training])
    axes = {name: axis_names(declared.type, case, target.static) for name, declared in case.says.inputs.items()}
    buffer: Any = io.BytesIO()  # of which PyTorch takes any, and declares names of files
    registered: contextlib.AbstractContextManager[symbolics.Usage] = contextlib.nullcontext(symbolics.Usage())
    if functions or registrars:  # else torch's registry is left alone, which saves half of a small export's time
        registered = symbolics.registered(functions, registrars, opset=opset)
    with registered as usage:
        torch.onnx.export(
            reference.module,
            positional,
            buffer,
            kwargs=keywords,
            dynamo=False,
            opset_version=opset,
            input_names=reference.passing.in_graph(),
            output_names=reference.output_names(inputs),
            dynamic_axes={name: named for name, named in axes.items() if named},
            **options,
        )
    return buffer.getvalue(), usage


@_closing_transforms()
def _dynamo(reference: Reference, target: Dynamo, opset: int, inputs: Mapping[str, Array]) -> ModelProto:
    import torch

    dynamo_cache.install()
    positional, keywords = reference.arguments(inputs)
    shapes = dynamic_shapes(reference, target.static)
    table = {_operator(name): reference.folder.resolve(function) for name, function in target.translations.items()}
    options = target.options.model_dump(exclude_none=True)
    with noting(_refuse_structure):
        program = torch.onnx.export(
            reference.module,
            positional,
            kwargs=keywords,
            dynamo=True,
            opset_version=opset,
            input_names=reference.passing.in_graph(),
            output_names=reference.output_names(inputs),
            dynamic_shapes=shapes,
            custom_translation_table=table or None,
            verbose=False,
            **options,
        )
    assert program is not None
    if target.options.keep_initializers_as_inputs is None and target.options.export_params is None:
        model: ModelProto = program.model_proto
        return model
    # keep_initializers_as_inputs and export_params take effect where the model is saved.
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        program.save(
            file,
            include_initializers=target.options.export_params is not False,
            keep_initializers_as_inputs=bool(target.options.keep_initializers_as_inputs),
        )
        return onnx.load(str(file))


def _refuse_structure(error: Exception) -> None:
    """Stopped where what an export raises is about the structure of its dynamic_shapes, which this package makes."""
    refusal = refusal_of_structure(error)
    if refusal is not None:
        text = f"torch.export refuses the structure of the dynamic_shapes it was given: {refusal}"
        raise Stopped("export", "BadDynamicShapes", text, "harness", {"hints": ["report"]}) from error


def _operator(name: str) -> Any:
    """``torchvision::deform_conv2d`` as the overload that a translation table is keyed by; ``_operator::floordiv``,
    of sizes, as the function of Python that torch captures."""
    import operator as python

    import torch

    namespace, operator = name.split("::")
    if namespace == "_operator" and hasattr(python, operator):
        return getattr(python, operator)
    operator, _, overload = operator.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload or "default")
    except AttributeError:
        text = f"translations: torch has no operator {name}; is the package imported that defines it?"
        raise Stopped("declare", "MissingOperator", text, "case") from None


def _add_functions(reference: Reference, target: ExportTo, opset: int, model: ModelProto) -> ModelProto:
    """Put onnxscript functions into the model as ONNX local functions, with the opsets that they need."""
    from onnx import helper

    known = {imported.domain for imported in model.opset_import}
    for name in target.functions:
        function = reference.folder.resolve(name)
        if not hasattr(function, "to_function_proto"):
            text = f"functions: {name} is not an onnxscript function; decorate it with onnxscript.script(...)"
            raise Stopped("declare", "NotAFunction", text, "case")
        proto = function.to_function_proto()
        for imported in proto.opset_import:
            if imported.domain in ("", "ai.onnx"):
                imported.version = opset  # the function is run at the model's opset
        model.functions.append(proto)
        if proto.domain not in known:
            model.opset_import.append(helper.make_opsetid(proto.domain, 1))
            known.add(proto.domain)
    return model


def _simplify(model: ModelProto, by: str) -> ModelProto:
    """Return what onnxsim or onnxslim makes of a model, which stays as it is."""
    try:
        simplifier: Any = importlib.import_module(by)
    except ModuleNotFoundError as error:
        raise Unavailable(f"simplify needs the package {error.name}, which is not installed") from error
    result: ModelProto
    if by == "onnxslim":  # which changes the model that it is given, and checks none
        result = simplifier.slim(copy.deepcopy(model))
        return result
    result, ok = simplifier.simplify(model)
    if not ok:
        raise Stopped("export", "SimplifierError", "onnxsim's own check of the simplified model fails", "exporter")
    return result


def axis_names(type_: TensorType, case: Case, static: list[str]) -> dict[int, str]:
    """The axes to export as symbolic, with a name for each: those with a dim that varies and is not static."""
    names: dict[int, str] = {}
    for axis, size in enumerate(type_.shape):
        if any(not case.dims.ranges[name].fixed and name not in static for name in size.names):
            names[axis] = size.text if size.text.isidentifier() else f"{'_'.join(sorted(size.names))}_{axis}"
    return names


def dynamic_shapes(reference: Reference, static: list[str]) -> dict[str, object] | tuple[object, ...] | None:
    """Return what ``torch.export`` is to keep symbolic, as forward's signature takes the inputs: by the names of its
    parameters, with a tuple for ``*args`` and a dict for ``**kwargs``. None where all dims are fixed."""
    import torch

    dynamic = torch.export.Dim.DYNAMIC  # AUTO would freeze a dim without a word
    case = reference.case
    shapes = {
        name: dict.fromkeys(axis_names(declared.type, case, static), dynamic)
        for name, declared in case.says.inputs.items()
    }
    if not any(shapes.values()):
        return None
    positional, keywords = reference.passing.passed(shapes)
    try:
        return dict(reference.passing.signature().bind(*positional, **keywords).arguments)
    except (TypeError, ValueError):  # a decorator shows a signature that is not the one forward is called by
        return (*positional, *keywords.values())


_STRUCTURAL = (AssertionError, AttributeError, IndexError, KeyError, TypeError)
"""What Python raises of a structure that is looked into and is another."""


def refusal_of_structure(error: BaseException) -> str | None:
    """The complaint of ``torch.export`` that ``dynamic_shapes`` are not structured as the inputs are, behind whatever
    was made of it; None where the exception says something of the module, as that a dim is specialised.

    ``torch/export/dynamic_shapes.py`` raises UserError of the kind INVALID_INPUT after it has compared the two, or
    what Python raises of looking into a structure that is another. Arguments that the signature does not take raise
    TypeError in ``inspect``, which is about the module.
    """
    for cause in causes(error, hidden=False):
        frames = traceback.extract_tb(cause.__traceback__)
        within = bool(frames) and Path(frames[-1].filename).as_posix().endswith("torch/export/dynamic_shapes.py")
        # torch.onnx asks it for other shapes after any UserError, and what it raises then is about its own text
        if within and not any(frame.name.startswith("refine_") for frame in frames):
            kind = getattr(getattr(cause, "error_type", None), "name", None)
            if kind == "INVALID_INPUT" or isinstance(cause, _STRUCTURAL):
                return next(iter(str(cause).strip().splitlines()), type(cause).__name__)
    return None
