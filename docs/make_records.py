"""Puts the table of a record's fields into ``docs/records.md``, from the texts below them: it cannot go stale."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from conformance.records import record

PAGE = Path(__file__).with_name("records.md")
HEAD = "| field | meaning |\n|---|---|\n"


def table() -> str:
    """A row for each text, about the fields above it that have none."""
    module = ast.parse(inspect.getsource(record))
    (body,) = (node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Record")
    rows, names = [], []
    for node in body[1:]:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            rows.append(f"| {' '.join(names)} | {' '.join(str(node.value.value).split())} |")
            names = []
    return HEAD + "\n".join(rows)


def records() -> str:
    """The page with its table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    return f"{before}{table()}\n\n{rest.partition(chr(10) * 2)[2]}".removesuffix("\n")


if __name__ == "__main__":
    PAGE.write_text(records() + "\n", encoding="utf-8")
