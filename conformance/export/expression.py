"""Modules and values that a case file says itself: ``forward:`` as an expression, and what stands under ``with:``."""

from __future__ import annotations

import linecache
import math
from collections.abc import Mapping
from typing import Any

from conformance.case.declaration import Case
from conformance.case.python import Folder
from conformance.errors import Stopped, did_you_mean


def torch_value(value: Any) -> Any:
    """A value of ``with``; texts such as "torch.int32" become what they name, since YAML has no such values."""
    import torch

    if isinstance(value, list):
        return [torch_value(item) for item in value]
    if not (isinstance(value, str) and value.startswith("torch.")):
        return value
    named: Any = torch
    for name in value.split(".")[1:]:
        if not hasattr(named, name):
            raise Stopped("declare", "MissingName", f"with: there is no {value}", "case")
        named = getattr(named, name)
    return named


def expression_module(case: Case, folder: Folder, arguments: Mapping[str, Any]) -> Any:
    """A module whose forward is the case's expression, written out as source so that it can be scripted too."""
    import ast

    import torch

    expression = case.says.forward or ""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        text = f"forward is not a Python expression: {error.msg} in '{expression.strip()}'"
        raise Stopped("declare", "SyntaxError", text, "case") from None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    parameters = [declared.as_ or name.replace(".", "_") for name, declared in case.says.inputs.items()]
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "math": math, **arguments}
    for name in sorted(names - scope.keys() - set(parameters)):
        if (folder.path / f"{name}.py").is_file():
            scope[name] = folder.module(name)
        elif name not in dir(__builtins__) and name not in __builtins__ and not _bound(tree, name):  # type: ignore[operator]
            near = did_you_mean(name, [*parameters, *scope])
            raise Stopped("declare", "NameError", f"forward: there is no '{name}'{near}", "case")
    source = f"def forward(self, {', '.join(parameters)}):\n    return ({expression.strip()})\n"
    file = f"<forward of {case.name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)
    return type("Forward", (torch.nn.Module,), {"forward": scope["forward"]})()


def _bound(tree: Any, name: str) -> bool:
    """Whether the expression itself binds the name, in a comprehension or a lambda."""
    import ast

    return any(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
        or (isinstance(node, ast.arg) and node.arg == name)
        for node in ast.walk(tree)
    )
