"""Note what happens in this process: the one state of this package."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from threading import get_ident

Note = tuple[str, str]
"""What happened, and to what: ``("read", "/data/table.csv")``."""
State = tuple[tuple[int, ...], bytes] | None
"""Of a file what the file system says of it, and the SHA-256 of its content where that alone does not tell a change;
None where there is no file."""


@dataclass(frozen=True)
class Import:
    """A module that code asked for."""

    name: str
    file: str | None
    """The file that it was found in; "" for a module without a file, None where it was not found."""
    places: tuple[str, ...]
    """The folders in which it was looked for before, and not found."""


@dataclass(frozen=True)
class Used:
    """Hold what a case used, by absolute paths and names."""

    files: frozenset[str] = frozenset()
    """Files that were read or imported, of the user's and of distributions."""
    named: frozenset[str] = frozenset()
    """Those of its modules that the case itself names; the others are imported by these."""
    listed: frozenset[str] = frozenset()
    """Folders whose names were listed."""
    looked: frozenset[str] = frozenset()
    """Paths of which it was asked what is there."""
    imports: frozenset[Import] = frozenset()
    variables: frozenset[str] = frozenset()
    facts: frozenset[str] = frozenset()
    """What was read of the host, as ``FACTS`` of ``models.kept.observed_dependencies`` names it."""
    fleeting: frozenset[str] = frozenset()
    """What is another at each run: the clock, random numbers of the system."""
    unseen: frozenset[str] = frozenset()
    """Where something was used that cannot be observed: another process, a connection."""


@dataclass
class ProcessNotes:
    """Hold what has happened so far in this process."""

    case: Hashable = None
    """The case that runs."""
    of_cases: dict[Hashable, set[Note]] = field(default_factory=dict)
    of_files: dict[str, set[Note]] = field(default_factory=dict)
    modules: dict[Hashable, set[str]] = field(default_factory=dict)
    """By case the files of modules that it names."""
    imports: dict[str, dict[tuple[str, str | None], Import]] = field(default_factory=dict)
    """By the file that imports."""
    names: dict[str, set[str]] = field(default_factory=dict)
    """By file of the user's the names that its code uses: what cannot be replaced is looked for among them."""
    count: int = 0
    lost: bool = False
    """Whether something was used and could not be noted."""
    written: set[str] = field(default_factory=set)
    set: set[str] = field(default_factory=set)
    """Variables that the user's code set."""
    first_states: dict[str, State] = field(default_factory=dict)
    """By path the state of a file when it was first used in this process."""
    first_names: dict[str, frozenset[str]] = field(default_factory=dict)
    """By path the names in a folder when it was first listed."""
    before: frozenset[str] = frozenset()
    """The user's files that were loaded before any case."""
    base: frozenset[str] = frozenset()
    """The packages that were loaded before any case; what they read for themselves is none of a case's doing."""


NOTES = ProcessNotes()
WITHIN: set[int] = set()
"""The threads that are about to note something; what they do for that is nobody's use."""


@contextlib.contextmanager
def unnoted() -> Iterator[None]:
    """Make what this thread does inside the block nobody's use."""
    thread = get_ident()
    outer = thread in WITHIN
    WITHIN.add(thread)
    try:
        yield
    finally:
        if not outer:
            WITHIN.discard(thread)


class _Noting:
    """A block that notes a use.

    What it raises is kept from the observed program: the use is lost, and nothing is kept that may rest on it.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        failed = kind is not None and issubclass(kind, Exception)
        NOTES.lost |= failed
        return failed


noting = _Noting()


def note_use(kind: str, what: str, user: str | None) -> None:
    """Note a use for the case that runs, and for the file of the user's whose code made it, if any did."""
    note = (kind, what)
    if NOTES.case is not None:
        own = NOTES.of_cases[NOTES.case]
        before = len(own)
        own.add(note)
        if user:
            own.add(("by", user))
        NOTES.count += len(own) - before
    if user:
        of_file = NOTES.of_files.setdefault(user, set())
        before = len(of_file)
        of_file.add(note)
        NOTES.count += len(of_file) - before


def count() -> int:
    """Return a number that is another one whenever something new was noted."""
    return NOTES.count
