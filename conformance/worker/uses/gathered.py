"""Gather what a case has used so far.

What happened while it ran, and what its modules used when they were loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType

from conformance.worker.uses.notes import NOTES, Import, Used
from conformance.worker.uses.whose import (
    EVERYWHERE,
    INSTALLED,
    OWN,
    PYTHON,
    USER,
    file_of_module,
    kind_of,
    package_of,
)


def so_far(roots: Iterable[str] = (), keep: Callable[[str], bool] = lambda file: True) -> Used:
    """Return what the current case has used so far; of the modules that it names only those that ``keep`` wants.

    ``roots`` are files of modules that it uses, whoever had them loaded.
    """
    own = set(NOTES.of_cases.get(NOTES.case, ()))  # a copy, since other threads may add to it
    named = {file for file in (*NOTES.modules.get(NOTES.case, ()), *roots) if keep(file)}
    begun_by = {what for kind, what in own if kind == "by" and keep(what)}
    files, imports = _closure({*named, *begun_by, *NOTES.before})
    happened = {note for note in own if note[0] != "by"}
    skipped = {file for file in NOTES.modules.get(NOTES.case, ()) if not keep(file)} - files
    for note in [note for file in skipped for note in NOTES.of_files.get(file, ())]:
        happened.discard(note)
    happened.update(*(NOTES.of_files.get(file, ()) for file in files))
    happened -= {("read", file) for file in skipped}
    clock = {"the clock" for file in files if _reads_clock(file)}

    def all_of(kind: str) -> frozenset[str]:
        return frozenset(what for happening, what in happened if happening == kind)

    return Used(
        files=(all_of("read") - NOTES.written) | files,
        named=frozenset(named),
        listed=all_of("listed") - NOTES.written,
        looked=all_of("looked") - NOTES.written,
        imports=frozenset(imports),
        variables=all_of("variable") - NOTES.set,
        facts=all_of("fact"),
        fleeting=all_of("fleeting") | clock,
        unseen=all_of("unseen") | ({"a use that could not be noted"} if NOTES.lost else set()),
    )


def imported_by(file: str) -> frozenset[str]:
    """Return the files that a file has imported in this process."""
    return frozenset(found.file for found in list(NOTES.imports.get(file, {}).values()) if found.file)


def _closure(roots: set[str]) -> tuple[set[str], set[Import]]:
    """The files of these modules with all that they import, and what the user's among them asked for."""
    files: set[str] = set()
    imports: set[Import] = set()
    waiting = list(roots)
    while waiting:
        file = waiting.pop()
        if file in files:
            continue
        files.add(file)
        kind = kind_of(file)
        if kind in (PYTHON, OWN) or (kind == INSTALLED and package_of(file) in EVERYWHERE):
            continue
        found = list(NOTES.imports.get(file, {}).values())
        if kind == USER:
            imports.update(found)
            waiting += _held_by(file) if not found else []
        waiting += (entry.file for entry in found if entry.file)
    return files, imports


def _held_by(file: str) -> list[str]:
    """The files of modules that are held by one of which no import was seen, as it was loaded before all this."""
    module = next((module for module in list(sys.modules.values()) if file_of_module(module) == file), None)
    held = []
    for value in list(vars(module).values()) if module is not None else ():
        owner = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", None)))
        other = file_of_module(owner)
        if other is not None and other != file:
            held.append(other)
    return held


def _reads_clock(file: str) -> bool:
    """Return whether a file has code that asks ``datetime``, whose methods cannot be replaced."""
    names = NOTES.names.get(file, set())
    imports = {entry.name.partition(".")[0] for entry in NOTES.imports.get(file, {}).values()}
    return "datetime" in imports and bool(names & {"now", "today", "utcnow"})
