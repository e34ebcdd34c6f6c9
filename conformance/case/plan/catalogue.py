"""From cases to cells: which there are, which are selected, and which declarations match none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from conformance.case.files.case_file import case_files, no_case_file, read
from conformance.case.files.declaration import Case
from conformance.case.files.export_keys import TorchScript
from conformance.case.files.limits import CELLS
from conformance.case.plan.cell import Cell
from conformance.case.plan.expected import declared, matches, owed
from conformance.process.errors import (
    CaseFileError,
    Problem,
    UserError,
    did_you_mean,
    display_path,
    harness_mistake,
    require_torch,
)
from conformance.results.records.words import Exporter, Precision, base_of
from conformance.runtimes import registry


def plan(case: Case, asked: Iterable[str] = ()) -> Iterator[Cell]:
    """All cells of a case, those that share an exported model next to one another; ``asked`` are runtimes that it
    gets besides those that it names."""
    file_means = case.says.onnx is not None and registry.EVALUATOR  # which is no runtime to be held against itself
    runtimes = [name for name in dict.fromkeys((*case.says.runtimes, *asked)) if name != file_means]
    specials = any(case.says.takes_specials(name) for name in case.says.inputs)
    for exporter, target in case.says.export.exporters.items():
        registers = isinstance(target, TorchScript) and bool(target.symbolics or target.registers)
        for opset in target.opsets:
            if case.says.recorded is not None:
                running = (name for name in runtimes if name in registry.RUNNING and not registry.named(name).builds)
                yield from (Cell(case, "recorded", exporter, opset, name) for name in running)
                if case.says.recorded.only:
                    continue
            yield Cell(case, "export", exporter, opset)
            if registers:
                yield Cell(case, "registration", exporter, opset)
            for runtime in _at(opset, runtimes, case, exporter) if case.says.own_precision is None else ():
                yield Cell(case, "accuracy", exporter, opset, runtime)
                if case.says.metric is not None:
                    yield Cell(case, "metric", exporter, opset, runtime)
                if registry.named(runtime).builds:
                    yield Cell(case, "engine", exporter, opset, runtime)
                elif specials:
                    yield Cell(case, "specials", exporter, opset, runtime)
                if case.says.steps is not None and not registry.named(runtime).builds:
                    yield Cell(case, "steps", exporter, opset, runtime)
            if case.says.own_precision is None:
                yield from _builds(case, exporter, opset)
            wrong = bool(case.says.precisions) and _known_wrong(case, exporter, opset)
            for precision in case.says.precisions:
                if opset in case.says.converted_opsets(precision, exporter) and not wrong:
                    if precision != case.says.own_precision:  # which costs nothing beside itself
                        yield Cell(case, "fidelity", exporter, opset, None, precision)
                    for runtime in runtimes:  # few models are converted, so TensorRT runs all of them
                        if registry.named(runtime).converted:
                            yield Cell(case, "accuracy", exporter, opset, runtime, precision)
                            if case.says.metric is not None:
                                yield Cell(case, "metric", exporter, opset, runtime, precision)
                            if case.says.steps is not None and not registry.named(runtime).builds:
                                yield Cell(case, "steps", exporter, opset, runtime, precision)
                        if registry.named(runtime).builds:
                            yield Cell(case, "engine", exporter, opset, runtime, precision)
                    yield from _builds(case, exporter, opset, precision)
            yield from _latencies(case, exporter, opset, wrong)
    if case.says.preprocess is not None:  # which no exporter has a part in
        exporter, target = next(reversed(case.says.export.exporters.items()))
        yield Cell(case, "preprocess", exporter, max(target.opsets))


def _builds(case: Case, exporter: Exporter, opset: int, precision: str = "fp32") -> Iterator[Cell]:
    """The cells of TensorRT for RTX, for a case that names it or TensorRT: ``parse`` for each model that TensorRT
    would run, and ``build``, which takes longer, for one in float32; for the others, and for what the parsed network
    means, where a run asks for them."""
    if not any(runtime == registry.RTX or registry.named(runtime).builds for runtime in case.says.runtimes):
        return
    opsets = case.says.tensorrt_opsets(exporter) if precision == "fp32" else [opset]
    if opset == max(opsets, default=None):
        yield Cell(case, "parse", exporter, opset, registry.RTX, precision)
        always = precision == "fp32" and exporter == next(reversed(case.says.export.exporters))
        yield Cell(case, "build", exporter, opset, registry.RTX, precision, on_request=not always)
        yield Cell(case, "meaning", exporter, opset, registry.RTX, precision, on_request=True)


def _latencies(case: Case, exporter: Exporter, opset: int, wrong: bool) -> Iterator[Cell]:
    """The budgets of a model, if its opset is the highest that the runtime or the precision of the budget has."""
    for entry in case.says.latency:
        converted = entry.precision != "fp32"
        if converted:
            opsets = case.says.converted_opsets(entry.precision, exporter)
        elif registry.named(entry.runtime).builds:
            opsets = case.says.tensorrt_opsets(exporter)
        else:
            opsets = case.says.export.exporters[exporter].opsets
        wanted = entry.exporter in (None, exporter) and not (converted and wrong)
        if wanted and opsets and opset == max(opsets):
            yield Cell(case, "latency", exporter, opset, entry.runtime, entry.precision, entry)


def _at(opset: int, runtimes: Iterable[str], case: Case, exporter: Exporter) -> Iterator[str]:
    """TensorRT takes long to build an engine, so that it runs one opset of each exporter unless told otherwise."""
    for runtime in runtimes:
        entry = registry.named(runtime)
        if not entry.only_builds and (not entry.builds or opset in case.says.tensorrt_opsets(exporter)):
            yield runtime


def _known_wrong(case: Case, exporter: Exporter, opset: int) -> bool:
    """Return whether the exported model is declared to be wrong.

    Then no precision of it can be right.

    What counts is what is declared of ONNX Runtime, which also computes what a converted model means.
    """
    in_fp32 = Cell(case, "accuracy", exporter, opset, "onnxruntime")
    return any(
        entry.stage in ("load", "run", "compare")
        and not entry.when.only_some_draws
        and entry.when.host is None  # which cells there are does not depend on the host
        and owed(entry, in_fp32)
        for entry in declared(in_fp32)
    )


@dataclass(frozen=True)
class Selection:
    """Select cells; None keeps all."""

    exporters: Collection[str] | None = None
    opsets: Collection[int] | None = None
    runtimes: Collection[str] | None = None
    precisions: Collection[str] | None = None

    def keeps(self, cell: Cell) -> bool:
        wanted = (
            (self.exporters, cell.exporter),
            (self.opsets, cell.opset),
            (self.runtimes, cell.runtime),
        )
        if cell.on_request and cell.runtime not in (self.runtimes or ()):
            return False
        precise = self.precisions is None or bool({cell.precision, base_of(cell.precision)} & {*self.precisions})
        return precise and all(kept is None or value is None or value in kept for kept, value in wanted)


def unmatched(cases: Iterable[Case]) -> list[Problem]:
    """Entries of ``fails`` and ``graph`` that are about no cell of any of the cases: a typo, or out of date."""
    hits: dict[tuple[Path, str, int], bool] = {}
    names: dict[tuple[Path, str, int], str] = {}
    for case in cases:
        cells = list(plan(case))
        graphs = [cell for cell in cells if cell.check == "export"]
        entries = [
            ("fails", line, any(matches(entry.when, cell) and owed(entry, cell) for cell in cells))
            for entry, line in zip(case.says.fails, case.fails_lines, strict=True)
        ]
        entries += [
            ("graph", line, any(matches(entry.when, cell) for cell in graphs))
            for entry, line in zip(case.says.graph, case.graph_lines, strict=True)
        ]
        for key, line, hit in entries:
            place = (case.file, key, line)
            hits[place] = hits.get(place, False) or hit
            names[place] = case.name.split("-")[0]
    return [
        Problem(file, line, 1, f"this entry of {key} matches no cell of {names[file, key, line]}")
        for (file, key, line), hit in hits.items()
        if not hit
    ]


ReadFile = Callable[[Path], tuple[Sequence[Cell], Sequence[Problem]]]
"""Gives all cells of a case file, and everything that is wrong with it. Raises nothing for what the file says."""


def read_suite(
    paths: Sequence[Path], selection: Selection, read_one: ReadFile | None = None
) -> tuple[list[Cell], dict[str, CaseFileError | None]]:
    """The selected cells, and each case file by its display path with its error or None.

    A case with a mistake gives no cells; the other cases keep theirs. A runtime that is selected and that no case
    names is one of all cases, unless it builds engines, for which cases say how. ``read_one`` stands in for
    ``read_file``, for who has read some of the files before.
    """
    cells: list[Cell] = []
    files: dict[str, CaseFileError | None] = {}
    first: dict[str, Case] = {}
    for path in paths:
        try:
            case_paths = case_files([path])
        except FileNotFoundError as error:
            files[display_path(path)] = CaseFileError([Problem(path, 1, 1, str(error))])
            continue
        if not case_paths:
            files[str(path)] = CaseFileError([Problem(path, 1, 1, no_case_file(path))])
        for file in case_paths:
            name = display_path(file)
            if name in files:  # by another of the paths, or a link
                continue
            own, wrong = (read_one or read_file)(file)
            cases: dict[str, Case] = {}
            for cell in own:
                cases.setdefault(cell.case.name, cell.case)
            problems = [*wrong, *_known(cases.values(), first)]
            files[name] = CaseFileError(problems) if problems else None
            for case in cases.values():
                first.setdefault(case.name, case)
            cells += [cell for cell in own if first[cell.case.name] is cell.case and selection.keeps(cell)]
    runnable = {name for name in registry.RUNNING if not registry.named(name).builds}
    named = {name for case in first.values() for name in case.says.runtimes}
    asked = runnable.intersection(selection.runtimes or ()) - named
    return (_with(sorted(asked), first.values(), selection, files) if asked else cells), files


def _with(
    asked: Sequence[str], cases: Iterable[Case], selection: Selection, files: dict[str, CaseFileError | None]
) -> list[Cell]:
    """The selected cells of cases that get these runtimes too; a file of which these are too many has that error."""
    cells: list[Cell] = []
    for file, of_file in itertools.groupby(cases, key=lambda case: case.file):
        try:
            cells += [cell for cell in cells_of(file, of_file, asked) if selection.keeps(cell)]
        except CaseFileError as error:
            files[display_path(file)] = error
    return cells


def read_file(file: Path) -> tuple[list[Cell], list[Problem]]:
    """The cells of one file, and everything that is wrong with it; a ``ReadFile``."""
    cases, problems = read(file)
    try:
        cells = cells_of(file, cases)
        return cells, [*problems, *unmatched(cases)]
    except CaseFileError as error:
        return [], [*problems, *error.problems]
    except Exception as error:  # a mistake of ours; it is told as a problem of the file, whose cells are lost
        return [], [*problems, Problem(file, 1, 1, harness_mistake("planning the cells of this file", error))]


def read_at_opsets(opsets: Collection[int], file: Path) -> tuple[list[Cell], list[Problem]]:
    """Read a file with cells of TensorRT and of the precisions at these opsets, where its cases have others or none;
    a ``ReadFile``. An older TensorRT, which knows older opsets alone, is such a reason."""
    cases, problems = read(file)
    return cells_of(file, [_at_opsets(case, opsets) for case in cases]), list(problems)


def _at_opsets(case: Case, opsets: Collection[int]) -> Case:
    says, listed = case.says, sorted(opsets)
    precisions = {name: settings.model_copy(update={"opsets": listed}) for name, settings in says.precisions.items()}
    tensorrt = says.tensorrt.model_copy(update={"opsets": listed})
    return replace(case, says=says.model_copy(update={"precisions": precisions, "tensorrt": tensorrt}))


def cells_of(file: Path, cases: Iterable[Case], asked: Iterable[str] = ()) -> list[Cell]:
    """All cells of the cases of one file, ``asked`` as in ``plan``; raises CaseFileError where there are more than a
    file may have."""
    cells = list(itertools.islice((cell for case in cases for cell in plan(case, asked)), CELLS + 1))
    if len(cells) > CELLS:
        text = (
            f"a file has at most {CELLS:,} cells (cases with the combinations of vary, times exporters, opsets, "
            "runtimes and precisions), which are reached here; divide it into several, or vary less"
        )
        raise CaseFileError([Problem(file, cells[CELLS].case.line, 1, text)])
    return cells


def _known(cases: Iterable[Case], first: Mapping[str, Case]) -> Iterator[Problem]:
    """Names are unique over all files, or ids and records would be ambiguous."""
    for case in cases:
        if case.name in first:
            text = f"the case '{case.name}' stands in {display_path(first[case.name].file)} too"
            yield Problem(case.file, case.line, 1, text)


def refuse_without_torch(cells: Iterable[Cell]) -> None:
    """Raise UserError where PyTorch is not installed and one of these cells is about a module."""
    names = {cell.case.name: None for cell in cells if cell.case.says.onnx is None}
    if names:
        one, *more = names
        require_torch(f"{one} and {len(more)} other cases have modules and need" if more else f"the case {one} needs")


def find_case(name: str, paths: Sequence[Path]) -> Case:
    """The case of that name; what is wrong with others does not count. Raises UserError for a name that is not
    known."""
    known: dict[str, Case] = {}
    problems: list[Problem] = []
    try:
        for file in case_files(paths):
            cases, wrong = read(file)
            known.update((case.name, case) for case in cases)
            problems += wrong
    except FileNotFoundError as error:
        raise UserError(str(error)) from None
    if name not in known and problems:
        raise UserError(f"{CaseFileError(problems)}\nthere is no case '{name}' in what can be read")
    if name not in known:
        within = [full for full in known if name in full]  # varied cases have long names, such as celu-alpha0.5
        near = f"; did you mean one of {', '.join(within[:8])}?" if within else did_you_mean(name, known)
        raise UserError(f"there is no case '{name}'{near}")
    return known[name]


def selection(options: Mapping[str, str | None]) -> Selection:
    """From comma-separated options; raises UserError for a word that is not known."""

    def words(name: str, known: Sequence[str], meant: Callable[[str], str] = str) -> list[str] | None:
        given = options.get(name)
        if given is None:
            return None
        chosen = [word.strip() for word in given.split(",") if word.strip()]
        for word in chosen:
            if meant(word) not in known:
                why = registry.LEFT_OUT.get(word, f"there is no '{word}'{did_you_mean(word, known)}")
                raise UserError(f"--{name}: {why}")
        if not chosen:
            raise UserError(f"--{name} is empty")
        return chosen

    opsets = options.get("opset")
    try:
        numbers = None if opsets is None else [int(word) for word in opsets.split(",")]
    except ValueError:
        raise UserError(f"--opset: '{opsets}' is not a list of numbers such as 17,20") from None
    return Selection(
        exporters=words("exporter", get_args(Exporter)),
        opsets=numbers,
        runtimes=words("runtime", registry.IN_CASES),
        precisions=words("precision", get_args(Precision), base_of),
    )
