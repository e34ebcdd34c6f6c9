"""Text from others, made harmless to look at: what it contains is shown, and does nothing.

Cases, paths, exceptions, models, records, baselines and bundles bring text along. Data keeps it as it is; whoever
shows it passes it through one of these functions: ``tell`` prints a line, ``literal`` makes one, ``one_line`` is for
sentences, ``block`` for text of several lines, ``command_line`` for what is to be copied into a shell. ``shorten``
lists the first of many lines.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters except tab and newline, ANSI escapes among them; marks that reorder text or are not seen; halves
of surrogate pairs, which UTF-8 cannot hold."""

_COMMAND = re.compile(r"^(?P<space>[^\S\n]*):(?=:)|#(?=#\w*\[)", re.MULTILINE)
"""What makes a line of a log a command to a CI service: ``::name`` at its start, also after spaces, for GitHub;
``##[name]``, ``##vso[name]`` and ``##teamcity[name]`` anywhere in it for GitHub, Azure Pipelines and TeamCity.
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands
https://www.jetbrains.com/help/teamcity/service-messages.html"""

_EXACT = 2**53
"""JavaScript's numbers cannot tell all integers above this apart."""


def visible(text: str) -> str:
    """``text`` with characters that act, or are not seen, written out: ``␛`` for an escape, ``<U+202E>`` for others,
    ``<U+003A>:error`` for the start of a command to a CI service.

    Newlines and tabs stay; ``one_line`` makes spaces of them, and ``literal`` writes them out.
    """
    if text.isascii() and text.isprintable() and "::" not in text and "##" not in text:
        return text  # as nearly all texts of a run are, of which there are dozens in each record
    return _COMMAND.sub(_not_a_command, _ACTIVE.sub(_written_out, text))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of control characters
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def _not_a_command(match: re.Match[str]) -> str:
    return f"{match['space'] or ''}<U+{ord(match[0][-1]):04X}>"


def literal(text: object, most: int = 0) -> str:
    """``visible`` text on one line, of at most ``most`` characters (0: of any length). No other character is lost:
    newlines and tabs are written out too."""
    return _at_most(most, visible(str(text).replace("\n", "␊").replace("\t", "␉")))


def shorten(lines: Sequence[str], most: int, more: str = "  and {} more", head: str = "") -> Iterator[str]:
    """Yield the first of some lines, if there are any below a heading, and how many ``more`` there are."""
    if head and lines:
        yield head
    yield from lines[:most]
    if len(lines) > most:
        yield more.format(len(lines) - most)


def one_line(text: object, most: int = 0) -> str:
    """``visible`` text on one line, of at most ``most`` characters (0: of any length); None becomes empty."""
    line = visible(" ".join(_ACTIVE.sub(_written_out, "" if text is None else str(text)).split()))
    return _at_most(most, line)


def _at_most(most: int, line: str) -> str:
    return f"{line[: most - 1]}…" if most and len(line) > most else line


def block(text: object) -> str:
    """``visible`` text whose lines are indented from the second on, so that none passes for a line of ours."""
    return visible(str(text)).replace("\n", "\n    ")


def fenced(text: str, language: str = "text") -> Iterator[str]:
    """Yield the lines of a block of ``visible`` text in Markdown; its fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    yield f"{fence}{language}"
    yield visible(text)
    yield fence


def tell(line: object, file: TextIO | None = None) -> None:
    """Print one line: its ``literal`` text, with what the stream's encoding lacks as ``\\u2713``."""
    stream = file or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(literal(line).encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def rule(stream: TextIO | None = None) -> str:
    """Return the sign of which a rule is made in a stream, whose encoding may lack the better one."""
    try:
        "─".encode(getattr(stream or sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "-"
    return "─"


def command_line(words: Iterable[str]) -> str:
    """A command of these words for a shell, on one line that is ``literal`` already.

    Words with characters that act or are not seen are in ``$'...'``, which bash, zsh, ksh and POSIX of 2024 know.
    """
    return " ".join(shlex.quote(word) if literal(word) == word else _escaped(word) for word in words)


def _escaped(word: str) -> str:
    try:
        data = word.encode("utf-8", "surrogateescape")  # bytes of a file's name that are no UTF-8
    except UnicodeEncodeError:
        data = word.encode("utf-8", "surrogatepass")
    plain = {*b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 @%+=,./_-"}
    return "$'" + "".join(chr(byte) if byte in plain else f"\\{byte:03o}" for byte in data) + "'"


def cleaned(value: object) -> Any:
    """Plain data with every text in it ``visible``; numbers that JSON or JavaScript would change become text."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    return value
