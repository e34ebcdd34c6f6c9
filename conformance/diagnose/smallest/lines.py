"""A function, its export and its run in ONNX Runtime as lines of Python."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.case.files.export_keys import Dynamo, TorchScript
from conformance.diagnose.operators.captured_program import Name
from conformance.diagnose.smallest.extracted_function import Function, FunctionStep, Unwritten
from conformance.models.exporters.symbolics import BASE_OPSET

_ARGUMENT = re.compile(r"torch\.(float|bfloat|complex|int|uint|bool|strided|sparse|contiguous|channels|preserve)\w*")


@dataclass(frozen=True)
class Exporting:
    """The way in which a case exports its module."""

    exporter: str
    opset: int
    options: Mapping[str, object]
    """Arguments of ``torch.onnx.export``."""
    symbolics: Mapping[str, str]
    """What the case registers by operator: the name of a symbolic function, or of a translation."""
    registrars: Mapping[str, str]
    """Functions of no arguments that register a symbolic themselves, by its operator."""
    defines: Sequence[str] = ()
    """The modules that the case's own module is made of, which may define operators of their own."""
    simplifier: str = ""
    """The package that the model goes through, or an empty text."""

    @classmethod
    def of(
        cls, target: TorchScript | Dynamo, exporter: str, opset: int, mode: str, defines: Sequence[str] = ()
    ) -> Exporting:
        options = target.options.model_dump(exclude_none=True)
        if isinstance(target, Dynamo):
            for name in ("keep_initializers_as_inputs", "export_params"):  # which count where a model is saved
                options.pop(name, None)
            return cls(exporter, opset, options, dict(target.translations), {}, defines, target.simplifier)
        if mode == "train":
            options.setdefault("training", "preserve")
        symbolics = {name: symbolic.function for name, symbolic in target.symbolics.items()}
        registrars = {name: symbolic.function for name, symbolic in target.registers.items()}
        return cls(exporter, opset, options, symbolics, registrars, defines, target.simplifier)

    @property
    def own(self) -> tuple[str, ...]:
        """The operators for which the case has code of its own."""
        return (*self.symbolics, *self.registrars)

    def code(self, own: Sequence[str]) -> list[str]:
        """The dotted names of the code for these operators."""
        both = {**self.symbolics, **self.registrars}
        return list(dict.fromkeys(both[name] for name in own))


@dataclass(frozen=True)
class Names:
    """The names of a function's values in the script."""

    inputs: Mapping[str, str]
    constants: Mapping[str, str]
    steps: dict[str, str]

    @classmethod
    def of(cls, function: Function) -> Names:
        made = [name for step in function.steps if handed_on(step) is None for name in step.outputs]
        names = cls(_short("x", function.inputs), _short("c", function.constants), _short("t", dict.fromkeys(made)))
        for step in function.steps:
            same = handed_on(step)
            if same is not None:
                names.steps[step.outputs[0]] = names[same]
        return names

    def __getitem__(self, name: str) -> str:
        if name in self.steps:
            return self.steps[name]
        return self.inputs[name] if name in self.inputs else f"self.{self.constants[name]}"


def handed_on(step: FunctionStep) -> str | None:
    """The name of the value that a step gives on as it is; None for one that computes or takes apart."""
    first = step.call.args[0] if step.call.args else None
    alone = not step.call.function and len(step.outputs) == 1 and isinstance(first, Name)
    return first.name if alone and isinstance(first, Name) else None


def _short(letter: str, names: Mapping[str, object]) -> dict[str, str]:
    return {name: f"{letter}{number}" if len(names) > 1 else letter for number, name in enumerate(names)}


def module(function: Function) -> list[str]:
    """The class of a module whose forward is the function; it gives a tuple. Raises Unwritten."""
    names = Names.of(function)
    lines = ["class Small(torch.nn.Module):", f"    def forward({', '.join(['self', *names.inputs.values()])}):"]
    for step in function.steps:
        if handed_on(step) is not None:
            continue
        outputs = ", ".join(names[name] for name in step.outputs)
        lines.append(f"        {outputs} = {_call(step.call.function, step.call.args, step.call.kwargs, names)}")
    shown = []
    for name in function.returned:
        one = names[name]
        shown.append(f"*{one}" if name in function.lists and name not in function.numbers else
                     f"torch.ones(1, dtype=torch.int64) * {one}" if name in function.numbers else one)  # fmt: skip
    return [*lines, f"        return ({', '.join(shown)},)"]


def _call(function: str, args: Sequence[object], kwargs: Mapping[str, object], names: Names) -> str:
    written = [_argument(one, names) for one in args]
    if not re.fullmatch(r"[\w.]*", function):
        raise Unwritten(function)
    if not function:
        return written[0]
    if re.search(r"[a-z0-9]_\.\w+$", function):  # works in place, on what may be an input
        written[0] += ".clone()"
    return f"{function}({', '.join([*written, *(f'{key}={_argument(one, names)}' for key, one in kwargs.items())])})"


