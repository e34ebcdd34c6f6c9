"""Put the fields of a record into ``docs/records.md``, from the texts below them, so that they cannot go stale."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.records import record

PAGE = Path(__file__).with_name("records.md")
HEAD = "| field | meaning |\n|---|---|\n"
END = "\n\n## "
IN_A_CELL = 40
"""Words; a longer text stands below the table, and its beginning in it."""


def fields() -> Iterator[tuple[list[str], str]]:
    """Each text, with the fields above it that have none."""
    module = ast.parse(inspect.getsource(record))
    (body,) = (node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == "Record")
    names: list[str] = []
    for node in body[1:]:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield names, " ".join(str(node.value.value).split())
            names = []


def tables() -> str:
    """The table, and below it what is too long for a cell: a part of the text in each line of a list."""
    rows, longer = [], []
    for names, text in fields():
        if len(text.split()) > IN_A_CELL:
            parts = re.split(r"(?<=[;.]) (?![^(]*\)|[^`]*`[^`]*(?:`[^`]*`[^`]*)*$)", text)
            longer.append("\n".join([f"\n### {' '.join(names)}\n", *(f"- {part}" for part in parts)]))
            text = f"{re.split('[:;(]', text)[0].strip()}: [below](#{'-'.join(names)})"
        rows.append(f"| {' '.join(names)} | {text} |")
    return HEAD + "\n".join([*rows, *longer])


def records() -> str:
    """The page with its table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEAD)
    return f"{before}{tables()}{END}{rest.partition(END)[2]}".removesuffix("\n")


if __name__ == "__main__":
    PAGE.write_text(records() + "\n", encoding="utf-8")
