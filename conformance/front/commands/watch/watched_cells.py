"""The cells that are watched, with what they depend on. What has not changed is not read again."""

from __future__ import annotations

import ast
import hashlib
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from conformance.case.files.declaration import Case
from conformance.case.plan.catalogue import Selection, read_file, read_suite
from conformance.case.plan.cell import Cell
from conformance.case.plan.keyword_selection import Words
from conformance.front.commands.watch.file_watcher import Sign, folders, sign
from conformance.models.kept.contents import content
from conformance.models.kept.dependency_files import needs
from conformance.models.kept.fingerprint import Fingerprints
from conformance.process.errors import Problem, UserError, display_path, or_else, shown

_Key: TypeAlias = tuple[Path, str, str]
"""File and name of a case, and an exporter: what the files of a cell depend on."""


@dataclass(frozen=True)
class Plan:
    """The cells that are selected now, in the order of their cases, and what decides whether they have to run."""

    cells: Sequence[Cell]
    considered: int
    """Cells among which ``-k`` selects."""
    prints: Mapping[str, str]
    """By cell id: where it is the same, so is the verdict."""
    held: Mapping[str, str]
    """By id of a cell that cannot run before its Python is written to its end: what is wrong with that."""
    problems: Sequence[str]
    """What is wrong with case files and Python files, each with file and line."""
    signs: Mapping[Path, Sign | None]
    """All files and folders that the above was read from, as they were before they were read."""
    files: frozenset[Path]
    """The files among them that selected cells depend on, and files of cases that cannot be read."""


@dataclass
class _Needs:
    """Hold what the cells of a case need for one exporter."""

    case: Case
    files: list[Path]
    around: set[Path]
    """The folders of these, where files may come and go."""
    packages: Mapping[str, str]
    known: bool
    """Whether what it needs could be read."""

    @property
    def paths(self) -> set[Path]:
        return self.around.union(self.files)

    def as_before(self, changed: Collection[Path], before: Mapping[Path, Sign | None]) -> bool:
        """Return whether all of it was watched, and nothing of it has changed."""
        return before.keys() >= self.paths and self.paths.isdisjoint(changed)


class Catalogue:
    """Reads cases and what they depend on, and again what has changed of it."""

    def __init__(self, paths: Sequence[Path], selection: Selection, words: Words, examples: int | None) -> None:
        """Raise UserError for a path where nothing is."""
        for path in paths:
            if not os.path.lexists(path):
                raise UserError(f"{display_path(path)}: there is no such case file or folder")
        self._paths = [path.absolute() for path in paths]
        self._selection, self._words = selection, words
        self._fingerprints = Fingerprints({"examples": examples, "tensorrt": None})
        self._read: dict[Path, tuple[Sign | None, tuple[Sequence[Cell], Sequence[Problem]]]] = {}
        self._needs: dict[_Key, _Needs] = {}
        self._parsed: dict[Path, tuple[Sign | None, str | None]] = {}
        self._signs: dict[Path, Sign | None] = {}
        self._looked: set[_Key] = set()

    @property
    def selects(self) -> bool:
        """Return whether ``-k`` leaves cells out."""
        return bool(self._words.text)

    @property
    def asked(self) -> str:
        """Say what was asked for, in short."""
        places = ", ".join(map(display_path, self._paths))
        return f"-k '{self._words.text}' in {places}" if self._words.text else places

    def read(self, changed: Collection[Path] = ()) -> Plan:
        """The plan after these paths have changed."""
        before, self._signs, self._looked = self._signs, {}, set()
        for path in self._paths:
            self._signs |= {place: sign(place) for place in (folders(path) if path.is_dir() else (path,))}
        every, found = read_suite(self._paths, self._selection, self._read_one)
        wrong = [error for error in found.values() if error is not None]
        problems = [str(problem) for error in wrong for problem in error.problems]
        every = [cell for cell in every if cell.check != "latency"]  # measured where nothing else is going on
        cells = [cell for cell in every if self._words.keeps(cell)]
        counted = {problem.file for error in wrong for problem in error.problems}
        held: dict[str, str] = {}
        prints: dict[str, str] = {}
        for cell in cells:
            needed = self._needed(cell, changed, before)
            counted |= {cell.case.file, *needed.files}
            broken = [text for text in map(self._broken, needed.files) if text is not None]
            if broken:
                held[cell.id] = broken[0]
                problems += [text for text in broken if text not in problems]
            prints[cell.id] = self._print(cell, needed)
        return Plan(cells, len(every), prints, held, problems, self._signs, frozenset(counted))

    def _read_one(self, file: Path) -> tuple[Sequence[Cell], Sequence[Problem]]:
        now = self._signs[file] = sign(file)
        kept = self._read.get(file)
        if kept is None or kept[0] != now or now is None:
            self._read[file] = now, read_file(file)
        return self._read[file][1]

    def _needed(self, cell: Cell, changed: Collection[Path], before: Mapping[Path, Sign | None]) -> _Needs:
        """Find what the cell needs, where it may have changed.

        It is looked for once for all cells of its case and exporter.
        """
        key = (cell.case.file, cell.case.name, cell.exporter)
        known = self._needs.get(key)
        if key in self._looked and known is not None:
            return known
        self._looked.add(key)
        if known is None or known.case is not cell.case or not known.as_before(changed, before):
            known = self._needs[key] = _find_needs(cell)
            self._signs |= {path: sign(path) for path in known.paths}
            self._fingerprints.forget(cell)
        else:
            self._signs = {path: before[path] for path in known.paths} | self._signs
        return known

    def _broken(self, file: Path) -> str | None:
        """Say why a Python file cannot be read as such, with its line; None where it can, or is something else."""
        if file.suffix != ".py":
            return None
        now = self._signs[file]
        if file not in self._parsed or self._parsed[file][0] != now:
            self._parsed[file] = now, _syntax(file)
        return self._parsed[file][1]

    def _print(self, cell: Cell, needs: _Needs) -> str:
        """Hash what the cell says and the files that source text tells of: nothing has run so far."""
        contents = [content(str(file)) for file in needs.files]
        known = b"".join(found for found in contents if found is not None)
        if not needs.known or len(known) < 32 * len(contents):
            return self._substitute(cell, needs)
        return hashlib.sha256(f"{self._fingerprints(cell)} {needs.packages}".encode() + known).hexdigest()

    def _substitute(self, cell: Cell, needs: _Needs) -> str:
        """In place of that where a file cannot be read, or is not there."""
        said = cell.case.says.model_dump_json(fallback=str)
        signs = [(str(path), self._signs[path]) for path in needs.files]
        return hashlib.sha256(f"{cell.id} {said} {signs}".encode()).hexdigest()


def _find_needs(cell: Cell) -> _Needs:
    folder = cell.case.folder.resolve()
    found = or_else(None, lambda: needs(cell.case, exporter=cell.exporter))
    if found is None:  # the cell tells what is wrong; until then every file there may be what it waits for
        own = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    else:
        own = list(found.files)
    around = {folder, *(file.parent for file in own)}
    return _Needs(cell.case, own, around, found.packages if found else {}, found is not None)


def _syntax(file: Path) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(file.read_bytes())
    except SyntaxError as error:
        text = f": {shown(error.text.strip())}" if error.text and error.text.strip() else ""
        return f"{display_path(file)}:{error.lineno or 1}: {type(error).__name__}: {error.msg}{text}"
    except (OSError, ValueError, RecursionError, MemoryError):
        return None  # the cell says it
    return None
