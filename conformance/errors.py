"""The ways in which things end: a mistake of the user's, above all in a case file, and a cell that stopped."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One mistake in a case file. Lines and columns count from 1, as editors do."""

    file: Path
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{display_path(self.file)}:{self.line}:{self.column}: {self.message}"


class UserError(ValueError):
    """What the user gave cannot be used: an option, a name, a file. Its text, alone, says what to correct.

    Any other ValueError is a mistake in the harness.
    """


class CaseFileError(Exception):
    """A case file, or the Python beside it, cannot be used; carries all of its problems at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Stopped(Exception):
    """A cell stopped at ``stage``; ``error`` is the name that a ``fails`` entry matches.

    Cause: what the user's module, the exporter, a runtime or the comparison did. Remedy: ``reason``
    says what happened and ``fault`` who is to look at it: exporter, runtime, precision, reference, case
    or harness.
    """

    def __init__(self, stage: str, error: str, reason: str, fault: str | None = None) -> None:
        super().__init__(reason)
        self.stage = stage
        self.error = error
        self.reason = reason
        self.fault = fault
        self.fields: dict[str, Any] = {}
        """What else the record is to say, by the names of its fields; ``records.text`` makes lines of them."""


def why(error: OSError) -> str:
    """What the system says of a file or a folder, in words."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "a file is where a folder has to be"
    return error.strerror or str(error)


_OF_THE_HOST = {
    errno.ENOSPC: "the host's disk is full", errno.EDQUOT: "the quota of the host's disk is used up",
    errno.EROFS: "the host's disk can only be read", errno.EFBIG: "the host allows no larger file",
}  # fmt: skip


def trouble_of_host(error: BaseException) -> str | None:
    """What the host's disk lacks, where the exception came of that, by way of whatever others; None where not."""
    known: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in known:
        known.add(id(cause))
        if isinstance(cause, OSError) and cause.errno in _OF_THE_HOST:
            return _OF_THE_HOST[cause.errno]
        if isinstance(cause, FileNotFoundError) and "No usable temporary directory" in str(cause):
            return "the host has no folder for temporary files that can be written"
        cause = cause.__cause__ or cause.__context__
    return None


class Unavailable(Exception):
    """Something that this host lacks (a package, a compiler, a GPU): the cell is skipped, with this text."""


def display_path(path: Path) -> str:
    """The path relative to the working directory where it lies below it, else absolute."""
    try:
        return Path(os.path.realpath(path)).relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):  # outside of it, or it was deleted
        return path.as_posix()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'inputs'?"``, or the list of what is known where nothing is near."""
    options = sorted(set(known))
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(options)}" if options else ""
