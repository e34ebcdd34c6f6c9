"""The ways in which things end: a mistake of the user's, above all in a case file, and a cell that stopped."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import importlib.util
import os
import resource
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from conformance import HOME

_T = TypeVar("_T")
_Other = TypeVar("_Other")


def attempt(call: Callable[[], _T]) -> _T | Exception:
    """Call the code of others, and return what it returns or the exception that it raises.

    Modules, exporters, runtimes and packages raise what they like. A mistake in this package is not noticed inside
    the call either, so keep the call small.
    """
    try:
        return call()
    except Exception as error:  # anything at all; nothing is lost, as it is the answer
        return error


def or_else(otherwise: _Other, call: Callable[[], _T]) -> _T | _Other:
    """Return what a call returns, or ``otherwise`` where it raises.

    For what only explains a failure, and must not be another, and for candidates that may be refused.
    """
    result = attempt(call)
    return otherwise if isinstance(result, Exception) else result


def works(call: Callable[[], object]) -> bool:
    """Return whether a call returns, and raises nothing."""
    return not isinstance(attempt(call), Exception)


@contextlib.contextmanager
def noting(note: Callable[[Exception], object]) -> Iterator[None]:
    """Call ``note`` with what is raised inside the block, and let it pass, unless ``note`` raises something else."""
    try:
        yield
    except Exception as error:  # whatever is raised, which goes on to the caller; nothing is lost
        note(error)
        raise


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
    """An option, a name or a file that the user gave cannot be used. Its text, alone, says what to correct.

    Any other ValueError is a mistake in the harness.
    """


class UserTypeError(UserError, TypeError):
    """An argument of a type that cannot be used. Its text, alone, says what to pass instead."""


def has_torch() -> bool:
    """Return whether PyTorch is installed; it is not imported."""
    return or_else(None, lambda: importlib.util.find_spec("torch")) is not None


def require_torch(what: str) -> None:
    """Raise UserError where PyTorch is not installed, with what needs it and the command to type."""
    if not has_torch():
        raise UserError(f"{what} PyTorch, which is not installed: pip install 'onnx-export-conformance[torch]'")


def import_torch(what: str) -> None:
    """Import PyTorch. Raises UserError as ``require_torch`` does, and for one that cannot be imported."""
    require_torch(what)
    error = attempt(lambda: importlib.import_module("torch"))
    if isinstance(error, Exception):  # whatever it raises, as for a library of CUDA that is not there
        why_not = limit_of_shell() or summarize(error)
        raise UserError(f"{what} PyTorch, which is installed and cannot be imported: {why_not}") from error


class CaseFileError(Exception):
    """A case file, or the Python beside it, cannot be used; carries all of its problems at once."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        distinct = dict.fromkeys(problems)  # a mistake in ``defaults`` is one of each case
        self.problems = sorted(distinct, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(str(problem) for problem in self.problems))


Details = TypedDict("Details", {  # noqa: UP013 (a table)
    "inputs": dict[str, str], "witnesses": list[Any], "conclusion": str | None, "parts_at": Any,
    "loss": Mapping[str, float | str] | None, "cause": object, "optimizer": Any, "operator": Any, "smallest": Any,
    "own_code": list[str], "place": Mapping[str, object] | None, "explained": list[Any], "findings": list[str],
    "warnings": list[Any], "hints": list[str], "conditioning": object, "vacuous": Any, "remedy": object,
    "beyond": list[Any], "traceback": list[str], "no_bundle": str, "draw": None, "worst": None, "unexplained": bool,
}, total=False)  # fmt: skip
"""Fields of a record that say more of a failure than its reason does; they decide nothing. ``draw`` and ``worst`` are
there to say that the failure is about no example."""


class Stopped(Exception):
    """A cell stopped at ``stage``; ``error`` is the name that a ``fails`` entry matches.

    Cause: what the user's module, the exporter, a runtime or the comparison did. Remedy: ``reason``
    says what happened and ``fault`` who is to look at it: exporter, runtime, precision, reference, case
    or harness.
    """

    def __init__(
        self, stage: str, error: str, reason: str, fault: str | None = None, details: Details | None = None
    ) -> None:
        super().__init__(shortened(reason))
        self.stage = stage
        self.error = error
        self.reason = shortened(reason)
        self.fault = fault
        self.caused_by: str | None = None
        """The name of the error of others that ``error`` came of, where an exporter only passes it on."""
        self.details: Details = {} if details is None else details
        """Further fields of the record: what is known where it is raised, and what ``results.records.explanation``
        adds."""


class Undecided(Stopped):
    """Nobody can say what is right for one example, as where its inputs break the rules of an operator.

    Cause: what computes the meaning of a file raises for these inputs. Remedy: none is needed, the example gives no
    verdict; where no example does, the cell is skipped with the reason.
    """


@contextlib.contextmanager
def stopping(stage: str, fault: str, say: Callable[[Exception], str], error: str | None = None) -> Iterator[None]:
    """Raise Stopped for what the code of others raises inside the block, with the text that ``say`` makes of it.

    ``error`` stands for the name of its class. Stopped and Unavailable pass as they are.
    """
    try:
        yield
    except (Stopped, Unavailable):
        raise
    except Exception as raised:  # anything at all; its class, its text and itself as the cause are in the Stopped
        raise Stopped(stage, error or type(raised).__name__, say(raised), fault) from raised


