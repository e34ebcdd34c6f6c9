"""Compare what every cell depends on between two trees: pins, settings of pytest, the harness itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import tomllib

from conformance import HOME

_PINNED = re.compile(r"(constraints|requirements)[\w.-]*\.(txt|in)")
_WHOLE = re.compile(r"[\w.-]+\.lock|pylock[\w.-]*\.toml|environment\.ya?ml|conftest\.py|\.?pytest\.(ini|toml)")
_PYPROJECT = "pyproject.toml"
_BESIDE = ("constraints", "requirements")
"""Folders in which every text file holds versions."""

_TABLES = (
    ("project", "dependencies"), ("project", "optional-dependencies"), ("dependency-groups",),
    ("tool", "poetry", "dependencies"), ("tool", "poetry", "group"), ("tool", "uv"), ("tool", "pytest"),
    ("tool", "conformance"),
)  # fmt: skip
"""The tables of a pyproject.toml that may change what cells run with."""

_PACKAGE = HOME.resolve()


def is_pin(file: Path) -> bool:
    """Return whether a file of this name may hold versions or settings that every cell depends on."""
    return file.name == _PYPROJECT or _has_versions(file) or bool(_WHOLE.fullmatch(file.name))


def _has_versions(file: Path) -> bool:
    return bool(_PINNED.fullmatch(file.name)) or (file.parent.name in _BESIDE and file.suffix in (".txt", ".in"))


def differences(before: Path, now: Path, folders: Iterable[Path]) -> Iterator[str]:
    """Yield what differs for every cell, one line each. ``folders`` are those of the cases, relative to the two
    trees.

    Pins count in these folders and in all above them.
    """
    around = {Path(), *folders, *(parent for folder in folders for parent in folder.parents)}
    around |= {folder / name for folder in around for name in _BESIDE}
    files = {folder / name for folder in around for name in {*_names(before / folder), *_names(now / folder)}}
    for file in sorted(files):
        yield from _of_file(file, before, now)
    yield from _harness(before, now)


def _names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if is_pin(file)] if folder.is_dir() else []


def _of_file(file: Path, before: Path, now: Path) -> Iterator[str]:
    name, old, new = file.as_posix(), _bytes(before / file), _bytes(now / file)
    if old == new:
        return
    if file.name == _PYPROJECT:
        tables = _tables(old), _tables(new)
        yield from (
            f"{name}: {key} changed" for key in tables[0] | tables[1] if tables[0].get(key) != tables[1].get(key)
        )
    elif _has_versions(file):
        pins = _versions(old), _versions(new)
        for package in sorted(pins[0] | pins[1]):
            was, is_now = (versions.get(package, "not pinned") for versions in pins)
            if was != is_now:
                changed = f"{was} -> {is_now}" if was and is_now else "is new" if is_now == "" else "is gone"
                yield f"{name}: {package} {changed}"
    else:
        yield f"{name} {'is new' if old is None else 'was taken out' if new is None else 'changed'}"


def _versions(text: bytes | None) -> dict[str, str]:
    """By package its version as the file states it, without ``==``. A line that names no package, such as
    ``-r more.txt``, is a key of its own."""
    versions = {}
    for line in (text or b"").decode("utf-8", "replace").splitlines():
        said = re.sub(r"(^|\s)#.*", "", line).strip()
        parts = re.fullmatch(r"([\w.-]+(?:\[.*?\])?)\s*(?:==)?\s*(.*)", said) if said[:1] != "-" else None
        if said:
            name, version = parts.groups() if parts else (said, "")
            versions[name] = version if said[0] == "-" else version or "any"
    return versions


def _tables(text: bytes | None) -> dict[str, object]:
    """The tables that ``_TABLES`` names, by dotted name; the whole text of a file that cannot be read."""
    try:
        document: object = tomllib.loads((text or b"").decode("utf-8"))
    except ValueError:
        return {"what cannot be read": text}
    tables = {}
    for keys in _TABLES:
        table = document
        for key in keys:
            table = table.get(key) if isinstance(table, Mapping) else None
        if table is not None:
            tables[".".join(keys)] = table
    return tables


def _harness(before: Path, now: Path) -> Iterator[str]:
    """Files of this package that differ, where it lies in the same repository."""
    if not _PACKAGE.is_relative_to(now):
        return
    then = before / _PACKAGE.relative_to(now)
    for file in sorted({*_python(then), *_python(_PACKAGE)}):
        if _bytes(then / file) != _bytes(_PACKAGE / file):
            yield f"the harness: {file.as_posix()}"


def _python(folder: Path) -> Iterator[Path]:
    return (file.relative_to(folder) for file in folder.rglob("*.py"))


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None
