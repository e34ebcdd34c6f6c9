"""Reading case files: YAML 1.2 to cases, with every mistake reported at its file, line and column."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from conformance.case.files.declaration import Case, Declaration
from conformance.case.files.document import Document, Place, read_document
from conformance.case.files.inconsistencies import inconsistencies
from conformance.case.files.limits import CASES, NAME, PROBLEMS
from conformance.case.files.onnx_interface import filled_in, with_shipped
from conformance.case.files.sampled import FromSamples, sampled
from conformance.process.disk.model_files import walk
from conformance.process.errors import CaseFileError, Problem, UserError, did_you_mean, harness_mistake, shown

CASE_NAME = re.compile(r"[A-Za-z_]\w*")


def case_files(paths: Sequence[Path]) -> list[Path]:
    """Return what is named ``.yaml`` or ``.yml``, in whatever case, at and below ``paths``, sorted, also where links
    lead, and folders there that cannot be looked into, which ``read`` refuses. Raises FileNotFoundError for a path
    that is not there."""
    files: dict[Path, None] = {}
    for path in paths:
        if not os.path.lexists(path):
            raise FileNotFoundError("there is no such case file or folder; --cases PATH says where the cases are")
        files.update(dict.fromkeys(sorted(_below(path)) if path.is_dir() else [path]))
    return list(files)


def no_case_file(folder: Path) -> str:
    """Return the sentence about a folder in which ``case_files`` finds nothing, with what is there."""
    folders, files = 0, 0
    for _, _, names in walk(folder):
        folders, files = folders + 1, files + len(names)
    there = f"{files} file{'s' * (files != 1)} of other names" if files else "no file"
    below = f" and the {folders - 1} folders below it" if folders > 2 else " and the folder below it" * (folders == 2)
    return f"there is no case file (.yaml, .yml) in this folder{below}: {there}"


def _below(folder: Path) -> Iterator[Path]:
    unreadable: list[Path] = []
    for top, folders, names in walk(folder, lambda error: unreadable.append(Path(error.filename))):
        yield from (Path(top, name) for name in (*folders, *names) if name.lower().endswith((".yaml", ".yml")))
    yield from unreadable


def load(file: Path) -> list[Case]:
    """All cases of one file; raises CaseFileError with every problem that the file has."""
    cases, problems = read(file)
    if problems:
        raise CaseFileError(problems)
    return cases


def read(file: Path) -> tuple[list[Case], list[Problem]]:
    """The cases of one file that are sound, and every problem that the file has. Raises nothing for what a file is or
    says, so that no file stops the reading of others."""
    try:
        return _read(file)
    except CaseFileError as error:
        return [], error.problems
    except Exception as error:  # a mistake of ours; it is told as a problem of the file, whose cases are lost
        return [], [Problem(file, 1, 1, harness_mistake("reading this file", error))]


def _read(file: Path) -> tuple[list[Case], list[Problem]]:
    document = read_document(file)
    defaults = document.values.pop("defaults", None) or {}
    if not isinstance(defaults, dict):
        raise CaseFileError([document.problem(("defaults",), "defaults is a mapping, like a case")])
    cases: list[Case] = []
    problems: list[Problem] = []
    for name, said in document.values.items():
        if len(problems) >= PROBLEMS or len(cases) > CASES:
            break
        if not CASE_NAME.fullmatch(str(name)):
            problem = document.problem(
                (name,), f"{shown(name)} is not a case name: a letter, then letters, digits and _"
            )
        elif not isinstance(said, dict):
            problem = document.problem((name,), f"the case {shown(name)} is a mapping with about, inputs, ...")
        else:
            own, wrong = cases_of(name, _merge(defaults, said), document)
            cases += own
            problems += wrong
            continue
        problems.append(problem)
    if not document.values and not problems:
        problems.append(document.problem((), "there is no case in this file"))
    if len(cases) > CASES:
        text = f"a file has at most {CASES:,} cases, where each combination of vary is one; divide it into several"
        raise CaseFileError([Problem(file, cases[CASES].line, 1, text)])
    problems += _repeated_names(cases)
    if len(problems) > PROBLEMS:
        last = problems[PROBLEMS - 1]
        more = Problem(file, last.line, last.column, "there are more mistakes; correct these first")
        problems = [*problems[:PROBLEMS], more]
    return cases, problems


def cases_of(name: str, said: Mapping[str, object], document: Document) -> tuple[list[Case], list[Problem]]:
    """The cases of one declaration, all combinations or none, and what is wrong with it, at the places of the
    document."""
    if said.get("samples") is None:
        return _of_one(name, said, document)
    try:
        samples = TypeAdapter(dict[str, FromSamples]).validate_python({"samples": said["samples"]})["samples"]
        each = [_of_one(name, one, document) for one in sampled(samples, said)]
    except ValidationError as error:
        return [], list(itertools.islice(_explain(error, document, (name,)), PROBLEMS + 1))
    except ValueError as error:
        return [], [document.problem((name, "samples"), str(error))]
    first_wrong = next((wrong for _, wrong in each if wrong), [])  # what is said of all is wrong in all
    return [] if first_wrong else [case for cases, _ in each for case in cases], first_wrong


def _of_one(name: str, said: Mapping[str, object], document: Document) -> tuple[list[Case], list[Problem]]:
    place = (name,)
    fill, where = (filled_in, ("onnx",)) if "onnx" in said else (with_shipped, ("export", "onnx"))
    try:
        said = fill(said, document.file.parent)
    except UserError as error:  # of recorded data
        return [], [document.problem((*place, "recorded"), str(error))]
    except ValueError as error:
        return [], [document.problem((*place, *where), str(error))]
    try:
        declaration = Declaration.model_validate(said)
    except ValidationError as error:
        return [], list(itertools.islice(_explain(error, document, place), PROBLEMS + 1))
    contradictions = itertools.islice(inconsistencies(declaration), PROBLEMS + 1)
    wrong = [document.problem((*place, *where), text) for where, text in contradictions]
    combinations = math.prod(len(options) for options in declaration.vary.values())
    if combinations > CASES:
        text = (
            f"vary has {combinations:,} combinations, each of which is a case with cells of its own; "
            f"a file has at most {CASES:,}. Vary fewer values together, or let a dim draw them"
        )
        wrong.append(document.problem((*place, "vary"), text))
    axes = [_choices(key, options, named=not declaration.samples) for key, options in declaration.vary.items()]
    if len(name.encode()) + sum(1 + max(len(text.encode()) for _, text, _ in axis) for axis in axes) > NAME:
        text = f"has more than the {NAME} bytes of a case's name, with the values of vary"
        wrong.append(document.problem((*place, "vary") if axes else place, f"{shown(name)} {text}"))
    if wrong:
        return [], wrong
    try:
        return list(_vary(name, declaration, axes, document)), []
    except ValueError as error:
        return [], [document.problem((*place, "dims"), str(error))]


def _merge(defaults: object, said: object) -> Any:
    """Merge what the case says into the defaults; null takes a default away."""
    if not (isinstance(defaults, dict) and isinstance(said, dict)):
        return said
    merged = {**defaults, **{key: _merge(defaults.get(key), value) for key, value in said.items()}}
    return {key: value for key, value in merged.items() if not (value is None and key in defaults)}


# ---- from pydantic's errors to problems ------------------------------------------------------------------


def _explain(error: ValidationError, document: Document, case: Place) -> Iterator[Problem]:
    meant: set[Place] = set()  # what unknown keys were most likely meant to be: not reported as missing too
    mistakes = error.errors(include_url=False, include_input=True)
    for mistake in sorted(mistakes, key=lambda mistake: mistake["type"] == "missing"):
        where = tuple(part for part in mistake["loc"] if part != "[key]")
        kind = mistake["type"]
        if kind not in ("extra_forbidden", "missing"):
            # pydantic goes on with which of several types it tried, and into what a shorthand was spelled out to
            where = document.standing((*case, *where))[1:] or where
        key = where[-1] if where else ""
        if kind == "extra_forbidden":
            suggestion = did_you_mean(str(key), _keys_at(where[:-1]))
            outer = [where[:up] for up in range(len(where) - 2, -1, -1) if key in _keys_at(where[:up])]
            if outer and "did you mean" not in suggestion:
                suggestion = f"; it belongs further out, to {'.'.join(map(str, outer[0])) or 'the case'}"
            message = f"unknown key {shown(key)}{suggestion}"
            meant.update((*where[:-1], word) for word in re.findall(r"did you mean '(\w+)'", suggestion))
        elif kind == "missing" and where in meant:
            continue
        elif kind == "missing":
            message = f"the key '{key}' is missing"
            where = where[:-1]
        elif kind == "value_error":
            message = str(mistake["ctx"]["error"])
        elif kind == "too_short":
            message = (
                f"{mistake['ctx']['actual_length']} are given, at least {mistake['ctx']['min_length']} are needed"
            )
        elif kind == "too_long":
            message = f"there are {len(mistake['input']):,}, and at most {mistake['ctx']['max_length']:,} can be"
        else:
            text = re.sub(r" or instance of \w+|, unable to parse .*", "", mistake["msg"])
            for word, plain in _PLAIN:
                text = text.replace(word, plain)
            message = f"{text[0].lower()}{text[1:]}, not {shown(mistake['input'])}"
        if kind not in ("extra_forbidden", "missing"):
            named = next((part for part in reversed(where) if isinstance(part, str)), "")
            message = f"{named}{' ' if message.startswith('has to') else ': '}{message}" if named else message
        yield document.problem((*case, *where), message)


_PLAIN = (
    ("Input should", "has to"), ("a valid dictionary", "a mapping"), ("a valid string", "text"),
    ("a valid integer", "an integer"), ("a valid ", "a "), ("True, False", "true, false"),
)  # fmt: skip
"""pydantic's words, in which a case's input would be meant, and those of a case file."""


def _keys_at(place: Place) -> list[str]:
    """The keys that the schema knows at a place, for suggestions."""
    models: list[type[BaseModel]] = [Declaration]
    for part in place:
        models = [
            inner
            for model in models
            for name, info in getattr(model, "model_fields", {}).items()
            if part in (name, info.alias)
            for inner in _models_in(info.annotation)
        ] or models
    fields = (item for model in models for item in getattr(model, "model_fields", {}).items())
    return [info.alias or name for name, info in fields if name != "call"]


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that a type is made of: those of ``dict[str, Input] | None`` are Input."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)


# ---- vary ------------------------------------------------------------------------------------------------


_Choice = tuple[str, str, object]
"""A key of ``vary``, what names the value, and the value."""


def _vary(name: str, says: Declaration, axes: Sequence[Sequence[_Choice]], document: Document) -> Iterator[Case]:
    """One case for each combination of ``vary``, named after its values."""
    fails, graph = (
        tuple(document.problem((name, key, index), "").line for index in range(len(entries)))
        for key, entries in (("fails", says.fails), ("graph", says.graph))
    )
    line = document.places[(name,)][0]
    for combination in itertools.product(*axes):
        varied = {key: value for key, _, value in combination}
        label = "-".join([name, *(text for _, text, _ in combination)])
        case = Case(label, says, document.file.absolute(), line, varied, fails, graph)
        _ = case.dims  # raises ValueError for a circle in the ranges
        yield case


def _choices(key: str, options: Sequence[object] | Mapping[str, object], *, named: bool) -> list[_Choice]:
    """The choices of a key with their names: ``stride2``, ``shift-1``, ``masked_true``, ``name_vgg11``; values that
    make no name, such as lists, are named by their position. Those of samples say by themselves what they are: unless
    ``named``, the key is left out, as in ``nn.functional.gelu-0``."""
    if not named:
        return [(key, re.sub(r"[^\w.]", "_", f"{value}"), value) for value in options]
    if isinstance(options, Mapping):
        return [(key, f"{key}_{word}", value) for word, value in options.items()]
    return [(key, f"{key}{_label(value, index)}", value) for index, value in enumerate(options)]


def _label(value: object, index: int) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if re.fullmatch(r"-?\d[\w.]*", text):
        return text
    return f"_{text}" if re.fullmatch(r"[\w.]+", text) else f"_{index}"


def _repeated_names(cases: list[Case]) -> Iterator[Problem]:
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            yield Problem(case.file, case.line, 1, f"two combinations of vary are both called '{case.name}'")
        seen.add(case.name)
