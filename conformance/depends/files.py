"""The files that a case depends on."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from conformance import HOME
from conformance.case.declaration import Case
from conformance.case.words import Exporter
from conformance.depends.inventory import Matter, named
from conformance.errors import Stopped


def files(case: Case, until: Matter = "words", exporter: Exporter | Literal["none"] | None = None) -> list[Path]:
    """The files beside the case file that it depends on as far as they matter to ``until``, for one exporter, for
    none of them or for all: those that it names, and what their Python imports of the user's own.

    Imports are followed through the text of the files, so that the answer does not depend on what else
    this process has loaded. A file that imports by computed name makes the whole folder count. Stopped at ``declare``
    where ``depends`` names a file that is not there.
    """
    folder = case.folder.resolve()
    paths: dict[Path, None] = {}
    todo: list[Path] = []
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
            todo.append(folder / f"{mention.text.split('.')[0]}.py")
    return sorted({**paths, **dict.fromkeys(_with_imports(todo, folder))})


def is_data(file: Path) -> bool:
    """Whether a case that names this file means the file itself, and no function in it."""
    return file.is_file() and file.suffix != ".py"


def _with_imports(todo: list[Path], folder: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        yield file
        modules, relative, computed = _imports(file, file.read_bytes())
        todo += [path for name in modules for path in _local(name, folder)]
        todo += relative
        if computed:
            todo += folder.rglob("*.py")


@lru_cache(maxsize=256)
def _imports(file: Path, text: bytes) -> tuple[frozenset[str], tuple[Path, ...], bool]:
    """The modules that a file of this text imports, the files of relative imports, and whether it imports by computed
    names. Kept, since the cases of a folder share their files."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(), (), False
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
    # importing a.b loads a as well
    names |= {".".join(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 1)}
    computed = computed or any(name.split(".")[0] in ("importlib", "pkgutil", "runpy") for name in names)
    return frozenset(names), tuple(relative), computed


def _files_of(root: Path, name: str) -> Iterator[Path]:
    """The files that importing ``name`` below ``root`` loads."""
    parts = name.split(".") if name else []
    for count in range(len(parts) + 1):
        base = root.joinpath(*parts[:count])
        yield base / "__init__.py"
        if count:
            yield base.with_name(f"{base.name}.py")


def _local(name: str, folder: Path) -> Iterator[Path]:
    """The files of a module that is the user's own: in the folder, or on ``sys.path`` outside of any installation."""
    relative = Path(*name.split(".")) if name else Path()
    own = [Path(entry) for entry in sys.path if entry and not _installed(Path(entry))]
    for root in (folder, *own):
        for file in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
            if name and file.is_file() and not file.resolve().is_relative_to(HOME):
                yield file.resolve()


@cache
def _installed(path: Path) -> bool:
    roots = (sys.prefix, sys.base_prefix)
    return path.suffix == ".zip" or any(path.resolve().is_relative_to(Path(root).resolve()) for root in roots)
