"""The meaning of a piece of Python's source text: one text for all layouts and comments, and the names that it uses.

Read in one pass: the files of an exporter's lowerings have a hundred thousand nodes, and ``ast.dump`` with a walk for
each question takes twice as long.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

COMPUTING = frozenset({"eval", "exec", "globals", "locals", "vars", "__import__"})
"""Builtins by which code reads names that it computes."""


@dataclass
class Said:
    """The meaning of nodes of a syntax tree."""

    parts: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """The names that the code uses, and of attributes of names ``a.b`` besides."""
    calls: bool = False
    defined: list[str] = field(default_factory=list)
    """The functions and classes that are defined there."""
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    computes: bool = False
    """True where names are read that are computed."""
    binders: list[ast.expr] = field(default_factory=list)
    """Expressions that bind computed names: the first of ``globals()[name] = function``, which reads none."""

    @property
    def text(self) -> str:
        return "\0".join(self.parts)


def said(nodes: Iterable[ast.AST]) -> Said:
    """Return what these nodes say together; RecursionError where they are nested too deeply."""
    found = Said()
    for node in nodes:
        _read(node, found)
    return found


def _read(node: ast.AST, found: Said) -> None:
    kind = type(node)
    found.parts.append(kind.__name__)
    if isinstance(node, ast.Name):
        found.names.add(node.id)
        found.computes |= node.id in COMPUTING and node not in found.binders
    elif isinstance(node, ast.Attribute):
        _note_dotted(node, found)
    elif isinstance(node, ast.Call):
        found.calls = True
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        found.defined.append(node.name)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        found.imports.append(node)
    elif isinstance(node, ast.Assign):
        calls = (target.value for target in node.targets if isinstance(target, ast.Subscript))
        found.binders += [call.func for call in calls if isinstance(call, ast.Call)]
    for name in kind._fields:
        if name != "ctx":  # which follows from where the node stands
            _read_value(getattr(node, name, None), found)


def _read_value(value: Any, found: Said) -> None:
    if isinstance(value, ast.AST):
        _read(value, found)
    elif isinstance(value, list):
        found.parts.append("[")
        for one in value:
            _read_value(one, found)
        found.parts.append("]")
    else:
        found.parts.append(repr(value))


def _note_dotted(node: ast.Attribute, found: Said) -> None:
    """Note ``a.b`` where that is a name with its attribute."""
    chain = [node.attr]
    inner: ast.expr = node.value
    while isinstance(inner, ast.Attribute):
        chain.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        found.names.add(".".join([inner.id, *reversed(chain)]))
