"""The commands, one module each: ``arguments`` adds the options to a parser, ``run`` does the work and returns the
exit code.

A command raises UserError or OSError for what the user has to correct.
"""

from __future__ import annotations

import argparse
import re
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.front.option_types import seconds
from conformance.process.disk import DEFAULT_STORE
from conformance.process.errors import Stopped, UserError, did_you_mean, summarize

if TYPE_CHECKING:
    from conformance.process.worker.isolation import OnWait, Worker
    from conformance.results.records.record import Record

TIMEOUT = 600.0
"""Seconds that a question to a worker, or a cell, may take, as in the suite."""


def add_option(parser: argparse.ArgumentParser, name: str, default: object, what: str, **more: Any) -> None:
    """Add an option whose help ends with its default."""
    parser.add_argument(name, default=default, help=f"{what} (default: %(default)s)", **more)


def add_with(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--with", dest="given", action="append", default=[], metavar="KEY=VALUE",
        help="an argument that the module is made with, in YAML; repeatable",
    )  # fmt: skip


def add_store(parser: argparse.ArgumentParser, what: str = "exported models") -> None:
    add_option(parser, "--store", Path(DEFAULT_STORE), what, type=Path, metavar="DIR")


def add_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cases", action="append", type=Path, metavar="PATH", help="case files (default: cases/); repeatable"
    )


def add_cell_timeout(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--cell-timeout", TIMEOUT, "seconds", type=seconds, metavar="S")


def selecting(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """The arguments that select cells: ``paths``, ``words`` (``-k``), and an option for each of the names."""
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="case files or folders (default: cases/)")
    parser.add_argument(
        "-k", dest="words", default="", metavar="EXPR", help="only cells that this selects, as with pytest's -k"
    )
    for name in names:
        parser.add_argument(f"--{name}", metavar="A,B", help=f"only cells of these {name}s")


def pairs(texts: Iterable[str], option: str, names: str = r"\w+", *, empty: bool = False) -> dict[str, str]:
    """Read ``NAME=VALUE`` of an option, whose value may be ``empty``; raise UserError for another text."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (re.fullmatch(names, name) and separator and (value or empty)):
            raise UserError(f"{option} {text}: write NAME=VALUE")
        found[name] = value
    return found


def outputs_of(texts: Sequence[str], formats: Sequence[str]) -> dict[str, Path | None]:
    """Return the reports that ``--output`` asks for by their format, each with its file or None for one that is
    printed."""
    outputs: dict[str, Path | None] = {}
    for text in texts:
        name, separator, file = text.partition("=")
        if name not in formats:
            raise UserError(f"--output {text}: there is no format '{name}'{did_you_mean(name, formats)}")
        if name in outputs or (separator and not file):
            *words, last = (*formats, *(f"{one}=FILE" for one in formats))
            raise UserError(f"--output {text}: write {', '.join(words)} or {last}, each once")
        outputs[name] = Path(file) if file else None
    if [*outputs.values()].count(None) > 1:
        raise UserError("--output: only one report can be printed; write the other into a file, as junit=FILE")
    return outputs


def ask(worker: Worker, question: Callable[..., object], *arguments: object, on_wait: OnWait | None = None) -> Any:
    """Call a function in a worker, and return what it returns; ``on_wait`` gets the worker's notes.

    Raises UserError with what it stopped at, or how its process ended.
    """
    from conformance.process.worker.isolation import Death

    answer = worker.call(_or_refused, question, arguments, timeout=TIMEOUT, on_wait=on_wait)
    if isinstance(answer, Death):
        raise UserError(f"its process ended: {answer.how}")
    if isinstance(answer, UserError):
        raise answer
    return answer


def _or_refused(progress: object, question: Callable[..., object], arguments: tuple[object, ...]) -> Any:
    """The answer, or a UserError in place of Stopped, which cannot be sent to the parent process, and of an exit from
    inside the user's own code, which would end this one without its place."""
    try:
        return question(*arguments)
    except Stopped as stop:
        return UserError(stop.reason)
    except SystemExit as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        return UserError(f"this ends the process: {summarize(error)} ({place})")


def width() -> int:
    """Return the columns that a block may take: those of the terminal, and what is easily read elsewhere."""
    return min(shutil.get_terminal_size((100, 24)).columns - 1, 118)


def outcomes(records: Iterable[Record]) -> Iterator[str]:
    """Yield the verdict of each cell in a line, with why it was not run, and then each finding in a block."""
    from conformance.results.records import known, text

    records = [*records]
    for record in records:
        yield text.verdict(record)
        if record.status == "skipped":
            yield f"  {record.reason}"
            yield from (f"  {line}" for line in known.lines(record))
    yield from blocks(records)


def blocks(records: Iterable[Record]) -> Iterator[str]:
    """Yield the findings of these cells, each in a block below an empty line."""
    from conformance.results.records import finding_block
    from conformance.results.records.findings import findings

    found = findings(records)
    for number, finding in enumerate(found, 1):
        yield ""
        yield from finding_block.lines(finding_block.describe(finding, kept=False), number, len(found), width())
