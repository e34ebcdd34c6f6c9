"""The structure of the package in numbers, of this checkout and of others: ``python -m benchmarks.house [TREE ...]``.

Prints a table with a column for each checkout, this one last. An arrow is a folder of which a module imports one of
another folder; those between rooms count only the folders, or modules, at the top of the package. Lines of code have
a token of code: no blanks, comments, or docstrings.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "conformance"
DOORS = {"__init__", "__main__", "test_suite", "plugin", "explanations", "testing"}
"""Modules at the top by which the package is entered."""
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A module of a checkout: its file below the package, its text and its tree."""

    file: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The dotted name below the package."""
        return ".".join(self.file.with_suffix("").parts).removesuffix("__init__").removesuffix(".")

    @property
    def folder(self) -> str:
        """The folder, or the module itself at the top."""
        return str(self.file.parent) if len(self.file.parts) > 1 else self.file.stem

    @property
    def room(self) -> str:
        """The first folder, or the module itself at the top."""
        return self.file.parts[0].removesuffix(".py")


def modules(tree: Path) -> list[Module]:
    """Return the modules of the package in a checkout, but for what a new case is started with."""
    home = tree / PACKAGE
    files = [file for file in sorted(home.rglob("*.py")) if "starter" not in file.parts]
    texts = {file.relative_to(home): file.read_text(encoding="utf-8") for file in files}
    return [Module(file, text, ast.parse(text)) for file, text in texts.items()]


def measured(tree: Path) -> dict[str, int]:
    """Return the numbers of a checkout by what they count."""
    found = modules(tree)
    by_name = {one.name: one for one in found}
    arrows: set[tuple[str, str]] = set()
    between: set[tuple[str, str]] = set()
    for one in found:
        for other in imported(one, by_name):
            arrows.add((one.folder, other.folder))
            between.add((one.room, other.room))
    classes = Counter(node.name for one in found for node in ast.walk(one.tree) if isinstance(node, ast.ClassDef))
    text = "\n".join(one.text for one in found)
    return {
        "modules": len(found),
        "lines of code": sum(code_lines(one.text) for one in found),
        "names at the top": len({one.room for one in found} - DOORS),
        "arrows between folders": len({(one, other) for one, other in arrows if one != other}),
        "arrows between rooms": len({(one, other) for one, other in between if one != other and one not in DOORS}),
        "class names that stand twice": sum(count > 1 for count in classes.values()),
        "`Mapping[str, Any]`": text.count("Mapping[str, Any]"),
        "`Any`": len(re.findall(r"\bAny\b", text)),
        '`.get("…")`': text.count('.get("'),
    }


def imported(module: Module, by_name: dict[str, Module]) -> Iterator[Module]:
    """Yield the modules of the package that a module imports, also inside functions and for the type checker."""
    for node in ast.walk(module.tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            for end in range(len(parts), 1, -1) if parts[0] == PACKAGE else ():
                if other := by_name.get(".".join(parts[1:end])):
                    yield other
                    break


def code_lines(source: str) -> int:
    """Return how many lines of a source have code."""
    texts = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - texts)


def main() -> None:
    trees = [*map(Path, sys.argv[1:]), Path(__file__).parents[1]]
    columns = [measured(tree) for tree in trees]
    print("| |" + "|".join(f" {tree.resolve().name} " for tree in trees) + "|")
    print("|---" * (len(trees) + 1) + "|")
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(f"{column[name]:,}" for column in columns) + " |")


if __name__ == "__main__":
    main()
