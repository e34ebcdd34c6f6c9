"""What a function or class of a Python file depends on, as text: what can change its behaviour, and nothing else.

A file's definitions are followed by the names that they use, into the other files that are the user's own. Two
versions of a file that differ elsewhere give the same slice. What files do while they are loaded counts for all who
load them. Where names are computed (``getattr``, ``globals``, star imports) the whole file counts, and where imports
are (``importlib``) all files of the folder.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from conformance.depends.installed import python_below

_HARMLESS = {
    "abstractmethod", "cache", "cached_property", "classmethod", "compile", "contextmanager", "dataclass",
    "enable_grad", "final", "inference_mode", "jit", "lru_cache", "no_grad", "overload", "override", "parse_args",
    "property", "quantized_args", "script", "staticmethod", "total_ordering", "wraps",
}  # fmt: skip
"""Decorators that register nothing. Any other may register its function, so that loading the file does something."""

_REGISTERS = re.compile(r"regist|impl|custom_op|define|librar|onnx_symbolic", re.IGNORECASE)
"""What marks an assignment as a registration, as in ``library = define(...)``: loading the file does something."""

_COMPUTED = {"eval", "exec", "globals", "locals", "vars", "getattr"}
_IMPORTS_COMPUTED = {"__import__", "exec", "imp", "importlib", "pkgutil", "runpy"}
_IMPORTS_NOTHING = {("importlib", "metadata"), ("importlib", "resources")}

_KNOWS_SUBCLASSES = re.compile(rb"__init_subclass__|metaclass\s*=")

Chain = tuple[str, ...]
"""A dotted name: ``("helpers", "rounded")``."""


@dataclass(frozen=True)
class _Import:
    """What an import names: ``("a", "b")`` of ``from a import b``; ``level`` counts the dots of a relative import."""

    level: int
    path: Chain


class _Statement:
    """A statement at the top of a file; its text and names are computed once, since many slices need them."""

    def __init__(self, node: ast.stmt) -> None:
        self.node = node

    @cached_property
    def text(self) -> str:
        """The same for all layouts and comments."""
        return ast.dump(self.node)

    @cached_property
    def names(self) -> list[Chain]:
        return list(names(self.node))


@dataclass
class _Source:
    """A parsed file: top-level statements by the names that they bind, and those that do something when loaded."""

    text: bytes
    statements: dict[str, list[_Statement]] = field(default_factory=dict)
    always: list[_Statement] = field(default_factory=list)
    """Statements that do something when the file is loaded: registrations, settings."""
    imports: dict[str, list[_Import]] = field(default_factory=dict)
    """By the name that they bind, ``*`` where that is not known; also imports inside functions and ``try``."""
    whole: bool = False
    """Names are computed, so that any part may use any other."""
    imports_anything: bool = False
    """Imports are computed, so that any file may be imported."""

    def binds(self, name: str) -> bool:
        return name in self.statements or name in self.imports

    @property
    def knows_subclasses(self) -> bool:
        """Whether a class of this file may run code when another class is derived from it."""
        return bool(_KNOWS_SUBCLASSES.search(self.text))


class Slices:
    """Slices of files below some folders, which are parsed once."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """``roots`` are where imports of the user's own modules are looked for, in this order."""
        self._roots = list(roots)
        self._sources: dict[Path, _Source] = {}
        self._modules: dict[tuple[Path, Chain], list[tuple[Path, int]]] = {}

    def parts(self, folder: Path, dotted: str) -> dict[str, str]:
        """What ``file.name`` beside a case in ``folder``, or a name of a package, depends on: by ``file.py: name`` a
        hash of its text."""
        walk = _Walk(self, folder, self._roots)
        walk.name(folder, tuple(dotted.split(".")))
        return walk.hashes

    def source(self, file: Path) -> _Source:
        if file not in self._sources:
            self._sources[file] = _read(file)
        return self._sources[file]

    def modules(self, root: Path, path: Chain) -> list[tuple[Path, int]]:
        """The files that importing ``path`` below ``root`` loads, with how many names of the path lead there."""
        if (root, path) not in self._modules:
            candidates = []
            for count in range(1, len(path) + 1):
                base = root.joinpath(*path[:count])
                candidates += [(base.with_name(f"{base.name}.py"), count), (base / "__init__.py", count)]
                if not base.is_dir():
                    break
            self._modules[root, path] = [(file, count) for file, count in candidates if file.is_file()]
        return self._modules[root, path]


