"""Note what a case uses in this process.

Files, modules, variables, the host, the clock.

Python's audit events tell of files (``events``), and Python's import of modules (``observed_imports``). Reads that
raise no event (variables, the status of a file, the clock, the host's name) are noted by ``unaudited_calls`` in place
of Python's own, which do the same and note who called.

A note (``notes``) belongs to the file of the user's whose code made it (``callers``, ``whose``), and to the case that
runs. A module is loaded once in a process; so a later case that imports it takes over what that module's code has
used before (``gathered``). Nothing here may disturb the observed program: what fails is left out, and a note is the
addition to a set.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Hashable, Iterator

from conformance.worker.uses import events, observed_imports, unaudited_calls
from conformance.worker.uses.gathered import imported_by, so_far
from conformance.worker.uses.notes import NOTES, Import, Used, count, note_use, noting
from conformance.worker.uses.whose import (
    EVERYWHERE,
    INSTALLED,
    USER,
    absolute,
    file_of,
    file_of_module,
    is_of_a_library,
    is_site,
    kind_of,
    learn_places,
)

__all__ = [
    "INSTALLED", "USER", "Import", "Used", "begin", "begun", "count", "file_of", "imported_by", "is_of_a_library",
    "is_site", "kind_of", "names_module", "of_case", "reads", "settle", "so_far", "variables_at_first",
    "watch_libraries",
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
        note_use("read", absolute(file), None)
