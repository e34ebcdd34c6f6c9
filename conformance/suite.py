"""The suite as a whole: all cells of some case files, and what is wrong with those that have none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from conformance.case import Case
from conformance.casefile import case_files, load, read
from conformance.errors import CaseFileError, Problem, did_you_mean, display_path
from conformance.plan import Cell, Selection, plan, unmatched
from conformance.schema.words import Exporter, Precision, Runtime, base_of


def read_suite(paths: Sequence[Path], selection: Selection) -> tuple[list[Cell], dict[str, CaseFileError | None]]:
    """The selected cells, and each case file by its display path with its error or None.

    A case with a mistake gives no cells and costs no other case its own.
    """
    cells: list[Cell] = []
    files: dict[str, CaseFileError | None] = {}
    first: dict[str, Case] = {}
    for path in paths:
        try:
            found = case_files([path])
        except FileNotFoundError as error:
            files[display_path(path)] = CaseFileError([Problem(path, 1, 1, str(error))])
            continue
        if not found:
            files[str(path)] = CaseFileError([Problem(path, 1, 1, "there is no case file (.yaml) in this folder")])
        for file in found:
            cases, problems = read(file)
            problems += [*unmatched(cases), *_known(cases, first)]
            files[display_path(file)] = CaseFileError(problems) if problems else None
            cases = [first.setdefault(case.name, case) for case in cases if case.name not in first]
            cells += [cell for case in cases for cell in plan(case) if selection.keeps(cell)]
    return cells, files


def _known(cases: Sequence[Case], first: Mapping[str, Case]) -> Iterator[Problem]:
    """Names are unique over all files, or ids and records would be ambiguous."""
    for case in cases:
        if case.name in first:
            text = f"the case '{case.name}' stands in {display_path(first[case.name].file)} too"
            yield Problem(case.file, case.line, 1, text)


def find_case(name: str, paths: Sequence[Path]) -> Case:
    """The case of that name. Raises ValueError for a broken case file or a name that is not known."""
    known: dict[str, Case] = {}
    try:
        for file in case_files(paths):
            known.update((case.name, case) for case in load(file))
    except (CaseFileError, FileNotFoundError) as error:
        raise ValueError(str(error)) from None
    if name not in known:
        within = [one for one in known if name in one]  # a varied case has many names: celu means celu-alpha0.5, ...
        near = f"; did you mean one of {', '.join(within[:8])}?" if within else did_you_mean(name, known)
        raise ValueError(f"there is no case '{name}'{near}")
    return known[name]


def selection(options: Mapping[str, str | None]) -> Selection:
    """From comma-separated options; raises ValueError for a word that is not known."""

    def words(name: str, known: Sequence[str], meant: Callable[[str], str] = str) -> list[str] | None:
        given = options.get(name)
        if given is None:
            return None
        found = [word.strip() for word in given.split(",") if word.strip()]
        for word in found:
            if meant(word) not in known:
                raise ValueError(f"--{name}: there is no '{word}'{did_you_mean(word, known)}")
        if not found:
            raise ValueError(f"--{name} is empty")
        return found

    opsets = options.get("opset")
    try:
        numbers = None if opsets is None else [int(word) for word in opsets.split(",")]
    except ValueError:
        raise ValueError(f"--opset: '{opsets}' is not a list of numbers such as 17,20") from None
    return Selection(
        exporters=words("exporter", get_args(Exporter)),
        opsets=numbers,
        runtimes=words("runtime", get_args(Runtime)),
        precisions=words("precision", get_args(Precision), base_of),
    )
