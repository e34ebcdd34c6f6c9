"""Put the fields of a record into ``docs/records.md``, from the texts below them, so that they cannot go stale."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.results.records import record

PAGE = Path(__file__).with_name("records.md")
HEAD = "| field | meaning |\n|---|---|\n"
START = "makes the lines that explain a failure of them.\n\n"
END = "\n\n## "
IN_A_CELL = 40
"""Words; a longer text stands below the table, and its beginning in it."""


def fields(group: type) -> Iterator[tuple[list[str], str]]:
    """Each text of a group of fields, with the fields above it that have none."""
    (written,) = ast.parse(inspect.getsource(group)).body
    assert isinstance(written, ast.ClassDef)
    names: list[str] = []
    for node in written.body[1:]:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield names, " ".join(str(node.value.value).split())
            names = []


def tables() -> str:
    """A table for each group of fields, and below all what is too long for a cell: a part of the text in each line of
    a list."""
    told, longer = [], []
    for group in record.GROUPS:
        rows, more = table(group)
        told.append("\n".join([f"{inspect.getdoc(group)}\n", *rows, ""]))
        longer += more
    return "\n".join([*told, *longer]).replace("\n\n\n", "\n\n")


def table(group: type) -> tuple[list[str], list[str]]:
    rows, longer = HEAD.splitlines(), []
    for names, text in fields(group):
        if len(text.split()) > IN_A_CELL:
            parts = re.split(r"(?<=[;.]) (?![^(]*\)|[^`]*`[^`]*(?:`[^`]*`[^`]*)*$)", text)
            longer.append("\n".join([f"\n### {' '.join(names)}\n", *(f"- {part}" for part in parts)]))
            text = f"{re.split('[:;(]', text)[0].strip()}: [below](#{'-'.join(names)})"
        rows.append(f"| {' '.join(names)} | {text} |")
    return rows, longer


def records() -> str:
    """The page with its tables."""
    before, start, rest = PAGE.read_text(encoding="utf-8").partition(START)
    return f"{before}{start}{tables()}{END}{rest.partition(END)[2]}".removesuffix("\n")


if __name__ == "__main__":
    PAGE.write_text(records() + "\n", encoding="utf-8")
