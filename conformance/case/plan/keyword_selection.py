"""Select cells by ``-k`` where pytest does not run.

Its expressions are over the words of a cell.
"""

from __future__ import annotations

import ast
import re

from conformance.case.plan.cell import Cell
from conformance.process.errors import UserError

_PART = re.compile(r"\s*(?:([()])|([\w:+.\[\]\\/-]+))")
"""What expressions of pytest's ``-k`` are made of: brackets, and words with the characters of test ids.
https://docs.pytest.org/en/stable/how-to/usage.html#specifying-which-tests-to-run"""
_ALLOWED = (ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Name, ast.Load)


class Words:
    """An expression such as ``asinh and not dynamo``: a word stands for the cells that have it in the id of their
    test or in a tag of their case; capital letters make no difference."""

    def __init__(self, text: str) -> None:
        """Raise UserError for what is no expression; an empty one keeps every cell."""
        self.text = text.strip()
        self._words: list[str] = []
        try:
            tree = ast.parse(self._in_names(self.text) or "w", mode="eval")
        except (SyntaxError, RecursionError, MemoryError):
            tree = None
        if tree is None or not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
            takes = "words with 'and', 'or', 'not' and brackets between them, as in 'asinh and not dynamo'"
            raise UserError(f"-k '{text}' is no expression; it takes {takes}")
        self._code = compile(tree, "-k", "eval")

    def keeps(self, cell: Cell) -> bool:
        names = [name.lower() for name in (f"test_{cell.id}", *cell.case.says.tags)]
        # The code has no other operation than and, or and not, and no other names than these.
        found = {"w": True} | {
            f"w{place}": any(word in name for name in names) for place, word in enumerate(self._words)
        }
        return bool(eval(self._code, {"__builtins__": {}}, found))

    def _in_names(self, text: str) -> str:
        """The expression with ``w0``, ``w1``, ... in place of its words."""
        parts = []
        place = 0
        while place < len(text):
            match = _PART.match(text, place)
            if match is None:
                raise UserError(f"-k '{text}': '{text[place:].strip()[0]}' means nothing there")
            place = match.end()
            word = match[2]
            if word is None or word in ("and", "or", "not"):
                parts.append(match[0].strip())
            else:
                parts.append(f"w{len(self._words)}")
                self._words.append(word.lower())
        return " ".join(parts)
