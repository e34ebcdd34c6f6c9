"""The files that a case depends on."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance import HOME
from conformance.case.declaration import Case
from conformance.errors import Stopped


def dependencies(case: Case) -> list[Path]:
    """The case's own files that its result depends on: its Python and what that imports locally, and ``depends``.

    Imports are followed through the text of the files, so that the answer does not depend on what else
    this process has loaded. A file that imports by computed name makes the whole folder count.
    """
    folder = case.folder.resolve()
    todo = [folder / f"{name}.py" for name in _named_files(case)]
    seen: dict[Path, None] = {}
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen[file] = None
        names, relative, computed = _imports(file)
        todo += [found for name in names for found in _local(name, folder)]
        todo += relative
        if computed:
            todo += folder.rglob("*.py")
    for pattern in case.says.depends:
        found = sorted(folder.glob(pattern))
        if not found:
            raise Stopped("declare", "MissingFile", f"depends: there is no {pattern} beside the case file", "case")
        seen.update(dict.fromkeys(found))
    return sorted(seen)


def _named_files(case: Case) -> set[str]:
    """The stems of all Python files beside the case file that the case names."""
    says = case.says
    dotted = [says.module, says.prepare, says.draw]
    dotted += [one.values.python for one in says.inputs.values() if one.values]
    for target in says.export.exporters.values():
        dotted += target.functions
        dotted += getattr(target, "translations", {}).values()
        for one in (*getattr(target, "symbolics", {}).values(), *getattr(target, "registers", {}).values()):
            dotted.append(one.function)
    stems = {name.split(".")[0] for name in (*dotted, *says.libraries) if name}
    if says.forward is not None:
        with contextlib.suppress(SyntaxError):
            stems |= {node.id for node in ast.walk(ast.parse(says.forward)) if isinstance(node, ast.Name)}
    return stems


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