class _Walk:
    """One slice in the making."""

    def __init__(self, slices: Slices, folder: Path, roots: Sequence[Path]) -> None:
        self._slices, self._folder = slices, folder
        self._roots = [folder, *roots]
        self._seen: set[tuple[Path, str | None]] = set()
        self._loaded: dict[Path, bool] = {}
        self.hashes: dict[str, str] = {}

    def name(self, folder: Path, path: Chain) -> None:
        """Adds what a name of a file in the folder depends on, or of a package where there is no such file."""
        file = folder / f"{path[0]}.py"
        if file.is_file():
            self.follow(file, path[1] if len(path) > 1 else None)
        else:
            self._import(file, _Import(0, path))

    def follow(self, file: Path, name: str | None) -> None:
        """Adds what ``name`` of ``file`` depends on, or the whole file where that is None or not to be found."""
        if not file.is_file():
            return
        source = self._slices.source(file)
        name = name if name is not None and source.binds(name) and not source.whole else None
        if (file, name) in self._seen:
            return
        self._seen.add((file, name))
        self._load(file)
        if name is None:
            self._add(self._label(file), source.text.decode("utf-8", "backslashreplace"))
            for imported in itertools.chain.from_iterable(source.imports.values()):
                self._import(file, imported)
            return
        for statement in source.statements.get(name, []):
            self._statement(file, source, f"{self._label(file)}: {name}", statement)
        self._imported(file, source, name)

    def _load(self, file: Path) -> bool:
        """Adds what the file and its imports do while they are loaded; whether they do anything."""
        if file in self._loaded:
            return self._loaded[file]
        self._loaded[file] = False
        source = self._slices.source(file)
        told = source.knows_subclasses
        active: list[str] = []
        for imported in itertools.chain.from_iterable(source.imports.values()):
            for path, _ in itertools.chain.from_iterable(self._places(file, imported.level, imported.path)):
                active += [self._label(path)] if self._load(path) else []
                told |= self._slices.source(path).knows_subclasses
        active = list(dict.fromkeys(active))
        if len(active) > 1:
            self._add(f"{self._label(file)}, the order of its imports", repr(active))
        does = list(source.always)
        if told:
            bound = itertools.chain.from_iterable(source.statements.values())
            does += [item for item in bound if isinstance(item.node, ast.ClassDef) and item not in does]
        for statement in sorted(does, key=lambda statement: statement.node.lineno):
            self._statement(file, source, f"{self._label(file)}, when loaded", statement)
        if source.imports_anything:
            for path in sorted({*file.parent.glob("*.py"), *map(Path, python_below(self._folder))}):
                self.follow(path, None)
        self._loaded[file] = bool(does or active or source.imports_anything)
        return self._loaded[file]

    def _statement(self, file: Path, source: _Source, label: str, statement: _Statement) -> None:
        self._add(label, statement.text)
        for chain in statement.names:
            self._imported(file, source, chain[0], chain[1:])
            if chain[0] in source.statements:
                self.follow(file, chain[0])

    def _imported(self, file: Path, source: _Source, name: str, attributes: Chain = ()) -> None:
        """Adds the import of ``name``, if it is imported, and follows it to files of the user's own."""
        if name in source.imports:
            self.hashes[f"{self._label(file)}: the import of {name}"] = _hash(repr(source.imports[name]))
        for imported in source.imports.get(name, []):
            self._import(file, imported, attributes)

    def _import(self, file: Path, imported: _Import, attributes: Chain = ()) -> None:
        """Follows an import; of an imported module only the attribute that is used, or all where none is named."""
        path = (*imported.path, *attributes)
        for files in self._places(file, imported.level, path):
            deepest = max((count for _, count in files), default=0)
            for module, count in files:
                name = path[count] if path[count : count + 1] not in ((), ("*",)) else None
                if count == deepest or (name is not None and self._slices.source(module).binds(name)):
                    self.follow(module, name)  # a name in a package may hide its module of that name

    def _places(self, file: Path, level: int, path: Chain) -> Iterator[list[tuple[Path, int]]]:
        """The files that an import in ``file`` loads, for each root below which its modules may lie."""
        path = path[: path.index("*")] if "*" in path else path
        if level == 0:
            yield from (self._slices.modules(root, path) for root in self._roots)
        elif level <= len(file.parents):
            package = file.parents[level - 1]
            own = package / "__init__.py"
            yield [*([(own, 0)] if own.is_file() else []), *self._slices.modules(package, path)]

    def _add(self, label: str, text: str) -> None:
        self.hashes[label] = _hash(self.hashes.get(label, ""), text)

    def _label(self, file: Path) -> str:
        """The file's path below its root, so that two versions of a tree give the same label."""
        place = next((place for place in self._roots if file.is_relative_to(place)), file.parent)
        return file.relative_to(place).as_posix()


