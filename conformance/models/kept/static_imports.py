"""Read from the text of a Python file what it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


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


def imports_of(file: str) -> Imports:
    """Return the imports of a file; none of a file that is no Python. Raises OSError where it cannot be read."""
    return _imports_in(Path(file).read_bytes())


@lru_cache(maxsize=4096)
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


def _nodes(text: bytes) -> Iterable[ast.AST]:
    try:
        return ast.walk(ast.parse(text)) if b"import" in text else ()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def prefixes(name: str) -> Iterator[str]:
    """``a``, ``a.b`` and ``a.b.c``: importing the last loads all of them."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))
