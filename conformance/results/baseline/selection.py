"""Find the cells that a run was to run, by the pytest arguments in its header."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conformance.process.errors import display_path
from conformance.results.records.record import Record
from conformance.results.records.record_types import Header
from conformance.results.records.words import base_of

_BY_FIELD = ("--exporter", "--opset", "--runtime", "--precision", "--cases")

_LIMITING = ("-k", "-m", "--deselect", "--ignore", "--ignore-glob", "--changed-since", "--shard", "--lf",
             "--last-failed", "--sw", "--stepwise", "--stepwise-skip", "--nf")  # fmt: skip
"""Options that choose cells in a way that the arguments and a record do not show."""

_WITH_VALUE = (*_BY_FIELD, "-k", "-m", "--deselect", "--ignore", "--ignore-glob", "--changed-since", "--shard",
               "--shard-durations", "-n", "-p", "-o", "-c", "-r", "-W")  # fmt: skip
"""Options that take a value. A word behind any other long option is taken for its value, unless it names tests."""

_TESTS = re.compile(r"(.*/)?conformance([/.].+)?|.*::.*|.*\.py")
"""Words that name tests; pytest's plugins have too many options to know which of them take a value."""


def selection_of(header: Header) -> tuple[Callable[[Record], bool] | None, str | None]:
    """Return ``selected`` of ``compare_runs``, and a line on what cannot be told.

    Both are None for a run of all cells.

    Of a merged run the selections of its parts count together. Where an option such as ``-k`` chose cells in a way
    that a record does not show, nothing is told as vanished, and the line says so.
    """
    shards = header.get("shards")
    runs = [part["flags"] for part in shards] if shards else [(header.get("environment") or {}).get("flags") or []]
    selections = [_of_flags(flags) for flags in runs]
    predicates = [predicate for predicate, _ in selections if predicate is not None]
    notes = [note for _, note in selections if note is not None]
    if len(predicates) < len(selections):
        return None, None  # one part was to run everything
    return (lambda record: any(predicate(record) for predicate in predicates)), (notes[0] if notes else None)


def _of_flags(flags: Sequence[str]) -> tuple[Callable[[Record], bool] | None, str | None]:
    given: dict[str, list[str]] = {}
    words: list[str] = []
    option = ""  # a long option whose value the next word may be
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.partition("=")
        if not flag.startswith("-"):
            if _TESTS.fullmatch(flag) or not option:
                words.append(flag)
            option = ""
        elif flag[:2] in ("-k", "-m") and len(flag) > 2 and flag[1] != "-":
            given.setdefault(flag[:2], []).append(flag[2:])
        elif name in _WITH_VALUE and not equals:
            given.setdefault(name, []).append(next(rest, ""))
            option = ""
        else:
            given.setdefault(name, []).append(value)
            option = flag if flag.startswith("--") and not equals else ""
    limiting = [f"{name} {' '.join(given[name])}".strip() for name in _LIMITING if name in given]
    if not any(posixpath.basename(word.rstrip("/")) == "conformance" for word in words):  # the suite as a whole
        limiting += words
    if limiting:
        note = f"the later run was limited by {', '.join(limiting)}: cells that it lacks are not told as vanished"
        return (lambda record: False), note
    fields = {name.removeprefix("--"): given[name] for name in _BY_FIELD if name in given}
    return ((lambda record: _keeps(fields, record)) if fields else None), None


def _keeps(fields: Mapping[str, Sequence[str]], record: Record) -> bool:
    """Return whether these options keep the record's cell, as they do for a run.

    Of an option given more than once the last value counts, of ``--cases`` all (``conformance.case.plan``).
    """
    for name, values in fields.items():
        if name == "cases":
            if not any(_below(record.source.get("file") or "", value) for value in values):
                return False
            continue
        wanted = {word.strip() for word in values[-1].split(",")}
        value = getattr(record, name)
        have = {str(value), base_of(str(value))} if name == "precision" else {str(value)}
        if value is not None and not have & wanted:
            return False
    return True


def _below(file: str, place: str) -> bool:
    """Return whether ``--cases PLACE`` reads a record's case file.

    Both are given from where pytest was started.
    """
    place = posixpath.normpath(display_path(Path(place)))
    if posixpath.isabs(place) and not posixpath.isabs(file):  # the run was on another host, or from another folder
        parts = place.split("/")
        return any(_is_below(file, "/".join(parts[start:])) for start in range(1, len(parts)))
    return place == "." or _is_below(file, place)


def _is_below(file: str, place: str) -> bool:
    return file == place or file.startswith(f"{place}/")
