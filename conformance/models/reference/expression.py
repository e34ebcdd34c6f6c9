"""Modules that a case file says itself: ``forward:`` as an expression."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import linecache
import math
from collections.abc import Mapping

import torch

from conformance.case.files.declaration import Case
from conformance.case.files.python import EXPRESSION, Folder
from conformance.process.errors import Stopped, did_you_mean


def expression_module(case: Case, folder: Folder, arguments: Mapping[str, object]) -> torch.nn.Module:
    """A module whose forward is the case's expression, written out as source so that it can be scripted too."""
    expression = case.says.forward or ""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        text = f"forward is not a Python expression: {error.msg} in '{expression.strip()}'"
        raise Stopped("declare", "SyntaxError", text, "case") from None
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    names = {node.id for node in nodes}
    bound = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}  # in a comprehension, or a lambda
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    parameters = [declared.as_ or name.replace(".", "_") for name, declared in case.says.inputs.items()]
    scope: dict[str, object] = {"torch": torch, "F": torch.nn.functional, "math": math, **arguments}
    for name in sorted(names - scope.keys() - set(parameters)):
        if folder.has(name):
            scope[name] = folder.module(name)
        elif hasattr(builtins, name) or name in bound:
            continue
        elif importlib.util.find_spec(name) is not None:
            scope[name] = folder.module(name)
        else:
            near = did_you_mean(name, [*parameters, *scope])
            raise Stopped("declare", "NameError", f"forward: there is no '{name}'{near}", "case")
    source = f"def forward(self, {', '.join(parameters)}):\n    return ({expression.strip()})\n"
    file = f"{EXPRESSION}{case.name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)
    forward: type[torch.nn.Module] = type("Forward", (torch.nn.Module,), {"forward": scope["forward"]})
    return forward()
