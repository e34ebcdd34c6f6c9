"""What a function or class of a Python file depends on, as text: what can change its behaviour, and nothing else.

A file's definitions are followed by the names that they use, into the other files that are the user's own. Two
versions of a file that differ elsewhere give the same slice. Where names are computed (``getattr``, ``globals``,
``importlib``, star imports) the whole file counts.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_REGISTERS = re.compile(r"register|impl|custom_op|define|library|onnx_symbolic")
"""In the text of a decorator: loading the file makes the function known elsewhere."""

_COMPUTED = {"eval", "exec", "globals", "locals", "vars", "getattr", "importlib", "__import__"}


@dataclass
class _Source:
    """A parsed file: its top-level statements by the names that they bind, and those that bind none."""

    text: str
    statements: dict[str, list[ast.stmt]] = field(default_factory=dict)
    always: list[ast.stmt] = field(default_factory=list)
    """Statements that do something when the file is loaded: registrations, settings."""
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Module and member by the name that an import binds; the member is None for a module."""
    whole: bool = False


class Slices:
    """Slices of files below some folders, which are parsed once."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """``roots`` are where imports of the user's own modules are looked for, in this order."""
        self._roots = list(roots)
        self._sources: dict[Path, _Source] = {}

    def parts(self, folder: Path, dotted: str) -> dict[str, str]:
        """What ``file.name`` beside a case in ``folder`` depends on: by ``file.py: name`` a hash of its text."""
        stem, _, name = dotted.partition(".")
        found: dict[str, str] = {}
        self._follow(folder / f"{stem}.py", name.split(".")[0] or None, folder, found, set())
        return found

    def _follow(
        self, file: Path, name: str | None, folder: Path, found: dict[str, str], seen: set[tuple[Path, str | None]]
    ) -> None:
        if (file, name) in seen or not file.is_file():
            return
        seen.add((file, name))
        source = self._source(file)
        if name is None or source.whole or name not in {*source.statements, *source.imports}:
            found[f"{file.name}"] = _hash(source.text)
            for module, member in source.imports.values():
                self._follow_import(module, member, folder, found, seen)
            return
        here = [(f"{file.name}: {name}", statement) for statement in source.statements.get(name, [])]
        here += [(f"{file.name}, when loaded", statement) for statement in source.always]
        if name in source.imports:
            self._follow_import(*source.imports[name], folder, found, seen)
        for label, statement in here:
            found[label] = _hash(found.get(label, ""), ast.dump(statement))
            for used, attribute in _names(statement):
                if used in source.imports:
                    module, member = source.imports[used]
                    self._follow_import(module, attribute if member is None else member, folder, found, seen)
                elif used in source.statements:
                    self._follow(file, used, folder, found, seen)

    def _follow_import(
        self, module: str, member: str | None, folder: Path, found: dict[str, str], seen: set[tuple[Path, str | None]]
    ) -> None:
        for root in (folder, *self._roots):
            base = root.joinpath(*module.split(".")) if module else root
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                self._follow(file, member, folder, found, seen)
            if member is not None:  # from package import module
                self._follow(base / f"{member}.py", None, folder, found, seen)

    def _source(self, file: Path) -> _Source:
        if file not in self._sources:
            self._sources[file] = _read(file)
        return self._sources[file]


def _read(file: Path) -> _Source:
    text = file.read_text(encoding="utf-8", errors="replace")
    source = _Source(text)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        source.whole = True
        return source
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                source.imports[alias.asname or alias.name.split(".")[0]] = (alias.name, None)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                source.whole |= alias.name == "*"
                source.imports[alias.asname or alias.name] = (statement.module or "", alias.name)
        else:
            names = list(_bound(statement))
            for name in names:
                source.statements.setdefault(name, []).append(statement)
            if any(_REGISTERS.search(ast.unparse(one)) for one in getattr(statement, "decorator_list", ())):
                source.always.append(statement)
            docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not names and not docstring:
                source.always.append(statement)
    source.whole |= any(isinstance(node, ast.Name) and node.id in _COMPUTED for node in ast.walk(tree))
    return source


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _names(statement: ast.AST) -> Iterator[tuple[str, str | None]]:
    """Names that a statement uses, with the attribute that is taken of them, if any."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr
        elif isinstance(node, ast.Name):
            yield node.id, None


def _hash(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]