def why(error: OSError) -> str:
    """Return what the system says of a file or a folder, in words."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "a file is where a folder has to be"
    return error.strerror or str(error)


_OF_THE_HOST = {
    errno.ENOSPC: "the host's disk is full", errno.EDQUOT: "the quota of the host's disk is used up",
    errno.EROFS: "the host's disk can only be read", errno.EFBIG: "the host allows no larger file",
}  # fmt: skip


def causes(error: BaseException, *, hidden: bool = True) -> Iterator[BaseException]:
    """The exception, what it came of, and so on; ``hidden`` with what ``raise ... from None`` hides."""
    known: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in known:
        known.add(id(cause))
        yield cause
        cause = cause.__cause__ or (cause.__context__ if hidden or not cause.__suppress_context__ else None)


def trouble_of_host(error: BaseException) -> str | None:
    """Return what the host's disk lacks, where the exception came of that, by way of whatever others; None where
    not."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno in _OF_THE_HOST:
            return _OF_THE_HOST[cause.errno]
        if isinstance(cause, FileNotFoundError) and "No usable temporary directory" in text_of(cause):
            return "the host has no folder for temporary files that can be written"
    return None


_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "failed to map segment")
"""Texts of the allocators of torch, of the operating system and of C++, and of the loader of libraries."""


def lacks_memory(error: BaseException) -> bool:
    """Return whether the exception came of an allocation that the host, or the limit of a cell, does not allow."""
    return any(
        isinstance(cause, MemoryError) or any(said in text_of(cause).lower() for said in _NO_MEMORY)
        for cause in causes(error)
    )


_LEAST_ADDRESSES = 8  # GiB


def limit_of_shell() -> str | None:
    """Say that the limit on addresses which this process was started with is below what cells need; None if not.

    PyTorch and the runtimes alone have 3 GiB of addresses on a host without a GPU, and threads take more.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft >= _LEAST_ADDRESSES * 2**30:
        return None
    return (
        f"this shell lets a process have {soft / 2**30:.3g} GiB of addresses, and cells need up to "
        f"{_LEAST_ADDRESSES} GiB: type ulimit -v unlimited, and run this again"
    )


LONGEST = 2000
"""Characters of a reason that a record keeps: whoever raised an exception may have put all of a tensor into it."""


def calls_runtimes(file: Path) -> bool:
    """Return whether a file is of the modules that call runtimes: what is raised there is mostly what one of these
    said. Those that read and change graphs call none."""
    room = HOME / "runtimes"
    return file.is_relative_to(room) and not file.is_relative_to(room / "onnxgraph")


def text_of(error: BaseException) -> str:
    """Return the text of an exception, whatever it does when it is asked for it."""
    text = attempt(lambda: str(error))
    return text if isinstance(text, str) else f"(its text cannot be made: {type(text).__name__})"


def summarize(error: BaseException) -> str:
    """Return the class of an exception with the first line of its text."""
    return f"{type(error).__name__}: {text_of(error)}".splitlines()[0][:300]


def shortened(text: str) -> str:
    """Return the text with at most ``LONGEST`` characters."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


class Unavailable(Exception):
    """Something that this host lacks (a package, a compiler, a GPU): the cell is skipped, with this text."""

    stage: str | None = None
    """The stage at which that was met, where it is known."""


class NoVerdict(Unavailable):
    """Nothing that ran tells right from wrong, here or on any other host: the cell is skipped, with this text."""

    doubted: str | None = None
    """The name of the error of a failure that accuses nobody, where there was one."""


def display_path(path: Path) -> str:
    """The path relative to the working directory where it lies below it, else absolute."""
    try:
        name = Path(os.path.realpath(path)).relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):  # outside of it, or it was deleted
        name = path.as_posix()
    return name.encode("utf-8", "backslashreplace").decode()  # names of files may be no text


_LONGEST_WORD = 60


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'inputs'?"``, or the list of what is known where nothing is near."""
    options = sorted({option for option in known if len(option) <= _LONGEST_WORD})
    near = difflib.get_close_matches(word[: 2 * _LONGEST_WORD], options, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    more = ", ..." if len(options) > 40 else ""
    return f"; known: {', '.join(options[:40])}{more}" if options else ""


def shown(value: object) -> str:
    """A value of a case file as a sentence about it names it: in the words of YAML, and not at length."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        text = " ".join(value.split())
        return f"'{text}'" if len(text) <= _LONGEST_WORD else f"'{text[: _LONGEST_WORD - 3]}...'"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, (int, float)):
        return str(value)
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else type(value).__name__


def harness_mistake(what: str, error: BaseException) -> str:
    """The sentence about an exception that the suite did not expect while it did ``what``, and has to report."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(HOME)] or frames
    where = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    said = " ".join(text_of(error).split())[:200]
    return (
        f"{what} failed inside the suite: {type(error).__name__}{f': {said}' if said else ''}{where}. "
        "This is a mistake in the harness; please report this line with the file"
    )
