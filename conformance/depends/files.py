"""The files that a case depends on."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance import HOME
from conformance.case.declaration import Case
from conformance.depends.inventory import Matter, named
from conformance.errors import Stopped


def files(case: Case, until: Matter = "words") -> list[Path]:
    """The files beside the case file that it depends on as far as they matter to ``until``: those that it names, and
    what their Python imports of the user's own.

    Imports are followed through the text of the files, so that the answer does not depend on what else
    this process has loaded. A file that imports by computed name makes the whole folder count. Stopped at ``declare``
    where ``depends`` names a file that is not there.
    """
    folder = case.folder.resolve()
    found: dict[Path, None] = {}
    todo: list[Path] = []
    for one in named(case, until):
        if one.pattern:
            matching = sorted(folder.glob(one.text))
            if not matching:
                text = f"{one.key}: there is no {one.text} beside the case file"
                raise Stopped("declare", "MissingFile", text, "case")
            found.update(dict.fromkeys(matching))
        elif is_data(folder / one.text):
            found[folder / one.text] = None
        else:
            todo.append(folder / f"{one.text.split('.')[0]}.py")
    return sorted({**found, **dict.fromkeys(_with_imports(todo, folder))})


def is_data(file: Path) -> bool:
    """Whether what a case names is this file itself, and no function of a Python file."""
    return file.is_file() and file.suffix != ".py"


def _with_imports(todo: list[Path], folder: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        yield file
        modules, relative, computed = _imports(file)
        todo += [other for name in modules for other in _local(name, folder)]
        todo += relative
        if computed:
            todo += folder.rglob("*.py")


def _imports(file: Path) -> tuple[set[str], list[Path], bool]:
    """The modules that a file imports, the files of relative imports, and whether it imports by computed names."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return set(), [], False
    names: set[str] = set()
    relative: list[Path] = []
    computed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found = {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)}
            if node.level == 0:
                names |= found
            elif node.level <= len(file.parents):
                package = file.parents[node.level - 1]
                relative += [one for name in ("", *found) for one in _files_of(package, name)]
        elif isinstance(node, ast.Name) and node.id in ("importlib", "__import__"):
            computed = True
    # importing a.b loads a as well
    names |= {".".join(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 1)}
    computed = computed or any(name.split(".")[0] in ("importlib", "pkgutil", "runpy") for name in names)
    return names, relative, computed


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


def _installed(path: Path) -> bool:
    roots = (sys.prefix, sys.base_prefix)
    return path.suffix == ".zip" or any(path.resolve().is_relative_to(Path(root).resolve()) for root in roots)
