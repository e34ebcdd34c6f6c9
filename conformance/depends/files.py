"""The files that a case depends on, and the installed packages."""

from __future__ import annotations

import ast
import hashlib
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from conformance import HOME
from conformance.case.declaration import Case
from conformance.case.words import Exporter
from conformance.depends.installed import hooked_root, own_roots, python_below, versions_of
from conformance.depends.inventory import Matter, named
from conformance.errors import Stopped


@dataclass(frozen=True)
class Needs:
    """What a case depends on besides its file."""

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
    """What the case depends on as far as it matters to ``until``, for one exporter, for none of them or for all.

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
    return Needs(tuple(sorted({**paths, **walk.files})), versions_of(sorted(walk.packages)))


def files(case: Case, until: Matter = "words", exporter: Exporter | Literal["none"] | None = None) -> list[Path]:
    """The files among what the case ``needs``."""
    return list(needs(case, until, exporter).files)


def imported(folder: Path, modules: Iterable[str]) -> list[Path]:
    """The files of modules in a folder, and of the user's own that these import."""
    walk = _Walk(folder)
    for name in modules:
        walk.name(name)
    walk.follow()
    return list(walk.files)


def is_data(file: Path) -> bool:
    """Whether a case that names this file means the file itself, and no function in it."""
    return file.is_file() and file.suffix != ".py"


@dataclass
class _Walk:
    """The Python of one case, followed through its imports."""

    folder: Path
    files: dict[Path, None] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    """The outermost names of modules that are not the user's own."""
    _todo: list[Path] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _whole: bool = False

    def __post_init__(self) -> None:
        roots = [self.folder, *own_roots()]
        self._roots = [(root, _modules_in(root)) for root in dict.fromkeys(roots)]

    def name(self, dotted: str) -> None:
        """Adds what ``file.function`` or ``package.module.function`` means."""
        for part in _prefixes(dotted):
            self._module(part)

    def follow(self) -> None:
        """Adds what the files import that were named, until nothing is new."""
        while self._todo:
            file = self._todo.pop()
            if file in self.files:
                continue
            self.files[file] = None
            imports = _imports(file)
            for name in imports.names:
                self._module(name)
            self._todo += [path for path in imports.relative if path.is_file()]
            if imports.computed and not self._whole:
                self._whole = True
                self._todo += python_below(self.folder)

    def _module(self, name: str) -> None:
        if not name or name in self._names:
            return
        self._names.add(name)
        first = name.partition(".")[0]
        roots = [root for root, modules in self._roots if first in modules]
        if not roots:
            hooked = None if first in sys.stdlib_module_names else hooked_root(first)
            if hooked is None or hooked == HOME.parent:
                self.packages.add(first)
                return
            roots = [hooked]
        relative = Path(*name.split("."))
        for root in roots:
            for file in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
                if file.is_file() and not (path := file.resolve()).is_relative_to(HOME):
                    self._todo.append(path)


def _modules_in(root: Path) -> frozenset[str]:
    """The names of modules and folders in a folder."""
    try:
        return frozenset(path.name.partition(".")[0] for path in root.iterdir())
    except OSError:
        return frozenset()


@dataclass(frozen=True)
class _Imports:
    """What a file imports."""

    names: frozenset[str]
    """Modules by their dotted names, with those that they lie in."""
    relative: tuple[Path, ...] = ()
    """Files that relative imports may mean."""
    computed: bool = False
    """Whether it imports by computed names."""


SETTLED = 2 * 10**9
"""Nanoseconds after which another change of a file has another time: within them its text is read again."""
_read: dict[Path, tuple[tuple[int, int, int], _Imports]] = {}


def _imports(file: Path) -> _Imports:
    """What the file imports; read once in a process for as long as the file is the same."""
    stat = file.stat()
    sign = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    if time.time_ns() - stat.st_mtime_ns > SETTLED:
        if file not in _read or _read[file][0] != sign:
            _read[file] = (sign, _parsed(file, file.read_bytes()))
        return _read[file][1]
    return _parsed(file, file.read_bytes())


@lru_cache(maxsize=256)
def _parsed(file: Path, text: bytes) -> _Imports:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Imports(frozenset())
    names: set[str] = set()
    relative: list[Path] = []
    computed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            imported = {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)}
            if node.level == 0:
                names |= imported
            elif node.level <= len(file.parents):
                package = file.parents[node.level - 1]
                relative += [path for name in ("", *imported) for path in _files_of(package, name)]
        elif isinstance(node, ast.Name) and node.id in ("importlib", "__import__"):
            computed = True
    computed = computed or any(name.split(".")[0] in ("importlib", "pkgutil", "runpy") for name in names)
    return _Imports(frozenset(part for name in names for part in _prefixes(name)), tuple(relative), computed)


def _prefixes(name: str) -> Iterator[str]:
    """``a``, ``a.b`` and ``a.b.c``: importing the last loads all of them."""
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _files_of(root: Path, name: str) -> Iterable[Path]:
    """The files that importing ``name`` below ``root`` loads."""
    parts = name.split(".") if name else []
    for count in range(len(parts) + 1):
        base = root.joinpath(*parts[:count])
        yield base / "__init__.py"
        if count:
            yield base.with_name(f"{base.name}.py")