def _argument(value: object, names: Names) -> str:
    if isinstance(value, Name):
        return names[value.name]
    if isinstance(value, list):
        return f"[{', '.join(_argument(one, names) for one in value)}]"
    if isinstance(value, tuple):
        return f"({''.join(f'{_argument(one, names)}, ' for one in value).rstrip()})"
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else f"float({str(value)!r})"
    if _ARGUMENT.fullmatch(str(value)):
        return str(value)
    if type(value).__name__ == "device":
        return f"torch.device({str(value)!r})"
    raise Unwritten(f"a value of the type {type(value).__name__}")


def feeding(function: Function, arrays: Mapping[str, str], traced: Mapping[str, str]) -> list[str]:
    """The module, and what it is called and exported with; inputs and constants by name as Python that gives them."""
    names = Names.of(function)
    exported = f"[{', '.join(traced[name] for name in function.inputs)}]" if traced else "feeds.values()"
    run_with = "map(torch.from_numpy, feeds.values())" if traced else "inputs"
    return [
        "small = Small().eval()",
        *(f"small.register_buffer({names.constants[name]!r}, torch.from_numpy({arrays[name]}))"
          for name in function.constants),
        f"feeds = {{{', '.join(f'{names.inputs[name]!r}: {arrays[name]}' for name in function.inputs)}}}",
        f"inputs = tuple(map(torch.from_numpy, {exported}))",
        f"expected = [one.numpy() for one in small(*{run_with})]",
    ]  # fmt: skip


def exporting(function: Function, how: Exporting) -> Iterator[str]:
    """Yield what registers the case's own code, and makes ``model``, the bytes of the exported one."""
    names = Names.of(function).inputs
    own = [name for name in function.own if name in how.symbolics]
    options = {"opset_version": how.opset, "input_names": [*names.values()], **how.options}
    axes = {name: _open_axes(function, given) for given, name in names.items()}
    said = {key: repr(value) for key, value in options.items()}
    if "training" in options:
        said["training"] = f"torch.onnx.TrainingMode.{str(options['training']).upper()}"
    if how.exporter == "torchscript":
        versions = sorted({min(how.opset, BASE_OPSET), how.opset})
        for name in own:
            for version in versions:
                call = f"{name!r}, {how.symbolics[name]}, {version}"
                yield f"torch.onnx.register_custom_op_symbolic({call})"
        yield from (f"{how.registrars[name]}()" for name in function.own if name in how.registrars)
        if function.dynamic:
            said["dynamic_axes"] = repr(axes)
        yield "buffer = io.BytesIO()"
        arguments = ", ".join(f"{key}={value}" for key, value in said.items())
        yield f"torch.onnx.export(small, inputs, buffer, dynamo=False, {arguments})"
        yield "model = buffer.getvalue()"
        yield from _SIMPLIFYING[how.simplifier]
        return
    if own:
        table = ", ".join(f"{overload(name)}: {how.symbolics[name]}" for name in own)
        said["custom_translation_table"] = f"{{{table}}}"
    if function.dynamic:
        said["dynamic_shapes"] = repr([dict.fromkeys(one, "AUTO") for one in axes.values()]).replace("'AUTO'", "AUTO")
        yield "AUTO = torch.export.Dim.AUTO"
    arguments = ", ".join(f"{key}={value}" for key, value in said.items())
    yield f"program = torch.onnx.export(small, inputs, dynamo=True, verbose=False, {arguments})"
    yield "model = program.model_proto.SerializeToString()"
    yield from _SIMPLIFYING[how.simplifier]


def _open_axes(function: Function, name: str) -> list[int]:
    """The axes of an input that are open: all, or those of other sizes than it is exported with."""
    shape = function.inputs[name].shape
    exported = function.traced[name].shape if function.traced else None
    return [axis for axis in range(len(shape)) if exported is None or exported[axis] != shape[axis]]


def overload(name: str) -> str:
    """``torch.ops.aten.hardswish.default`` of ``aten::hardswish``."""
    namespace, _, operator = name.partition("::")
    operator, _, which = operator.partition(".")
    return f"torch.ops.{namespace}.{operator}.{which or 'default'}"


_SIMPLIFYING = {
    "": (),
    "onnxsim": ("model = onnxsim.simplify(onnx.load_from_string(model))[0].SerializeToString()",),
    "onnxslim": ("model = onnxslim.slim(onnx.load_from_string(model)).SerializeToString()",),
}
"""The lines of a script for each package that simplifies models."""


def modules_of(function: Function, how: Exporting) -> list[str]:
    """The modules that a script about the function imports for its operators, and for code of the case."""
    own = [name.partition(".")[0] for name in how.code(function.own)]
    others = [name for name in sorted(_spaces(function)) if importlib.util.find_spec(name)]
    return list(dict.fromkeys([*others, *defining(function, how), *own]))


def defining(function: Function, how: Exporting) -> Sequence[str]:
    """The modules without which the function has no operators to call: those of the case, if it calls one that is
    neither PyTorch's nor of a package that is called as the operator's namespace is."""
    return how.defines if any(importlib.util.find_spec(name) is None for name in _spaces(function)) else ()


def _spaces(function: Function) -> set[str]:
    """The namespaces of operators that a function calls, without those that PyTorch has itself."""
    called = " ".join(step.call.function for step in function.steps)
    return set(re.findall(r"torch\.ops\.(\w+)\.", called)) - {"aten", "prim", "prims"}
