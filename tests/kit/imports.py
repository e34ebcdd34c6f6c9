"""The modules of the package, and which of them each imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

from conformance import HOME


def modules() -> list[Path]:
    """All but what a starter is made of."""
    return sorted(file for file in HOME.rglob("*.py") if file.name != "module.py" or file.parent.name != "starter")


def imported(file: Path) -> Iterator[tuple[int, Path]]:
    """What a module imports of this package, with the line; also inside functions and for type checkers."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}:{node.lineno}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == HOME.name:
                yield node.lineno, _file(parts[1:])


def _file(parts: list[str]) -> Path:
    for end in range(len(parts), 0, -1):
        place = HOME.joinpath(*parts[:end])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file
    return HOME / "__init__.py"
