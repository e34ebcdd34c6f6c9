"""Note what a case uses in this process.

Files, modules, variables, the host, the clock.

Python's audit events tell of files (``events``), and Python's import of modules (``observed_imports``). Reads that
raise no event (variables, the status of a file, the clock, the host's name) are noted by ``unaudited_calls`` in place
of Python's own, which do the same and note who called.

A note (``notes``) belongs to the file of the user's whose code made it (``callers``, ``whose``), and to the case that
runs. A module is loaded once in a process; so a later case that imports it takes over what that module's code has
used before. Nothing here may disturb the observed program: what fails is left out, and a note is the
addition to a set.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import ModuleType

from conformance.process.worker.uses import events, observed_imports, unaudited_calls
from conformance.process.worker.uses.first_states import has_changed, has_other_names, note_file, note_folder
from conformance.process.worker.uses.notes import NOTES, Import, Used, count, note_use, noting
from conformance.process.worker.uses.whose import (
    EVERYWHERE,
    INSTALLED,
    USER,
    absolute,
    file_of,
    file_of_module,
    has_module,
    is_base,
    is_of_a_library,
    is_site,
    kind_of,
    learn_places,
)

__all__ = [
    "INSTALLED", "USER", "Import", "Used", "absolute", "begin", "begun", "count", "file_of", "has_changed",
    "has_module", "has_other_names", "imported_by", "is_of_a_library", "is_site", "kind_of", "names_module",
    "note_file", "note_folder", "of_case", "reads", "settle", "so_far", "variables_at_first", "watch_libraries",
]  # fmt: skip

_begun = False
variables_at_first: dict[str, str] = {}
"""The variables of this process before libraries have set theirs."""


def begin() -> None:
    """Observe this process from now on; calling it again changes nothing."""
    global _begun
    if _begun:
        return
    _begun = True
    variables_at_first.update(os.environ)
    learn_places()
    NOTES.base = frozenset(name.partition(".")[0] for name in sys.modules) | EVERYWHERE
    events.watch()
    observed_imports.watch()
    unaudited_calls.watch()


def begun() -> bool:
    """Return whether this process is observed."""
    return _begun


def settle() -> None:
    """Say that what was loaded so far belongs to all cases; to be called before the first one."""
    files: set[str] = set()
    for name, module in list(sys.modules.items()):
        file = file_of_module(module)
        if file is None or name == "__main__":
            continue
        kind, top = kind_of(file), "." not in name
        if kind == USER or (kind == INSTALLED and top and name not in EVERYWHERE):
            files.add(file)
    NOTES.before = frozenset(files)
    NOTES.base = frozenset(name.partition(".")[0] for name in sys.modules) | EVERYWHERE


def watch_libraries() -> None:
    """Note also what PyTorch says of the host, where it is loaded; calling it again changes nothing."""
    if _begun:
        unaudited_calls.watch_libraries()


@contextlib.contextmanager
def of_case(case: Hashable) -> Iterator[None]:
    """Give what happens inside the block to a case, with what it has used in this process before."""
    NOTES.of_cases.setdefault(case, set())
    outer, NOTES.case = NOTES.case, case
    try:
        yield
    finally:
        NOTES.case = outer


def names_module(name: str) -> None:
    """Note that the case names a module, which may have been loaded long ago."""
    with noting:
        file = file_of_module(sys.modules.get(name))
        if file is not None:
            known = NOTES.modules.setdefault(NOTES.case, set())
            NOTES.count += file not in known
            known.add(file)


def reads(file: str) -> None:
    """Note that compiled code is about to read a file on behalf of the case."""
    with noting:
        note_file(absolute(file))
        note_use("read", absolute(file), None)


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
        if is_base(file):
            continue
        found = list(NOTES.imports.get(file, {}).values())
        if kind_of(file) == USER:
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
