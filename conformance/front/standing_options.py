"""Read the options that ``[tool.conformance]`` of ``pyproject.toml`` gives in place of every command line."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomllib

from conformance.front.plugin import declared_options
from conformance.process.errors import UserError, did_you_mean, display_path, shown

_PATHS = ("PATH", "DIR", "RUN")
"""How the values of options are called that are paths: here they are relative to the file."""


def options(
    folder: Path, given: Sequence[str], prefix: str = "--", taken: Collection[str] | None = None
) -> list[str]:
    """Return the options of the nearest ``pyproject.toml`` with such a table, in ``folder`` or above, each as one
    word that begins with ``prefix``: those of the names ``taken``, or all, but for those that ``given`` has.

    Raises UserError for a file that cannot be read, and for a key or a value that no option has, with its line.
    """
    file, text, table = _find(folder)
    known = {name: how for name, how in declared_options.by_name().items() if how["help"] != argparse.SUPPRESS}
    words: list[str] = []
    for key, value in table.items():
        place = f"{display_path(file)}:{_line(text, key)}: [tool.conformance]"
        if key not in known:
            raise UserError(f"{place} has no key {shown(key)}{did_you_mean(key, known)}")
        try:
            said = [*_values(value, known[key], os.path.relpath(file.parent, folder))]
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise UserError(f"{place} {key}: {error}") from None
        option = f"{prefix}{key}"
        if (taken is None or key in taken) and option not in (word.partition("=")[0] for word in given):
            words += [option if one is None else f"{option}={one}" for one in said]
    return words


def _find(folder: Path) -> tuple[Path, str, Mapping[str, Any]]:
    """Return the file with its text and the table; an empty table where no file has one."""
    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            try:
                text = file.read_text(encoding="utf-8")
                table = tomllib.loads(text).get("tool", {}).get("conformance") if "conformance" in text else None
            except (ValueError, AttributeError) as error:
                raise UserError(f"{display_path(file)}: {error}") from None
            if isinstance(table, dict):
                return file, text, table
    return folder, "", {}


def _line(text: str, key: str) -> int:
    """Return the line of a key of the table, counted from 1, or that of the table."""
    head = re.search(r"^\s*\[\s*tool\s*\.\s*conformance\s*\]", text, re.M)
    start = head.start() if head else 0
    at = re.compile(rf"^[^#\n]*?\b{re.escape(key)}\b[\"']?\s*=", re.M).search(text, start)
    return text.count("\n", 0, at.end() if at else start) + 1


def _values(value: object, how: Mapping[str, Any], folder: str) -> Iterator[str | None]:
    """Yield the value of an option as a command line has it, None for one that has none. ``folder`` is that of the
    file. Raises ValueError or ArgumentTypeError for what the option does not take."""
    if how.get("action") == "store_true":
        if not isinstance(value, bool):
            raise ValueError(f"{shown(value)} is neither true nor false")
        yield from [None] * value
        return
    several = value if isinstance(value, list) else [value]
    if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in several):
        raise ValueError(f"{shown(value)} is neither a text, a number, nor a list of them")
    texts = [*map(str, several)]
    if how.get("metavar") in _PATHS:
        texts = [os.path.normpath(Path(folder, text)) for text in texts]
    for text in texts if how.get("action") == "append" else [",".join(texts)]:
        how.get("type", str)(text)
        if text not in how.get("choices", [text]):
            raise ValueError(f"{shown(text)} is not known{did_you_mean(text, how['choices'])}")
        yield text
