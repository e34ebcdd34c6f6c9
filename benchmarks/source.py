"""The source of the package: lines of code by folder, what stands out, and the way from a wrong value to its text.

Lines are those that have a token of code: no blank lines, comments or docstrings. Modules entered are those whose
functions run in the process of a cell from the first wrong comparison until the failure stands in the record, and
while its text is made; what runs after that, at the end of every cell, is counted apart. Those that a reader of the
text has to know write into the failure, or run while its text is made.
"""

from __future__ import annotations

import ast
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Row
from benchmarks.house import code_lines
from conformance import HOME
from conformance.results.records import text
from conformance.results.records.explanation import fail
from tests.plants.location.exports import plants, record_of

WRITTEN = ("details", "findings", "operator", "explained", "fault", "conclusion")
"""Fields of a failure, or of an inquiry about it, that its text is made of."""
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
    writers = sorted(str(file.relative_to(HOME)) for file in lines if writes(file, ("fault", "conclusion")))
    named = ", ".join(f"`{name}`" for name in writers)
    yield Row("modules that assign a fault or a conclusion", f"{len(writers)}", named, "", "1", len(writers) == 1)
    found, after, told = modules_entered()
    entered = found | told
    most = max(lines[file_of(name)] for name in entered)
    yield Row("modules entered between a wrong value and its text", f"{len(entered)}", f"none above {most} lines", "",
              "at most 8", len(entered) <= 8)  # fmt: skip
    writing = {name for name in found if writes(file_of(name), WRITTEN)}
    yield Row("of these, write into the failure", f"{len(writing)}", _named(writing))
    yield Row("of these, run while the text is made", f"{len(told)}", _named(told))
    yield Row("others that run at the end of every cell, for what it has changed and depends on",
              f"{len(after - entered)}", _named(after - entered))  # fmt: skip
    for folder, names in sorted(_by_folder(entered).items()):
        yield Row(f"of these in `{folder}`", f"{len(names)}", _named(names))


def file_of(name: str) -> Path:
    """Return the file of a module of the package."""
    return HOME.parent / f"{name.replace('.', '/')}.py"


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name.rpartition('.')[2]}`" for name in sorted(names))


def _by_folder(names: Iterable[str]) -> dict[str, set[str]]:
    folders: dict[str, set[str]] = {}
    for name in names:
        folders.setdefault(name.split(".")[1], set()).add(name)
    return folders


def writes(file: Path, fields: Collection[str]) -> bool:
    """Return whether a module assigns to one of these attributes of anything but ``self``, or to an item of one."""
    targets = (
        node.value if isinstance(node, ast.Subscript) else node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
    )
    return any(
        isinstance(node, ast.Attribute) and node.attr in fields and ast.unparse(node.value) != "self"
        for node in targets
    )


def modules_entered() -> tuple[set[str], set[str], set[str]]:
    """Return the modules that run from the first wrong comparison of a planted failure until its record has the
    failure, those that run from there to the end of the cell, and those that run while the text is made."""
    plant = next(iter(plants()))
    before, explaining, ending, telling = set[str](), set[str](), set[str](), set[str]()
    entered = before

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal entered
        name, code = str(frame.f_globals.get("__name__")), frame.f_code
        if not name.startswith("conformance."):
            return
        if entered is before and code.co_qualname == "WrongAnswer.__init__":
            entered = explaining
        if event == "call":
            entered.add(name)
        if event == "return" and entered is explaining and code is fail.__code__:
            entered = ending

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(note)
        try:
            record = record_of(plant, Path(folder) / "case", smallest=False)
            entered = telling
            text.failure(record)
        finally:
            sys.setprofile(None)
    explained, ended, told = (
        {name for name in names if file_of(name).is_file()} for names in (explaining, ending, telling)
    )
    return explained, ended, told


if __name__ == "__main__":
    for row in rows(quick=False):
        print(row.line())
