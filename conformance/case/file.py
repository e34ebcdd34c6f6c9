"""Reading case files: YAML 1.2 to cases, with every mistake reported at its file, line and column."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from conformance.case.declaration import Case, Declaration
from conformance.errors import CaseFileError, Problem, did_you_mean

Place = tuple[str | int, ...]
"""The way from the top of a file to a value: keys and list indices."""


def case_files(paths: Sequence[Path]) -> list[Path]:
    """The ``.yaml`` files at and below ``paths``, sorted; raises FileNotFoundError for a path that is not there."""
    files: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError("there is no such case file or folder; --cases PATH says where the cases are")
        inside = [path] if path.is_file() else sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")])
        files.update(dict.fromkeys(inside))
    return list(files)


def load(file: Path) -> list[Case]:
    """All cases of one file; raises CaseFileError with every problem that the file has."""
    cases, problems = read(file)
    if problems:
        raise CaseFileError(problems)
    return cases


def read(file: Path) -> tuple[list[Case], list[Problem]]:
    """The cases of one file that are sound, and every problem that the file has."""
    try:
        document = _read(file)
    except CaseFileError as error:
        return [], error.problems
    problems: list[Problem] = []
    defaults = document.values.pop("defaults", None) or {}
    if not isinstance(defaults, dict):
        return [], [document.problem(("defaults",), "defaults is a mapping, like a case")]
    cases: list[Case] = []
    for name, said in document.values.items():
        place = (name,)
        if not re.fullmatch(r"[A-Za-z_]\w*", str(name)):
            problems.append(document.problem(place, f"'{name}' is not a case name: letters, digits and _"))
            continue
        if not isinstance(said, dict):
            problems.append(document.problem(place, f"the case '{name}' is a mapping with about, inputs, ..."))
            continue
        merged = _merge(defaults, said)
        try:
            declaration = Declaration.model_validate(merged)
        except ValidationError as error:
            problems += _explain(error, document, place)
            continue
        except RecursionError:
            problems.append(document.problem(place, "nested too deeply"))
            continue
        wrong = [document.problem((*place, *where), text) for where, text in declaration.inconsistencies()]
        if not wrong:
            try:
                cases += list(_vary(name, declaration, document))  # all of them or none
            except ValueError as error:
                wrong.append(document.problem((*place, "dims"), str(error)))
        problems += wrong
    if not document.values and not problems:
        problems.append(document.problem((), "there is no case in this file"))
    problems += _repeated_names(cases)
    return cases, problems


# ---- YAML --------------------------------------------------------------------------------------------


@dataclass
class _Document:
    """Plain Python values, and where each of them stands (line and column from 1)."""

    file: Path
    values: dict[Any, Any]
    places: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def problem(self, place: Place, message: str) -> Problem:
        """A problem at ``place``, or at the nearest thing around it that stands in the file.

        What a case has from the file's defaults stands under ``defaults``.
        """
        for start in (place, ("defaults", *place[1:])):
            if start in self.places:
                return Problem(self.file, *self.places[start], message)
        if not place:
            return Problem(self.file, 1, 1, message)
        return self.problem(place[:-1], message)


def _read(file: Path) -> _Document:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.tokens import TagToken

    def refuse(line: int, column: int, message: str) -> CaseFileError:
        return CaseFileError([Problem(file, line, column, message)])

    try:
        text = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise refuse(1, 1, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise refuse(1, 1, f"is not UTF-8 text (byte {error.start})") from None
    try:
        for token in YAML().scan(text) if "!!" in text else ():
            if isinstance(token, TagToken):  # the tree has no trace of a tag that changes nothing, as !!map
                mark = token.start_mark
                raise refuse(mark.line + 1, mark.column + 1, "tags such as !!map are not allowed in a case file")
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = " ".join(str(error.problem or error.context).split())
        raise refuse(line, column, f"{message}{_hint(text, line, message)}") from None
    except (YAMLError, ValueError, RecursionError, TypeError, AttributeError, KeyError, IndexError) as error:
        # On some broken input ruamel raises such errors of its own code; the mistake is in the file.
        line = _line_of(error)
        reason = "nested too deeply" if isinstance(error, RecursionError) else _first_line(error)
        raise refuse(line, 1, f"is not YAML that can be read: {reason}") from None
    if tree is None:
        raise refuse(1, 1, "there is no case in this file")
    if not isinstance(tree, dict):
        raise refuse(1, 1, "a case file is a mapping from case names to cases")
    document = _Document(file, {})
    problems: list[Problem] = []
    document.values = _plain(tree, (), document, problems)
    if problems:
        raise CaseFileError(problems)
    return document


def _plain(node: Any, place: Place, document: _Document, problems: list[Problem]) -> Any:
    """The node as plain Python, noting where everything stands; anchors, merges and tags are problems."""
    from ruamel.yaml.comments import CommentedBase, CommentedMap, CommentedSeq, TaggedScalar
    from ruamel.yaml.scalarbool import ScalarBoolean

    if isinstance(node, CommentedBase) and not isinstance(node, TaggedScalar):
        document.places.setdefault(place, (node.lc.line + 1, node.lc.col + 1))
    tag = getattr(getattr(node, "tag", None), "value", None)
    if tag is not None or isinstance(node, TaggedScalar):
        problems.append(document.problem(place, f"tags such as {tag} are not allowed in a case file"))
        return None
    if getattr(node, "anchor", None) is not None and getattr(node.anchor, "value", None):
        problems.append(
            document.problem(
                place, f"anchors such as &{node.anchor.value} are not allowed; repeat it or use defaults"
            )
        )
        return None
    if isinstance(node, CommentedMap):
        if getattr(node, "merge", None):
            problems.append(document.problem(place, "<< merges are not allowed; repeat it or use defaults"))
            return None
        plain = {}
        for key in node:
            line, column = node.lc.key(key)
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                problems.append(Problem(document.file, line + 1, column + 1, f"a key has to be a word, not {key}"))
                continue
            document.places[(*place, key)] = (line + 1, column + 1)
            plain[_scalar(key)] = _plain(node[key], (*place, key), document, problems)
        return plain
    if isinstance(node, CommentedSeq):
        for index in range(len(node)):
            line, column = node.lc.item(index)
            document.places[(*place, index)] = (line + 1, column + 1)
        return [_plain(item, (*place, index), document, problems) for index, item in enumerate(node)]
    return bool(node) if isinstance(node, ScalarBoolean) else _scalar(node)


def _scalar(value: Any) -> Any:
    """ruamel's subclasses of int, float and str, which remember how they were written, as plain values."""
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    return value if value is None else str(value)


