"""Read from the text of a Python file what it imports."""

from __future__ import annotations

import ast
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Imports:
    """The imports of a file."""

    names: frozenset[str]
    """Modules by their dotted names, with those that they lie in."""
    relative: frozenset[tuple[int, str]] = frozenset()
    """How many folders up a relative import begins, 1 for that of the file, and modules by their names from there,
    with those that they lie in and the empty name of the folder itself."""
    computed: bool = False
    """Whether it imports by computed names."""


SETTLED = 2 * 10**9
"""Nanoseconds after which another change of a file has another time: within them its text is read again."""
_read: dict[str, tuple[tuple[int, int, int], Imports]] = {}


def imports_of(file: str) -> Imports:
    """Return the imports of a file; read once in a process for as long as the file is the same. Of a file that is no
    Python those that can be seen, or none. Raises OSError where it cannot be read."""
    stat = os.stat(file)  # noqa: PTH116
    sign = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    if time.time_ns() - stat.st_mtime_ns <= SETTLED:
        return _imports_in(_text(file))
    if file not in _read or _read[file][0] != sign:
        _read[file] = (sign, _imports_in(_text(file)))
    return _read[file][1]


def _text(file: str) -> bytes:
    with open(file, "rb", buffering=0) as stream:  # noqa: PTH123
        return stream.read()


@lru_cache(maxsize=256)
def _imports_in(text: bytes) -> Imports:
    names: set[str] = set()
    relative: set[tuple[int, str]] = set()
    computed = False
    for node in _nodes(text):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            imported = {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)}
            if node.level == 0:
                names |= imported
            else:
                relative |= {(node.level, part) for name in imported for part in ("", *prefixes(name))}
        elif isinstance(node, ast.Name) and node.id in ("importlib", "__import__"):
            computed = True
    computed = computed or any(name.split(".")[0] in ("importlib", "pkgutil", "runpy") for name in names)
    return Imports(frozenset(part for name in names for part in prefixes(name)), frozenset(relative), computed)


_BESIDE_CODE = re.compile(
    rb'#[^\n]*|"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.S
)
"""Comments and texts."""
_STATEMENT = re.compile(rb"(?:^|[;:])[ \t\f]*((?:import|from)\b(?:\\\n|\([^)]*\)|[^;\n(])*)", re.M)

_PLAIN = re.compile(rb"import ([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def _nodes(text: bytes) -> Iterable[ast.AST]:
    """The imports of a text, and names where these may compute an import; none where it is no Python.

    Import statements are found without parsing all around them, which takes ten times as long.
    """
    if b"import" not in text:
        return []
    if not any(word in text for word in (b"importlib", b"__import__", b"\r")):
        statements = _STATEMENT.findall(_BESIDE_CODE.sub(b'""', text))
        try:
            return [node for statement in statements for node in _parsed(statement)]
        except (SyntaxError, ValueError):  # such as the end of "raise ... from error" in a line of its own
            pass
    try:
        return ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


@lru_cache(maxsize=4096)
def _parsed(statement: bytes) -> list[ast.stmt]:
    """Kept, as many files begin with the same imports."""
    plain = _PLAIN.fullmatch(statement)
    return [ast.Import([ast.alias(plain[1].decode())])] if plain else ast.parse(statement).body


def prefixes(name: str) -> Iterator[str]:
    """``a``, ``a.b`` and ``a.b.c``: importing the last loads all of them."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))
