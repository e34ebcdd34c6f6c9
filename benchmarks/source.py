"""The source of the package: lines of code by folder, what stands out, and the way from a wrong value to its text.

Lines are those that have a token of code: no blank lines, comments or docstrings. Modules entered are those whose
functions run in the process of a cell between the first wrong comparison and the finished text of its failure.
"""

from __future__ import annotations

import ast
import io
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Row
from benchmarks.location.plants import plants
from benchmarks.location.run import record_of
from conformance import HOME
from conformance.records import text

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip
BEFORE = 42_367
"""Lines before the explanations got one comparer, one writer of the fault and one schema (commit 8fcdf50)."""


def rows(quick: bool) -> Iterator[Row]:
    lines = {file: code_lines(file.read_text(encoding="utf-8")) for file in sorted(HOME.rglob("*.py"))}
    folders: Counter[str] = Counter()
    for file, count in lines.items():
        parts = file.relative_to(HOME).parts
        folders[parts[0] if len(parts) > 1 else "beside the folders"] += count
    total = sum(folders.values())
    target = BEFORE - 2_500
    yield Row(f"lines of code, {len(lines)} modules", f"{total:,}", f"{BEFORE:,}", f"{total / BEFORE:.2f} ×",
              f"at most {target:,}", total <= target)  # fmt: skip
    for folder, count in folders.most_common():
        yield Row(f"`{folder}`", f"{count:,}")
    longest = max(lines, key=lambda file: lines[file])
    yield Row("the longest module", f"{lines[longest]}", f"`{longest.relative_to(HOME)}`")
    for what, limit in {"except Exception": 30, "suppress(Exception)": None, "type: ignore": 15}.items():
        count = sum(file.read_text(encoding="utf-8").count(what) for file in lines)
        met = None if limit is None else count <= limit
        yield Row(f"`{what}`", f"{count}", "", "", "" if limit is None else f"at most {limit}", met)
    writers = sorted(str(file.relative_to(HOME)) for file in lines if writes_fault(file))
    named = ", ".join(f"`{name}`" for name in writers)
    yield Row("modules that assign a fault or a conclusion", f"{len(writers)}", named, "", "1", len(writers) == 1)
    entered = modules_entered()
    most = max(lines[HOME.parent / f"{name.replace('.', '/')}.py"] for name in entered)
    yield Row("modules entered between a wrong value and its text", f"{len(entered)}", f"none above {most} lines", "",
              "at most 8", len(entered) <= 8)  # fmt: skip


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


def writes_fault(file: Path) -> bool:
    """Return whether a module assigns to ``fault`` or ``conclusion`` of anything but ``self``."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr in ("fault", "conclusion")
        and ast.unparse(node.value) != "self"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )


def modules_entered() -> set[str]:
    """Return the modules that run between the first wrong comparison of a planted failure and its text."""
    plant = next(iter(plants()))
    entered: set[str] = set()
    wrong = False

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal wrong
        name = str(frame.f_globals.get("__name__"))
        if event == "call" and name.startswith("conformance."):
            wrong = wrong or frame.f_code.co_qualname == "WrongAnswer.__init__"
            if wrong:
                entered.add(name)

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(note)
        try:
            record = record_of(plant, Path(folder) / "case", smallest=False)
            text.failure(record.as_dict())
        finally:
            sys.setprofile(None)
    return {name for name in entered if (HOME.parent / f"{name.replace('.', '/')}.py").is_file()}


if __name__ == "__main__":
    for row in rows(quick=False):
        print(row.line())