def _hint(text: str, line: int, message: str) -> str:
    """What most likely went wrong on a line that YAML refuses, for mistakes that are common."""
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "{" in here and re.search(r":\s*\w+\[", here):
        return '; inside { } a type needs quotes: {type: "float32[batch, 3]"}'
    if "\t" in here:
        return "; YAML is indented with spaces, not tabs"
    if "duplicate key" in message:
        return "; a key can stand only once"
    if "mapping values are not allowed" in message:
        return '; a text with ": " in it needs quotes'
    return ""


def _line_of(error: BaseException) -> int:
    match = re.search(r"line (\d+)", str(error))
    return int(match[1]) if match else 1


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _merge(defaults: Any, said: Any) -> Any:
    """What the case says on top of the defaults; mappings are merged, and null takes a default away."""
    if not (isinstance(defaults, dict) and isinstance(said, dict)):
        return said
    merged = {**defaults, **{key: _merge(defaults.get(key), value) for key, value in said.items()}}
    return {key: value for key, value in merged.items() if not (value is None and key in defaults)}


# ---- from pydantic's errors to problems ------------------------------------------------------------------


def _explain(error: ValidationError, document: _Document, case: Place) -> Iterator[Problem]:
    meant: set[Place] = set()  # what unknown keys were most likely meant to be: not reported as missing too
    for mistake in sorted(error.errors(include_url=False), key=lambda mistake: mistake["type"] == "missing"):
        where = tuple(part for part in mistake["loc"] if part != "[key]")
        key, kind = (where[-1] if where else ""), mistake["type"]
        if kind == "extra_forbidden":
            suggestion = did_you_mean(str(key), _keys_at(where[:-1]))
            message = f"unknown key '{key}'{suggestion}"
            meant.update((*where[:-1], word) for word in re.findall(r"did you mean '(\w+)'", suggestion))
        elif kind == "missing" and where in meant:
            continue
        elif kind == "missing":
            message = f"the key '{key}' is missing"
            where = where[:-1]
        elif kind == "value_error":
            message = str(mistake["ctx"]["error"])
        else:
            text, shown = mistake["msg"], repr(mistake["input"])
            message = f"{text[0].lower()}{text[1:]}, not {shown if len(shown) <= 60 else shown[:57] + '...'}"
        if kind not in ("extra_forbidden", "missing"):
            named = next((part for part in reversed(where) if isinstance(part, str)), "")
            message = f"{named}: {message}" if named else message
        yield document.problem((*case, *where), message)


def _keys_at(place: Place) -> list[str]:
    """The keys that the schema knows at a place, for suggestions."""
    models: list[Any] = [Declaration]
    for part in place:
        models = [
            inner
            for model in models
            for name, info in getattr(model, "model_fields", {}).items()
            if part in (name, info.alias)
            for inner in _models_in(info.annotation)
        ] or models
    return [info.alias or name for model in models for name, info in getattr(model, "model_fields", {}).items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a type is made of: those of ``dict[str, Input] | None`` are Input."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)


# ---- vary ------------------------------------------------------------------------------------------------


def _vary(name: str, says: Declaration, document: _Document) -> Iterator[Case]:
    """One case for each combination of ``vary``, named after its values."""
    axes = [_choices(key, options) for key, options in says.vary.items()]
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


def _choices(key: str, options: list[Any] | dict[str, Any]) -> list[tuple[str, str, Any]]:
    """(key, what names the choice, value): ``stride2``, ``shift-1``, ``masked_true``, ``name_vgg11``; values that
    make no name, such as lists, are named by their position."""
    if isinstance(options, dict):
        return [(key, f"{key}_{word}", value) for word, value in options.items()]
    return [(key, f"{key}{_label(value, index)}", value) for index, value in enumerate(options)]


def _label(value: Any, index: int) -> str:
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
