"""Every text of an error that a user can cause, in one file for reading: ``build/messages.txt``."""

import ast
import re
from collections.abc import Iterator

import pytest

from conformance import HOME
from tests.project.test_docs import ODD_WORDS

pytestmark = pytest.mark.smoke
FILE = HOME.parent / "build" / "messages.txt"
AT = {"UserError": 0, "UsageError": 0, "ArgumentTypeError": 0, "Unavailable": 0, "Stopped": 2, "Problem": 3}
"""What carries such a text, and the place of the text among its arguments; in ``case``, ValueError does too."""
LINES, WORDS = 3, 60
"""Of one text; what it lists at run time comes on top."""


def messages() -> Iterator[tuple[str, str]]:
    """Each text with its place; what is known at run time only stands in braces."""
    for file in sorted(HOME.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        carriers = AT | ({"ValueError": 0} if file.parent.name in ("case", "draw") else {})
        for function in ast.walk(tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
            for node in ast.walk(function):
                name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
                if isinstance(node, ast.Call) and name in carriers and len(node.args) > carriers[name]:
                    place = f"{file.relative_to(HOME)}:{node.lineno}"
                    for text in dict.fromkeys(texts(node.args[carriers[name]], assigned)):
                        yield place, text


def texts(value: ast.expr, assigned: list[ast.Assign]) -> Iterator[str]:
    """What an expression may come to; nothing where no part of it is a text."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
            for part in value.values
            if isinstance(part, (ast.Constant, ast.FormattedValue))
        )
    elif isinstance(value, ast.IfExp):
        yield from (*texts(value.body, assigned), *texts(value.orelse, assigned))
    elif isinstance(value, ast.BinOp):
        yield from (left + right for left in texts(value.left, assigned) for right in texts(value.right, assigned))
    elif isinstance(value, ast.Name):
        for node in assigned:
            if any(isinstance(target, ast.Name) and target.id == value.id for target in node.targets):
                yield from texts(node.value, [one for one in assigned if one is not node])


def test_every_message_is_short_and_plain_and_stands_in_one_file_for_reading():
    found = [*messages()]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(f"{place}: {text}\n" for place, text in found), encoding="utf-8")
    assert len(found) > 350
    assert [one for one in found if one[1].count("\n") >= LINES or len(one[1].split()) > WORDS] == []
    assert [one for one in found if re.search(ODD_WORDS, re.sub(r"\{[^}]*\}", "", one[1]))] == []
