"""The modules that code asks for, by the file that imports them."""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from conformance.process.errors import or_else
from conformance.process.worker.uses.callers import user_at
from conformance.process.worker.uses.notes import NOTES, Import, noting, unnoted
from conformance.process.worker.uses.unaudited_calls import READERS, watch_reader
from conformance.process.worker.uses.whose import (
    USER,
    absolute,
    file_of_module,
    has_module,
    is_base,
    kind_of,
    source_of,
)

_import = builtins.__import__
_import_module = importlib.import_module
_find_spec = importlib.util.find_spec
_seen: set[object] = set()


def watch() -> None:
    """Note each import from now on."""

    def import_noted(
        name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (), level: int = 0,
    ) -> ModuleType:  # fmt: skip
        key: tuple[str, str, Sequence[str] | None, int] | None = None
        try:
            by = None if globals is None else globals.get("__file__")
            if isinstance(by, str) and not is_base(by):
                key = (by, name, fromlist, level)
                key = None if key in _seen else key
        except Exception:  # globals or names of the user's that cannot be read or hashed: Python's import says so
            key = None
        if key is None:
            return _import(name, globals, locals, fromlist, level)
        try:
            return _import(name, globals, locals, fromlist, level)
        finally:
            _seen.add(key)
            imported(key[0], name, globals, fromlist, level)

    def import_module_noted(name: str, package: str | None = None) -> ModuleType:
        by = user_at(sys._getframe(1))
        try:
            return _import_module(name, package)
        finally:
            if by is not None:
                imported(by, name.lstrip("."), {"__package__": package}, (), len(name) - len(name.lstrip(".")))

    def find_spec_noted(name: str, package: str | None = None) -> importlib.machinery.ModuleSpec | None:
        by, found = user_at(sys._getframe(1)), None
        try:
            found = _find_spec(name, package)
            return found
        finally:
            if by is not None:
                with noting:
                    file = None if found is None else found.origin if found.has_location else ""
                    file = file and source_of(file)
                    entry = Import(name, file, _places(name, file))
                    NOTES.imports.setdefault(source_of(by), {})[name, entry.file] = entry
                    NOTES.count += 1

    find_spec_noted.__module__, find_spec_noted.__name__ = "importlib.util", "find_spec"
    find_spec_noted.__qualname__ = "find_spec"
    importlib.util.find_spec = find_spec_noted
    builtins.__import__ = import_noted
    import_module_noted.__module__, import_module_noted.__name__ = "importlib", "import_module"
    import_module_noted.__qualname__ = "import_module"
    importlib.import_module = import_module_noted


def imported(by: str, name: str, globals: Any, fromlist: Iterable[str] | None, level: int) -> None:
    """Note what a file's import asked for: each module of the path, and modules among the names taken from it."""
    with noting:
        if name.partition(".")[0] == "safetensors":
            for owner, reader in READERS.items():
                watch_reader(sys.modules.get(owner), reader)
        by = source_of(by)
        if level:
            package = str(globals.get("__package__") or "").rsplit(".", level - 1)[0]
            name = f"{package}.{name}" if name else package
        if name == "__main__":  # the program that this process is, and nothing of a case's
            return
        names = [name[:end] for end in range(1, len(name) + 1) if end == len(name) or name[end] == "."]
        for part in fromlist or ():
            inside = f"{name}.{part}"
            if inside in sys.modules or not _has(sys.modules.get(name), part):
                names.append(inside)
        kept = NOTES.imports.setdefault(by, {})
        for full in names:
            module = sys.modules.get(full)
            file = None if module is None else file_of_module(module) or ""
            if (full, file) not in kept:
                NOTES.count += 1
                kept[full, file] = Import(full, file, _places(full, file) if kind_of(by) == USER else ())


def _has(module: ModuleType | None, name: str) -> bool:
    return or_else(False, lambda: hasattr(module, name))  # a lazy module raises what its own import raises


def _places(name: str, file: str | None) -> tuple[str, ...]:
    """The folders in which a module of that name, found in a file, is looked for before, and that have none."""
    above, _, leaf = name.rpartition(".")
    searched: Iterable[str] = sys.path if not above else getattr(sys.modules.get(above), "__path__", ())
    places = []
    with unnoted():
        for place in (absolute(place or ".") for place in searched if "__editable__" not in place):
            if file and file.startswith((f"{place}{os.sep}{leaf}{os.sep}", f"{place}{os.sep}{leaf}.")):
                break
            if not has_module(place, leaf):
                places.append(place)
    return tuple(places)
