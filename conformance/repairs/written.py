"""Files with a symbolic or a translation of an operator, written from ``library``."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

NAMESAKES = {
    "floordiv": "floor_divide", "mod": "remainder", "divide": "div", "true_divide": "div", "truediv": "div",
    "multiply": "mul", "subtract": "sub", "clip": "clamp", "threshold": "kept_above",
}  # fmt: skip
"""Operators that the library has under another name."""
TYPES = {
    "Tensor": "", "Optional[Tensor]": "", "int": "int", "float": "float", "bool": "bool", "str": "str",
    "number": "float", "List[int]": "Sequence[int]", "Optional[int]": "Optional[int]",
    "Optional[str]": "Optional[str]",
    "Optional[float]": "Optional[float]", "Optional[number]": "Optional[float]",
    "Optional[List[int]]": "Optional[Sequence[int]]", "Optional[bool]": "Optional[bool]",
}  # fmt: skip
"""What a parameter is annotated with, by its type in the operator's schema; a tensor with nothing."""


@dataclass(frozen=True)
class Written:
    """A file that a case can name functions of."""

    operator: str
    name: str
    """Of the operator, as a name in Python."""
    text: str
    functions: Mapping[str, str]
    """By operator, as an export names it, a function of the file."""


def written(progress: object, exporter: str, operators: Sequence[str]) -> Written | None:
    """The file for the first of the operators (``aten::remainder``, ``_operator::floordiv``) that the library has;
    None where it has none of them."""
    for operator in operators:
        namespace, _, name = operator.partition("::")
        own = NAMESAKES.get(name, name)
        if namespace not in ("aten", "_operator") or own not in _library():
            continue
        made = (_translations if exporter == "dynamo" else _symbolics)(namespace, name, own)
        if made:
            body = "\n\n\n".join([*_functions(own), *(text for _, text in made.values())])
            text = f"{_head(exporter, operator, body)}\n\n\n{body}\n"
            return Written(operator, name, text, {key: function for key, (function, _) in made.items()})
    return None


def _head(exporter: str, operator: str, body: str) -> str:
    """The beginning of a file: what it is, what the functions of the library put nodes into a graph with."""
    from conformance.repairs.library import dynamo, torchscript

    kind, module = ("translation", dynamo) if exporter == "dynamo" else ("symbolic", torchscript)
    lines = [f'"""{operator} in operators of ONNX, as a {kind} for torch.onnx."""', ""]
    lines += ["from collections.abc import Sequence"] if "Sequence[" in body else []
    lines += ["from typing import Optional"] if "Optional[" in body else []
    return "\n".join(lines) + inspect.getsource(module).partition('"""\n')[2].replace("  # fmt: skip", "").rstrip()


# ---- functions of the library ----------------------------------------------------------------------------------


@cache
def _library() -> dict[str, tuple[str, frozenset[str]]]:
    """By name, the text of each function of the library, and the names that it uses."""
    from conformance.repairs.library import activations, arithmetic, reductions

    modules: Sequence[ModuleType] = (arithmetic, activations, reductions)
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for module in modules:
        text = Path(str(module.__file__)).read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                used = frozenset(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
                source = str(ast.get_source_segment(text, node)).replace("  # fmt: skip", "")
                found[node.name] = source, used
    return found


def _functions(name: str) -> list[str]:
    """The text of a function and of those that it uses, these first."""
    library = _library()
    wanted: dict[str, None] = {}

    def want(name: str) -> None:
        for other in sorted(library[name][1] & library.keys() - {name} - _parameters(name).keys()):
            if other not in wanted:
                want(other)
        wanted[name] = None

    want(name)
    return [library[name][0] for name in wanted]


def _parameters(name: str) -> dict[str, bool]:
    """The parameters of a function of the library but ``op``, and whether each may be left out."""
    (node,) = ast.parse(_library()[name][0]).body
    assert isinstance(node, ast.FunctionDef)
    names = [argument.arg for argument in node.args.args][1:]
    required = len(names) - len(node.args.defaults)
    return {name: place >= required for place, name in enumerate(names)}


# ---- what an exporter calls ------------------------------------------------------------------------------------


def _symbolics(namespace: str, name: str, own: str) -> dict[str, tuple[str, str]]:
    """A symbolic is called with the arguments of whichever overload, which their number tells."""
    import torch

    schemas = torch._C._jit_get_schemas_for_operator(f"{namespace}::{name}")
    parameters = _parameters(own)
    tensors = {argument.name for schema in schemas for argument in schema.arguments if "Tensor" in str(argument.type)}
    forms: dict[int, list[str]] = {}
    for schema in schemas:
        names = [_named(argument.name, place, parameters) for place, argument in enumerate(schema.arguments)]
        if _fits([found for found in names if found], len(names), parameters):
            marked = [f"{found}*" if found in tensors or not tensors else f"{found}" for found in names]
            forms.setdefault(len(names), marked)
    if not forms:
        return {}
    quoted = ", ".join(f'"{" ".join(form)}"' for _, form in sorted(forms.items()))
    function = f"symbolic_{name}"
    text = f"def {function}(g, *arguments):\n    return {own}(Op(g), **read(arguments, {quoted}))"
    return {f"{namespace}::{name}": (function, text)}


def _translations(namespace: str, name: str, own: str) -> dict[str, tuple[str, str]]:
    """A translation for each overload whose arguments the function takes."""
    parameters = _parameters(own)
    if namespace == "_operator":
        names = [found for found, optional in parameters.items() if not optional]
        return {f"{namespace}::{name}": _translation(f"translation_{name}", own, [(found, "") for found in names])}
    return dict(_overloads(name, own, parameters))


def _overloads(name: str, own: str, parameters: Mapping[str, bool]) -> Iterator[tuple[str, tuple[str, str]]]:
    import torch

    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        arguments = getattr(packet, overload)._schema.arguments
        if not _fits([argument.name for argument in arguments], len(arguments), parameters):
            continue
        if all(_type(argument) in TYPES for argument in arguments):
            key = f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}"
            function = f"translation_{name}" if overload == "default" else f"translation_{name}_{overload}"
            yield key, _translation(function, own, [(argument.name, _said(argument)) for argument in arguments])


def _translation(function: str, own: str, parameters: Sequence[tuple[str, str]]) -> tuple[str, str]:
    signature = ", ".join(f"{name}{said}" for name, said in parameters)
    passed = ", ".join(f"{name}={name}" for name, _ in parameters)
    return function, f"def {function}({signature}):\n    return {own}(Op(), {passed})"


def _named(name: str, place: int, parameters: Mapping[str, bool]) -> str | None:
    """The parameter that an argument of a schema is; those of other names go by their place."""
    known = [*parameters]
    return name if name in parameters else known[place] if name in ("a", "b") and place < len(known) else None


def _fits(names: Sequence[str], count: int, parameters: Mapping[str, bool]) -> bool:
    required = {name for name, optional in parameters.items() if not optional}
    return len(names) == count and required <= {*names} <= parameters.keys()


def _type(argument: Any) -> str:
    """The type of an argument without what does not matter for calling a function."""
    return re.sub(r"\bSymInt\b", "int", str(argument.type).replace("Scalar", "number"))


def _said(argument: Any) -> str:
    """``: float = 0.01``: an argument of a schema as a parameter."""
    said = TYPES[_type(argument)]
    annotated = f": {said}" if said else ""
    if not argument.has_default_value():
        return annotated
    value = argument.default_value
    value = float(value) if said == "float" and value is not None else value
    return f"{annotated} = {value!r}" if said else f"={value!r}"
