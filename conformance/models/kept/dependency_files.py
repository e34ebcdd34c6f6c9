"""The files that a case depends on, with what the text of a Python file imports, and the installed packages."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from conformance import HOME
from conformance.case.files.declaration import COMMAND, Case
from conformance.models.kept.installed import hooked_root, own_roots, python_below, versions_of
from conformance.models.kept.inventory import Matter, named
from conformance.process.errors import Stopped
from conformance.results.records.words import Exporter


def stated_needs(case: Case) -> tuple[dict[str, str], set[str]]:
    """Return what a case names under ``needs``: versions of the packages that are installed here, and the
    commands."""
    commands = {need.removeprefix(COMMAND) for need in case.says.needs if need.startswith(COMMAND)}
    return versions_of(need for need in case.says.needs if not need.startswith(COMMAND)), commands


@dataclass(frozen=True)
class Needs:
    """The dependencies of a case besides its file."""

    files: tuple[Path, ...]
    """Those that it names, and what their Python imports of the user's own."""
    packages: dict[str, str]
    """The versions of installed distributions that it names or imports."""

    def digest(self) -> bytes:
        """A hash of the files' contents and of the versions; OSError where a file cannot be read."""
        digest = hashlib.sha256(repr(sorted(self.packages.items())).encode())
        for file in self.files:
            digest.update(file.name.encode() + file.read_bytes())
        return digest.digest()


def needs(case: Case, until: Matter = "words", exporter: Exporter | Literal["none"] | None = None) -> Needs:
    """Return what the case depends on as far as it matters to ``until``, for one exporter, for none of them or for
    all.

    Imports are followed through the text of the files, so that the answer does not depend on what else
    this process has loaded. A file that imports by computed name makes the whole folder count. Stopped at ``declare``
    where ``depends`` names a file that is not there.
    """
    folder = case.folder.resolve()
    paths: dict[Path, None] = {}
    walk = _Walk(folder)
    for mention in named(case, until, exporter):
        if mention.pattern:
            matching = sorted(folder.glob(mention.text))
            if not matching:
                text = f"{mention.key}: there is no {mention.text} beside the case file"
                raise Stopped("declare", "MissingFile", text, "case")
            paths.update(dict.fromkeys(matching))
        elif is_data(folder / mention.text):
            paths[folder / mention.text] = None
        else:
            walk.name(mention.text)
    walk.follow()
    found = sorted({*map(str, paths), *walk.files}, key=lambda file: file.split("/"))
    return Needs(tuple(map(Path, found)), versions_of(sorted(walk.packages)))


def files(case: Case, until: Matter = "words", exporter: Exporter | Literal["none"] | None = None) -> list[Path]:
    """The files among what the case ``needs``."""
    return list(needs(case, until, exporter).files)


def imported(folder: Path, modules: Iterable[str]) -> list[Path]:
    """The files of modules in a folder, and of the user's own that these import."""
    walk = _Walk(folder)
    for name in modules:
        walk.name(name)
    walk.follow()
    return list(map(Path, walk.files))


def is_data(file: Path) -> bool:
    """Return whether a case that names this file means the file itself, and no function in it."""
    return file.is_file() and file.suffix != ".py"


@dataclass
class _Walk:
    """The Python of one case, followed through its imports."""

    folder: Path
    files: dict[str, None] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    """The outermost names of modules that are not the user's own."""
    _todo: list[str] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _whole: bool = False

    def name(self, dotted: str) -> None:
        """Add what ``file.function`` or ``package.module.function`` means."""
        for part in prefixes(dotted):
            self._module(part)

    def follow(self) -> None:
        """Add what the files import that were named, until nothing is new."""
        while self._todo:
            file = self._todo.pop()
            if file in self.files:
                continue
            self.files[file] = None
            imports = imports_of(file)
            for name in imports.names:
                self._module(name)
            for level, name in imports.relative:
                self._todo += map(str, _files_of(Path(file).parents[level - 1], name))
            if imports.computed and not self._whole:
                self._whole = True
                self._todo += python_below(self.folder)

    def _module(self, name: str) -> None:
        if not name or name in self._names:
            return
        self._names.add(name)
        first = name.partition(".")[0]
        roots = [root for root in own_roots(self.folder) if _has(root, first)]
        if not roots:
            hooked = None if first in sys.stdlib_module_names else hooked_root(first)
            if hooked is None or hooked == HOME.parent:
                self.packages.add(first)
                return
            roots = [hooked]
        found = (os.path.realpath(file) for root in roots for file in _files_of(root, name))
        self._todo += [file for file in found if not file.startswith(f"{HOME}{os.sep}")]


def _has(root: Path, name: str) -> bool:
    """Return whether a folder has a module or a folder of that name; data does not count, which may be called as a
    package."""
    return (root / name).is_dir() or any(file.suffix in (".py", ".so", ".pyd") for file in root.glob(f"{name}.*"))


def _files_of(folder: Path, name: str) -> list[Path]:
    """Return the files that ``name`` may mean below a folder: ``a/b.py`` and ``a/b/__init__.py``; without a name the
    folder's own ``__init__.py``."""
    place = folder.joinpath(*name.split(".")) if name else folder
    files = [place / "__init__.py", *([place.parent / f"{place.name}.py"] if name else [])]
    return [file for file in files if file.is_file()]


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
