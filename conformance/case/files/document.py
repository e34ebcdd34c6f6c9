"""A case file as plain values that know where they stand.

The syntax is read by ruamel.yaml. Of YAML 1.2 a case file has mappings, lists and the scalars of the core schema;
tags, anchors, aliases, merges and directives are refused as they are met, before anything is built of them.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError

from conformance.case.files.limits import DEPTH, FILE_KIB, TOKENS
from conformance.process.errors import CaseFileError, Problem, attempt, shown

Place = tuple[str | int, ...]
"""The way from the top of a file to a value: keys and list indices."""


@dataclass
class Document:
    """Plain Python values, and where each of them stands (line and column from 1)."""

    file: Path
    values: dict[Any, Any]
    places: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def problem(self, place: Place, message: str) -> Problem:
        """A problem at ``place``, or at the nearest thing around it that stands in the file. Its message is one line,
        also where it names a key that has a line break in it."""
        stands = self.standing(place)
        return Problem(self.file, *(self.places[stands] if stands else (1, 1)), " ".join(message.splitlines()))

    def standing(self, place: Place) -> Place:
        """The longest part of ``place`` that stands in the file.

        What a case has from the file's defaults stands under ``defaults``.
        """
        while place:
            for start in (place, ("defaults", *place[1:])):
                if start in self.places:
                    return start
            place = place[:-1]
        return ()


def read_document(file: Path) -> Document:
    """The document of a case file; raises CaseFileError where it cannot be read as one."""
    text = _text(file)
    try:
        node = _parse(text)
    except ReaderError as error:  # a character that YAML does not have
        line, column = _line_and_column(text[: error.position])
        message = f"the character U+{error.character:04X} is not allowed in a case file"
        raise _refusal(file, line, column, message) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = re.sub(r"\('(<[\w ]+>)',\)", r"\1", " ".join(str(error.problem or error.context).split()))
        raise _refusal(file, line, column, f"{message}{_hint(text, line, message)}") from None
    if node is None or (isinstance(node, ScalarNode) and _scalar(node) is None):
        raise _refusal(file, 1, 1, "there is no case in this file")
    if not isinstance(node, MappingNode):
        raise _refusal(file, 1, 1, "a case file is a mapping from case names to cases")
    document = Document(file, {})
    problems: list[Problem] = []
    document.values = _plain(node, (), document, problems)
    if problems:
        raise CaseFileError(problems)
    return document


def _refusal(file: Path, line: int, column: int, message: str) -> CaseFileError:
    return CaseFileError([Problem(file, line, column, message)])


# ---- the file ----------------------------------------------------------------------------------------------

_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def _text(file: Path) -> str:
    """The text of a file; what is no file is not opened, since a pipe would be waited for."""
    try:
        mode = file.stat().st_mode
        if stat.S_ISREG(mode):
            with file.open("rb") as stream:
                data = stream.read(FILE_KIB * 1024 + 1)
        elif stat.S_ISDIR(mode):
            next(file.iterdir(), None)  # where the folder may not be read, that is what is wrong
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle, before Python 3.13
        why = error.strerror if isinstance(error, OSError) else "too many levels of symbolic links"
        raise _refusal(file, 1, 1, f"cannot be read: {why}") from None
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise _refusal(file, 1, 1, f"this is {kind}, and no case file")
    if len(data) > FILE_KIB * 1024:
        raise _refusal(file, 1, 1, f"is larger than the {FILE_KIB} KiB of a case file; divide it into several files")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(data[: error.start].decode("utf-8"))
        raise _refusal(file, line, column, f"is not UTF-8 text (byte {error.start})") from None


def _line_and_column(before: str) -> tuple[int, int]:
    """The line and column, from 1, of what follows this text."""
    lines = re.split(r"\r\n|\r|\n", before)
    return len(lines), len(lines[-1]) + 1


# ---- syntax ------------------------------------------------------------------------------------------------


class _Scanner(Scanner):
    """Refuses what a case file does not have, at the token."""

    def fetch_more_tokens(self) -> None:
        failed = attempt(super().fetch_more_tokens)
        if isinstance(failed, MarkedYAMLError | ReaderError):
            raise failed
        if isinstance(failed, Exception):  # on some broken input ruamel fails in its own code; the file is wrong
            why = (str(failed).strip() or type(failed).__name__).splitlines()[0]
            raise self._refusal(f"is not YAML that can be read: {why}")
        if len(self.indents) + self.flow_level > DEPTH:
            raise self._refusal(f"nested deeper than the {DEPTH} levels of a case file")
        if self.tokens_taken > TOKENS:
            text = f"more than the {TOKENS:,} keys, values and brackets of a case file; divide it into several files"
            raise self._refusal(text)

    def fetch_tag(self) -> NoReturn:
        raise self._refusal("tags such as !!map are not allowed in a case file")

    def fetch_anchor(self) -> NoReturn:
        raise self._refusal("anchors such as &name are not allowed; repeat it or use defaults")

    def fetch_alias(self) -> NoReturn:
        raise self._refusal("anchors such as *name are not allowed; repeat it or use defaults")

    def fetch_directive(self) -> NoReturn:
        raise self._refusal("directives such as %YAML are not allowed in a case file")

    def _refusal(self, message: str) -> ScannerError:
        return ScannerError(None, None, message, self.reader.get_mark())


def _parse(text: str) -> Node | None:
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = _Scanner
    node: Node | None = yaml.compose(text)
    return node


def _hint(text: str, line: int, message: str) -> str:
    """Name the likely mistake on a line that YAML refuses."""
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "{" in here and re.search(r":\s*\w+\[", here[:1000]):
        return '; inside { } a type needs quotes: {type: "float32[batch, 3]"}'
    if "\t" in here:
        return "; YAML is indented with spaces, not tabs"
    if "another document" in message:
        return "; a case file is one document"
    if "mapping values are not allowed" in message:
        return '; a text with ": " in it needs quotes'
    return ""


# ---- values ------------------------------------------------------------------------------------------------


def _plain(node: Any, place: Place, document: Document, problems: list[Problem]) -> Any:
    """The node as plain Python, noting where everything stands."""
    if isinstance(node, MappingNode):
        plain: dict[object, object] = {}
        for key_node, value in node.value:
            at = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            try:
                key = _key(key_node)
                if key in plain:
                    raise ValueError(f"the key {shown(key)} stands here again; a key can stand only once")
            except ValueError as error:
                problems.append(Problem(document.file, *at, str(error)))
                continue
            document.places[(*place, key)] = at
            plain[key] = _plain(value, (*place, key), document, problems)
        return plain
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            document.places[(*place, index)] = (item.start_mark.line + 1, item.start_mark.column + 1)
        return [_plain(item, (*place, index), document, problems) for index, item in enumerate(node.value)]
    try:
        return _scalar(node)
    except ValueError as error:
        mark = node.start_mark
        problems.append(Problem(document.file, mark.line + 1, mark.column + 1, str(error)))
        return None


def _key(node: Node) -> str | int:
    if not isinstance(node, ScalarNode):
        raise ValueError(f"a key has to be a word, not {'a list' if isinstance(node, SequenceNode) else 'a mapping'}")
    key = _scalar(node)
    if key == "<<" and node.style is None:
        raise ValueError("<< merges are not allowed; repeat it or use defaults")
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise ValueError(f"a key has to be a word, not {shown(key)}")
    return key


_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(f"{sign}inf") for word in (".inf", ".Inf", ".INF") for sign in ("", "+", "-")},
}
_WHOLE = {10: re.compile(r"[-+]?[0-9]+"), 8: re.compile(r"0o[0-7]+"), 16: re.compile(r"0x[0-9a-fA-F]+")}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _scalar(node: ScalarNode) -> object:
    """Return the value by YAML 1.2's core schema; ValueError for a number or a text that a case cannot use."""
    text: str = node.value
    if node.style is None:
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        for base, pattern in _WHOLE.items():
            if pattern.fullmatch(text):
                number = int(text, base) if len(text) <= 30 else 2**64
                if not -(2**63) <= number < 2**64:
                    raise ValueError(f"the number {text[:20]}... has more than 64 bits")
                return number
        if _FLOAT.fullmatch(text):
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise ValueError(f"the number {shown(text)} is larger than a float64; infinity is written .inf")
            return value
    unprintable = _UNPRINTABLE.search(text)  # an escape such as "\0" is no other way to write it
    if unprintable:
        raise ValueError(f"the text has the character U+{ord(unprintable[0]):04X}, which is not allowed")
    return text
