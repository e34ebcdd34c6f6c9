"""The ways in which things end: a mistake of the user's, above all in a case file, and a cell that stopped."""

from __future__ import annotations

import difflib
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


class Unavailable(Exception):
    """Something that this host lacks (a package, a compiler, a GPU): the cell is skipped, with this text."""


def display_path(path: Path) -> str:
    """The path relative to the working directory where it lies below it, else absolute."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, FileNotFoundError):  # it lies elsewhere, or the working directory was deleted
        return path.as_posix()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'inputs'?"``, or the list of what is known where nothing is near."""
    options = sorted(set(known))
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(options)}" if options else ""
