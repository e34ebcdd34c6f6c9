"""Single functions of files that hold lowerings of operators, so that an edited lowering concerns its users alone.

What a function depends on in its file: its own text, and the functions and constants that it names, and so on. What
every user of a file depends on: what the file does while it is loaded, and which functions it registers for what,
since a new registration takes operators from others. A file that computes names counts as a whole.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from conformance.depends.contents import content, of_text, short
from conformance.disk.values import KeptValues

LARGE = 2**14
"""Bytes from which what a file is made of is kept on disk."""
LOADED = "when loaded"
"""The part of a file that all of its users depend on."""
WHOLE = "the whole file"
AS_IT_IS = "*"
"""The hash of the file's content: where it is the same, so is each part."""
_COMPUTED = frozenset({"eval", "exec", "globals", "locals", "vars", "__import__"})
_COMPUTING = tuple(name.encode() for name in sorted(_COMPUTED))

Parts = Mapping[str, str]
"""By name the hash of a part's text."""


@dataclass
class Source:
    """A parsed file."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    """By top-level name the hashes of what binds or changes it, the same for all layouts and comments."""
    uses: dict[str, set[str]] = field(default_factory=dict)
    """By top-level name the names that its text uses; of ``a.b`` both ``a`` and ``a.b``."""
    loaded: list[str] = field(default_factory=list)
    whole: str | None = None
    """The hash of all, where names are computed."""
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """By the name that it binds, what an import takes: a module, and of it a name."""

    def part(self, name: str) -> str | None:
        """Return the hash of one name's text, without what it uses; None where there is no such name."""
        if self.whole is not None:
            return self.whole if name == WHOLE else None
        if name == LOADED:
            return of_text("\n".join(self.loaded))
        return of_text("\n".join(self.texts[name])) if name in self.texts else None

    def closure(self, names: Iterable[str]) -> set[str]:
        """Return these names with all of this file that they use; ``LOADED`` always."""
        if self.whole is not None:
            return {WHOLE}
        wanted = set(names)
        found, waiting = {LOADED}, [*(self.texts if WHOLE in wanted else wanted), *self.uses.get(LOADED, ())]
        while waiting:
            name = waiting.pop()
            if name in self.texts and name not in found:
                found.add(name)
                waiting += self.uses.get(name, ())
        return found

    def taken(self, names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
        """Yield what these names take from other modules: a module, and a name of it where that is known."""
        if self.whole is not None:
            yield from self.imports.values()
            return
        used_here = set(itertools.chain.from_iterable(self.uses.get(name, ()) for name in names))
        dotted = {used.partition(".")[0] for used in used_here if "." in used}
        for used in used_here:
            first, _, rest = used.partition(".")
            if first in self.imports and (rest or first not in dotted):
                module, name = self.imports[first]
                if name is None and rest:
                    yield module, rest.partition(".")[0]
                elif rest:
                    yield f"{module}.{name}", rest.partition(".")[0]
                    yield module, name
                else:
                    yield module, name


def parts_of(file: str, names: Iterable[str]) -> dict[str, str]:
    """Return the hashes of these names of a file with all that they use there; OSError where it cannot be read."""
    source = read(file)
    found = {name: part for name in sorted(source.closure(names)) if (part := source.part(name)) is not None}
    whole = content(file)
    return found if whole is None else {AS_IT_IS: short(whole), **found}


def part_now(file: str, name: str) -> str | None:
    """Return the hash of one part as it is now; None where it is gone."""
    try:
        return read(file).part(name)
    except OSError:
        return None


_kept = KeptValues(None)
_FORMAT = 1


def keep_in(folder: Path | None) -> None:
    """Keep what large files are made of in a folder, since parsing takes long; None keeps it in this process."""
    global _kept
    _kept = KeptValues(folder)


def read(file: str) -> Source:
    """Return the file parsed; once for the same content. OSError where it cannot be read."""
    with open(file, "rb") as stream:  # noqa: PTH123
        return _source(stream.read())


@lru_cache(maxsize=64)
def _source(text: bytes) -> Source:
    if len(text) < LARGE:
        return _parsed(text)
    key = hashlib.sha256(f"{_FORMAT} {sys.version_info[:2]}".encode() + text).hexdigest()[:32]
    try:
        known = _kept.get(key)
        return Source(
            {name: list(texts) for name, texts in known["texts"].items()},
            {name: set(uses) for name, uses in known["uses"].items()},
            list(known["loaded"]), known["whole"],
            {name: (module, taken) for name, (module, taken) in known["imports"].items()},
        )  # fmt: skip
    except (TypeError, KeyError, ValueError, AttributeError):
        source = _parsed(text)
    plain = {"texts": source.texts, "loaded": source.loaded, "whole": source.whole, "imports": source.imports}
    _kept.put(key, {**plain, "uses": {name: sorted(uses) for name, uses in source.uses.items()}})
    return source


def _parsed(text: bytes) -> Source:
    source = Source()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        source.whole = of_text(text.decode("utf-8", "surrogateescape"))
        return source
    binding = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            binding = binding or bool(_binding(node))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                source.imports[alias.asname or alias.name.partition(".")[0]] = (alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                source.imports[alias.asname or alias.name] = (
                    "." * node.level + (node.module or ""),
                    None if alias.name == "*" else alias.name,
                )
    if (_may_compute(text) and _computes(tree)) or "*" in source.imports:
        source.whole = of_text(ast.dump(tree))
        return source
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] if binding else []
    binders = {node.name for node in functions if any(map(_binding, ast.walk(node)))}
    for function in functions:
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and binders.intersection(_names(decorator.func)):
                for part in decorator.args:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        _bind(source, part.value, function)
    for node in tree.body:
        _sort(source, node)
        if isinstance(node, ast.ClassDef) and b"__init_subclass__" in text:
            _load(source, ast.dump(node), ())
    return source


def _binding(node: ast.AST) -> set[int]:
    """Return the places of ``globals`` in ``globals()[name] = function``, which reads no name."""
    if not isinstance(node, ast.Assign):
        return set()
    subscripts = (target.value for target in node.targets if isinstance(target, ast.Subscript))
    return {id(value.func) for value in subscripts if isinstance(value, ast.Call)}


def _may_compute(text: bytes) -> bool:
    """Return False where no code of a file reads names that it computes, without a look at its tree.

    Names beyond ASCII may be other spellings of these (PEP 3131), and an encoding may be another one than UTF-8.
    """
    first_lines = b"".join(text.split(b"\n", 2)[:2])
    return not text.isascii() or b"coding" in first_lines or any(name in text for name in _COMPUTING)


def _computes(tree: ast.AST) -> bool:
    """Return whether code reads names that it computes."""
    binding = set().union(*map(_binding, ast.walk(tree)))
    return any(isinstance(n, ast.Name) and n.id in _COMPUTED and id(n) not in binding for n in ast.walk(tree))


def _sort(source: Source, node: ast.stmt) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        _bind(source, node.name, node)
        if node.decorator_list:
            said = [ast.dump(part) for part in (*node.decorator_list, node.args)]
            _load(source, f"{node.name} {said}", itertools.chain.from_iterable(map(_names, node.decorator_list)))
    elif isinstance(node, ast.ClassDef):
        _bind(source, node.name, node)
        known = all(_last(base) in _BASES or _last(base) in source.texts for base in node.bases)
        if node.decorator_list or node.keywords or not known:
            _load(source, ast.dump(node), ())  # a class may be told of by those that it is derived from
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        roots = [name for target in targets for name in _bound(target)]
        for name in roots:
            _bind(source, name, node)
        if not roots or any(isinstance(part, ast.Call) for part in ast.walk(node)):
            _load(source, ast.dump(node), _names(node))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        _load(source, ast.dump(node), ())
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        for name in (part.name for part in ast.walk(node) if isinstance(part, ast.FunctionDef | ast.ClassDef)):
            _bind(source, name, node)
        _load(source, ast.dump(node), _names(node))


_BASES = frozenset({"Module", "Function", "object", "Protocol", "NamedTuple", "ABC", "Exception"})
"""Classes that do nothing where another is derived from them."""


def _last(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _bind(source: Source, name: str, node: ast.AST) -> None:
    source.texts.setdefault(name, []).append(of_text(ast.dump(node)))
    source.uses.setdefault(name, set()).update(_names(node))


def _load(source: Source, text: str, names: Iterable[str]) -> None:
    source.loaded.append(of_text(text))
    source.uses.setdefault(LOADED, set()).update(names)


def _bound(target: ast.expr) -> Iterator[str]:
    """The names that an assignment binds, or whose objects it changes: ``x`` of ``x.a = 1``."""
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _bound(element)
        return
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id


def _names(tree: ast.AST) -> Iterator[str]:
    """The names that code uses, and of attributes of names ``a.b`` besides."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            chain = [node.attr]
            inner: ast.expr = node.value
            while isinstance(inner, ast.Attribute):
                chain.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name):
                yield ".".join([inner.id, *reversed(chain)])
