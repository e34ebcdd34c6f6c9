"""Single functions of files that hold lowerings of operators, so that an edited lowering concerns its users alone.

What a function depends on in its file: its own text, and the functions and constants that it names, and so on. What
every user of a file depends on: what the file does while it is loaded, and which functions it registers for what,
since a new registration takes operators from others. A file that computes names counts as a whole.

The meaning of source text is one text for all layouts and comments, and the names that it uses. It is read in one
pass: the files of an exporter's lowerings have a hundred thousand nodes, and ``ast.dump`` with a walk for each
question takes twice as long.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from conformance.models.kept.contents import content, of_text, short
from conformance.process.disk.value_store import KeptValues

COMPUTING = frozenset({"eval", "exec", "globals", "locals", "vars", "__import__"})
"""Builtins by which code reads names that it computes."""


@dataclass
class Said:
    """The meaning of nodes of a syntax tree."""

    parts: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """The names that the code uses; ``a.b`` where of ``a`` only that attribute is."""
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
        _look_at(node, found)
    return found


def _look_at(node: ast.AST, found: Said) -> None:
    kind = type(node)
    found.parts.append(kind.__name__)
    if isinstance(node, ast.Name):
        found.names.add(node.id)
        found.computes |= node.id in COMPUTING and node not in found.binders
    elif isinstance(node, ast.Attribute) and _note_dotted(node, found):
        return
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


def _read_value(value: object, found: Said) -> None:
    if isinstance(value, ast.AST):
        _look_at(value, found)
    elif isinstance(value, list):
        found.parts.append("[")
        for one in value:
            _read_value(one, found)
        found.parts.append("]")
    else:
        found.parts.append(repr(value))


def _note_dotted(node: ast.Attribute, found: Said) -> bool:
    """Note ``a.b`` where that is a name with its attribute, and return whether it is."""
    chain = [node.attr]
    inner: ast.expr = node.value
    while isinstance(inner, ast.Attribute):
        chain.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        return False
    dotted = ".".join([inner.id, *reversed(chain)])
    found.names.add(dotted)
    found.parts.append(dotted)
    found.computes |= inner.id in COMPUTING
    return True


LARGE = 2**14
"""Bytes from which what a file is made of is kept on disk."""
LOADED = "when loaded"
"""The part of a file that all of its users depend on."""
WHOLE = "the whole file"
AS_IT_IS = "*"
"""The hash of the file's content: where it is the same, so is each part."""


@dataclass
class Source:
    """A parsed file."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    """By top-level name the hashes of what binds or changes it, the same for all layouts and comments."""
    uses: dict[str, set[str]] = field(default_factory=dict)
    """By top-level name the names that its text uses, as in ``Said``."""
    loaded: list[str] = field(default_factory=list)
    whole: str | None = None
    """The hash of all, where names are computed."""
    imports: dict[str, str] = field(default_factory=dict)
    """By the name that it binds, the dotted name of what is imported: a module, or what a module has."""

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
            name = waiting.pop().partition(".")[0]
            if name in self.texts and name not in found:
                found.add(name)
                waiting += self.uses.get(name, ())
        return found

    def taken(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the dotted names of what these names take from other modules."""
        if self.whole is not None:
            yield from self.imports.values()
            return
        for used in set(itertools.chain.from_iterable(self.uses.get(name, ()) for name in names)):
            first, dot, rest = used.partition(".")
            if first in self.imports:
                yield f"{self.imports[first]}{dot}{rest}"


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
_FORMAT = 3


def keep_in(folder: Path | None) -> None:
    """Keep what large files are made of in a folder, since parsing takes long; None keeps it in this process."""
    global _kept
    _kept = KeptValues(folder)


def read(file: str) -> Source:
    """Return the file parsed; once for the same content. OSError where it cannot be read."""
    digest = content(file)
    known = _read.get(file)
    if known is not None and known[0] == digest:
        return known[1]
    with open(file, "rb") as stream:  # noqa: PTH123
        text = stream.read()
    source = _source(text)
    if digest == hashlib.sha256(text).digest():  # it was not written to in between
        _read[file] = digest, source
    return source


_read: dict[str, tuple[bytes, Source]] = {}
"""By file its content's hash and what it is made of."""


def _source(text: bytes) -> Source:
    if len(text) < LARGE:
        return _parsed(text)
    key = hashlib.sha256(f"{_FORMAT} {sys.version_info[:2]}".encode() + text).hexdigest()[:32]
    try:
        known = _kept.get(key)
        return Source(
            {name: list(texts) for name, texts in known["texts"].items()},
            {name: set(uses) for name, uses in known["uses"].items()},
            list(known["loaded"]), known["whole"], dict(known["imports"]),
        )  # fmt: skip
    except (TypeError, KeyError, ValueError, AttributeError):
        source = _parsed(text)
    plain = {"texts": source.texts, "loaded": source.loaded, "whole": source.whole, "imports": source.imports}
    _kept.put(key, {**plain, "uses": {name: sorted(uses) for name, uses in source.uses.items()}})
    return source


def _parsed(text: bytes) -> Source:
    try:
        tree = ast.parse(text)
        statements = [(node, said([node])) for node in tree.body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Source(whole=of_text(text.decode("utf-8", "surrogateescape")))
    source = Source()
    for statement in itertools.chain.from_iterable(read.imports for _, read in statements):
        for alias in statement.names:
            if isinstance(statement, ast.Import):
                first = alias.name.partition(".")[0]
                source.imports[alias.asname or first] = alias.name if alias.asname else first
            else:
                start = "." * statement.level + (f"{statement.module}." if statement.module else "")
                source.imports[alias.asname or alias.name] = f"{start}{alias.name}"
    if any(read.computes for _, read in statements) or "*" in source.imports:
        source.whole = of_text("\n".join(read.text for _, read in statements))
        return source
    functions = [(node, read) for node, read in statements if isinstance(node, ast.FunctionDef)]
    binders = {node.name for node, read in functions if read.binders}
    for function, read in functions if binders else ():
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and binders.intersection(said([decorator.func]).names):
                for part in decorator.args:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        _bind(source, part.value, read)
    for node, read in statements:
        _sort(source, node, read)
        if isinstance(node, ast.ClassDef) and b"__init_subclass__" in text:
            _load(source, read.text, ())
    return source


def _sort(source: Source, node: ast.stmt, read: Said) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        _bind(source, node.name, read)
        if node.decorator_list:
            decorators = said(node.decorator_list)
            _load(source, "\0".join([node.name, decorators.text, said([node.args]).text]), decorators.names)
    elif isinstance(node, ast.ClassDef):
        _bind(source, node.name, read)
        known = all(_last(base) in _BASES or _last(base) in source.texts for base in node.bases)
        if node.decorator_list or node.keywords or not known:
            _load(source, read.text, ())  # a class may be told of by those that it is derived from
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        roots = [name for target in targets for name in _bound(target)]
        for name in roots:
            _bind(source, name, read)
        if not roots or read.calls:
            _load(source, read.text, read.names)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        _load(source, read.text, ())
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        for name in read.defined:
            _bind(source, name, read)
        _load(source, read.text, read.names)


_BASES = frozenset({"Module", "Function", "object", "Protocol", "NamedTuple", "ABC", "Exception"})
"""Classes that do nothing where another is derived from them."""


def _last(base: ast.expr) -> str:
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _bind(source: Source, name: str, read: Said) -> None:
    source.texts.setdefault(name, []).append(of_text(read.text))
    source.uses.setdefault(name, set()).update(read.names)


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