def names(tree: ast.AST) -> Iterator[Chain]:
    """The dotted names that a piece of code uses, each at its full length."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):  # outer nodes first: ``a.b.c`` before its part ``a.b``
        if node in inside:
            continue
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
            inside.add(node)
        if isinstance(node, ast.Name):
            yield (node.id, *reversed(attributes))


# ---- reading a file -----------------------------------------------------------------------------------------


def _read(file: Path) -> _Source:
    source = _Source(file.read_bytes())
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        source.whole = True
        return source
    for node in ast.walk(tree):
        for name, imported in _imported(node):
            source.imports.setdefault(name, []).append(imported)
            first = imported.path[:2] if imported.level == 0 else ()
            source.imports_anything |= bool({*first[:1]} & _IMPORTS_COMPUTED) and first not in _IMPORTS_NOTHING
    used = set(names(tree))
    first_names = {chain[0] for chain in used}
    source.imports_anything |= bool(first_names & {"__import__", "exec"})
    source.imports_anything |= ("sys", "modules") in {chain[:2] for chain in used}
    source.whole = source.imports_anything or bool(first_names & _COMPUTED) or "*" in source.imports
    changed: list[tuple[str, _Statement]] = []
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            _sort(source, _Statement(node), changed)
    for name, statement in changed:  # an object of another file is changed for all who load this file
        source.statements.get(name, source.always).append(statement)
    return source


def _imported(node: ast.AST) -> Iterator[tuple[str, _Import]]:
    """The names that an import binds, with what."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            path = tuple(alias.name.split("."))
            yield alias.asname or path[0], _Import(0, path if alias.asname else path[:1])
            if not alias.asname and len(path) > 1:
                yield alias.name, _Import(0, path)  # ``a.b`` is loaded too, and used as an attribute of ``a``
    elif isinstance(node, ast.ImportFrom):
        module = tuple(node.module.split(".")) if node.module else ()
        for alias in node.names:
            yield alias.asname or alias.name, _Import(node.level, (*module, alias.name))


def _sort(source: _Source, statement: _Statement, changed: list[tuple[str, _Statement]]) -> None:
    """Puts a statement where it counts: with the names that it binds, or with what loading the file does."""
    node = statement.node
    bound, roots = _bound(node)
    for name in bound:
        source.whole |= name in source.statements  # bound twice: what users of the name see depends on the order
        source.statements.setdefault(name, []).append(statement)
    changed += [(name, statement) for name in roots]
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if _does_more(node) or not (bound or roots or docstring):
        source.always.append(statement)


def _bound(node: ast.stmt) -> tuple[list[str], list[str]]:
    """The names that a top-level statement defines, and those whose objects it changes: ``x`` of ``x.a = 1``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name], []
    if isinstance(node, ast.AugAssign):
        return [], [name for name in [_root(node.target)] if name is not None]
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return [], []
    parts = [part for target in _targets(node) for part in ast.walk(target)]
    bound = [part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    places = (part for part in parts if isinstance(part, ast.Attribute | ast.Subscript))
    roots = (_root(place) for place in places if isinstance(place.ctx, ast.Store))
    return bound, [name for name in roots if name is not None]


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _does_more(node: ast.stmt) -> bool:
    """Whether a statement that binds a name may do something besides."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        calls = any(isinstance(part, ast.Call) for part in ast.walk(node))
        return (calls and bool(_REGISTERS.search(ast.unparse(node)))) or _changes_unknown(node)
    return any(_last_name(decorator) not in _HARMLESS for decorator in getattr(node, "decorator_list", ()))


def _changes_unknown(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> bool:
    """Whether an assignment changes an object that no name stands for, as ``f(x).a = 1`` does."""
    places = (target for target in _targets(node) if isinstance(target, ast.Attribute | ast.Subscript))
    return any(_root(place) is None for place in places)


def _last_name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


def _hash(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]
